"""Changes of topics and configs over the protocol, by raw requests and by confluent_kafka's admin client."""

import time
import uuid

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from safeproducer.testing import FakeCluster
from tests.conformance.target import fetch, list_offsets, part
from tests.conformance.test_configs import BROKER, SET, TOPIC, alter, altered, value
from tests.testing.raw import RawClient, make_batch

RETAIN = "producer.state.batches.to.retain"


# ---- configs


@pytest.mark.parametrize(("kind", "name", "key"), [(TOPIC, "t", RETAIN), (BROKER, "1", "log." + RETAIN)])
def test_less_than_five_is_refused(cluster: FakeCluster, kind: int, name: str, key: str, client: RawClient) -> None:
    """The minimum of KIP-1269, for topics and brokers; what was set before stays."""
    assert alter(client, kind, name, (key, SET, "5")) == 0
    answer = altered(client, kind, name, (key, SET, "4"))
    assert answer["error_code"] == (40 if kind == TOPIC else 42)
    assert "below the minimum of 5" in answer["error_message"]
    assert value(client, kind, name, key)[0] == "5"


def test_a_smaller_message_limit_acts_at_once(cluster: FakeCluster, client: RawClient) -> None:
    """Of the topic, of the broker, and of all brokers: the nearest wins."""
    large = make_batch([b"x" * 500])
    for kind, name, key, limit, error in (
        (BROKER, "", "message.max.bytes", "300", 10),
        (BROKER, "1", "message.max.bytes", "900", 0),
        (TOPIC, "t", "max.message.bytes", "300", 10),
    ):
        assert alter(client, kind, name, (key, SET, limit)) == 0
        assert client.produce("t", large)["error_code"] == error
    with RawClient(cluster.bootstrap, 2) as other:
        assert value(other, BROKER, "2", "message.max.bytes") == ("300", 3)


def test_retention_deletes_what_is_old(cluster: FakeCluster) -> None:
    """Batches older than `retention.ms` go from the start of the log; earliest and fetches begin behind them."""
    cluster.create_topic("t", config={"retention.ms": "-1"})
    now = int(time.time() * 1000)
    with RawClient(cluster.bootstrap) as client:
        for timestamp in (now - 60_000, now - 60_000, now):
            client.produce("t", make_batch([b"a", b"b"], timestamp=timestamp))
        assert cluster.apply_retention() == 0
        assert alter(client, TOPIC, "t", ("retention.ms", SET, "30000")) == 0
        assert cluster.apply_retention() == 2
        assert [record.offset for record in cluster.log("t")] == [4, 5]
        assert list_offsets(client, "t", -2)["offset"] == 4
        assert part(fetch(client, 12, "t", 3))["error_code"] == 1
        assert part(fetch(client, 12, "t", 4))["log_start_offset"] == 4
        assert alter(client, TOPIC, "t", ("retention.bytes", SET, "0")) == 0
        assert cluster.apply_retention() == 1
        assert [list_offsets(client, "t", end)["offset"] for end in (-2, -1)] == [6, 6]
        assert client.produce("t", make_batch([b"c"]))["log_start_offset"] == 6


def test_an_old_controller_knows_no_window(cluster: FakeCluster, client: RawClient) -> None:
    """An old controller refuses the topic's config, an old broker stores its own unseen and describes it empty."""
    cluster.set_kip_1269(1, False)
    assert alter(client, TOPIC, "t", (RETAIN, SET, "20")) == 40
    topics = [
        {"name": "new", "num_partitions": 1, "replication_factor": 1, "configs": [{"name": RETAIN, "value": "20"}]}
    ]
    (made,) = client.ask("CreateTopics", 7, topics=topics)["topics"]
    assert made["error_code"] == 40
    assert alter(client, BROKER, "1", ("log." + RETAIN, SET, "20")) == 0
    assert value(client, BROKER, "1", "log." + RETAIN)[0] is None
    cluster.set_kip_1269(1, True)
    assert value(client, BROKER, "1", "log." + RETAIN) == ("20", 2)


def test_leaders_and_followers_are_spread_as_by_kafka(cluster: FakeCluster) -> None:
    """Topics begin at one broker after the other, partitions go round, and at each round followers stand one further.

    Partitions that are added go on, and a topic that is made when a broker is away has none there.
    """
    for number in range(4):
        cluster.create_topic(f"t{number}", replication_factor=2)
    assert [cluster.leader(f"t{number}")[0] for number in range(4)] == [1, 2, 3, 1]
    cluster.reset()
    cluster.create_topic("first", 7, replication_factor=2)
    cluster.create_topic("second", 2)
    with RawClient(cluster.bootstrap) as client:
        assert replicas(client, "first") == [[1, 2], [2, 3], [3, 1], [1, 3], [2, 1], [3, 2], [1, 2]]
        assert replicas(client, "second") == [[2, 3, 1], [3, 1, 2]]
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_partitions([NewPartitions("second", 4)])["second"].result(5)
        assert [found[0] for found in replicas(client, "second")] == [2, 3, 1, 2]
        cluster.stop(2)
        cluster.create_topic("third", 4)
        assert replicas(client, "third") == [[1, 3], [3, 1], [1, 3], [3, 1]]


def replicas(client: RawClient, topic: str) -> list[list[int]]:
    asked = [{"topic_id": uuid.UUID(int=0), "name": topic}]
    found = client.ask("Metadata", 12, topics=asked)["topics"][0]["partitions"]
    return [partition["replica_nodes"] for partition in sorted(found, key=lambda one: one["partition_index"])]
