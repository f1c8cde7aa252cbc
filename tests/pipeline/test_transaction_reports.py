"""Records of a transaction to which no partition was added: certainly not written, by what statistics tell later."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import KafkaError, Message

from safeproducer import SafeProducer
from safeproducer.config import parse
from safeproducer.delivery import Delivery
from safeproducer.kafka.statistics import PartitionStatistics, Statistics
from safeproducer.pipeline.reports.failures import Failures
from safeproducer.pipeline.reports.report_queue import ReportQueue
from safeproducer.policy.outcome import Outcome
from tests.inside import engine_of


def statistics(**sent: int) -> Statistics:
    """Made now: how many records of partition 0 of each topic were in requests."""
    partitions = {(topic, 0): PartitionStatistics(1, 0, 0, 0, count, 9, 9) for topic, count in sent.items()}
    return Statistics(time.monotonic(), 5, 0, 0, 0, {}, partitions)


class Rig:
    """What a transactional producer's reports go through."""

    def __init__(self) -> None:
        delivery: Delivery = parse(({"bootstrap.servers": "x", "transactional.id": "x"},), {}).delivery
        self.queue, self.failures = ReportQueue(), Failures(delivery)
        self.failures.transaction.connect(self.queue, delivery)
        self.told: list[Any] = []

    def report(self, topic: str = "t", partition: int | None = 0, code: int = KafkaError._PURGE_QUEUE) -> bool:
        """librdkafka reports a record; whether that is kept."""
        error = KafkaError(code)
        placed = {} if partition is None else {"partition": partition}
        message = Message(topic=topic, value=b"v", error=error, latency=0.1, **placed)
        return self.queue.takes(self.tell, error, message)

    def tell(self, error: Any, _: Any) -> None:
        self.told.append(error)

    @property
    def outcomes(self) -> list[Outcome]:
        """Of what the application was told."""
        self.queue.run()
        return [error.outcome for error in self.told]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_nothing_sent_since_it_began_is_not_written(rig: Rig) -> None:
    """What earlier transactions sent does not count; a topic nobody had heard of was not sent to either."""
    rig.failures.heard(statistics(t=3))
    rig.failures.transaction.begin()
    assert rig.report("t")
    assert rig.report("new")
    assert rig.report("t", partition=None)
    assert rig.queue.records == 3
    assert rig.outcomes == []
    rig.failures.heard(statistics(t=3, new=0))
    assert rig.outcomes == [Outcome.NOT_WRITTEN] * 3
    assert (rig.failures.not_written, rig.queue.records) == (3, 0)
    assert rig.told[0].attempts == 0


def test_what_may_have_been_sent_is_unknown(rig: Rig) -> None:
    """One more in a request than before, or nothing is known of it."""
    rig.failures.heard(statistics(t=3))
    rig.failures.transaction.begin()
    assert rig.report("t")
    assert rig.report("gone")
    rig.failures.heard(statistics(t=4))
    assert rig.outcomes == [Outcome.UNKNOWN] * 2


def test_statistics_from_before_the_purge_prove_nothing(rig: Rig) -> None:
    """It may have been sent since."""
    rig.failures.transaction.begin()
    before = statistics(t=0)
    assert rig.report("t")
    rig.failures.heard(before)
    assert rig.outcomes == []
    rig.failures.heard(statistics(t=1))
    assert rig.outcomes == [Outcome.UNKNOWN]


def test_other_failures_are_told_at_once(rig: Rig) -> None:
    """And so is what is purged outside a transaction, as by its abort."""
    rig.failures.transaction.begin()
    assert not rig.report(code=KafkaError._PURGE_INFLIGHT)
    assert not rig.report(code=KafkaError._MSG_TIMED_OUT)
    rig.failures.transaction.end()
    assert not rig.report()


def test_what_is_left_at_the_end_is_unknown(rig: Rig) -> None:
    """No statistics came."""
    rig.failures.transaction.begin()
    assert rig.report()
    rig.failures.transaction.end()
    assert rig.outcomes == [Outcome.UNKNOWN]


@pytest.mark.parametrize("mode", ["auto", "passthrough"])
def test_a_plain_abort_reports_at_once(mock_bootstrap: str, mode: str) -> None:
    """As confluent_kafka: inside abort_transaction(), nothing is waited for."""
    config = {"bootstrap.servers": mock_bootstrap, "log_level": 0, "linger.ms": 5000}
    for cls, own in ((Producer, {}), (SafeProducer, {"safeproducer.mode": mode})):
        producer = cls({**config, **own, "transactional.id": f"plain-{mode}-{cls.__name__}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        told: list[Any] = []
        producer.produce("topic", b"v", on_delivery=lambda error, _, told=told: told.append(error))
        began = time.monotonic()
        producer.abort_transaction(30)
        assert len(told) == 1
        assert time.monotonic() - began < 5
        producer.close()


def test_a_long_rest_is_warned_of_once(mock_bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each rest; the horizon is that of the transactional.id."""
    config = {"bootstrap.servers": mock_bootstrap, "log_level": 0, "safeproducer.expiry.ms": 500}
    with SafeProducer({**config, "transactional.id": "rests"}) as producer:
        producer.init_transactions(30)
        for rests in (0.0, 0.6, 0.0):
            time.sleep(rests)
            caplog.clear()
            producer.begin_transaction()
            warned = [record for record in caplog.records if "after a rest of" in record.getMessage()]
            assert len(warned) == (rests > 0)
            producer.produce("topic", b"v")
            producer.commit_transaction(30)
        assert not engine_of(producer).updates.failures.transaction.waiting
