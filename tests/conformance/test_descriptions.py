"""What brokers tell about the cluster, topics and producers."""

import time
import uuid
from typing import Any

import pytest

from tests.conformance.target import Target, topic_id, until
from tests.testing.raw import RawClient, make_batch

UNKNOWN_TOPIC, INVALID_TOPIC, NOT_LEADER, INVALID_REQUEST, UNKNOWN_TOPIC_ID = 3, 17, 6, 42, 100
UNKNOWN_SERVER_ERROR = -1
MISMATCHED_ENDPOINT_TYPE, BAD_ENDPOINT_TYPE = 114, 115
COORDINATOR_LOADS = 14
NO_ID = uuid.UUID(int=0)
NOT_ASKED_FOR = -(2**31)
ALL_TOPIC_OPERATIONS, ALL_CLUSTER_OPERATIONS = 0b1101_1111_1000, 0b1_1111_1010_0000
BROKERS, CONTROLLERS = 1, 2


@pytest.mark.parametrize("version", range(14))
def test_metadata_in_every_version(cluster: Target, client: RawClient, untouched: str, version: int) -> None:
    """Brokers, the topic with its partitions, and an unknown topic beside it."""
    name = untouched
    answer = client.ask("Metadata", version, topics=[{"name": name}, {"name": "nobody-made-it"}])
    host, port = cluster.bootstrap.split(":")
    (broker,) = answer["brokers"]
    assert (broker["node_id"], broker["host"], broker["port"], broker.get("rack")) == (1, host, int(port), None)
    topics = {topic["name"]: topic for topic in answer["topics"]}
    assert {name: topic["error_code"] for name, topic in topics.items()} == {name: 0, "nobody-made-it": UNKNOWN_TOPIC}
    assert topics["nobody-made-it"]["partitions"] == []
    assert topics[name].get("is_internal", False) is False
    for index, partition in enumerate(sorted(topics[name]["partitions"], key=lambda one: one["partition_index"])):
        assert (partition["error_code"], partition["partition_index"], partition["leader_id"]) == (0, index, 1)
        assert (partition["replica_nodes"], partition["isr_nodes"]) == ([1], [1])
        assert (partition.get("leader_epoch", 0), partition.get("offline_replicas", [])) == (0, [])
    if version >= 1:
        assert answer["controller_id"] == 1
    if version >= 2:
        assert answer["cluster_id"]
    if version >= 8:
        assert topics[name]["topic_authorized_operations"] == NOT_ASKED_FOR


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_metadata_that_names_a_topic_in_a_wrong_way(untouched: str, client: RawClient, version: int) -> None:
    """No IDs and no null before version 12, and never neither: each topic of the request has the error (KIP-516)."""
    known = topic_id(client, untouched)
    by_id, by_both = {"name": None, "topic_id": known}, {"name": untouched, "topic_id": known}
    wrong, error = [[{"name": None}]], UNKNOWN_SERVER_ERROR
    if version < 12:
        wrong, error = [[{"name": None}], [by_id], [by_both], [{"name": untouched}, by_id]], INVALID_REQUEST
    for topics in wrong:
        answer = client.ask("Metadata", version, topics=topics, allow_auto_topic_creation=False)
        told = [(one["name"], one["topic_id"], one["error_code"], one["partitions"]) for one in answer["topics"]]
        assert told == [(one["name"] or "", one.get("topic_id", NO_ID), error, []) for one in topics]
        assert (answer["brokers"], answer["controller_id"], answer["cluster_id"]) == ([], -1, None)


def test_metadata_by_id_ignores_names(untouched: str, client: RawClient) -> None:
    """Where a request has any ID; and nobody is told twice."""
    known, stranger = topic_id(client, untouched), uuid.uuid4()
    for topics, found in (
        ([{"name": None, "topic_id": known}, {"name": "nobody-made-it"}], [(untouched, known, 0)]),
        ([{"name": untouched, "topic_id": stranger}], [(None, stranger, UNKNOWN_TOPIC_ID)]),
        ([{"name": None, "topic_id": known}] * 2, [(untouched, known, 0)]),
        ([{"name": untouched}] * 2, [(untouched, known, 0)]),
    ):
        answers = client.ask("Metadata", 12, topics=topics, allow_auto_topic_creation=False)["topics"]
        assert [(one["name"], one["topic_id"], one["error_code"]) for one in answers] == found


def test_all_topics_or_none(client: RawClient, name: str) -> None:
    """Null asks for all, as an empty list did in version 0; an empty list asks for none."""
    for version, topics, all_of_them in (
        (0, [], True),
        (1, None, True),
        (12, None, True),
        (1, [], False),
        (12, [], False),
    ):
        found = {topic["name"] for topic in client.ask("Metadata", version, topics=topics)["topics"]}
        assert (name in found) if all_of_them else (found == set())


@pytest.mark.parametrize("name", ["a b", "a" * 250, "..", ""])
def test_metadata_of_an_impossible_topic(client: RawClient, name: str) -> None:
    """Error 17, so that no client waits for it to appear."""
    (found,) = client.ask("Metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False)["topics"]
    assert (found["error_code"], found["name"]) == (INVALID_TOPIC, name)


def test_operations_that_are_allowed(client: RawClient, name: str) -> None:
    """All, where nobody is refused anything; only if asked for."""
    body = {"topics": [{"name": name}], "include_topic_authorized_operations": True}
    (found,) = client.ask("Metadata", 12, **body)["topics"]
    assert found["topic_authorized_operations"] == ALL_TOPIC_OPERATIONS
    for api, version, more in (("Metadata", 10, {"topics": []}), ("DescribeCluster", 1, {})):
        answer = client.ask(api, version, include_cluster_authorized_operations=True, **more)
        assert answer["cluster_authorized_operations"] == ALL_CLUSTER_OPERATIONS


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_cluster_is_described(cluster: Target, client: RawClient, version: int) -> None:
    """Its ID is that of the metadata."""
    answer = client.ask("DescribeCluster", version)
    host, port = cluster.bootstrap.split(":")
    (broker,) = answer["brokers"]
    assert (answer["error_code"], answer["controller_id"]) == (0, 1)
    assert (broker["broker_id"], broker["host"], broker["port"], broker["rack"]) == (1, host, int(port), None)
    assert answer["cluster_id"] == client.ask("Metadata", 12, topics=[])["cluster_id"]
    assert answer["cluster_authorized_operations"] == NOT_ASKED_FOR
    assert version < 1 or answer["endpoint_type"] == BROKERS
    assert version < 2 or broker["is_fenced"] is False


@pytest.mark.parametrize(("kind", "error"), [(CONTROLLERS, MISMATCHED_ENDPOINT_TYPE), (7, BAD_ENDPOINT_TYPE)])
def test_brokers_tell_of_brokers_only(client: RawClient, kind: int, error: int) -> None:
    """Controllers have listeners of their own."""
    answer = client.ask("DescribeCluster", 1, endpoint_type=kind)
    assert (answer["error_code"], answer["brokers"]) == (error, [])


def pages(client: RawClient, **body: Any) -> tuple[list[tuple[str, int, list[int]]], Any]:
    """Name, error code and partitions of each topic, and the cursor."""
    answer = client.ask("DescribeTopicPartitions", 0, **{"topics": [], "response_partition_limit": 2000, **body})
    topics = [(t["name"], t["error_code"], [p["partition_index"] for p in t["partitions"]]) for t in answer["topics"]]
    return topics, answer["next_cursor"]


def test_topics_are_described_page_by_page(cluster: Target, client: RawClient) -> None:
    """Topics by name, at most so many partitions in an answer, and a cursor to go on from."""
    first, second = sorted((cluster.topic(3), cluster.topic(3)))
    both = [{"name": second}, {"name": first}]
    everything = [(first, 0, [0, 1, 2]), (second, 0, [0, 1, 2])]
    assert pages(client, topics=both) == (everything, None)
    found, cursor = pages(client, topics=both, response_partition_limit=2)
    assert (found, cursor) == ([(first, 0, [0, 1])], {"topic_name": first, "partition_index": 2})
    assert pages(client, topics=both, cursor=cursor) == ([(first, 0, [2]), (second, 0, [0, 1, 2])], None)
    limited = pages(client, topics=both, cursor=cursor, response_partition_limit=1)
    assert limited == ([(first, 0, [2])], {"topic_name": second, "partition_index": 0})
    assert pages(client, topics=both, response_partition_limit=0)[0] == [(first, 0, [0])]
    assert pages(client, topics=[{"name": second}], cursor=cursor) == ([(second, 42, [])], None)
    mixed = [{"name": "nobody-made-it"}, {"name": first}]
    assert sorted(pages(client, topics=mixed)[0]) == [(first, 0, [0, 1, 2]), ("nobody-made-it", UNKNOWN_TOPIC, [])]


def test_a_partition_is_described(client: RawClient, name: str) -> None:
    """Leader, epoch and replicas; without eligible leader replicas while all are in sync."""
    body = {"topics": [{"name": name}], "response_partition_limit": 10}
    (topic,) = client.ask("DescribeTopicPartitions", 0, **body)["topics"]
    (partition,) = topic["partitions"]
    assert (topic["topic_id"], topic["is_internal"]) == (topic_id(client, name), False)
    assert topic["topic_authorized_operations"] == ALL_TOPIC_OPERATIONS
    assert (partition["error_code"], partition["leader_id"], partition["leader_epoch"]) == (0, 1, 0)
    assert (partition["replica_nodes"], partition["isr_nodes"], partition["offline_replicas"]) == ([1], [1], [])
    assert (partition["eligible_leader_replicas"], partition["last_known_elr"]) == ([], [])


def producers(client: RawClient, topic: str, index: int = 0) -> tuple[int, list[dict[str, Any]]]:
    """Error code and the active producers."""
    answer = client.ask("DescribeProducers", 0, topics=[{"name": topic, "partition_indexes": [index]}])
    (found,) = answer["topics"][0]["partitions"]
    assert found["partition_index"] == index
    return found["error_code"], sorted(found["active_producers"], key=lambda one: one["producer_id"])


def test_producers_are_described(client: RawClient, name: str) -> None:
    """Epoch, last sequence, newest timestamp; no transaction."""
    now = int(time.time() * 1000)
    for producer, epoch, sequence in ((7, 3, 2**31 - 1), (8, 0, 5)):
        batch = make_batch([b"a", b"b"], producer_id=producer, epoch=epoch, sequence=sequence, timestamp=now)
        assert client.produce(name, batch)["error_code"] == 0
    error, found = producers(client, name)
    keys = ("producer_id", "producer_epoch", "last_sequence", "last_timestamp")
    assert error == 0
    assert [tuple(one[key] for key in keys) for one in found] == [(7, 3, 0, now + 1), (8, 0, 6, now + 1)]
    assert {(one["coordinator_epoch"], one["current_txn_start_offset"]) for one in found} == {(-1, -1)}


@pytest.mark.parametrize(
    ("name", "index", "error"),
    [("", 0, INVALID_TOPIC), ("a b", 0, INVALID_TOPIC), ("nobody-made-it", 0, UNKNOWN_TOPIC), (None, 1, UNKNOWN_TOPIC)],
)
def test_error_codes_of_producers(cluster: Target, client: RawClient, name: str | None, index: int, error: int) -> None:
    """Topics and partitions that are not there."""
    assert producers(client, cluster.topic() if name is None else name, index) == (error, [])


def test_every_replica_describes_its_producers(cluster3: Target) -> None:
    """A follower says what it knows itself; a broker without a replica answers with error 6."""
    everywhere, once = cluster3.topic(replication=3), cluster3.topic()
    leaders = [cluster3.leader(name)[0] for name in (everywhere, once)]
    with cluster3.connect(leaders[0]) as client:
        batch = make_batch([b"a"], producer_id=7, epoch=0, sequence=0)
        assert client.produce(everywhere, batch)["error_code"] == 0
    for broker in cluster3.brokers:
        with cluster3.connect(broker) as client:
            error, found = producers(client, everywhere)
            assert (error, [one["producer_id"] for one in found]) == (0, [7])
            assert producers(client, once) == (0 if broker == leaders[1] else NOT_LEADER, [])


@pytest.mark.parametrize("version", range(6))
def test_producer_ids_are_new(client: RawClient, version: int) -> None:
    """Each call gives another one, with epoch 0, whatever ID an idempotent client had before."""

    def new(**known: int) -> int:
        body = {"transactional_id": None, "transaction_timeout_ms": 60_000, **known}
        # A broker that has just started has to get a range of IDs first, and clients ask again.
        answer = until(
            lambda: not_loading(client.ask("InitProducerId", version, **body)), "the broker has producer IDs to give"
        )
        assert (answer["error_code"], answer["producer_epoch"]) == (0, 0)
        assert isinstance(answer["producer_id"], int)
        return answer["producer_id"]

    first, second = new(), new()
    third = new(producer_id=first, producer_epoch=3) if version >= 3 else new()
    assert len({first, second, third}) == 3


def not_loading(answer: dict[str, Any]) -> dict[str, Any]:
    return {} if answer["error_code"] == COORDINATOR_LOADS else answer
