"""How long a task waits while nothing is acknowledged: without a clock, and in the long form by the real one."""

from __future__ import annotations

import time

import pytest

from safeproducer.spark import attempt, topic_limits
from safeproducer.spark.errors import UNREACHABLE
from safeproducer.spark.pace import ASK_AFTER, UNREACHABLE_AFTER, PaceStep, TaskPatience
from safeproducer.spark.task import Task
from tests.spark.arrow import rows
from tests.spark.conftest import MakeOptions, failure_of

NOBODY = "127.0.0.1:1"


def test_progress_begins_the_wait_anew() -> None:
    """The deadline is about silence: reports that come slowly are still reports."""
    patience = TaskPatience(60.0, 0, 0.0)
    for turn in range(1, 100):
        assert patience.look(turn, False, turn * 9.0) is PaceStep.WAIT
    assert patience.look(99, False, 99 * 9.0 + 59.0) is PaceStep.ASK
    patience.asked(answered=True)
    assert patience.look(99, False, 99 * 9.0 + 60.0) is PaceStep.TOO_LATE


def test_a_silent_cluster_is_asked_and_waited_for_when_it_answers() -> None:
    """Every ten seconds; while somebody answers, only the deadline ends the wait."""
    patience = TaskPatience(60.0, 0, 0.0)
    assert patience.look(0, False, ASK_AFTER - 0.1) is PaceStep.WAIT
    for asked_at in (10.0, 20.0, 30.0, 40.0, 50.0):
        assert patience.look(0, False, asked_at) is PaceStep.ASK
        patience.asked(answered=True)
        assert patience.look(0, False, asked_at + 1) is PaceStep.WAIT


def test_without_any_broker_the_wait_ends_early() -> None:
    """Not at once: a broker may come back within its restart."""
    patience = TaskPatience(60.0, 0, 0.0)
    assert patience.look(0, True, ASK_AFTER) is PaceStep.ASK
    assert patience.look(0, True, UNREACHABLE_AFTER - 0.1) is PaceStep.WAIT
    assert patience.look(0, True, UNREACHABLE_AFTER) is PaceStep.UNREACHABLE


def test_two_questions_without_an_answer_end_the_wait() -> None:
    """A network that swallows everything tells of no lost connection."""
    patience = TaskPatience(60.0, 0, 0.0)
    for asked_at in (10.0, 20.0):
        assert patience.look(0, False, asked_at) is PaceStep.ASK
        patience.asked(answered=False)
    assert patience.look(0, False, 23.0) is PaceStep.UNREACHABLE


def test_only_questions_in_a_row_end_the_wait() -> None:
    """An answer between them shows that somebody is there, and so does a report."""
    patience = TaskPatience(90.0, 0, 0.0)
    for asked_at, answered in ((10.0, False), (20.0, True), (30.0, False)):
        assert patience.look(0, False, asked_at) is PaceStep.ASK
        patience.asked(answered)
    assert patience.look(0, False, 31.0) is PaceStep.WAIT
    assert patience.look(1, False, 32.0) is PaceStep.WAIT
    assert patience.look(1, False, 42.0) is PaceStep.ASK
    patience.asked(answered=False)
    assert patience.look(1, False, 53.0) is PaceStep.ASK
    patience.asked(answered=False)
    assert patience.look(1, False, 54.0) is PaceStep.UNREACHABLE


def test_a_short_deadline_ends_the_wait_before_all_that() -> None:
    assert TaskPatience(2.0, 0, 0.0).look(0, True, 2.0) is PaceStep.TOO_LATE


def test_a_task_without_brokers_ends_within_thirty_seconds() -> None:
    """At its begin and in its middle, the questions included."""
    at_the_begin = topic_limits.LIMITS_WITHIN + topic_limits.ANSWER_WITHIN
    assert at_the_begin <= 20
    assert topic_limits.LIMITS_WITHIN + topic_limits.APPEARS_WITHIN < 30
    assert UNREACHABLE_AFTER + attempt._ANSWER < 30


@pytest.mark.full
@pytest.mark.parametrize(
    ("missing", "code"), [(NOBODY, UNREACHABLE), ("no-such-topic", "UNKNOWN_TOPIC_OR_PART")], ids=["brokers", "topic"]
)
def test_a_task_ends_within_thirty_seconds_by_the_clock(missing: str, code: str, options: MakeOptions) -> None:
    given = {"kafka_bootstrap_servers": missing} if missing == NOBODY else {"topic": missing}
    began = time.monotonic()
    failure = failure_of([rows(0, 10)], options(**given), Task(0, 0))
    assert time.monotonic() - began < 30
    assert (list(failure.codes), failure.delivered) == ([code], 0)
    assert missing in str(failure.reason)
    assert failure.host in str(failure.reason)
