"""What FakeCluster says to requests that no well-behaved client sends, and to those few clients send."""

import struct
import uuid

import pytest

from safeproducer.testing import FakeCluster
from safeproducer.testing.wire import api_name, encode_request, versions
from tests.testing.raw import RawClient, hung_up, make_batch

RETAIN = "producer.state.batches.to.retain"


# What a Kafka 4.4.0 broker answers to ApiVersions, without what FakeCluster does not serve.
KAFKA_4_4 = {
    "ApiVersions": (0, 5),
    "CreatePartitions": (0, 3),
    "CreateTopics": (2, 7),
    "DeleteTopics": (1, 6),
    "DescribeCluster": (0, 2),
    "DescribeConfigs": (1, 4),
    "DescribeProducers": (0, 0),
    "DescribeTopicPartitions": (0, 0),
    "Fetch": (4, 18),
    "FindCoordinator": (0, 6),
    "IncrementalAlterConfigs": (0, 1),
    "InitProducerId": (0, 5),
    "ListOffsets": (1, 11),
    "Metadata": (0, 13),
    "OffsetForLeaderEpoch": (2, 4),
    "Produce": (0, 13),
}


@pytest.mark.parametrize("known", [True, False])
def test_the_versions_of_kafka_4_4_are_advertised(cluster: FakeCluster, known: bool) -> None:
    """And one more of Produce by a broker that knows KIP-1269. Every API listed above is there."""
    cluster.set_kip_1269(1, known)
    with RawClient(cluster.bootstrap) as client:
        keys = client.ask("ApiVersions", 4, client_software_name="raw", client_software_version="1")["api_keys"]
    found = {api_name(key["api_key"]): (key["min_version"], key["max_version"]) for key in keys}
    expected = {**KAFKA_4_4, "Produce": (0, 14)} if known else KAFKA_4_4
    assert {api: found[api] for api in expected} == expected


@pytest.mark.parametrize("api", KAFKA_4_4)
def test_every_version_is_answered(cluster: FakeCluster, api: str) -> None:
    """An empty request of each advertised version gets an answer that can be read, and leaves no byte over."""
    first, last = max(KAFKA_4_4[api][0], versions(api)[0]), KAFKA_4_4[api][1]
    with RawClient(cluster.bootstrap) as client:
        for version in range(first, last + 1):
            client.ask(api, version, key_type=0, transactional_id=None, acks=1)
    assert {entry.outcome for entry in cluster.journal()} == {"answered"}


def test_a_too_new_apiversions_is_answered_in_version_0(cluster: FakeCluster) -> None:
    """As KIP-511 wants it: error 35 and the versions there are, on a connection that stays."""
    with RawClient(cluster.bootstrap) as client:
        client.send(struct.pack(">hhih", 18, 99, 5, -1) + b"\0whatever")
        answer = client.receive()
        assert struct.unpack_from(">ih", answer) == (5, 35)
        assert client.ask("Metadata", 12, topics=None)["topics"] == []
    assert cluster.journal("ApiVersions")[0].outcome == "unsupported"


@pytest.mark.parametrize(("api", "version"), [("SyncGroup", 5), ("Produce", 99), ("AddPartitionsToTxn", 3)])
def test_an_unsupported_request_closes_the_connection(cluster: FakeCluster, api: str, version: int) -> None:
    """And the journal names it."""
    frame = bytearray(encode_request(api, min(version, versions(api)[1]), 1, "raw", {}))
    struct.pack_into(">h", frame, 2, version)
    with RawClient(cluster.bootstrap) as client, hung_up():
        client.send(bytes(frame))
        client.receive()
    (entry,) = cluster.journal()
    assert (entry.outcome, entry.api, entry.version) == ("unsupported", api, version)
    assert api in entry.note


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", 15) + struct.pack(">hhih", 3, 12, 1, -1) + b"\0\xff\xff\xff\xff\x0f"[:5],
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_malformed_bytes_close_the_connection_and_harm_nobody(cluster: FakeCluster, data: bytes) -> None:
    """Giant lengths, half headers, another protocol: the connection ends, the next one is served."""
    with RawClient(cluster.bootstrap) as client, hung_up():
        client.send_raw(data)
        client.receive()
    assert cluster.journal()[0].outcome == "malformed"
    with RawClient(cluster.bootstrap) as client:
        assert len(client.ask("Metadata", 12, topics=None)["brokers"]) == 3


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (make_batch([b"a"])[:-1] + b"\xff", 2),
        (make_batch([b"x" * 200]), 10),
        (make_batch([b"a"]) * 2, 87),
        (b"", 87),
        (make_batch([b"a"], producer_id=7), 87),
        (make_batch([b"a"])[:30], 87),
    ],
    ids=["checksum", "too large", "two batches", "none", "no sequence", "cut short"],
)
def test_a_bad_batch_is_refused(cluster: FakeCluster, batch: bytes, error: int) -> None:
    """With Kafka's error code, and nothing in the log."""
    cluster.create_topic("t", config={"max.message.bytes": "150"})
    with RawClient(cluster.bootstrap) as client:
        assert client.produce("t", batch)["error_code"] == error
        assert client.produce("t", make_batch([b"a"]), acks=2)["error_code"] == 21
        assert client.produce("t", make_batch([b"a"]))["error_code"] == 0
    assert len(cluster.log("t")) == 1


def test_acks_0_is_not_answered(cluster: FakeCluster) -> None:
    """A success is silent; an error closes the connection, since there is no other way to tell."""
    cluster.create_topic("t")
    data = [{"name": "t", "partition_data": [{"index": 0, "records": make_batch([b"a"])}]}]
    body = {"transactional_id": None, "acks": 0, "timeout_ms": 1000, "topic_data": data}
    with RawClient(cluster.bootstrap) as client:
        client.send(encode_request("Produce", 9, 1, "raw", body))
        assert client.ask("Metadata", 12, topics=[])["topics"] == []
        assert len(cluster.log("t")) == 1
        data[0]["name"] = "unknown"
        with hung_up():
            client.send(encode_request("Produce", 9, 2, "raw", body))
            client.receive()
    assert [entry.outcome for entry in cluster.journal("Produce")] == ["unanswered", "malformed"]


def test_topic_ids(cluster: FakeCluster) -> None:
    """Produce and fetch by topic ID, as Java does; an unknown ID has an error of its own."""
    cluster.create_topic("t")
    with RawClient(cluster.bootstrap) as client:
        topic_id = client.ask("Metadata", 13, topics=[{"name": "t"}])["topics"][0]["topic_id"]
        assert client.ask("Metadata", 13, topics=[{"topic_id": topic_id, "name": None}])["topics"][0]["name"] == "t"
        codes, batch = [], make_batch([b"a", b"b"])
        for wanted in (topic_id, uuid.uuid4()):
            data = [{"topic_id": wanted, "partition_data": [{"index": 0, "records": batch}]}]
            answer = client.ask("Produce", 13, acks=-1, timeout_ms=1000, topic_data=data, transactional_id=None)
            codes.append(answer["responses"][0]["partition_responses"][0]["error_code"])
        assert codes == [0, 100]
        partitions = [{"partition": 0, "fetch_offset": 1, "partition_max_bytes": 1}]
        topics = [{"topic_id": topic_id, "partitions": partitions}]
        answer = client.ask("Fetch", 18, max_wait_ms=0, min_bytes=1, max_bytes=1, topics=topics)
    (found,) = answer["responses"][0]["partitions"]
    assert (found["error_code"], found["high_watermark"]) == (0, 2)
    assert bytes(found["records"])[8:] == batch[8:12] + bytes(4) + batch[16:]


def test_a_wrong_leader_names_the_right_one(cluster: FakeCluster) -> None:
    """KIP-951: the refusal carries the leader, its epoch and its address."""
    cluster.create_topic("t")
    cluster.move_leader("t", to=3)
    data = [{"name": "t", "partition_data": [{"index": 0, "records": make_batch([b"a"])}]}]
    with RawClient(cluster.bootstrap) as client:
        answer = client.ask("Produce", 10, acks=-1, timeout_ms=1000, topic_data=data, transactional_id=None)
    (refused,) = answer["responses"][0]["partition_responses"]
    assert refused["error_code"] == 6
    assert (refused["current_leader"]["leader_id"], refused["current_leader"]["leader_epoch"]) == (3, 1)
    (node,) = answer["node_endpoints"]
    assert f"{node['host']}:{node['port']}" == cluster.bootstrap.split(",")[2]


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (-1, (-1, 4)),
        (-2, (-1, 0)),
        (-3, (2001, 3)),
        (0, (1000, 0)),
        (1001, (1001, 1)),
        (1500, (2000, 2)),
        (9999, (-1, -1)),
    ],
)
def test_list_offsets(cluster: FakeCluster, timestamp: int, found: tuple[int, int]) -> None:
    """Latest, earliest, newest timestamp, and the first record at or after a time."""
    cluster.create_topic("t")
    with RawClient(cluster.bootstrap) as client:
        for began in (1000, 2000):
            client.produce("t", make_batch([b"a", b"b"], timestamp=began))
        partitions = [{"partition_index": 0, "current_leader_epoch": 0, "timestamp": timestamp}]
        topics = [{"name": "t", "partitions": partitions}]
        answer = client.ask("ListOffsets", 7, replica_id=-1, isolation_level=0, topics=topics)
    (partition,) = answer["topics"][0]["partitions"]
    assert (partition["timestamp"], partition["offset"]) == found


def test_an_old_broker_lists_an_unknown_override_without_its_value(cluster: FakeCluster) -> None:
    """Brokers without KIP-1269 list neither config; an override on the topic is there, sensitive and empty."""
    cluster.create_topic("t", config={RETAIN: "20"})
    cluster.create_topic("plain")
    cluster.set_kip_1269(1, False)
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        for kind, name in ((2, "t"), (2, "plain"), (4, "1"))
    ]
    with RawClient(cluster.bootstrap) as client:
        results = client.ask("DescribeConfigs", 4, resources=resources)["results"]
    topic, plain, broker = ({config["name"]: config for config in result["configs"]} for result in results)
    assert (topic[RETAIN]["value"], topic[RETAIN]["is_sensitive"]) == (None, True)
    assert RETAIN not in plain
    assert "min.insync.replicas" in plain
    assert "log." + RETAIN not in broker


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.create_topic("t", config={RETAIN: "4"}),
        lambda c: c.create_topic("t", replication_factor=9),
        lambda c: c.create_topic("t", 2**31 - 1),
        lambda c: c.create_topic("a/b"),
        lambda c: c.move_leader("nowhere"),
        lambda c: c.stop(9),
        lambda c: c.lose_acks(0),
        lambda c: c.fail_next("SyncGroup", 1),
        lambda c: c.set_broker_config(1, "no.such", None),
        lambda c: c.delay(-1),
    ],
)
def test_a_wrong_control_call_is_refused(cluster: FakeCluster, call) -> None:
    """With a ValueError, and the cluster goes on."""
    with pytest.raises(ValueError, match=r"."):
        call(cluster)
    assert cluster.journal() == []
