"""A producer before and after the permit for its first ID, in virtual time: nothing lost, nothing twice, in order."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from safeproducer import DeliveryError, HoldReason, ProducerIdLimitError
from safeproducer.kafka.native import KafkaError
from safeproducer.policy.outcome import Outcome
from safeproducer.producer_ids.guard import Guard
from safeproducer.producer_ids.permit import Answer, Claim, Permit
from tests.pipeline.rig import Rig, rigged
from tests.pipeline.test_switch import LONG_ROUND_TRIP

CONFIG = {"message.timeout.ms": 30_000, "linger.ms": 5}
POLICY = "safeproducer.producer.ids.policy"
WAYS: dict[str, dict[str, Any]] = {
    "auto": {},
    "held": {"safeproducer.mode": "held"},
    "by key": {"safeproducer.ordering": "key"},
    "several lanes": {"safeproducer.mode": "held", "safeproducer.ordering": "none", "safeproducer.lanes": 3},
}
TP = ("a", 0)
START = 1000.0
"""Of virtual time."""


class Doorkeeper:
    """In place of every guard: grants from `opens_at` on, one permit or as many as are asked for."""

    def __init__(self, opens_at: float = 0.0, most: int = 1000) -> None:
        self.opens_at = opens_at
        self.left = most
        self.asked: list[Claim] = []
        self.granted: list[Permit] = []
        self.back: list[Permit] = []
        self.now = lambda: 0.0

    def ask(self, request: Claim) -> Answer:
        self.asked.append(request)
        wait = self.opens_at - self.now()
        if request.enforce and (wait > 0 or not self.left):
            return Answer(None, wait if self.left else 3600.0, True, 20, 20)
        self.left -= 1
        self.granted.append(Permit(len(self.asked), request.kind, request.site, 0.0, 1.0))
        return Answer(self.granted[-1])

    def give_back(self, permit: Permit) -> None:
        self.back.append(permit)


@contextmanager
def guarded(
    opens_in: float = 0.0, round_trips: dict[int, float] | None = None, **config: Any
) -> Iterator[tuple[Rig, Doorkeeper]]:
    """A producer whose permit is there so many seconds from now."""
    keeper = Doorkeeper()
    with (
        mock.patch.multiple(
            Guard, ask=lambda _, request: keeper.ask(request), give_back=lambda _, permit: keeper.give_back(permit)
        ),
        mock.patch.object(Guard, "note"),
        rigged({**CONFIG, **config}, round_trips) as rig,
    ):
        keeper.now = lambda: rig.time.now
        keeper.opens_at = rig.time.now + opens_in
        yield rig, keeper


def writers(rig: Rig) -> int:
    """How many native producers have written, each with an ID of its own."""
    return sum(any(native.produce_requests.values()) for native in rig.natives)


@pytest.mark.parametrize("way", WAYS)
def test_a_permit_is_asked_for_with_the_first_record(way: str) -> None:
    """Construction takes none, the second record none, and what took the gate's place is what was there before it."""
    with guarded(**WAYS[way]) as (rig, keeper):
        rig.report_queue(2)
        assert (keeper.asked, rig.producer.snapshot().producer_ids) == ([], 0)
        assert rig.produce(*TP)
        assert len(keeper.asked) >= 1
        assert rig.engine.route.send == rig.dispatcher.intake.send
        for _ in range(20):
            assert rig.produce(*TP)
        rig.flush(5)
        assert [request.kind.value for request in keeper.asked].count("first") == 1
        assert rig.producer.snapshot().producer_ids >= 1


def test_passthrough_sends_its_second_record_as_before() -> None:
    """By the native produce() itself; and its first one whatever the guard says."""
    with guarded(1000, **{"safeproducer.mode": "passthrough", POLICY: "refuse"}) as (rig, keeper):
        assert rig.produce(*TP)
        assert rig.engine.route.send == rig.natives[0].produce
        assert [request.enforce for request in keeper.asked] == [False]
        assert rig.producer.produce_batch("b", [], 0) == 0
        rig.flush(5)


@pytest.mark.parametrize("policy", ["off", "warn"])
def test_a_producer_that_is_only_told_never_waits(policy: str) -> None:
    with guarded(1000, **{POLICY: policy}) as (rig, keeper):
        assert rig.produce(*TP)
        rig.flush(5)
        assert not rig.open_records
        assert not any(request.enforce for request in keeper.asked)


@pytest.mark.parametrize("config", [{"enable.idempotence": False}, {"acks": "1"}])
def test_without_idempotence_nobody_is_asked(config: dict[str, Any]) -> None:
    """Such a producer takes no ID."""
    with guarded(1000, **{POLICY: "refuse"}, **config) as (rig, keeper):
        assert rig.produce(*TP)
        rig.flush(5)
        assert (keeper.asked, rig.producer.snapshot().producer_ids) == ([], 0)


@pytest.mark.parametrize("way", WAYS)
def test_a_refused_record_was_not_accepted(way: str) -> None:
    """The producer asks again with the next one, and goes on when there is a permit."""
    with guarded(10, **{POLICY: "refuse"}, **WAYS[way]) as (rig, keeper):
        for _ in range(3):
            with pytest.raises(ProducerIdLimitError) as refused:
                rig.produce(*TP)
        assert refused.value.retry_after == pytest.approx(10, abs=0.5)
        with pytest.raises(ProducerIdLimitError):
            rig.producer.produce_batch("a", [{"value": b"x"}], 0)
        assert rig.producer.snapshot().accepted == len(rig.producer) == 0
        assert not writers(rig)
        rig.report_queue(11)
        assert rig.produce(*TP)
        rig.flush(5)
        rig.check_account()
        assert len(rig.cluster.log[TP]) == 1
        assert keeper.granted


@pytest.mark.parametrize("way", WAYS)
def test_waiting_records_are_told_of_and_leave_in_order(way: str) -> None:
    """By flush(), len(), snapshot() and explain(); by one producer ID, unless there are to be several lanes."""
    with guarded(12, **{POLICY: "delay"}, **WAYS[way]) as (rig, keeper):
        for number in range(30):
            assert rig.produce("a", number % 2, b"%d" % (number % 3))
        rig.report_queue(2)
        assert len(rig.producer) >= 30
        (row, _) = rig.producer.snapshot().partitions
        assert (row.reason, row.held) == (HoldReason.PRODUCER_ID_LIMIT, 15)
        assert "waits for a producer ID, for another 10.0 s" in rig.producer.explain("a", 0)
        assert "safeproducer.producer.ids.per.hour" in rig.producer.explain()
        before = rig.time.now
        rig.flush(5)
        assert rig.time.now - before >= 5
        assert len(rig.producer) >= 30
        assert not writers(rig)
        assert rig.producer.snapshot().producer_ids == 0
        rig.flush(30)
        assert not rig.open_records
        assert 12 <= rig.time.now - START < 15
        assert len(keeper.asked) <= 6, "it asks when a permit may be there"
        rig.check_account()
        if way != "several lanes":
            assert writers(rig) == 1


def test_far_from_its_brokers_what_waited_leaves_by_the_native_producer_of_the_permit() -> None:
    """One ID; the buffered path's comes with the first record that did not wait."""
    with guarded(12, LONG_ROUND_TRIP, **{POLICY: "delay", "batch.num.messages": 20}) as (rig, _):
        for number in range(300):
            assert rig.produce("a", number % 3)
        rig.report_queue(1)
        rig.engine.updates.answered_within(0.1)
        rig.engine.updates.holds.lane_is_ready()  # as soon as there is one
        rig.flush(60)
        assert not rig.open_records
        assert writers(rig) == 1
        for _ in range(60):
            assert rig.produce(*TP)
            rig.poll(0.05)
        rig.flush(10)
        assert writers(rig) == 2


@pytest.mark.parametrize("way", WAYS)
def test_a_record_that_cannot_wait_long_enough_fails_at_once(way: str) -> None:
    """Within a second, not written, with the error of the limit."""
    with guarded(3600, **{POLICY: "delay", "message.timeout.ms": 5_000}, **WAYS[way]) as (rig, _):
        for _ in range(3):
            assert rig.produce(*TP)
            rig.poll(0.5)
        assert not rig.open_records
        assert rig.time.now - START < 3
        for record in rig.records.values():
            (error,) = record.reports
            assert isinstance(error, DeliveryError)
            assert error.code() == KafkaError.THROTTLING_QUOTA_EXCEEDED
            assert (error.outcome, error.attempts) == (Outcome.NOT_WRITTEN, 0)
            assert "No producer ID in time" in error.str()


def test_somebody_else_took_the_permit() -> None:
    """Waiting reserved nothing: the records fail as soon as that is known, not at their deadline."""
    with guarded(3, **{POLICY: "delay"}) as (rig, keeper):
        assert rig.produce(*TP)
        rig.report_queue(2)
        keeper.opens_at = rig.time.now + 3600
        rig.report_queue(3)
        rig.poll(0)
        ((error,),) = [record.reports for record in rig.records.values()]
        assert error is not None
        assert error.code() == KafkaError.THROTTLING_QUOTA_EXCEEDED
        asked = len(keeper.asked)
        rig.report_queue(200)
        assert len(keeper.asked) == asked, "a producer for which nothing waits asks nobody"
        keeper.opens_at = 0.0
        assert rig.produce(*TP)
        rig.flush(5)
        assert not rig.open_records


@pytest.mark.parametrize("way", WAYS)
def test_purge_and_close_end_what_waits(way: str) -> None:
    """Certainly not written, and no permit was used."""
    with guarded(3600, **{POLICY: "delay", "message.timeout.ms": 0}, **WAYS[way]) as (rig, keeper):
        assert rig.produce(*TP)
        rig.report_queue(1)
        rig.purge()
        rig.poll(1)
        assert not rig.open_records
        assert rig.produce(*TP)
        rig.close(1)
        errors = [error for record in rig.records.values() for error in record.reports]
        assert [error.outcome for error in errors if error] == [Outcome.NOT_WRITTEN] * 2
        assert not keeper.granted


def test_produce_batch_waits_as_well() -> None:
    """Record by record, as any that is held."""
    with guarded(5, **{POLICY: "delay"}) as (rig, _):
        assert rig.produce_batch("a", 0, 10) == 10
        assert rig.producer.snapshot().held == 10
        rig.flush(20)
        assert len(rig.cluster.log[TP]) == 10


def test_a_permit_that_was_used_does_not_go_back() -> None:
    """Once delivered, nor when the outcome is unknown."""
    with guarded() as (rig, keeper):
        assert rig.produce(*TP)
        rig.flush(5)
        rig.close()
        assert (len(keeper.granted), keeper.back) == (1, [])
