"""Quotas on bytes and request time (KIP-13, KIP-124), asked by raw requests and heard by real clients."""

import time
from typing import Any

import pytest
from confluent_kafka import Producer, ThrottleEvent

from safeproducer.testing import DEFAULT, FakeCluster
from safeproducer.testing.wire import encode_request
from tests.clusters import cluster_of
from tests.conformance.target import fetch
from tests.conformance.test_quotas import INVALID_REQUEST, WINDOWS_MS, entity, produce
from tests.contract.support import poll_until
from tests.testing.raw import RawClient, make_batch, produce_body


def test_the_connection_is_muted_and_no_other(cluster: FakeCluster, client: RawClient) -> None:
    """The answer comes at once; the next request of this connection is read when the delay is over, in real time."""
    cluster.set_quota("producer_byte_rate", 10_000, user=DEFAULT)
    began = time.monotonic()
    throttle, length = produce(client, "t", 106_000)
    told = time.monotonic() - began
    assert throttle == pytest.approx(length / 10 - WINDOWS_MS, abs=1)
    with RawClient(cluster.bootstrap) as other:
        other.ask("ApiVersions", 0)
    elsewhere = time.monotonic() - began
    cluster.advance(3600)
    client.ask("ApiVersions", 0)
    waited = time.monotonic() - began
    assert max(told, elsewhere) < throttle / 1000 <= waited < throttle / 1000 + 1
    assert [entry.throttled_ms for entry in cluster.journal("Produce")] == [throttle]


def test_a_client_that_hangs_up_is_not_kept_for_the_delay(cluster: FakeCluster, client: RawClient) -> None:
    """A delay may be hours long; clients that reconnect meanwhile must not pile up."""
    cluster.set_quota("producer_byte_rate", 1, user="ANONYMOUS")
    with RawClient(cluster.bootstrap) as other:
        assert produce(other, "t", 1000)[0] > 600_000
    cluster.wait(lambda cluster: len(cluster._brokers[1]._connections) == 1, timeout=5)


def test_acks_0_is_muted_without_a_word(cluster: FakeCluster, client: RawClient) -> None:
    """There is no answer that could tell, but nothing is read meanwhile; request time is not charged."""
    cluster.set_quota("producer_byte_rate", 10_000, client_id="raw")
    cluster.set_quota("request_percentage", 1e-9, client_id="raw")
    body = produce_body("t", make_batch([bytes(102_000)]), acks=0)
    began = time.monotonic()
    client.send(encode_request("Produce", 9, 0, "raw", body))
    cluster.wait(lambda cluster: len(cluster.journal("Produce")) == 1)
    (entry,) = cluster.journal("Produce")
    assert (entry.outcome, 100 < entry.throttled_ms < 400) == ("unanswered", True)
    client.ask("ApiVersions", 0)
    assert time.monotonic() - began >= entry.throttled_ms / 1000


def test_a_long_poll_costs_no_request_time(cluster: FakeCluster, client: RawClient) -> None:
    """Waiting is not work: a fetch that waits 100 ms is charged for far less."""
    cluster.set_quota("request_percentage", 50, user="ANONYMOUS")
    fetch(client, 11, "t", max_wait_ms=200, min_bytes=1)
    (usage,) = cluster.quota_usage(1)
    assert 0 < usage.rate * WINDOWS_MS / 1000 < 10  # 20 if all of the 200 ms had counted


def test_usage_is_each_brokers_own_and_forgotten_by_a_restart(cluster: FakeCluster, client: RawClient) -> None:
    """Limits are the cluster's, what was used is not."""
    cluster.set_quota("producer_byte_rate", 1000, user="ANONYMOUS")
    produce(client, "t", 9500)
    assert cluster.quota_usage(2) == []
    cluster.move_leader("t", to=2)
    with RawClient(cluster.bootstrap, 2) as other:
        assert produce(other, "t", 9500)[0] == 0
    cluster.stop(2)
    cluster.start(2)
    assert cluster.quota_usage(2) == []
    cluster.reset()
    assert cluster.quotas() == {}
    assert cluster.quota_usage(1) == []


def test_the_windows_are_configured_at_the_start() -> None:
    """With 3 windows of 2 s the largest free burst is 4 s of the quota."""
    settings = {"quota.window.num": "3", "quota.window.size.seconds": "2"}
    with cluster_of({"t": 1}, broker_config=settings) as cluster:
        cluster.set_quota("producer_byte_rate", 1000, user="ANONYMOUS")
        with RawClient(cluster.bootstrap) as client:
            assert produce(client, "t", 3500)[0] == 0
            throttle, _ = produce(client, "t", 2500)
            assert 1500 <= throttle <= 2300  # 6.1 s of the quota, less the time gone by


def test_an_entity_or_a_type_that_is_named_twice(cluster: FakeCluster, client: RawClient) -> None:
    """As Kafka does it: the first change of an entity is made and the error told; of a type the last name counts."""
    alice, bob = entity(user="alice"), entity(user="bob")

    def alter(*changes: tuple[Any, float]) -> list[int]:
        entries = [
            {"entity": who, "ops": [{"key": "producer_byte_rate", "value": rate, "remove": False}]}
            for who, rate in changes
        ]
        found = client.ask("AlterClientQuotas", 1, entries=entries, validate_only=False)["entries"]
        assert all((entry["error_code"] == 0) == (entry["error_message"] is None) for entry in found)
        assert all(part in who for entry, (who, _) in zip(found, changes, strict=False) for part in entry["entity"])
        return [entry["error_code"] for entry in found]

    assert alter((alice, 1.0), (alice, 2.0)) == [INVALID_REQUEST]
    assert cluster.quotas() == {"user 'alice'": {"producer_byte_rate": 1.0}}
    assert alter((alice + bob, 3.0)) == [0]
    assert cluster.quotas() == {"user 'alice'": {"producer_byte_rate": 1.0}, "user 'bob'": {"producer_byte_rate": 3.0}}


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
    poll_until(producer, lambda: heard)
    assert (heard[0].broker_id, heard[0].throttle_time) == (1, told[2] / 1000)
    assert len(cluster.log("t")) == 3
