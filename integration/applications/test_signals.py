"""Signal handlers that flush and leave, wherever in the producer the signal arrives."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from integration.applications.account import settle
from integration.applications.application import DEFAULT_AND_HELD, SAFE, Application
from safeproducer.testing import FakeCluster

PROGRAM = "integration.applications.programs.endings"
RECORDS = 50

Both = Callable[..., list[Any]]


@contextmanager
def paused(application: Application, brokers: FakeCluster) -> Iterator[None]:
    """The leader does not answer what the program produces now."""
    application.has("warm")
    brokers.pause(application.leader)
    try:
        application.step("the leader waits")
        yield
    finally:
        brokers.resume(application.leader)


@pytest.mark.parametrize(
    "ending", ["sigterm_in_a_long_poll", "sigterm_in_a_long_flush", "sigterm_handler_that_leaves_at_once"]
)
def test_a_sigterm_handler_flushes(both: Both, brokers: FakeCluster, ending: str) -> None:
    """The usual shutdown: records are under way, the handler's flush() waits for them, and the program leaves."""

    def drive(application: Application) -> None:
        with paused(application, brokers):
            application.has("ready")
            application.send(signal.SIGTERM)
            application.has("handling")
        application.ends_well(silent=True)
        assert [line["count"] for line in application.lines("left")] == [0]
        assert settle(application, brokers) == 1 + RECORDS

    both(drive, PROGRAM, ending)


def test_a_sigterm_handler_that_interrupts_a_callback(both: Both, brokers: FakeCluster) -> None:
    """Its flush() cannot serve there, but the records under way must not be lost for that; the status is the handler's.

    It is where most handlers run in a producer that is busy: the C client leaves a wait for the first report, and
    Python runs the handler on the first instruction of that callback. confluent_kafka waits in vain, then raises
    SystemError.
    """

    def drive(application: Application) -> None:
        with paused(application, brokers):
            application.has("handling")
            time.sleep(0.3)  # for an answer that must not come
            assert not application.lines("left"), "flush() has not waited"
        application.ends_well(within=10)  # its flush(20) cannot run all reports, but must not wait for that
        assert settle(application, brokers, reports=False) == 2 * RECORDS

    both(drive, PROGRAM, "sigterm_inside_a_callback", classes=(SAFE,))


@pytest.mark.parametrize(
    ("ending", "number"),
    [
        ("sigterm_while_it_polls", signal.SIGTERM),
        ("sigterm_while_it_flushes", signal.SIGTERM),
        ("ctrl_c_while_it_polls", signal.SIGINT),
    ],
)
def test_a_signal_among_reports_ends_the_program_and_nothing_is_lost(
    both: Both, brokers: FakeCluster, ending: str, number: signal.Signals
) -> None:
    """Reports come while the signal does, so its handler often runs on the first instruction of a callback.

    confluent_kafka is not asked: before Python 3.12 it raises SystemError there, with status 1, after waiting in vain.
    """

    def drive(application: Application) -> None:
        application.has("ready", times=5)
        application.ends_well(number, 10)
        settle(application, brokers, unsaid=1, reports=False)

    both(drive, PROGRAM, ending, classes=(SAFE,))


@DEFAULT_AND_HELD
def test_time_limits(both: Both, brokers: FakeCluster, classes: tuple[str, ...], settings: dict[str, Any]) -> None:
    """Whatever a handler interrupts by raising, the producer goes on; a report may be lost with it, a record not."""

    def drive(application: Application) -> None:
        application.ends_well(silent=True)
        assert [line["count"] for line in application.lines("left")] == [0, 0]
        settle(application, brokers, unsaid=200, reports=False)

    both(drive, "integration.applications.programs.time_limits", classes=classes, settings=settings)
