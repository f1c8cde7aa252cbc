"""What a broker answers to a fetch without a session, in all versions."""

import time
import uuid
from typing import Any

import pytest

from safeproducer.testing.produce import read_batch_headers, unpack
from tests.conformance.target import Target, fetch, part, topic_id
from tests.testing.raw import RawClient, fetch_body, make_batch

OUT_OF_RANGE, UNKNOWN_TOPIC, FENCED_EPOCH, UNKNOWN_EPOCH, NO_SESSION, UNKNOWN_TOPIC_ID = 1, 3, 74, 75, 70, 100
NOT_LEADER = 6


def filled(cluster: Target, client: RawClient, *batches: bytes) -> tuple[str, list[bytes]]:
    """A new topic with these batches, and the batches as the log holds them."""
    name = cluster.topic()
    stored, offset = [], 0
    for batch in batches:
        answer = client.produce(name, batch)
        assert (answer["error_code"], answer["base_offset"]) == (0, offset)
        stored.append(offset.to_bytes(8, "big") + batch[8:12] + bytes(4) + batch[16:])
        ((header, _),) = read_batch_headers(memoryview(batch))
        offset += header.count
    return name, stored


@pytest.mark.parametrize("version", range(4, 19))
def test_batches_come_back_as_they_went_in(cluster: Target, client: RawClient, version: int) -> None:
    """Only offset and leader epoch are written into them; the answer tells the ends of the log."""
    name, stored = filled(cluster, client, make_batch([b"a", b"b"]), make_batch([b"c"]))
    topic = topic_id(client, name) if version >= 13 else name
    answer = fetch(client, version, topic)
    found = part(answer)
    assert bytes(found["records"]) == b"".join(stored)
    assert (found["error_code"], found["high_watermark"], found["last_stable_offset"]) == (0, 3, 3)
    assert (found.get("log_start_offset", 0), found.get("preferred_read_replica", -1)) == (0, -1)
    assert not found["aborted_transactions"]
    assert (answer.get("error_code", 0), answer.get("session_id", 0), answer["throttle_time_ms"]) == (0, 0, 0)
    assert [topic["topic_id" if version >= 13 else "topic"] for topic in answer["responses"]] == [topic]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "zstd"])  # of lz4, brokers read only what is packed as Java does
def test_packed_batches_stay_packed(cluster: Target, client: RawClient, codec: str) -> None:
    """A broker hands out what a producer has packed, byte by byte."""
    cramjam = pytest.importorskip("cramjam", reason="cramjam packs the batches")
    number, pack = {
        "gzip": (1, cramjam.gzip.compress),
        "snappy": (2, cramjam.snappy.compress_raw),
        "zstd": (4, cramjam.zstd.compress),
    }[codec]
    batch = make_batch([b"again and again"] * 50, codec=number, pack=lambda data: bytes(pack(data)))
    name, stored = filled(cluster, client, batch)
    found = bytes(part(fetch(client, 12, name))["records"])
    assert found == stored[0]
    assert unpack(number, found[61:]).count(b"again and again") == 50


@pytest.mark.parametrize(("offset", "first"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 3)])
def test_a_fetch_begins_with_the_batch_that_holds_the_offset(
    cluster: Target, client: RawClient, offset: int, first: int
) -> None:
    """Also if that is not its first record; at the end of the log there is nothing."""
    name, stored = filled(cluster, client, make_batch([b"a", b"b"]), make_batch([b"c"]), make_batch([b"d"]))
    assert bytes(part(fetch(client, 12, name, offset))["records"]) == b"".join(stored[first:])


@pytest.mark.parametrize("limit", ["partition_max_bytes", "max_bytes"])
@pytest.mark.parametrize("extra", [0, 1, 60, 69])
def test_an_answer_is_cut_at_the_limit(cluster: Target, client: RawClient, limit: str, extra: int) -> None:
    """By the byte, inside a batch: clients throw the rest away."""
    name, stored = filled(cluster, client, *(make_batch([b"%d" % number]) for number in range(4)))
    size = 2 * len(stored[0]) + extra
    records = bytes(part(fetch(client, 12, name, **{limit: size}))["records"])
    assert records == b"".join(stored)[:size]


@pytest.mark.parametrize("limit", ["partition_max_bytes", "max_bytes"])
@pytest.mark.parametrize("size", [0, 1, 50])
def test_the_first_batch_always_comes_whole(cluster: Target, client: RawClient, limit: str, size: int) -> None:
    """However low the limit is, or nobody would ever get beyond it."""
    name, stored = filled(cluster, client, make_batch([b"a"]), make_batch([b"b"]))
    assert bytes(part(fetch(client, 12, name, **{limit: size}))["records"]) == stored[0]


def test_only_the_first_partition_with_records_may_exceed_the_limit(cluster: Target, client: RawClient) -> None:
    """The second one gets what is left, and nothing if its first batch does not fit."""
    name = cluster.topic(3)
    batch = make_batch([b"a"])
    for partition in (1, 2):
        assert client.produce(name, batch, partition=partition)["error_code"] == 0
    for max_bytes, sizes in (
        (10, [0, len(batch), 0]),
        (len(batch) + 10, [0, len(batch), 0]),
        (2 * len(batch), [0, len(batch), len(batch)]),
    ):
        answer = client.ask("Fetch", 12, **fetch_body(name, 0, 0, 1, 2, max_bytes=max_bytes))
        found = {one["partition_index"]: len(one["records"]) for one in answer["responses"][0]["partitions"]}
        assert [found[number] for number in range(3)] == sizes


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"offset": 3}, 0),
        ({"offset": 4}, OUT_OF_RANGE),
        ({"offset": -1}, OUT_OF_RANGE),
        ({"topic": "nobody-made-it"}, UNKNOWN_TOPIC),
        ({"offset": 3, "current_leader_epoch": 0}, 0),
        ({"current_leader_epoch": 5}, UNKNOWN_EPOCH),
    ],
    ids=str,
)
def test_error_codes(cluster: Target, client: RawClient, changes: dict[str, Any], error: int) -> None:
    """With no records, and no word of where the log ends."""
    name, _ = filled(cluster, client, make_batch([b"a", b"b", b"c"]))
    found = part(fetch(client, 12, **{"topic": name, **changes}))
    assert (found["error_code"], bytes(found["records"] or b"")) == (error, b"")
    assert (found["high_watermark"], found["last_stable_offset"]) == ((-1, -1) if error else (3, 3))
    assert found["log_start_offset"] == (-1 if error else 0)


def test_an_unknown_topic_id(client: RawClient) -> None:
    """Error 100, for the partition; the fetch as a whole is good."""
    answer = fetch(client, 17, uuid.uuid4())
    assert (answer["error_code"], part(answer)["error_code"]) == (0, UNKNOWN_TOPIC_ID)


def test_an_unknown_session(client: RawClient, name: str) -> None:
    """Error 70 for the whole fetch: the client begins anew."""
    answer = fetch(client, 12, name, session_id=77, session_epoch=3)
    assert (answer["error_code"], answer["session_id"], answer["responses"]) == (NO_SESSION, 0, [])


def timed(client: RawClient, topic: str, offset: int, **changes: Any) -> tuple[int, float]:
    began = time.monotonic()
    answer = part(fetch(client, 12, topic, offset, **changes))
    return len(answer["records"] or b""), time.monotonic() - began


def test_a_fetch_waits_for_as_many_bytes_as_it_wants(cluster: Target, client: RawClient) -> None:
    """At the end of the log, and where there is too little; not if there is enough, nor with an error."""
    name, stored = filled(cluster, client, make_batch([b"a"]), make_batch([b"b"]))
    size = len(stored[0])
    waits = {"max_wait_ms": 400, "min_bytes": 1}
    for offset, changes, got, waited in (
        (2, waits, 0, True),
        (1, waits, size, False),
        (1, {**waits, "min_bytes": size + 1}, size, True),
        (0, {**waits, "min_bytes": 2 * size}, 2 * size, False),
        (0, {**waits, "min_bytes": 2 * size, "max_bytes": size}, size, False),
        (0, {**waits, "min_bytes": 2 * size, "partition_max_bytes": size}, size, True),
        (9, waits, 0, False),
    ):
        found, seconds = timed(client, name, offset, **changes)
        assert (found, seconds > 0.39) == (got, waited), (offset, changes, seconds)


def test_a_waiting_fetch_is_woken(cluster: Target, client: RawClient, name: str) -> None:
    with cluster.connect() as reader:
        reader.post("Fetch", 12, **fetch_body(name, max_wait_ms=4000, min_bytes=1))
        assert client.produce(name, make_batch([b"a"]))["error_code"] == 0
        began = time.monotonic()
        answer = reader.answer("Fetch", 12)
        assert (len(part(answer)["records"]) > 0, time.monotonic() - began < 2) == (True, True)


def test_another_broker_leads(cluster3: Target) -> None:
    """An old version may ask no follower; error 6, with the leader from version 16 on."""
    name = cluster3.topic(replication=1)
    leader, epoch = cluster3.leader(name)
    with cluster3.connect(cluster3.another(leader)) as client:
        for version in (10, 17):
            topic = topic_id(client, name) if version >= 13 else name
            answer = fetch(client, version, topic)
            found = part(answer)
            assert found["error_code"] == NOT_LEADER
            if version >= 16:
                assert found["current_leader"] == {"leader_id": leader, "leader_epoch": epoch}
                assert [node["node_id"] for node in answer["node_endpoints"]] == [leader]
