"""Deadlines in the whole pipeline, on scripted brokers: what is said of a record whose time is over is true."""

from __future__ import annotations

from typing import Any

from confluent_kafka.cimpl import KafkaError

from safeproducer import DeliveryError
from safeproducer.policy.outcome import Outcome
from tests.pipeline.rig import Rig, rigged

CONFIG = {"message.timeout.ms": 3000, "socket.timeout.ms": 1000, "linger.ms": 5}


def outcomes(rig: Rig, code: int) -> list[Outcome]:
    found: list[Any] = [record.reports[0] for record in rig.records.values() if record.reports]
    return [error.outcome for error in found if isinstance(error, DeliveryError) and error.code() == code]


def test_records_behind_one_without_an_answer_were_not_sent() -> None:
    """Statistics prove it of all but the batch that was in a request."""
    with rigged({**CONFIG, "batch.num.messages": 2, "socket.timeout.ms": 10_000}) as rig:
        assert rig.produce("a", 0)
        rig.flush(2)
        rig.away(2)
        rig.cluster.brokers[1].silent = True
        for _ in range(8):
            assert rig.produce("a", 0)
        rig.away(8)
        rig.poll(0)
        assert outcomes(rig, KafkaError._MSG_TIMED_OUT) == 2 * [Outcome.UNKNOWN] + 6 * [Outcome.NOT_WRITTEN]
        rig.close()


def test_records_purged_before_prove_nothing() -> None:
    """They count as given and not as sent, too, and must not be taken for those whose time is over."""
    with rigged({**CONFIG, "batch.num.messages": 2}) as rig:
        assert rig.produce("a", 0)
        rig.flush(2)
        rig.away(2)
        rig.cluster.brokers[1].silent = True
        for _ in range(8):
            assert rig.produce("a", 0)
        rig.poll(0.3)
        rig.purge()
        rig.poll(0)
        rig.cluster.heal()
        for _ in range(2):
            assert rig.produce("a", 0)
        rig.cluster.brokers[1].silent = True
        for _ in range(2):
            assert rig.produce("a", 0)
        rig.away(8)
        rig.poll(0)
        assert Outcome.NOT_WRITTEN not in outcomes(rig, KafkaError._MSG_TIMED_OUT)
        assert outcomes(rig, KafkaError._MSG_TIMED_OUT)
        rig.close()
