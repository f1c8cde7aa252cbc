"""A broker's byte quota is waited out, not run into."""

import time
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, Message, Producer

from integration import held_back, uneven
from integration.kafka.cluster import KafkaCluster
from integration.tap import Tap
from integration.throttled import Outcome, Quota, deliver
from integration.uneven import CROWDED_RATE, QUOTA, VALUE, Load
from safeproducer import SafeProducer

NewTopic = Callable[..., str]

LARGE = Quota(batches=10, rate=50_000, size=900_000, batch_size=1_000_000, socket_timeout=60.0, patience=300)
SMALL = Quota(batches=8, rate=100_000, size=150_000, batch_size=165_000, socket_timeout=2.0, patience=40)
"""The same at a sixth of the size, where the broker averages over 2 s and not 11: again one batch is over the quota."""
SHORT_WINDOW = {"quota.window.num": "2"}
RUNS = 3


def name() -> str:
    """A fresh name of a client and its topic."""
    return f"quota-{uuid.uuid4().hex[:8]}"


def assert_run_into(stock: Outcome, quota: Quota) -> None:
    """Requests timed out and were sent again, on new connections."""
    assert stock.delivered == quota.batches
    assert stock.retries > 0, stock
    assert stock.connections > 1, stock


def assert_waited_out(safe: Outcome, quota: Quota) -> None:
    """Everything was delivered by one request a batch, none was sent again, and the connections stayed."""
    assert (safe.delivered, safe.errors) == (quota.batches, ()), safe
    assert (safe.requests, safe.retries) == (quota.batches, 0), safe
    assert safe.connections <= 2, safe  # of the lane that the first batch took, and of the one for held batches


@pytest.fixture(scope="module")
def outcomes() -> tuple[Outcome, Outcome]:
    """Of the confluent_kafka producer and of SafeProducer, at the same time."""
    with KafkaCluster(tapped=True, configs=SHORT_WINDOW) as cluster, Tap(cluster) as tap:
        stock, safe = deliver([Producer, SafeProducer], SMALL, name(), cluster, tap)
    return stock, safe


def test_stock_runs_into_a_quota(outcomes: tuple[Outcome, Outcome]) -> None:
    """The trap: the confluent_kafka producer's requests wait unread until they time out, and are charged again."""
    assert_run_into(outcomes[0], SMALL)


@held_back.needed
def test_quota_is_waited_out(outcomes: tuple[Outcome, Outcome]) -> None:
    """Each batch is one request, none times out, and no speed is lost."""
    stock, safe = outcomes
    assert_waited_out(safe, SMALL)
    assert safe.speed >= 0.9 * stock.speed, (stock, safe)


@held_back.needed
@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize("run", range(1, RUNS + 1))
def test_waiting_out_a_long_quota_loses_no_speed(record_property: Callable[..., None], run: int) -> None:
    """Ten batches of 0.9 MB at 50 KB/s with the default time-outs: as fast as confluent_kafka until the last ack.

    Each run has a cluster of its own: the throttle time of the run before would hold this one back.
    """
    with KafkaCluster(tapped=True) as cluster, Tap(cluster) as tap:
        stock, safe = deliver([Producer, SafeProducer], LARGE, name(), cluster, tap)
    record_property("stock", str(stock))
    record_property("safe", str(safe))
    assert_run_into(stock, LARGE)
    assert_waited_out(safe, LARGE)
    assert safe.speed >= 0.97 * stock.speed, (stock, safe)


@held_back.needed
def test_record_that_the_quota_makes_late_fails_early(kafka: KafkaCluster, topic: NewTopic) -> None:
    """A record whose deadline the broker's throttle time makes impossible fails at once and is not written."""
    place, client = topic(partitions=2), name()
    kafka.admin.set_quota(client_id=client, producer_byte_rate=LARGE.rate)
    reports: list[tuple[KafkaError | None, float]] = []

    def reported(error: KafkaError | None, message: Message) -> None:
        reports.append((error, time.monotonic()))

    config = {"bootstrap.servers": kafka.bootstrap, "client.id": client, "message.timeout.ms": 4_000, "log_level": 0}
    with SafeProducer(config) as producer:
        producer.produce(place, bytes(LARGE.size), partition=0, on_delivery=reported)
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
        # Before the others: a throttle time holds every producer of a process, whoever leads its crowded partition.
        alone = uneven.run({"alone": Load(SafeProducer, cluster, name(), quota=None)}, seconds)
        loads = {
            "safe": Load(SafeProducer, cluster, name(), quota=QUOTA),
            "stock": Load(Producer, cluster, name(), quota=QUOTA),
        }
        speeds = alone | uneven.run(loads, seconds)
    record_property("speeds", str(speeds))
    assert len(loads["safe"].throttled) == len(loads["stock"].throttled) == 1, "one broker was to be throttled"
    assert speeds["alone"].crowded > 0.9 * CROWDED_RATE
    assert speeds["safe"].crowded <= 2 * QUOTA / len(VALUE)
    assert speeds["safe"].others >= 0.95 * speeds["alone"].others, speeds
    assert speeds["stock"].others < 0.8 * speeds["alone"].others, "the load is to be one that stops stock"
