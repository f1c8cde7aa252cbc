"""From the direct lane to the batch lanes: nothing of the partition is left behind, and nothing else is waited for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from safeproducer.pipeline.dispatch.intake import Intake
from safeproducer.pipeline.dispatch.record_buffer import RecordBuffer
from safeproducer.pipeline.route import Route
from safeproducer.pipeline.turn import Turns
from safeproducer.policy.types import NEVER
from tests.pipeline.interleaving import between, codes_of
from tests.pipeline.rig import Rig, rigged

LONG_ROUND_TRIP = {1: 0.1, 2: 0.1, 3: 0.1}
CONFIG = {"message.timeout.ms": 30_000, "linger.ms": 5}
LINGER = 0.005
LATE = 0.05


@contextmanager
def far_away() -> Iterator[Rig]:
    """A producer whose records go by a batch lane, with nothing under way."""
    with rigged({"safeproducer.mode": "auto", **CONFIG}, LONG_ROUND_TRIP) as rig:
        patience = rig.time.now + 60
        while rig.engine.route.goes_direct or not rig.dispatcher.lanes.handed_over:
            assert rig.time.now < patience, "it does not hold back"
            rig.produce("a", 0)
            rig.poll(0.05)
        rig.flush(5)
        yield rig


def handed_over(rig: Rig, topic: str, partition: int) -> bool:
    """Whether a record that is produced now goes as soon as it has waited for linger.ms, with nobody polling."""
    assert rig.produce(topic, partition)
    rig.time.pass_(LINGER + 0.001)
    rig.dispatcher.pump(rig.time.monotonic())
    return rig.dispatcher.lanes.inside > 0


def test_statistics_that_nobody_has_read_are_not_waited_for() -> None:
    """librdkafka counts them with the records of a lane, and a thread may be polling the other lane for a while."""
    with far_away() as rig:
        direct = rig.natives[0]
        direct.poll(0)
        direct._events.append((False, lambda: None))
        assert len(direct) == 1
        assert handed_over(rig, "a", 0)


def test_a_record_that_went_straight_is_waited_for() -> None:
    """Also by a partition that is new here: librdkafka may have chosen it for a record of no partition."""
    for partition in (0, 1):
        with far_away() as rig:
            rig.report_queue(1)
            rig.engine.route.go(direct=True)
            assert rig.produce("a", partition)
            rig.engine.route.go(direct=False)
            rig.dispatcher.recheck(rig.time.monotonic())
            assert not handed_over(rig, "a", partition)
            rig.time.pass_(LATE)
            assert not rig.dispatcher.lanes.inside
            rig.flush(5)
            assert rig.dispatcher.lanes.handed_over
            rig.check_order()


def test_a_topic_that_is_new_while_brokers_are_far_is_asked_for() -> None:
    """Nothing of it goes directly, which would tell of its partitions."""
    with far_away() as rig:
        end = rig.time.now + 1
        assert rig.produce("b", 0)
        record = list(rig.records.values())[-1]
        while not record.reports and rig.time.now < end:
            rig.produce("a", 0)
            rig.poll(0.02)
        assert record.reports
        assert not rig.engine.route.goes_direct


def test_a_partition_that_is_new_in_the_middle_of_the_switch_does_not_wait_for_ever() -> None:
    """Another thread takes the first record of it before the switch is over."""
    with far_away() as rig:
        rig.dispatcher.record_buffer.may_go_directly(NEVER)
        assert rig.produce("a", 1)
        opened = rig.dispatcher.record_buffer.buffers["a", 1]
        assert opened.direct_until <= rig.time.monotonic()
        rig.dispatcher.record_buffer.may_go_directly(rig.time.monotonic())


class StopError(Exception):
    """As Ctrl-C: it comes anywhere, and the application goes on."""


def _stop() -> None:
    raise StopError


def test_a_switch_that_is_interrupted_is_made_by_the_next_poll() -> None:
    """Neither are records sent both ways at once, nor does a partition wait for an end that never comes."""
    codes = codes_of(Route.go, RecordBuffer.may_go_directly)
    with far_away() as rig, between(codes, -1, _stop) as steps:
        rig.engine.route.go(direct=True)
        rig.engine.route.go(direct=False)
    assert steps[0] > 10
    for step in range(steps[0]):
        with far_away() as rig:
            with suppress(StopError), between(codes, step, _stop):
                rig.engine.route.go(direct=True)
                assert rig.produce("a", 0)
                rig.engine.route.go(direct=False)
            rig.poll(0)
            assert rig.engine.route.send == (
                rig.natives[0].produce if rig.engine.route.goes_direct else rig.dispatcher.intake.send
            ), f"step {step}"
            assert rig.produce("a", 0)
            assert rig.produce("a", 1)
            rig.flush(5)
            assert all(record.reports for record in rig.records.values()), f"step {step}"
            rig.check_order()


@contextmanager
def about_to_open() -> Iterator[Rig]:
    """A producer that holds back, for no reason that the sender will find."""
    with rigged({"safeproducer.mode": "auto", **CONFIG}) as rig:
        while not rig.engine.route.goes_direct:
            assert rig.produce("a", 0)
            rig.poll(0.05)
        rig.flush(5)
        rig.engine.route.hold()
        yield rig
        while not rig.engine.route.goes_direct:
            rig.poll(0.05)
        rig.flush(5)
        rig.check_order()


def test_records_stay_in_order_while_the_direct_path_opens_in_the_middle_of_one() -> None:
    """A thread saw that its record has to wait, and is late: the next one would pass it."""
    codes = codes_of(Intake.send, Intake._append, RecordBuffer.refuse_excess)
    with about_to_open() as rig, between(codes, -1, lambda: None) as steps:
        assert rig.produce("a", 0)
        rig.engine.sender.turn()
    assert steps[0] > 10
    for step in range(steps[0]):
        with about_to_open() as rig:
            with between(codes, step, rig.engine.sender.turn):
                assert rig.produce("a", 0)
            assert rig.produce("a", 0)
            rig.poll(0.05)


@pytest.mark.parametrize("opens", [True, False])
@pytest.mark.parametrize("block", [False, True])
def test_records_stay_in_order_when_one_comes_while_the_sender_switches(block: bool, opens: bool) -> None:
    """As above, at each step of the sender."""
    codes = codes_of(Turns._act, Route.choose, Route.go)

    def late(rig: Rig) -> None:
        route, intake = rig.engine.route, rig.dispatcher.intake
        send, suspended = route.send, intake.suspended
        route.send, intake.suspended = intake.send, True  # as when it looked
        if not (block and rig.produce_block("a", 0, None, 3)):
            assert rig.produce("a", 0)
        route.send, intake.suspended = send, suspended
        assert rig.produce("a", 0)

    def switch(rig: Rig, step: int, other: Callable[[], object]) -> int:
        if opens:
            switches = rig.engine.sender.turn
        else:
            rig.poll(0.05)
            switches = rig.engine.route.leave
        with between(codes, step, other) as steps:
            switches()
        assert rig.produce("a", 0)
        rig.poll(0.05)
        return steps[0]

    with about_to_open() as rig:
        steps = switch(rig, -1, lambda: None)
    assert steps >= 5
    for step in range(steps):
        with about_to_open() as rig:
            switch(rig, step, partial(late, rig))


def test_a_record_that_waits_behind_direct_ones_knows_of_them() -> None:
    """Else its partition would change to a batch lane before what went directly has left, and pass it there."""
    with rigged({"message.timeout.ms": 30_000, "linger.ms": 5}, dict.fromkeys((1, 2, 3), 0.1)) as rig:
        assert rig.produce("a", 0)
        rig.report_queue(0.05)
        went = rig.time.now - 0.05
        assert rig.produce("a", 0)
        buffer = rig.dispatcher.record_buffer.buffers["a", 0]
        assert buffer.records, "it waits for the first one's answer"
        assert buffer.direct_until >= went
        rig.flush(10)
        rig.check_order()
