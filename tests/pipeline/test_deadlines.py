"""Deadlines in the whole pipeline, on scripted brokers: what is said of a record whose time is over is true."""

from typing import Any
from unittest import mock

import pytest
from confluent_kafka.cimpl import KafkaError

from safeproducer import DeliveryError
from safeproducer.pipeline import turn
from safeproducer.policy.outcome import Outcome
from tests.pipeline.cluster import LOSE_REQUEST, OK
from tests.pipeline.rig import Rig, rigged
from tests.pipeline.warmed import warmed

CONFIG = {"message.timeout.ms": 3000, "socket.timeout.ms": 1000, "linger.ms": 5}

LATENESS = 1.5
"""Statistics come twice a second, and it takes two of them to tell what became of purged records."""


@pytest.fixture(autouse=True)
def _without_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several records are to be in the direct lane at once, though nothing was produced for a while before."""
    monkeypatch.setattr(turn, "_RESTS_AFTER", 60.0)


def outcomes(rig: Rig, code: int) -> list[Outcome]:
    found: list[Any] = [record.reports[0] for record in rig.records.values() if record.reports]
    return [error.outcome for error in found if isinstance(error, DeliveryError) and error.code() == code]


def test_records_behind_one_without_an_answer_were_not_sent() -> None:
    """Statistics prove it of all but the batch that was in a request."""
    with rigged({**CONFIG, "batch.num.messages": 2, "socket.timeout.ms": 10_000}) as rig:
        rig.silence()
        rig.accept(8)
        rig.report_queue(8)
        rig.poll(0)
        assert outcomes(rig, KafkaError._MSG_TIMED_OUT) == 2 * [Outcome.UNKNOWN] + 6 * [Outcome.NOT_WRITTEN]
        told: list[Any] = [record.reports[0] for record in rig.records.values() if record.reports[0] is not None]
        assert [error.attempts for error in told] == 2 * [None] + 6 * [0]
        assert {error.producer_id for error in told[:2]} == {rig.natives[0].producer_id}


def test_a_purge_reports_the_newest_records_first() -> None:
    """Those that a request had are the oldest, and a count that retries made too small is of the newest."""
    with rigged({**CONFIG, "batch.num.messages": 2}) as rig:
        rig.silence()
        for _ in range(20):
            assert rig.produce("a", 0)
            rig.report_queue(0.01)
        rig.report_queue(8)
        rig.poll(0)
        told = outcomes(rig, KafkaError._MSG_TIMED_OUT)
        unsent = told.count(Outcome.NOT_WRITTEN)
        assert told == (20 - unsent) * [Outcome.UNKNOWN] + unsent * [Outcome.NOT_WRITTEN]
        assert 0 < unsent < 18


def test_records_that_were_held_first_are_not_late() -> None:
    """Those of a silent leader wait, and go directly after a purge: their time counts from produce() all the same."""
    with rigged({**CONFIG, "socket.timeout.ms": 10_000}) as rig:
        rig.silence()
        began = rig.time.now
        while rig.time.now < began + 6:
            assert rig.produce("a", 0)
            rig.report_queue(0.1)
            rig.poll(0)
            late = [record for record in rig.open_records if rig.time.now - record.at > 3 + LATENESS]
            assert late == []


def test_no_record_goes_straight_behind_a_purge_however_late_that_is() -> None:
    """A machine that stood still hears of the deadline when it has passed; the application produces meanwhile."""
    with rigged({**CONFIG, "socket.timeout.ms": 60_000}) as rig:
        assert rig.produce("a", 0)
        assert rig.produce("a", 1)
        rig.flush(2)
        rig.report_queue(2)
        assert rig.engine.route.goes_direct
        rig.cluster.brokers[1].silent = True
        assert rig.produce("a", 0)
        rig.report_queue(1)
        direct = rig.natives[0]
        before: list[int] = []
        purge = direct.purge

        def purging(*args: Any, **kwargs: Any) -> None:
            purge(*args, **kwargs)
            before.append(len(direct))
            assert rig.produce("b", 0)
            assert len(direct) == before[-1]

        with mock.patch.object(direct, "purge", purging):
            rig.time.now += 4
            rig.report_queue(0.5)
        assert before
        rig.report_queue(8)


def test_records_purged_before_prove_nothing() -> None:
    """They count as given and not as sent, too, and must not be taken for those whose time is over."""
    with rigged({**CONFIG, "batch.num.messages": 2}) as rig:
        rig.silence()
        rig.accept(8)
        rig.poll(0.3)
        rig.purge()
        rig.poll(0)
        rig.cluster.heal()
        rig.accept(2)
        rig.cluster.brokers[1].silent = True
        rig.accept(2)
        rig.report_queue(8)
        rig.poll(0)
        assert Outcome.NOT_WRITTEN not in outcomes(rig, KafkaError._MSG_TIMED_OUT)
        assert outcomes(rig, KafkaError._MSG_TIMED_OUT)


def test_batches_for_a_named_partition_keep_their_deadline() -> None:
    """librdkafka does not count what its own produce_batch() took for one; it acknowledges it all the same."""
    with rigged({**CONFIG, "socket.timeout.ms": 60_000}) as rig:
        rig.silence()
        assert rig.produce_batch("a", 0, 4) == 4
        rig.report_queue(5)
        rig.poll(0)
        assert outcomes(rig, KafkaError._MSG_TIMED_OUT) == 4 * [Outcome.UNKNOWN]


def test_batches_for_a_named_partition_stay_in_front() -> None:
    """A lane that still has them is not empty, and what is held back meanwhile must not take another."""
    with warmed({**CONFIG, "message.timeout.ms": 60_000, "socket.timeout.ms": 3000}, rest=2) as rig:
        rig.cluster.brokers[1].script.append((LOSE_REQUEST, 0.0))
        assert rig.produce_batch("a", 0, 4) == 4
        rig.report_queue(0.1)
        rig.cluster.brokers[1].script.append((OK, 0.5))
        assert rig.produce("b", 0)
        rig.poll(0.2)
        for _ in range(60):
            assert rig.produce("a", 0)
            rig.poll(0.1)
        rig.flush(10)


def test_a_purge_of_a_partly_expired_batch_tells_of_each_record_once() -> None:
    """librdkafka reports the newest purged records first, and the expired ones have been reported before."""
    with rigged({**CONFIG, "safeproducer.mode": "held", "socket.timeout.ms": 60_000, "linger.ms": 2000}) as rig:
        rig.cluster.brokers[1].silent = True
        assert rig.produce("a", 0)
        rig.report_queue(1.5)
        assert rig.produce("a", 0)
        rig.flush(0.3)
        rig.report_queue(1.8)
        rig.poll(0)
        assert len(rig.open_records) == 1
        native, fail = rig.natives[0], rig.natives[0]._fail
        with mock.patch.object(native, "_fail", lambda toppar, messages, code: fail(toppar, messages[::-1], code)):
            rig.purge()
        rig.poll(0.5)
        assert [len(record.reports) for record in rig.records.values()] == [1, 1]
