"""Quotas on bytes and request time (KIP-13, KIP-124), asked by raw requests and heard by real clients."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, ThrottleEvent

from safeproducer import SafeProducer
from safeproducer.testing import DEFAULT, FakeCluster
from safeproducer.testing.wire import encode_request
from tests.testing.raw import RawClient, make_batch

INVALID_REQUEST, UNSUPPORTED_VERSION = 42, 35
WINDOW_MS = 10_000  # what a new meter divides by: ten whole windows of one second
EXACT, NAMELESS, ANY = 0, 1, 2


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[RawClient]:
    cluster.create_topic("t")
    with RawClient(cluster.bootstrap) as made:
        yield made


def produce(client: RawClient, size: int, *, acks: int = -1) -> tuple[int, int]:
    """One batch with about `size` bytes: the throttle time told, and the bytes of the request."""
    data = [{"name": "t", "partition_data": [{"index": 0, "records": make_batch([bytes(size)])}]}]
    body = {"transactional_id": None, "acks": acks, "timeout_ms": 1000, "topic_data": data}
    length = len(encode_request("Produce", 9, 1, "raw", body))
    answer = client.ask("Produce", 9, **body)
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
    return answer["throttle_time_ms"], length


def fetch(client: RawClient, *, min_bytes: int = 1, max_bytes: int = 1 << 20) -> dict[str, Any]:
    wanted = [{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]}]
    return client.ask("Fetch", 11, max_wait_ms=2000, min_bytes=min_bytes, max_bytes=max_bytes, topics=wanted)


def test_a_burst_is_told_its_delay_and_recovers(cluster: FakeCluster, client: RawClient) -> None:
    """The whole request counts; the delay is what the windows need to take it, and is gone when they have passed."""
    cluster.set_quota("producer_byte_rate", 1000, user="ANONYMOUS")
    began = time.monotonic()
    free, first = produce(client, 9000)
    (usage,) = cluster.quota_usage(1)
    assert (usage.quota, usage.user, usage.client_id, usage.limit) == ("producer_byte_rate", "ANONYMOUS", "", 1000)
    throttle, second = produce(client, 2000)
    over = first + second - WINDOW_MS  # at 1 B/ms: as many ms as bytes, less the time gone by
    assert free == 0
    assert over - (time.monotonic() - began) * 1000 - 1 <= throttle <= over
    assert cluster.quota_usage(1)[0].throttle_time_ms == throttle
    cluster.advance(12)
    assert cluster.quota_usage(1)[0].rate == 0
    with RawClient(cluster.bootstrap) as again:
        assert produce(again, 1000)[0] == 0


def test_the_connection_is_muted_and_no_other(cluster: FakeCluster, client: RawClient) -> None:
    """The answer comes at once; the next request of this connection is read when the delay is over, in real time."""
    cluster.set_quota("producer_byte_rate", 10_000, user=DEFAULT)
    began = time.monotonic()
    throttle, length = produce(client, 106_000)
    told = time.monotonic() - began
    assert throttle == pytest.approx(length / 10 - WINDOW_MS, abs=1)
    with RawClient(cluster.bootstrap) as other:
        other.ask("ApiVersions", 0)
    elsewhere = time.monotonic() - began
    cluster.advance(3600)
    client.ask("ApiVersions", 0)
    waited = time.monotonic() - began
    assert max(told, elsewhere) < throttle / 1000 <= waited < throttle / 1000 + 1
    assert [entry.throttled_ms for entry in cluster.journal("Produce")] == [throttle]


def test_who_hangs_up_is_not_kept_for_the_delay(cluster: FakeCluster, client: RawClient) -> None:
    """A delay may be hours long; clients that reconnect meanwhile must not pile up."""
    cluster.set_quota("producer_byte_rate", 1, user="ANONYMOUS")
    with RawClient(cluster.bootstrap) as other:
        assert produce(other, 1000)[0] > 600_000
    cluster.wait(lambda cluster: len(cluster._brokers[1]._connections) == 1, timeout=5)


def test_acks_0_is_muted_without_a_word(cluster: FakeCluster, client: RawClient) -> None:
    """There is no answer that could tell, but nothing is read meanwhile; request time is not charged."""
    cluster.set_quota("producer_byte_rate", 10_000, client_id="raw")
    cluster.set_quota("request_percentage", 1e-9, client_id="raw")
    data = [{"name": "t", "partition_data": [{"index": 0, "records": make_batch([bytes(102_000)])}]}]
    body = {"transactional_id": None, "acks": 0, "timeout_ms": 1000, "topic_data": data}
    began = time.monotonic()
    client.send(encode_request("Produce", 9, 0, "raw", body))
    cluster.wait(lambda cluster: len(cluster.journal("Produce")) == 1)
    (entry,) = cluster.journal("Produce")
    assert (entry.outcome, 100 < entry.throttled_ms < 400) == ("unanswered", True)
    client.ask("ApiVersions", 0)
    assert time.monotonic() - began >= entry.throttled_ms / 1000


def test_a_throttled_fetch_gets_nothing_and_is_not_charged(cluster: FakeCluster, client: RawClient) -> None:
    """Its answer is empty and tells the delay; when the windows have passed the same fetch gets its records."""
    produce(client, 8000)
    cluster.set_quota("consumer_byte_rate", 1000, client_id=DEFAULT)
    full = fetch(client)
    assert (full["throttle_time_ms"], len(full["responses"][0]["partitions"][0]["records"]) > 8000) == (0, True)
    charged = cluster.quota_usage(1)[0].rate
    empty = fetch(client)
    assert 0 < empty["throttle_time_ms"] <= 2 * 8300 - WINDOW_MS
    assert (empty["error_code"], empty["responses"]) == (0, [])
    assert cluster.quota_usage(1)[0].rate <= charged
    cluster.advance(12)
    with RawClient(cluster.bootstrap) as again:
        assert fetch(again)["responses"]


def test_no_fetch_waits_for_more_than_its_quota_allows(cluster: FakeCluster, client: RawClient) -> None:
    """A fetch is cut to the quota's largest burst: it would get nothing for ever otherwise."""
    for _ in range(3):
        produce(client, 4000)
    cluster.set_quota("consumer_byte_rate", 900, user=DEFAULT, client_id=DEFAULT)
    began = time.monotonic()
    first = fetch(client, min_bytes=100_000)
    assert time.monotonic() - began < 1.5  # it would be 2 s if it waited for 100 000 bytes
    # What is around the records makes the answer a little larger than the burst, as at a real broker.
    assert (first["responses"], 0 < first["throttle_time_ms"] < 200) == ([], True)
    second = fetch(client, min_bytes=100_000)
    assert second["throttle_time_ms"] == 0
    assert len(second["responses"][0]["partitions"][0]["records"]) == 9000


def test_request_time_is_throttled_for_one_window_at_most(cluster: FakeCluster, client: RawClient) -> None:
    """Every API is charged; however far over, the delay is quota.window.size.seconds. The longer delay counts."""
    cluster.set_quota("request_percentage", 1e-9, client_id="raw")
    cluster.set_quota("producer_byte_rate", 10, user=DEFAULT, client_id="raw")
    assert client.ask("Metadata", 12, topics=[])["throttle_time_ms"] == 1000
    with RawClient(cluster.bootstrap) as other:
        assert produce(other, 1000)[0] > 60_000
    percentage = next(usage for usage in cluster.quota_usage(1) if usage.quota == "request_percentage")
    assert 0 < percentage.rate < 100
    assert (percentage.user, percentage.client_id, percentage.throttle_time_ms) == ("", "raw", 1000)


def test_a_long_poll_costs_no_request_time(cluster: FakeCluster, client: RawClient) -> None:
    """Waiting is not work: a fetch that waits 100 ms is charged for far less."""
    cluster.set_quota("request_percentage", 50, user="ANONYMOUS")
    wanted = [{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}]}]
    client.ask("Fetch", 11, max_wait_ms=200, min_bytes=1, max_bytes=1, topics=wanted)
    (usage,) = cluster.quota_usage(1)
    assert 0 < usage.rate * WINDOW_MS / 1000 < 10  # 20 if all of the 200 ms had counted


def test_usage_is_each_brokers_own_and_forgotten_by_a_restart(cluster: FakeCluster, client: RawClient) -> None:
    """Limits are the cluster's, what was used is not."""
    cluster.set_quota("producer_byte_rate", 1000, user="ANONYMOUS")
    produce(client, 9500)
    assert cluster.quota_usage(2) == []
    cluster.move_leader("t", to=2)
    with RawClient(cluster.bootstrap, 2) as other:
        assert produce(other, 9500)[0] == 0
    cluster.stop(2)
    cluster.start(2)
    assert cluster.quota_usage(2) == []
    cluster.reset()
    assert cluster.quotas() == {}
    assert cluster.quota_usage(1) == []


def test_the_windows_are_configured_at_the_start() -> None:
    """With 3 windows of 2 s the largest free burst is 4 s of the quota."""
    settings = {"quota.window.num": "3", "quota.window.size.seconds": "2"}
    with FakeCluster(1, broker_config=settings) as cluster:
        cluster.create_topic("t")
        cluster.set_quota("producer_byte_rate", 1000, user="ANONYMOUS")
        with RawClient(cluster.bootstrap) as client:
            assert produce(client, 3500)[0] == 0
            throttle, _ = produce(client, 2500)
            assert 1500 <= throttle <= 2300  # 6.1 s of the quota, less the time gone by


def entity(**names: str | None) -> list[dict[str, str | None]]:
    return [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in names.items()]


def alter(client: RawClient, *changes: Any, version: int = 1, validate_only: bool = False) -> list[int]:
    """Each change is an entity and its quotas; the error codes."""
    entries = [
        {
            "entity": who,
            "ops": [{"key": k, "value": v or 0.0, "remove": v is None} for k, v in quotas.items()],
        }
        for who, quotas in changes
    ]
    answer = client.ask("AlterClientQuotas", version, entries=entries, validate_only=validate_only)
    answered = [{(part["entity_type"], part["entity_name"]) for part in entry["entity"]} for entry in answer["entries"]]
    asked = [{(part["entity_type"], part["entity_name"]) for part in who} for who, _ in changes]
    assert all(any(found <= who for who in asked) for found in answered)
    assert all((entry["error_code"] == 0) == (entry["error_message"] is None) for entry in answer["entries"])
    return [entry["error_code"] for entry in answer["entries"]]


def described(client: RawClient, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    """What matches: by entity, the quotas; or an error code."""
    wanted = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    answer = client.ask("DescribeClientQuotas", 1, components=wanted, strict=strict)
    if answer["error_code"]:
        assert (answer["entries"], bool(answer["error_message"])) == (None, True)
        return answer["error_code"]
    return {
        tuple(part["entity_name"] for part in entry["entity"]): {v["key"]: v["value"] for v in entry["values"]}
        for entry in answer["entries"]
    }


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_can_be_set_and_taken_away_by_request(cluster: FakeCluster, client: RawClient, version: int) -> None:
    """One bad entity leaves the others alone; `validate_only` changes nothing; all brokers know at once."""
    alice, everybody = entity(user="alice"), entity(user=None, client_id=None)
    good = (alice, {"producer_byte_rate": 5.0, "request_percentage": 0.5})
    assert alter(client, good, version=version, validate_only=True) == [0]
    assert cluster.quotas() == {}
    bad = (entity(user=""), {"producer_byte_rate": 5.0})
    assert alter(client, good, bad, (everybody, {"consumer_byte_rate": 7.0}), version=version) == [
        0,
        INVALID_REQUEST,
        0,
    ]
    assert cluster.quotas() == {
        "user 'alice'": {"producer_byte_rate": 5.0, "request_percentage": 0.5},
        "default user and default client-id": {"consumer_byte_rate": 7.0},
    }
    assert alter(client, (alice, {"producer_byte_rate": None, "consumer_byte_rate": None})) == [0]
    with RawClient(cluster.bootstrap, 3) as other:
        assert described(other) == {("alice",): {"request_percentage": 0.5}, (None, None): {"consumer_byte_rate": 7.0}}


def test_what_kafka_refuses_is_refused(client: RawClient) -> None:
    """Unknown names, values out of range, entities without a name; and, unlike Kafka, quotas of IPs."""
    alice = entity(user="alice")
    assert alter(client, (alice, {"no_such_rate": 1.0})) == [INVALID_REQUEST]
    assert alter(client, (alice, {"producer_byte_rate": -1.0})) == [INVALID_REQUEST]
    assert alter(client, (entity(user="alice", client_id="c"), {"producer_ids_rate": 1.0})) == [INVALID_REQUEST]
    assert alter(client, ([], {"producer_byte_rate": 1.0})) == [INVALID_REQUEST]
    assert alter(client, (entity(ip="127.0.0.1"), {"connection_creation_rate": 1.0})) == [INVALID_REQUEST]
    assert described(client) == {}


def test_what_is_named_twice(cluster: FakeCluster, client: RawClient) -> None:
    """As Kafka does it: the first change of an entity is made and the error told; of a type the last name counts."""
    alice, bob = entity(user="alice"), entity(user="bob")
    assert alter(client, (alice, {"producer_byte_rate": 1.0}), (alice, {"producer_byte_rate": 2.0})) == [
        INVALID_REQUEST
    ]
    assert cluster.quotas() == {"user 'alice'": {"producer_byte_rate": 1.0}}
    assert alter(client, (alice + bob, {"producer_byte_rate": 3.0})) == [0]
    assert cluster.quotas() == {"user 'alice'": {"producer_byte_rate": 1.0}, "user 'bob'": {"producer_byte_rate": 3.0}}
    twice = [{"key": "producer_byte_rate", "value": value, "remove": False} for value in (4.0, 5.0)]
    entries = [{"entity": alice, "ops": twice}]
    answer = client.ask("AlterClientQuotas", 1, entries=entries, validate_only=False)
    assert answer["entries"][0]["error_code"] == INVALID_REQUEST
    assert cluster.quotas()["user 'alice'"] == {"producer_byte_rate": 1.0}


def test_descriptions_are_filtered(cluster: FakeCluster, client: RawClient) -> None:
    """By name, by being the default, by having the type; a strict filter wants no other type in the entity."""
    cluster.set_quota("producer_byte_rate", 1, user="a")
    cluster.set_quota("producer_byte_rate", 2, user="a", client_id="c")
    cluster.set_quota("producer_byte_rate", 3, user=DEFAULT)
    cluster.set_quota("producer_byte_rate", 4, client_id="c")

    def values(*components: tuple[str, int, str | None], strict: bool = False) -> list[float]:
        return [limits["producer_byte_rate"] for limits in described(client, *components, strict=strict).values()]

    assert values() == [1, 2, 3, 4]
    assert values(strict=True) == []
    assert values(("user", EXACT, "a")) == [1, 2]
    assert values(("user", EXACT, "a"), strict=True) == [1]
    assert values(("user", NAMELESS, None)) == [3]
    assert values(("user", ANY, None)) == [1, 2, 3]
    assert values(("user", ANY, None), ("client-id", EXACT, "c")) == [2]
    assert described(client, ("ip", ANY, None)) == {}
    assert described(client, ("group", ANY, None)) == UNSUPPORTED_VERSION
    for wrong in [
        [("user", EXACT, None)],
        [("user", NAMELESS, "a")],
        [("user", 3, None)],
        [("", ANY, None)],
        [("user", ANY, None), ("user", ANY, None)],
        [("ip", ANY, None), ("user", ANY, None)],
    ]:
        assert described(client, *wrong) == INVALID_REQUEST


def test_stock_confluent_kafka_hears_of_its_quota(cluster: FakeCluster) -> None:
    """`throttle_cb` tells broker and delay in seconds; the records are all delivered."""
    cluster.create_topic("t")
    cluster.set_quota("producer_byte_rate", 20_000, client_id="loud")
    heard: list[ThrottleEvent] = []
    settings = {"bootstrap.servers": cluster.bootstrap, "client.id": "loud", "throttle_cb": heard.append}
    producer = Producer({**settings, "linger.ms": 0, "log_level": 0})
    for _ in range(3):
        producer.produce("t", bytes(75_000))
        assert producer.flush(10) == 0
    told = [entry.throttled_ms for entry in cluster.journal("Produce")]
    assert sum(told[:2]) == 0 < told[2] < 2000
    deadline = time.monotonic() + 5
    while not heard and time.monotonic() < deadline:
        producer.poll(0.05)
    assert (heard[0].broker_id, heard[0].throttle_time) == (1, told[2] / 1000)
    assert len(cluster.log("t")) == 3


def test_safeproducer_knows_who_throttles_it(cluster: FakeCluster) -> None:
    """The default of all users applies to a client without a name of its own, and its snapshot shows the broker."""
    cluster.create_topic("t")
    cluster.set_quota("producer_byte_rate", 1000, user=DEFAULT)
    with SafeProducer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0}) as producer:
        producer.produce("t", bytes(10_100))  # some 200 bytes over
        assert producer.flush(10) == 0
        deadline = time.monotonic() + 5
        while not producer.snapshot().throttled_brokers and time.monotonic() < deadline:
            producer.poll(0.05)
        (entry,) = cluster.journal("Produce")
        assert producer.snapshot().throttled_brokers == {1: entry.throttled_ms / 1000}
