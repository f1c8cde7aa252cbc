"""The ways a program comes to its end: the same status, the same log, with both classes."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

from integration.applications.account import settle
from integration.applications.application import SAFE, STOCK, Application
from safeproducer.testing import FakeCluster

PROGRAM = "integration.applications.programs.endings"
RECORDS = 50
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 1500, "log_level": 0}

Both = Callable[..., list[Any]]


WAITS = (
    "flush flush_at_exit flush_at_exit_beside_a_polling_thread a_polling_thread_that_is_waited_for "
    "flush_and_exit_in_a_thread a_pool_of_threads_at_exit a_context_manager del_behind_a_flush"
)


@pytest.mark.parametrize("ending", WAITS.split())
def test_a_program_that_waits_has_everything_delivered(both: Both, brokers: FakeCluster, ending: str) -> None:
    """Wherever a program waits for its records, it ends in silence and all of them are in the log."""

    def drive(application: Application) -> None:
        application.ends_well(silent=True)
        assert settle(application, brokers) == RECORDS

    both(drive, PROGRAM, ending)


def test_an_exception_behind_a_context_manager(both: Both, brokers: FakeCluster) -> None:
    """The block's records are delivered, and the program fails for its own reason."""

    def drive(application: Application) -> None:
        ended = application.ends()
        assert ended.status == 1
        assert ended.errors.endswith("RuntimeError: of the application\n")
        assert settle(application, brokers) == RECORDS

    both(drive, PROGRAM, "an_exception_behind_a_context_manager")


@pytest.mark.parametrize(
    ("ending", "status", "settings"),
    [
        ("nothing", 0, {}),
        ("a_polling_thread_and_nothing", 0, {}),
        ("an_exception", 1, {}),
        ("nothing", 0, NOWHERE),
        ("flush_with_a_limit", 0, NOWHERE),
    ],
)
def test_a_program_that_does_not_wait_loses_records_and_ends_at_once(
    both: Both, brokers: FakeCluster, ending: str, status: int, settings: dict[str, Any]
) -> None:
    """The end comes as soon as with confluent_kafka, and SafeProducer says how many records had no report."""

    def drive(application: Application) -> None:
        ended = application.ends()
        assert ended.status == status
        assert ended.errors.count("Traceback") == status
        assert settle(application, brokers, reports=False, lossy=True) == RECORDS
        if application.producer == SAFE:
            left = application.lines("account")[-1]["unresolved"]
            said = re.findall(r"^(\d+) record\(s\) .* lost at interpreter exit", ended.errors, re.MULTILINE)
            # Some may have been written, and acknowledged while it exits.
            assert RECORDS - len(application.log(brokers)) <= sum(map(int, said)) <= left

    both(drive, PROGRAM, ending, settings=settings)


def test_a_flush_without_a_limit_ends_with_the_deadline_of_records(both: Both, brokers: FakeCluster) -> None:
    """Nobody listens: each record is reported as failed, and the program goes on."""

    def drive(application: Application) -> None:
        assert application.ends().status == 0
        assert [line["count"] for line in application.lines("left")] == [0]
        assert settle(application, brokers) == RECORDS
        assert not application.log(brokers)

    both(drive, PROGRAM, "flush", settings=NOWHERE)


@pytest.mark.parametrize(
    ("ending", "number", "status"),
    [
        ("killed_by_a_signal", signal.SIGTERM, -signal.SIGTERM),
        ("sigterm_handler_that_sets_a_flag", signal.SIGTERM, 0),
        ("ctrl_c_in_a_long_poll", signal.SIGINT, 0),
        ("killed_by_a_signal", signal.SIGINT, -signal.SIGINT),
    ],
)
def test_a_signal_ends_the_program_and_nothing_is_lost(
    both: Both, brokers: FakeCluster, ending: str, number: signal.Signals, status: int
) -> None:
    """By a flag, by Ctrl-C, or at once: what was accepted is in the log and was reported."""

    def drive(application: Application) -> None:
        application.has("ready")
        ended = application.stop(number)
        assert ended.status == status
        assert ended.errors.count("Traceback") == (status == -signal.SIGINT)
        assert settle(application, brokers) > 0

    both(drive, PROGRAM, ending)


def test_both_classes_are_at_work(both: Both) -> None:
    """The programs do take the class that they are told to."""
    kinds = both(lambda application: (application.ends(), len(application.lines("account")))[1], PROGRAM, "flush")
    assert dict(zip((STOCK, SAFE), kinds, strict=True)) == {STOCK: 0, SAFE: 1}
