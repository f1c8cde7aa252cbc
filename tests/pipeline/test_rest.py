"""An idle producer's sender sleeps longer, and its turns are skipped; whatever comes ends that at its next look."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from safeproducer.pipeline.dispatch import updates
from safeproducer.pipeline.sender import LONGEST_IDLE_SLEEP, LONGEST_SLEEP
from tests.pipeline.rig import Rig, rigged
from tests.pipeline.warmed import warmed

NEAR = {1: 0.001, 2: 0.001, 3: 0.001}
CONFIG: dict[str, Any] = {"safeproducer.mode": "auto", "message.timeout.ms": 30_000, "linger.ms": 5}
FATAL = -150
TURN_EVERY = 5.0
"""Seconds."""


@contextmanager
def resting(config: dict[str, Any]) -> Iterator[tuple[Rig, mock.MagicMock]]:
    """A producer whose records are delivered and whose statistics say so, and its whole turns."""
    with warmed(config, NEAR, {"a": 2}, rest=10) as rig:
        rig.poll(0)
        turns = rig.engine.turns  # its own: a producer of another test may not have ended yet
        with mock.patch.object(turns, "_turn", wraps=turns._turn) as whole:
            yield rig, whole


def look(rig: Rig) -> float:
    """One look of the sender, and how long it will sleep."""
    turns = rig.engine.turns
    now = rig.time.monotonic()
    return float(turns.turn(now) - now)


def until_it_rests(rig: Rig, whole: mock.MagicMock) -> None:
    """Just after a whole turn that found nothing."""
    for _ in range(3):
        whole.reset_mock()
        end = rig.time.now + 2 * TURN_EVERY
        while not whole.call_count:
            rig.poll(0)  # statistics come, too
            sleeps = look(rig)
            rig.time.pass_(0.01)
            assert rig.time.now < end, "what comes by time alone must be noticed"
        rig.poll(0)
    assert sleeps == pytest.approx(LONGEST_IDLE_SLEEP)
    whole.reset_mock()
    look(rig)
    assert whole.call_count == 0


@pytest.mark.parametrize("lanes", [0, 1])
def test_turns_are_skipped_and_the_sleep_is_long(lanes: int) -> None:
    """The sender of a busy producer looks four times a second, and each look is a whole turn."""
    with resting(CONFIG) as (rig, whole):
        if lanes:  # made while the brokers seemed far: the only one stays
            rig.dispatcher.lanes.prepare()
            rig.report_queue(5)
            rig.poll(0)
        assert len(rig.dispatcher.lanes) == lanes
        rig.engine.updates._last_read = rig.engine.updates._last_read[0], 1.0  # so that statistics are not read
        until_it_rests(rig, whole)
        rig.time.pass_(TURN_EVERY)
        while len(rig.natives[0]):
            rig.poll(0)
        assert look(rig) == pytest.approx(LONGEST_IDLE_SLEEP)
        assert whole.call_count == 1, "what comes by time alone must be noticed"


def test_a_short_timeout_is_looked_at_oftener() -> None:
    """A record must not be late by a part of its time that matters."""
    with resting({**CONFIG, "message.timeout.ms": 2000}) as (rig, whole):
        for _ in range(20):
            rig.poll(0)
            assert look(rig) <= LONGEST_SLEEP + 1e-6
            rig.time.pass_(0.3)
        assert whole.call_count


def holds(rig: Rig) -> None:
    """A record waits, and its produce() was left before it rang."""
    rig.engine.route.go(direct=False)
    rig.engine.dispatcher.intake.suspend()
    rig.produce("a", 0)
    rig.engine.dispatcher.intake.resume()
    rig.dispatcher.schedule.alarm.begin()


def another_is_throttled(rig: Rig) -> None:
    """Another producer of this process was told of it."""
    rig.engine.updates.holds.cluster.throttle.announce(1, 5.0, rig.time.now)
    rig.told_deadline[1] = rig.time.now + 5.0


COMES: dict[str, Callable[[Rig], object]] = {
    "a record": lambda rig: rig.produce("a", 0),
    "one that waits": holds,
    "another throttle time": another_is_throttled,
    "a look at brokers": lambda rig: rig.engine.dispatcher.intake.suspend(),
    "statistics": lambda rig: setattr(rig.engine.updates, "changed", True),
    "an end of all that waits": lambda rig: rig.engine.dispatcher.expiry.fail_soon(FATAL, "planted"),
    "a report": lambda rig: rig.engine.dispatcher.reports.add_event(lambda *_: None, None, None),
}


@pytest.mark.parametrize("comes", COMES)
def test_new_work_ends_a_rest(comes: str) -> None:
    """At the sender's next look, without a whole turn between."""
    with resting(CONFIG) as (rig, whole):
        until_it_rests(rig, whole)
        COMES[comes](rig)
        look(rig)
        assert whole.call_count == 1


def test_statistics_of_its_batch_lane_are_not_read_either() -> None:
    """A lane that was made once stays, and had all of its statistics read for ever."""
    with resting(CONFIG) as (rig, _):
        heard = rig.engine.updates
        heard.holds.lane_is_ready()
        heard._last_read = heard._last_read[0], 1.0  # there it takes long
        rig.report_queue(5)
        assert heard.skipped is not None, "those of the direct lane are skipped"
        with mock.patch.object(updates, "read", wraps=updates.read) as read:
            heard.statistics(heard.skipped[1], beside=True)
            heard.read_arrived()
            assert not read.call_count
            heard.holds.lane_ready = False
            heard.statistics(heard.skipped[1], beside=True)
            heard.read_arrived()
            assert read.call_count == 1, "one that is not known to be ready is waited for"


def calls_of_a_turn(partitions: int) -> int:
    """Functions that a whole turn at rest calls, statistics aside."""
    count = 0

    def called(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    with rigged(CONFIG, NEAR, {"a": partitions}) as rig:
        for partition in range(partitions):
            rig.produce("a", partition)
        rig.flush(30)
        rig.report_queue(10)
        for _ in range(100):
            rig.poll(0)
            look(rig)
            rig.time.pass_(0.1)
        rig.engine.updates.changed, rig.engine.turns._next_turn = False, 0.0
        sys.setprofile(called)
        try:
            look(rig)
        finally:
            sys.setprofile(None)
    return count


def test_a_turn_at_rest_costs_the_same_with_many_partitions() -> None:
    """Records that wait were added up over all partitions, and so were those whose leader is silent."""
    few = calls_of_a_turn(1)
    assert few > 10
    assert calls_of_a_turn(300) < 2 * few
