"""Changes of topics and configs over the protocol, by raw requests and by confluent_kafka's admin client."""

import time
import uuid
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
)

from safeproducer.testing import FakeCluster
from tests.testing.raw import RawClient, make_batch

RETAIN = "producer.state.batches.to.retain"
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def alter(
    client: RawClient, kind: int, name: str, *changes: tuple[str, int, str | None], validate: bool = False
) -> tuple[int, str | None]:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resources = [{"resource_type": kind, "resource_name": name, "configs": configs}]
    (answer,) = client.ask("IncrementalAlterConfigs", 1, resources=resources, validate_only=validate)["responses"]
    return answer["error_code"], answer["error_message"]


def describe(client: RawClient, kind: int, name: str) -> dict[str, tuple[str | None, int]]:
    resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
    (result,) = client.ask("DescribeConfigs", 4, resources=resources)["results"]
    return {config["name"]: (config["value"], config["config_source"]) for config in result["configs"]}


def produce_some(client: RawClient, *sequences: int) -> list[int]:
    batches = [make_batch([b"v"], producer_id=7, epoch=0, sequence=number) for number in sequences]
    return [client.produce("t", batch)["error_code"] for batch in batches]


# ---- configs


def test_a_changed_window_acts_at_once(cluster: FakeCluster) -> None:
    """KIP-1269 over the protocol: 20 batches back is a duplicate, and after lowering to 5 it is out of order."""
    cluster.create_topic("t")
    with RawClient(cluster.bootstrap) as client:
        assert alter(client, TOPIC, "t", (RETAIN, SET, "20"))[0] == 0
        assert set(produce_some(client, *range(1, 21))) == {0}
        assert produce_some(client, 1) == [0]
        assert alter(client, TOPIC, "t", (RETAIN, DELETE, None))[0] == 0
        assert produce_some(client, 1, 15, 16) == [45, 45, 0]


@pytest.mark.parametrize(("kind", "name", "key"), [(TOPIC, "t", RETAIN), (BROKER, "1", "log." + RETAIN)])
def test_less_than_five_is_refused(cluster: FakeCluster, kind: int, name: str, key: str) -> None:
    """The minimum of KIP-1269, for topics and brokers; what was set before stays."""
    cluster.create_topic("t")
    with RawClient(cluster.bootstrap) as client:
        assert alter(client, kind, name, (key, SET, "5"))[0] == 0
        error, text = alter(client, kind, name, (key, SET, "4"))
        assert error == (40 if kind == TOPIC else 42)
        assert text is not None
        assert "below the minimum of 5" in text
        assert describe(client, kind, name)[key][0] == "5"


def test_a_smaller_message_limit_acts_at_once(cluster: FakeCluster) -> None:
    """`max.message.bytes` of the topic, of the broker, and of all brokers, the nearest wins."""
    cluster.create_topic("t")
    large = make_batch([b"x" * 500])
    with RawClient(cluster.bootstrap) as client:
        for kind, name, key, limit, error in (
            (BROKER, "", "message.max.bytes", "300", 10),
            (BROKER, "1", "message.max.bytes", "900", 0),
            (TOPIC, "t", "max.message.bytes", "300", 10),
        ):
            assert alter(client, kind, name, (key, SET, limit))[0] == 0
            assert client.produce("t", large)["error_code"] == error
        assert describe(client, TOPIC, "t")["max.message.bytes"] == ("300", 1)
        assert describe(client, BROKER, "1")["message.max.bytes"] == ("900", 2)
        assert describe(client, BROKER, "") == {"message.max.bytes": ("300", 3)}
    with RawClient(cluster.bootstrap, 2) as other:
        assert describe(other, BROKER, "2")["message.max.bytes"] == ("300", 3)


def test_retention_deletes_what_is_old(cluster: FakeCluster) -> None:
    """Batches older than `retention.ms` go from the start of the log; earliest and fetches begin behind them."""
    cluster.create_topic("t", config={"retention.ms": "-1"})
    now = int(time.time() * 1000)
    with RawClient(cluster.bootstrap) as client:
        for timestamp in (now - 60_000, now - 60_000, now):
            client.produce("t", make_batch([b"a", b"b"], timestamp=timestamp))
        assert cluster.apply_retention() == 0
        assert alter(client, TOPIC, "t", ("retention.ms", SET, "30000"))[0] == 0
        assert cluster.apply_retention() == 2
        assert [record.offset for record in cluster.log("t")] == [4, 5]
        assert offset(client, -2) == 4
        assert fetch(client, 3)["error_code"] == 1
        assert fetch(client, 4)["log_start_offset"] == 4
        assert alter(client, TOPIC, "t", ("retention.bytes", SET, "0"))[0] == 0
        assert cluster.apply_retention() == 1
        assert (offset(client, -2), offset(client, -1)) == (6, 6)
        assert client.produce("t", make_batch([b"c"]))["log_start_offset"] == 6


def offset(client: RawClient, timestamp: int) -> int:
    partitions = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}]
    answer = client.ask("ListOffsets", 7, replica_id=-1, topics=[{"name": "t", "partitions": partitions}])
    found: int = answer["topics"][0]["partitions"][0]["offset"]
    return found


def fetch(client: RawClient, at: int) -> dict[str, Any]:
    partitions = [{"partition": 0, "fetch_offset": at, "partition_max_bytes": 1000}]
    answer = client.ask("Fetch", 12, max_bytes=1000, topics=[{"topic": "t", "partitions": partitions}])
    found: dict[str, Any] = answer["responses"][0]["partitions"][0]
    return found


@pytest.mark.parametrize(
    ("kind", "name", "changes", "error"),
    [
        (TOPIC, "unknown", [("retention.ms", SET, "1")], 3),
        (TOPIC, "", [("retention.ms", SET, "1")], 42),
        (TOPIC, "t", [("no.such", SET, "1")], 40),
        (TOPIC, "t", [("no.such", DELETE, None)], 0),
        (TOPIC, "t", [("retention.ms", SET, "x")], 40),
        (TOPIC, "t", [("max.message.bytes", SET, "-5")], 40),
        (TOPIC, "t", [("retention.ms", SET, None)], 42),
        (TOPIC, "t", [("retention.ms", APPEND, "5")], 40),
        (TOPIC, "t", [("cleanup.policy", SUBTRACT, "compact")], 0),
        (TOPIC, "t", [("retention.ms", 7, "5")], -1),
        (TOPIC, "t", [("retention.ms", SET, "5"), ("retention.ms", SET, "6")], 42),
        (TOPIC, "t", [], 0),
        (BROKER, "2", [("message.max.bytes", SET, "9")], 42),
        (BROKER, "x", [("message.max.bytes", SET, "9")], 42),
        (BROKER, "1", [("no.such", SET, "9")], 0),
        (BROKER, "1", [("auto.create.topics.enable", SET, "false")], 42),
        (BROKER, "1", [("message.max.bytes", SET, "x")], 42),
        (9, "t", [("a", SET, "b")], 42),
    ],
)
def test_error_codes_of_config_changes(
    cluster: FakeCluster, kind: int, name: str, changes: list[tuple[str, int, str | None]], error: int
) -> None:
    """Those that a Kafka 4.4.0 broker answered to the same requests; a refused change changes nothing."""
    cluster.create_topic("t")
    with RawClient(cluster.bootstrap) as client:
        before = describe(client, TOPIC, "t"), describe(client, BROKER, "1")
        assert alter(client, kind, name, *changes)[0] == error
        if error:
            assert (describe(client, TOPIC, "t"), describe(client, BROKER, "1")) == before


def test_validate_only_and_repeated_resources_change_nothing(cluster: FakeCluster) -> None:
    """A rehearsal succeeds without effect; a resource named twice is refused twice."""
    cluster.create_topic("t")
    with RawClient(cluster.bootstrap) as client:
        assert alter(client, TOPIC, "t", (RETAIN, SET, "9"), validate=True)[0] == 0
        configs = [{"name": RETAIN, "config_operation": SET, "value": "9"}]
        twice = [{"resource_type": TOPIC, "resource_name": "t", "configs": configs}] * 2
        answers = client.ask("IncrementalAlterConfigs", 0, resources=twice)["responses"]
        assert [answer["error_code"] for answer in answers] == [42, 42]
        assert describe(client, TOPIC, "t")[RETAIN] == ("5", 5)


def test_an_old_controller_knows_no_window(cluster: FakeCluster) -> None:
    """An old controller refuses the topic's config, an old broker stores its own unseen and describes it empty."""
    cluster.create_topic("t")
    cluster.set_kip_1269(1, False)
    with RawClient(cluster.bootstrap) as client:
        assert alter(client, TOPIC, "t", (RETAIN, SET, "20"))[0] == 40
        topics = [{"name": "new", "num_partitions": 1, "replication_factor": 1}]
        configs = [{"name": RETAIN, "value": "20"}]
        (made,) = client.ask("CreateTopics", 7, topics=[{**topics[0], "configs": configs}])["topics"]
        assert made["error_code"] == 40
        assert alter(client, BROKER, "1", ("log." + RETAIN, SET, "20"))[0] == 0
        assert describe(client, BROKER, "1")["log." + RETAIN][0] is None
        cluster.set_kip_1269(1, True)
        assert describe(client, BROKER, "1")["log." + RETAIN] == ("20", 2)


def test_the_admin_client_changes_configs_and_partitions(cluster: FakeCluster) -> None:
    """IncrementalAlterConfigs, CreatePartitions and DeleteTopics by librdkafka."""
    cluster.create_topic("t", 2)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    entry = ConfigEntry(RETAIN, "20", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", "t", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(5)
    admin.create_partitions([NewPartitions("t", 5)])["t"].result(5)
    assert len(admin.list_topics("t", timeout=5).topics["t"].partitions) == 5
    with RawClient(cluster.bootstrap) as client:
        assert describe(client, TOPIC, "t")[RETAIN] == ("20", 1)
    admin.delete_topics(["t"])["t"].result(5)
    with pytest.raises(ValueError, match="there is no 't'"):
        cluster.log("t")


# ---- topics


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"name": "unknown", "count": 3}, 3),
        ({"name": "t", "count": 2}, 37),
        ({"name": "t", "count": 0}, 37),
        ({"name": "t", "count": 2**31 - 1}, 37),
        ({"name": "t", "count": 4, "assignments": [{"broker_ids": [1, 2, 3]}]}, 39),
        ({"name": "t", "count": 3, "assignments": [{"broker_ids": [1, 2, 99]}]}, 39),
        ({"name": "t", "count": 3, "assignments": [{"broker_ids": [1, 2, 2]}]}, 39),
        ({"name": "t", "count": 3, "assignments": [{"broker_ids": [1]}]}, 39),
        ({"name": "t", "count": 3, "assignments": [{"broker_ids": [3, 1, 2]}]}, 0),
        ({"name": "t", "count": 4}, 0),
    ],
)
def test_create_partitions(cluster: FakeCluster, wanted: dict[str, Any], error: int) -> None:
    """What is refused, with Kafka's codes, and what is not; a rehearsal makes none."""
    cluster.create_topic("t", 2)
    with RawClient(cluster.bootstrap) as client:
        for rehearsal, expected in ((True, 2), (False, 2 if error else wanted["count"])):
            topics = [{"assignments": None, **wanted}]
            (answer,) = client.ask("CreatePartitions", 3, topics=topics, validate_only=rehearsal)["results"]
            assert answer["error_code"] == error
            assert len(client.ask("Metadata", 12, topics=[{"name": "t"}])["topics"][0]["partitions"]) == expected
    if "assignments" in wanted and not error:
        assert cluster.leader("t", 2) == (3, 0)


def test_delete_topics_by_name_and_by_id(cluster: FakeCluster) -> None:
    """Both ways, with Kafka's codes for what is wrong; produce then finds neither the name nor the ID."""
    for name in ("a", "b", "c"):
        cluster.create_topic(name)
    with RawClient(cluster.bootstrap) as client:
        ids = {t["name"]: t["topic_id"] for t in client.ask("Metadata", 13, topics=None)["topics"]}
        wanted = [
            {"name": "a"},
            {"name": None, "topic_id": ids["b"]},
            {"name": "unknown"},
            {"name": None, "topic_id": uuid.uuid4()},
            {"name": "c", "topic_id": ids["c"]},
            {"name": None},
        ]
        answers = client.ask("DeleteTopics", 6, topics=wanted)["responses"]
        assert [answer["error_code"] for answer in answers] == [0, 0, 3, 100, 42, 42]
        assert [answer["name"] for answer in answers[:2]] == ["a", "b"]
        twice = client.ask("DeleteTopics", 5, topic_names=["c", "c"])["responses"]
        assert [answer["error_code"] for answer in twice] == [42]
        assert [topic["name"] for topic in client.ask("Metadata", 12, topics=None)["topics"]] == ["c"]
        assert client.produce("a", make_batch([b"a"]))["error_code"] == 3
        data = [{"topic_id": ids["b"], "partition_data": [{"index": 0, "records": make_batch([b"a"])}]}]
        (gone,) = client.ask("Produce", 13, acks=-1, topic_data=data)["responses"]
        assert gone["partition_responses"][0]["error_code"] == 100


def test_a_topic_made_again_is_another_one(cluster: FakeCluster) -> None:
    """The new topic has a new ID, no records, and remembers no producer."""
    cluster.create_topic("t")
    with RawClient(cluster.bootstrap) as client:
        assert produce_some(client, 0, 1) == [0, 0]
        client.ask("DeleteTopics", 6, topics=[{"name": "t"}])
        cluster.create_topic("t")
        assert cluster.log("t") == []
        assert produce_some(client, 1) == [0]
        assert len(cluster.log("t")) == 1


def test_describe_topic_partitions_page_by_page(cluster: FakeCluster) -> None:
    """Topics by name, at most so many partitions in an answer, and a cursor to go on from."""
    cluster.create_topic("u", 1)
    cluster.create_topic("t", 3)

    def ask(client: RawClient, **body: Any) -> tuple[list[tuple[str, int, list[int]]], Any]:
        answer = client.ask("DescribeTopicPartitions", 0, **{"topics": [], **body})
        topics = [
            (t["name"], t["error_code"], [p["partition_index"] for p in t["partitions"]]) for t in answer["topics"]
        ]
        return topics, answer["next_cursor"]

    with RawClient(cluster.bootstrap) as client:
        assert ask(client) == ([("t", 0, [0, 1, 2]), ("u", 0, [0])], None)
        found, cursor = ask(client, response_partition_limit=2)
        assert (found, cursor) == ([("t", 0, [0, 1])], {"topic_name": "t", "partition_index": 2})
        assert ask(client, cursor=cursor) == ([("t", 0, [2]), ("u", 0, [0])], None)
        assert ask(client, response_partition_limit=3)[1] == {"topic_name": "u", "partition_index": 0}
        assert ask(client, response_partition_limit=0)[0] == [("t", 0, [0])]
        names = [{"name": "unknown"}, {"name": "t"}]
        assert ask(client, topics=names) == ([("t", 0, [0, 1, 2]), ("unknown", 3, [])], None)
        assert ask(client, topics=[{"name": "u"}], cursor=cursor)[0] == [("u", 42, [])]
        cluster.stop(3)
        (topic,) = client.ask("DescribeTopicPartitions", 0, topics=[{"name": "u"}])["topics"]
        assert (topic["partitions"][0]["isr_nodes"], topic["partitions"][0]["offline_replicas"]) == ([1, 2], [3])


def test_where_a_leader_epoch_ended(cluster: FakeCluster) -> None:
    """OffsetForLeaderEpoch finds the end of each epoch that wrote; a wrong current epoch is fenced or unknown."""
    cluster.create_topic("t")

    def ask(client: RawClient, epoch: int, current: int = -1) -> tuple[int, int, int]:
        partitions = [{"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}]
        answer = client.ask("OffsetForLeaderEpoch", 4, topics=[{"topic": "t", "partitions": partitions}])
        (found,) = answer["topics"][0]["partitions"]
        return found["error_code"], found["leader_epoch"], found["end_offset"]

    with RawClient(cluster.bootstrap) as client:
        client.produce("t", make_batch([b"a", b"b"]))
        assert [ask(client, epoch) for epoch in (0, 1, -1)] == [(0, 0, 2), (0, -1, -1), (0, -1, -1)]
        cluster.move_leader("t", to=2)
        cluster.move_leader("t", to=1)
        client.produce("t", make_batch([b"c"]))
        # Nothing was written at epoch 1, so nobody remembers it.
        assert [ask(client, epoch) for epoch in (0, 1, 2)] == [(0, 0, 2), (0, 0, 2), (0, 2, 3)]
        assert [ask(client, 0, current)[0] for current in (1, 2, 3)] == [74, 0, 75]
