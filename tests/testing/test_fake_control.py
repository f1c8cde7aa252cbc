"""Pausing brokers, scoped faults and late requests, seen by raw requests and by SafeProducer."""

import math
import time
from collections.abc import Iterator
from typing import Any

import pytest

from safeproducer.testing import FakeCluster
from safeproducer.testing.wire import decode_response, encode_request
from tests.testing.raw import RawClient, fetch_body, hung_up, make_batch

NOT_ENOUGH_REPLICAS = 19


def produce_frame(number: int, *topics: tuple[str, int]) -> bytes:
    """A request with one record for each of these partitions."""
    data = [
        {"name": topic, "partition_data": [{"index": index, "records": make_batch([b"%d" % number])}]}
        for topic, index in topics
    ]
    body = {"transactional_id": None, "acks": -1, "timeout_ms": 1000, "topic_data": data}
    return encode_request("Produce", 9, number, "raw", body)


def codes(frame: bytes) -> list[int]:
    answer = decode_response("Produce", 9, frame)[1]
    return [p["error_code"] for topic in answer["responses"] for p in topic["partition_responses"]]


def is_silent(client: RawClient) -> bool:
    """Whether nothing arrives for a tenth of a second."""
    client._socket.settimeout(0.1)
    try:
        client.receive()
    except TimeoutError:
        return True
    finally:
        client._socket.settimeout(5)
    return False


# ---- pause


def test_a_paused_broker_accepts_and_does_nothing(cluster: FakeCluster) -> None:
    """Old and new connections stay open and silent, nothing is written; resumed, it works on all of it in order."""
    cluster.create_topic("t")
    with RawClient(cluster.bootstrap) as old:
        assert old.produce("t", make_batch([b"0"]))["error_code"] == 0
        cluster.pause(1)
        old.send(produce_frame(1, ("t", 0)))
        with RawClient(cluster.bootstrap) as new:
            new.send(produce_frame(2, ("t", 0)))
            assert is_silent(old)
            assert is_silent(new)
            assert len(cluster.log("t")) == 1
            assert len(cluster.journal()) == 1
            old.send(produce_frame(3, ("t", 0)))
            cluster.resume(1)
            assert [codes(old.receive()), codes(old.receive()), codes(new.receive())] == [[0], [0], [0]]
    assert {record.value for record in cluster.log("t")} == {b"0", b"1", b"2", b"3"}


def test_a_paused_broker_does_not_read(cluster: FakeCluster) -> None:
    """Not one byte is taken: all stays in the kernel until its buffers are full, as with a process that is stopped."""
    with RawClient(cluster.bootstrap) as client:
        client.ask("Metadata", 12, topics=[])
        cluster.pause(1)
        client._socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.send_raw(bytes(64 * 1024 * 1024))
        (connection,) = cluster._brokers[1]._connections.values()
        assert connection is not None
        assert len(connection._reader._buffer) == 0


def test_an_answer_on_its_way_waits_for_the_pause_to_end(cluster: FakeCluster) -> None:
    """Nothing leaves a paused broker: neither a delayed answer nor that of a fetch that has waited long enough."""
    cluster.create_topic("t")
    cluster.delay(0.05, api="Produce")
    fetch = {"max_wait_ms": 50, "min_bytes": 1, "max_bytes": 9, "topics": []}
    with RawClient(cluster.bootstrap) as writer, RawClient(cluster.bootstrap) as reader:
        writer.send(produce_frame(1, ("t", 0)))
        reader.send(encode_request("Fetch", 12, 1, "raw", fetch))
        cluster.wait(lambda c: len(c.log("t")) == 1)
        cluster.pause(1)
        assert is_silent(writer)
        assert is_silent(reader)
        cluster.resume(1)
        assert codes(writer.receive()) == [0]
        assert decode_response("Fetch", 12, reader.receive())[0] == 1


def test_other_brokers_go_on_and_stop_ends_a_pause(cluster: FakeCluster) -> None:
    """A pause is one broker's; a stop hangs up on those who wait, and the broker comes back awake."""
    cluster.create_topic("t")
    cluster.pause(1)
    with RawClient(cluster.bootstrap, 2) as second:
        assert len(second.ask("Metadata", 12, topics=None)["brokers"]) == 3
    with RawClient(cluster.bootstrap) as first, hung_up():
        first.send(produce_frame(1, ("t", 0)))
        cluster.stop(1)
        first.receive()
    cluster.start(1)
    with RawClient(cluster.bootstrap) as first:
        first.ask("Metadata", 12, topics=[])
    cluster.pause(1)
    cluster.reset()
    with RawClient(cluster.bootstrap) as first:
        first.ask("Metadata", 12, topics=[])


def test_no_connection_outlives_a_stop(cluster: FakeCluster) -> None:
    """Also one that is made in the very moment: it is refused or ends, and nobody waits for an answer for ever."""
    for _ in range(60):
        cluster.pause(1)
        with RawClient(cluster.bootstrap) as client, hung_up():
            client.send(produce_frame(1, ("t", 0)))
            cluster.stop(1)
            client.receive()
        cluster.start(1)


# ---- scopes


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[RawClient]:
    cluster.create_topic("t", 3, config={"min.insync.replicas": "1"})
    cluster.create_topic("u")
    for topic, partition in (("t", 1), ("t", 2), ("u", 0)):
        cluster.move_leader(topic, partition, to=1)
    with RawClient(cluster.bootstrap) as made:
        yield made


def ask_all(client: RawClient, number: int) -> list[int]:
    client.send(produce_frame(number, ("t", 0), ("t", 1), ("u", 0)))
    return codes(client.receive())


def test_an_error_for_a_partition_leaves_the_rest_alone(cluster: FakeCluster, client: RawClient) -> None:
    """Only the named partition fails, only n times, and requests without it do not use it up."""
    cluster.fail_next("Produce", NOT_ENOUGH_REPLICAS, 2, topic="t", partition=1)
    assert client.produce("u", make_batch([b"x"]))["error_code"] == 0
    assert client.produce("t", make_batch([b"x"]))["error_code"] == 0
    assert cluster.faults_left == 2
    answers = [ask_all(client, number) for number in range(3)]
    assert answers == [[0, NOT_ENOUGH_REPLICAS, 0], [0, NOT_ENOUGH_REPLICAS, 0], [0, 0, 0]]
    assert [len(cluster.log("t", partition)) for partition in (0, 1)] == [4, 1]
    assert [entry.outcome for entry in cluster.journal("Produce")][2:] == ["failed", "failed", "answered"]


def test_an_error_for_a_topic_counts_requests(cluster: FakeCluster, client: RawClient) -> None:
    """A request with two partitions of the topic fails in both and counts once."""
    cluster.fail_next("Produce", NOT_ENOUGH_REPLICAS, 1, topic="t")
    assert ask_all(client, 1) == [NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS, 0]
    assert ask_all(client, 2) == [0, 0, 0]


def test_an_error_for_a_partition_reaches_a_fetch(cluster: FakeCluster, client: RawClient) -> None:
    """Also one that would wait for records; the next is as usual."""
    cluster.fail_next("Fetch", 6, topic="t", partition=0, broker=1)
    body = fetch_body("t", 0, 0, 1, max_wait_ms=1000, min_bytes=1)
    found = client.ask("Fetch", 12, **body)["responses"][0]["partitions"]
    assert [partition["error_code"] for partition in found] == [6, 0]
    found = client.ask("Fetch", 12, **{**body, "max_wait_ms": 0})["responses"][0]["partitions"]
    assert [partition["error_code"] for partition in found] == [0, 0]


def test_an_acknowledgement_is_lost_for_a_partition_only(cluster: FakeCluster, client: RawClient) -> None:
    """Others are acknowledged; the one that names the partition is written and its connection cut."""
    cluster.lose_acks(1, topic="t", partition=2)
    assert ask_all(client, 1) == [0, 0, 0]
    assert cluster.faults_left == 1
    with hung_up():
        client.send(produce_frame(2, ("u", 0), ("t", 2)))
        client.receive()
    assert [record.value for record in cluster.log("t", 2)] == [b"2"]
    assert cluster.faults_left == 0
    assert cluster.journal("Produce")[-1].outcome == "lost"


def test_faults_of_one_broker_leave_the_others_alone(cluster: FakeCluster) -> None:
    """An error ordered from broker 2 is not answered by broker 1."""
    cluster.create_topic("t")
    cluster.fail_next("Metadata", 41, broker=2)
    with RawClient(cluster.bootstrap) as first, RawClient(cluster.bootstrap, 2) as second:
        asked = [c.ask("Metadata", 12, topics=[{"name": "t"}])["topics"][0]["error_code"] for c in (first, second)]
    assert asked == [0, 41]


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.lose_acks(1, partition=0),
        lambda c: c.lose_acks(1, topic="unknown"),
        lambda c: c.lose_acks(1, topic="t", partition=9),
        lambda c: c.fail_next("Metadata", 3, topic="t"),
        lambda c: c.delay(1, side="somewhere"),
        lambda c: c.delay(1, api="DescribeAcls"),
        lambda c: c.delay(float("nan")),
        lambda c: c.pause(9),
        lambda c: c.resume(0),
        lambda c: c.create_topic("new", config={"producer.state.batches.to.retain": "4"}),
        lambda c: c.create_topic("new", replication_factor=9),
        lambda c: c.create_topic("new", 2**31 - 1),
        lambda c: c.create_topic("a/b"),
        lambda c: c.move_leader("nowhere"),
        lambda c: c.stop(9),
        lambda c: c.lose_acks(-1),
        lambda c: c.fail_next("DescribeAcls", 1),
        lambda c: c.set_broker_config(1, "no.such", None),
        lambda c: c.delay(-1),
        lambda c: c.fail_next("Produce", 0),
        lambda c: c.set_throttle(-1),
    ],
)
def test_a_wrong_call_is_refused(cluster: FakeCluster, client: RawClient, call: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        call(cluster)
    assert cluster.faults_left == 0
    assert cluster.journal() == []


# ---- delays


def test_late_requests_are_late_side_by_side(cluster: FakeCluster) -> None:
    """Nothing is written before the delay is over; five requests in flight take one delay, and keep their order."""
    cluster.create_topic("t")
    cluster.delay(0.2, side="request")
    with RawClient(cluster.bootstrap) as client:
        began = time.monotonic()
        for number in range(5):
            client.send(produce_frame(number, ("t", 0)))
        time.sleep(0.1)
        assert cluster.log("t") == []
        assert [decode_response("Produce", 9, client.receive())[0] for _ in range(5)] == list(range(5))
        assert 0.2 <= time.monotonic() - began < 0.8
    assert [record.value for record in cluster.log("t")] == [b"%d" % number for number in range(5)]


def test_a_late_request_outlives_its_client_but_not_a_cut(cluster: FakeCluster) -> None:
    """As on a long link: what a client sent before it hung up arrives; a cut loses it."""
    cluster.create_topic("t")
    cluster.delay(0.15, side="request")
    for number, cut in ((1, False), (2, True)):
        with RawClient(cluster.bootstrap) as client:
            client.send(produce_frame(number, ("t", 0)))
            if cut:
                time.sleep(0.05)
                assert cluster.cut() == 1
        if not cut:
            cluster.wait(lambda c: len(c.log("t")) == 1)
    time.sleep(0.25)
    assert [record.value for record in cluster.log("t")] == [b"1"]


def test_the_newest_delay_counts(cluster: FakeCluster) -> None:
    """By broker, by API, or for all; a later call replaces what it covers."""
    with RawClient(cluster.bootstrap) as client:

        def took(api: str) -> bool:
            began = time.monotonic()
            client.ask(api, 0, topics=None if api == "Metadata" else [], key_type=0)
            return time.monotonic() - began >= 0.1

        cluster.delay(0.1)
        cluster.delay(0, api="FindCoordinator")
        cluster.delay(0.1, broker=2, api="FindCoordinator")
        assert (took("ApiVersions"), took("FindCoordinator")) == (True, False)
        cluster.delay(0, broker=1)
        assert (took("ApiVersions"), took("FindCoordinator")) == (False, False)


def test_connections_of_one_client_are_cut(cluster: FakeCluster) -> None:
    """By client id: the other client's connection stays."""
    with RawClient(cluster.bootstrap) as one, RawClient(cluster.bootstrap) as two:
        one.ask("Metadata", 12, topics=[])
        two.send(encode_request("Metadata", 12, 1, "other", {"topics": []}))
        two.receive()
        assert cluster.cut(client_id="other") == 1
        two.ends()
        one.ask("Metadata", 12, topics=[])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        *(
            ({"users": users}, "users")
            for users in ({}, {"": "x"}, {"alice": ""}, {"al\0ice": "x"}, {"alice": "hush\0"})
        ),
        *(({"replica_link": link}, r"replica_link=.*give bytes/s above 0") for link in (0, -1, math.inf, math.nan)),
        ({"kafka": "4.6"}, r"kafka='4.6' .* '4.4' or '4.5'"),
        ({"first_epoch": 32_768}, r"first_epoch=32768 .* 0 to 32767"),
        ({"first_epoch": -1}, r"first_epoch=-1 "),
        ({"kip_1269_field": "answer"}, r"kip_1269_field='answer' .* 'partition' or 'topic'"),
        ({"tls": "none"}, "tls='none' is no kind of it"),
        ({"reauthentication": 5}, "give seconds above 0, and users or tokens with them"),
        ({"reauthentication": 0, "users": {"a": "b"}}, "give seconds above 0"),
        ({"transaction_version": 3}, "transaction_version=3"),
    ],
    ids=str,
)
def test_a_cluster_that_cannot_be_is_refused(options: dict[str, Any], text: str) -> None:
    """By name, with what may be given; a password is not told."""
    with pytest.raises(ValueError, match=text) as refused:
        FakeCluster(1, **options)
    assert "hush" not in str(refused.value)
