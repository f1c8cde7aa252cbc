"""A broker's byte quota is waited out, not run into."""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, Message, Producer

from integration import held_back
from integration.kafka.cluster import KafkaCluster
from integration.tap import Tap
from integration.throttled import BATCHES, Outcome, Quota, deliver
from integration.uneven import CROWDED_RATE, QUOTA, VALUE, Load, run
from safeproducer import SafeProducer

NewTopic = Callable[..., str]

SMALL = Quota(rate=50_000, size=90_000, socket_timeout=2.0, patience=40)
LARGE = Quota(rate=50_000, size=900_000, socket_timeout=60.0, patience=300)
RUNS = 3


def name() -> str:
    """A fresh name of a client and its topic."""
    return f"quota-{uuid.uuid4().hex[:8]}"


def assert_run_into(stock: Outcome) -> None:
    """Requests timed out and were sent again, on new connections."""
    assert stock.delivered == BATCHES
    assert stock.retries > 0, stock
    assert stock.connections > 1, stock


def assert_waited_out(safe: Outcome) -> None:
    """Everything was delivered by one request a batch, on one connection."""
    assert (safe.delivered, safe.errors) == (BATCHES, ()), safe
    assert (safe.requests, safe.retries, safe.connections) == (BATCHES, 0, 1), safe


@pytest.fixture(scope="module")
def outcomes(kafka_tapped: KafkaCluster) -> tuple[Outcome, Outcome]:
    """Of the stock producer and of SafeProducer, at the same time."""
    with Tap(kafka_tapped) as tap:
        stock, safe = deliver([Producer, SafeProducer], SMALL, name(), kafka_tapped, tap)
    return stock, safe


def test_stock_runs_into_a_quota(outcomes: tuple[Outcome, Outcome]) -> None:
    """The trap: the stock producer's requests wait unread until they time out, and are charged again."""
    assert_run_into(outcomes[0])


@held_back.needed
def test_quota_is_waited_out(outcomes: tuple[Outcome, Outcome]) -> None:
    """Each batch is one request on one connection, and none times out."""
    assert_waited_out(outcomes[1])


@held_back.needed
@pytest.mark.full
@pytest.mark.timeout(400)
def test_waiting_out_a_long_quota_loses_no_speed(
    tap: Tap, kafka_tapped: KafkaCluster, record_property: Callable[..., None]
) -> None:
    """Ten batches of 0.9 MB at 50 KB/s, default time-outs, three runs at once: as fast as stock to the last ack."""
    makers = [Producer, SafeProducer] * RUNS
    outcomes = deliver(makers, LARGE, name(), kafka_tapped, tap)
    stock, safe = outcomes[::2], outcomes[1::2]
    record_property("stock", str(stock))
    record_property("safe", str(safe))
    for number in range(RUNS):
        assert_run_into(stock[number])
        assert_waited_out(safe[number])
    ratio = statistics.median(one.speed for one in safe) / statistics.median(one.speed for one in stock)
    assert ratio >= 0.97, (ratio, stock, safe)


@held_back.needed
def test_record_that_the_quota_makes_late_fails_early(kafka: KafkaCluster, topic: NewTopic) -> None:
    """A record whose deadline the broker's throttle time makes impossible fails at once and is not written."""
    place, client = topic(partitions=2), name()
    kafka.admin.set_quota(client_id=client, producer_byte_rate=SMALL.rate)
    reports: list[tuple[KafkaError | None, float]] = []

    def reported(error: KafkaError | None, message: Message) -> None:
        reports.append((error, time.monotonic()))

    config = {"bootstrap.servers": kafka.bootstrap, "client.id": client, "message.timeout.ms": 4_000, "log_level": 0}
    with SafeProducer(config) as producer:
        producer.produce(place, bytes(900_000), partition=0, on_delivery=reported)
        assert producer.flush(10) == 0
        ((error, _),) = reports
        assert error is None
        producer.poll(0.1)
        started = time.monotonic()
        producer.produce(place, b"too late", partition=1, on_delivery=reported)
        assert producer.flush(10) == 0
    error, when = reports[1]
    assert error is not None
    assert getattr(error, "outcome", None) == "not_written"
    assert when - started < 1, "the throttle time is 8 s and was known, so nothing was to be waited for"
    assert kafka.admin.end_offsets(place) == [1, 0]


@held_back.needed
@pytest.mark.full
def test_one_throttled_broker_does_not_stop_the_others(record_property: Callable[..., None]) -> None:
    """Partitions led by other brokers keep their speed, although the crowded one's records would fill the buffer."""
    seconds = 10.0
    with KafkaCluster(3) as cluster:
        loads = {
            "alone": Load(SafeProducer, cluster, name(), quota=None),
            "safe": Load(SafeProducer, cluster, name(), quota=QUOTA),
            "stock": Load(Producer, cluster, name(), quota=QUOTA),
        }
        speeds = run(loads, seconds)
    record_property("speeds", str(speeds))
    assert len(loads["safe"].throttled) == len(loads["stock"].throttled) == 1, "one broker was to be throttled"
    assert speeds["alone"].crowded > 0.9 * CROWDED_RATE
    assert speeds["safe"].crowded <= 2 * QUOTA / len(VALUE)
    assert speeds["safe"].others >= 0.95 * speeds["alone"].others, speeds
    assert speeds["stock"].others < 0.8 * speeds["alone"].others, "the load is to be one that stops stock"
