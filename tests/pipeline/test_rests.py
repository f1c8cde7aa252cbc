"""A fatal OUT_OF_ORDER_SEQUENCE_NUMBER after a rest in which the leader forgot the producer (KIP-854)."""

from __future__ import annotations

import contextlib
import logging
import time

import pytest
from confluent_kafka.cimpl import KafkaError

from safeproducer import FatalError, SafeProducer
from safeproducer.kafka.statistics import PartitionStatistics, Statistics
from safeproducer.pipeline.reports.rests import Rests
from safeproducer.testing import FakeCluster
from tests.inside import engine_of

TEXT = (
    "ProduceRequest for {} [{}] with 1 message(s) failed: Broker: Broker received an out of order sequence number "
    "(broker 1 PID{{Id:{},Epoch:0}}, base seq 7, idemp state change 20000ms ago)"
)


def statistics(at: float, sent: int, tp: tuple[str, int] = ("t", 0), producer_id: int = 5) -> Statistics:
    """One partition of one lane."""
    return Statistics(at, producer_id, 0, 0, 0, {}, {tp: PartitionStatistics(1, 0, 0, 0, sent, sent, sent)})


def fatal(topic: str = "t", partition: int = 0, producer_id: int = 5, code: int = 45) -> KafkaError:
    return KafkaError(code, TEXT.format(topic, partition, producer_id), fatal=True)


def rested(*sent: tuple[float, int]) -> Rests:
    """After statistics of these ages."""
    rests = Rests()
    rests.remembered_for(10)
    for ago, count in sent:
        rests.heard(statistics(time.monotonic() - ago, count))
    return rests


@pytest.mark.parametrize(
    "sent",
    [[(40, 7), (30, 7), (0.1, 7)], [(40, 7), (20, 7), (0.5, 8)], [(40, 7), (20, 7), (2.2, 8), (0.1, 9)]],
    ids=["before statistics tell of the end of the rest", "after that", "after statistics of the retry"],
)
def test_an_error_after_a_rest_says_so(sent: list[tuple[float, int]]) -> None:
    """With both numbers; it stays the same error."""
    found = rested(*sent).advised(fatal())
    assert "a leader remembers a producer ID for 10 s" in found.str()
    assert "KIP-854" in found.str()
    assert found.str().startswith("ProduceRequest for t [0]")
    assert (found.code(), found.fatal()) == (45, True)


@pytest.mark.parametrize(
    "error",
    [fatal("other"), fatal(partition=1), fatal(producer_id=6), fatal(code=47)],
    ids=["topic", "tp", "id", "code"],
)
def test_other_errors_do_not(error: KafkaError) -> None:
    """The state is that of one partition and one producer ID."""
    assert rested((40, 7), (30, 7)).advised(error) is error


def test_nor_after_a_short_rest_or_without_a_horizon() -> None:
    """Nothing is known before brokers were asked."""
    error = fatal()
    assert rested((12, 7), (8, 8), (3, 9)).advised(error) is error
    assert rested((400, 7), (70, 8), *((ago, ago) for ago in range(65, 0, -5))).advised(error) is error
    rests = Rests()
    rests.heard(statistics(time.monotonic() - 40, 7))
    assert rests.advised(error) is error


def test_lanes_do_not_end_each_other_s_rests() -> None:
    """Each has counts of its own."""
    rests = Rests()
    rests.remembered_for(10)
    now = time.monotonic()
    for ago in range(40, 0, -5):
        rests.heard(statistics(now - ago, 7))
        rests.heard(statistics(now - ago, ago, producer_id=6))
    assert "KIP-854" in rests.advised(fatal()).str()
    assert "KIP-854" not in rests.advised(fatal(producer_id=6)).str()


def test_a_producer_tells_it_everywhere(caplog: pytest.LogCaptureFixture) -> None:
    """In the exception, and in the log."""
    raised: list[FatalError] = []
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=1)
        config = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "safeproducer.expiry.ms": 1000}
        producer = SafeProducer(config)
        producer.produce("t", b"1")
        assert producer.flush(10) == 0
        end = time.monotonic() + 3
        while time.monotonic() < end:
            producer.poll(0.1)
        assert engine_of(producer).updates.failures.rests._sent
        cluster.fail_next("Produce", 45)
        producer.produce("t", b"2")
        end = time.monotonic() + 10
        while not raised and time.monotonic() < end:
            try:
                producer.poll(0.1)
            except FatalError as error:
                raised.append(error)
        with contextlib.suppress(FatalError):
            producer.close(1)
    assert "had forgotten this one (KIP-854)" in str(raised[0])
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]
    assert any("had forgotten this one" in line for line in lines)
