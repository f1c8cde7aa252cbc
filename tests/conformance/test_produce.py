"""What a broker answers to a produce request, good and bad."""

import gzip
import struct
import time
import uuid
from typing import Any

import pytest

from safeproducer.testing.produce import ProducedBatch, crc32c, read_batch_headers
from safeproducer.testing.wire import encode_request
from tests.conformance.target import Target, end_offset, fetch, part, produce, topic_id
from tests.testing.raw import RawClient, make_batch, produce_body

UNKNOWN_SERVER_ERROR, INVALID_TIMESTAMP = -1, 32
CORRUPT, UNKNOWN_TOPIC, NOT_LEADER, TOO_LARGE, BAD_ACKS, UNKNOWN_TOPIC_ID, INVALID_RECORD = 2, 3, 6, 10, 21, 100, 87
_CRC_AT, _CHECKED_AT = 17, 21
DAY_MS = 86_400_000


def patched(batch: bytes, at: int, layout: str, *values: int) -> bytes:
    """The batch with other bytes, and a checksum that fits."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, at, *values)
    struct.pack_into(">I", changed, _CRC_AT, crc32c(bytes(changed[_CHECKED_AT:])))
    return bytes(changed)


@pytest.mark.parametrize("version", range(3, 14))
def test_batches_are_appended_in_every_version(version: int, client: RawClient, name: str) -> None:
    """The answer tells the offset of the first record, no append time, and where the log begins."""
    topic = topic_id(client, name) if version >= 13 else name
    for offset in (0, 3):
        answer = produce(client, version, topic, make_batch([b"a", b"b", b"c"]))
        found = part(answer)
        assert (found["error_code"], found["base_offset"], found["log_append_time_ms"]) == (0, offset, -1)
        assert found.get("log_start_offset", 0) == 0
        assert (found.get("record_errors", []), found.get("error_message")) == ([], None)
        assert answer["throttle_time_ms"] == 0
        assert answer["responses"][0]["topic_id" if version >= 13 else "name"] == topic
    assert end_offset(client, name) == 6


def test_acks_0_has_no_answer(client: RawClient, name: str) -> None:
    """The next answer on the connection is that of the next request."""
    client.send(encode_request("Produce", 9, 0, "suite", produce_body(name, make_batch([b"a"]), acks=0)))
    assert client.ask("Metadata", 12, topics=[])["topics"] == []
    assert end_offset(client, name) == 1


def test_acks_0_and_an_error_end_the_connection(client: RawClient) -> None:
    """There is no other way to tell."""
    client.send(encode_request("Produce", 9, 1, "suite", produce_body("nobody-made-it", make_batch([b"a"]), acks=0)))
    client.ends()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"topic": "nobody-made-it"}, UNKNOWN_TOPIC),
        ({"partition": 1}, UNKNOWN_TOPIC),
        ({"partition": -1}, UNKNOWN_TOPIC),
        ({"acks": 2}, BAD_ACKS),
        ({"acks": -2}, BAD_ACKS),
        ({"acks": 1}, 0),
        ({"timeout_ms": 0}, 0),
    ],
    ids=str,
)
def test_error_codes_of_requests(changes: dict[str, Any], error: int, client: RawClient, name: str) -> None:
    """Unknown places and impossible acks; a refused batch is not in the log."""
    found = part(produce(client, 9, **{"topic": name, "records": make_batch([b"a"]), **changes}))
    assert (found["error_code"], found["base_offset"]) == (error, -1 if error else 0)
    assert (found["log_append_time_ms"], found["log_start_offset"]) == (-1, -1 if error else 0)
    assert end_offset(client, name) == (0 if error else 1)


def test_an_unknown_topic_id(client: RawClient) -> None:
    """It is answered with the ID that was asked for."""
    asked = uuid.uuid4()
    answer = produce(client, 13, asked, make_batch([b"a"]))
    assert (part(answer)["error_code"], answer["responses"][0]["topic_id"]) == (UNKNOWN_TOPIC_ID, asked)


def test_a_refusal_leaves_the_other_partitions_alone(cluster: Target, client: RawClient) -> None:
    """One request with three partitions, the middle one wrong."""
    name = cluster.topic(2)
    answer = client.ask("Produce", 9, **produce_body(name, make_batch([b"a"]), 0, 7, 1))
    found = {one["index"]: one["error_code"] for one in answer["responses"][0]["partition_responses"]}
    assert found == {0: 0, 7: UNKNOWN_TOPIC, 1: 0}


GOOD = make_batch([b"a", b"b"])
KNOWN = make_batch([b"a", b"b"], producer_id=7, epoch=0, sequence=0)


@pytest.mark.parametrize(
    ("records", "error"),
    [
        pytest.param(GOOD[:-1] + b"x", CORRUPT, id="bad checksum"),
        pytest.param(patched(GOOD, 16, ">b", 1), INVALID_RECORD, id="message format 1"),
        pytest.param(patched(GOOD, 16, ">b", 3), CORRUPT, id="message format 3"),
        pytest.param(patched(GOOD, 16, ">b", -1), CORRUPT, id="message format -1"),
        pytest.param(GOOD + GOOD, INVALID_RECORD, id="two batches"),
        pytest.param(b"", INVALID_RECORD, id="no batch"),
        pytest.param(GOOD[:40], INVALID_RECORD, id="half a batch"),
        pytest.param(GOOD[:5], INVALID_RECORD, id="half a header"),
        pytest.param(patched(GOOD, 8, ">i", 0), CORRUPT, id="length 0"),
        pytest.param(patched(GOOD, 8, ">i", -1), CORRUPT, id="length -1"),
        pytest.param(patched(GOOD, 8, ">i", 48), CORRUPT, id="length just below a header"),
        pytest.param(patched(GOOD, 8, ">i", 10_000), INVALID_RECORD, id="length beyond the request"),
        pytest.param(patched(GOOD, 57, ">i", 3), INVALID_RECORD, id="count too high"),
        pytest.param(patched(GOOD, 57, ">i", 0), INVALID_RECORD, id="count 0"),
        pytest.param(patched(GOOD, 57, ">i", -1), INVALID_RECORD, id="count -1"),
        pytest.param(patched(GOOD, 23, ">i", 7), INVALID_RECORD, id="last offset too high"),
        pytest.param(patched(GOOD, 0, ">q", 5), INVALID_RECORD, id="offset not 0"),
        pytest.param(patched(GOOD, 21, ">h", 0x20), INVALID_RECORD, id="control batch"),
        pytest.param(patched(GOOD, 21, ">h", 7), UNKNOWN_SERVER_ERROR, id="unknown compression"),
        pytest.param(patched(KNOWN, 53, ">i", -1), INVALID_RECORD, id="producer without sequence"),
    ],
)
def test_error_codes_of_batches(client: RawClient, untouched: str, records: bytes, error: int) -> None:
    """What is wrong with a batch's header; nothing of it is in the log."""
    assert part(produce(client, 9, untouched, records))["error_code"] == error
    assert end_offset(client, untouched) == 0


def test_a_batch_larger_than_the_topic_allows(cluster: Target, client: RawClient) -> None:
    """Exactly as large is allowed; the limit counts the packed batch with its header."""
    batch = make_batch([bytes(500)])
    fits, not_quite = (cluster.topic(configs={"max.message.bytes": str(len(batch) - less)}) for less in (0, 1))
    assert part(produce(client, 9, fits, batch))["error_code"] == 0
    assert part(produce(client, 9, not_quite, batch))["error_code"] == TOO_LARGE


def test_a_timestamp_in_the_future(cluster: Target, client: RawClient) -> None:
    """More than an hour ahead, or what the topic allows, is refused with error 32; none is too old."""
    strict = cluster.topic(configs={"message.timestamp.after.max.ms": "1000"})
    lax = cluster.topic()
    now = int(time.time() * 1000)
    for topic, ahead, error in (
        (lax, 7_200_000, INVALID_TIMESTAMP),
        (lax, 1_800_000, 0),
        (strict, 1_800_000, INVALID_TIMESTAMP),
        (strict, -now, 0),
    ):
        batch = make_batch([b"a"], timestamp=now + ahead)
        assert part(produce(client, 9, topic, batch))["error_code"] == error


def test_no_more_replicas_are_wanted_than_there_are(cluster: Target, client: RawClient) -> None:
    """A partition with one replica is written to whatever `min.insync.replicas` says (KIP-966)."""
    name = cluster.topic(configs={"min.insync.replicas": "2"})
    assert part(produce(client, 9, name, make_batch([b"a"])))["error_code"] == 0


@pytest.mark.parametrize("version", [9, 10, 13])
def test_another_broker_leads(cluster3: Target, version: int) -> None:
    """Error 6; from version 10 on the answer names the leader, its epoch and its address (KIP-951)."""
    name = cluster3.topic(replication=3)
    leader, epoch = cluster3.leader(name)
    with cluster3.connect(cluster3.another(leader)) as client:
        topic = topic_id(client, name) if version >= 13 else name
        answer = produce(client, version, topic, make_batch([b"a"]))
    found = part(answer)
    assert (found["error_code"], found["base_offset"]) == (NOT_LEADER, -1)
    if version >= 10:
        assert found["current_leader"] == {"leader_id": leader, "leader_epoch": epoch}
        (node,) = answer["node_endpoints"]
        host, port = cluster3.bootstrap.split(",")[leader - 1].split(":")
        assert (node["node_id"], node["host"], node["port"]) == (leader, host, int(port))


@pytest.mark.parametrize("codec", [0, 1], ids=["plain", "gzip"])
def test_the_broker_s_time_in_place_of_the_record_s(cluster: Target, codec: int, client: RawClient) -> None:
    """With LogAppendTime, which takes any timestamp: the answer tells the time, and the batch in the log has it."""
    name = cluster.topic(configs={"message.timestamp.type": "LogAppendTime"})
    began, pack = int(time.time() * 1000), gzip.compress if codec else bytes
    for day in (-DAY_MS, DAY_MS):
        batch = make_batch([b"a", b"b"], timestamp=began + day, codec=codec, pack=pack)
        found = part(produce(client, 9, name, batch))
        assert (found["error_code"], found["base_offset"]) == (0, 0 if day < 0 else 2)
        assert began <= found["log_append_time_ms"] <= time.time() * 1000 + 1_000
        (stored,) = (one for one in log_of(client, name) if one.header.base_offset == found["base_offset"])
        assert (stored.header.log_append_time, stored.header.base_timestamp) == (True, began + day)
        assert stored.header.max_timestamp == found["log_append_time_ms"]
        assert stored.crc_matches()


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_duplicate_is_answered_with_the_time_of_the_first_copy(cluster: Target, kind: str, client: RawClient) -> None:
    """Whatever kind of time the topic has."""
    name = cluster.topic(configs={"message.timestamp.type": kind})
    batch = make_batch([b"a"], producer_id=7, epoch=0, sequence=0, timestamp=int(time.time() * 1000) - 5_000)
    first = part(produce(client, 9, name, batch))
    time.sleep(0.005)
    again = part(produce(client, 9, name, batch))
    (stored,) = log_of(client, name)
    assert (first["base_offset"], again["base_offset"]) == (0, 0)
    assert first["log_append_time_ms"] == (stored.header.max_timestamp if kind == "LogAppendTime" else -1)
    assert again["log_append_time_ms"] == stored.header.max_timestamp


def log_of(client: RawClient, topic: str) -> list[ProducedBatch]:
    found = part(fetch(client, 12, topic))
    return [ProducedBatch(topic, None, 0, *one) for one in read_batch_headers(memoryview(bytes(found["records"])))]
