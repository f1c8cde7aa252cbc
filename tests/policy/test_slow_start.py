"""How much may go before brokers have answered: about a batch; then a batch of each at a time."""

from __future__ import annotations

import pytest

from safeproducer.policy.pacing import _LONGEST_ALONE, LONGEST_PACE, PacedStart, SlowStart

A, B = ("a", 0), ("b", 0)
LINGER = 0.005


def test_about_a_batch_goes_and_no_more() -> None:
    start = SlowStart(100, 10_000, LINGER, True, 0)
    assert [start.takes(A, 1, 0, 0.0) for _ in range(102)] == [True] * 100 + [False] * 2
    assert start.closes()


def test_the_first_record_goes_whatever_its_size() -> None:
    """Nothing else would end the wait."""
    start = SlowStart(100, 10, LINGER, True, 0)
    assert start.takes(A, 1_000, 0, 0.0)
    assert not start.takes(A, 1, 0, 0.0)


def test_it_takes_what_comes_within_a_linger_of_the_first_record() -> None:
    """The next batch of a partition would be taken by a leader that has rejected its first one for now."""
    start = SlowStart(100, 10_000, LINGER, True, 0)
    assert start.takes(A, 1, 0, 5.0)
    assert start.takes(A, 1, 0, 5.0 + LINGER / 2)
    assert not start.takes(A, 1, 0, 5.0 + LINGER)
    assert start.takes(B, 1, 0, 5.0 + LINGER)
    assert not start.none_waits(2)
    assert not start.takes(A, 1, 0, 6.0)
    assert start.none_waits(3)
    assert start.takes(A, 1, 0, 6.0)
    assert start.takes(A, 1, 0, 6.0 + LINGER / 2)
    assert not start.takes(A, 1, 0, 6.0 + LINGER)
    assert not start.takes(A, 1, 0, 5.9 + LINGER + _LONGEST_ALONE)
    assert start.takes(A, 1, 0, 6.0 + LINGER + _LONGEST_ALONE)


def test_a_partition_waits_for_its_own_answer_alone() -> None:
    """Another one's may be late: too few replicas are in sync, perhaps."""
    start = SlowStart(100, 10_000, LINGER, True, 0)
    assert start.takes(A, 1, 7, 5.0)
    assert start.takes(B, 1, 7, 5.0)
    assert not start.takes(A, 1, 7, 6.0)
    assert start.takes(B, 1, 8, 6.0)


def test_a_record_that_was_not_sent_leaves_its_room() -> None:
    start = SlowStart(1, 100, LINGER, True, 0)
    assert start.takes(A, 1, 0, 0.0)
    start.give_back(1)
    assert start.takes(A, 1, 0, 0.0)


def test_slow_start_ends_when_all_that_went_is_answered() -> None:
    """A small batch is answered before a large one, and without its throttle time."""
    start = SlowStart(100, 100, LINGER, True, 0)
    for _ in range(3):
        start.takes(A, 1, 0, 0.0)
    assert not start.answered(0, 3, measuring=False)
    assert not start.answered(1, 2, measuring=False)
    assert not start.answered(3, 0, measuring=True)
    assert start.answered(3, 0, measuring=False)
    assert not start.closes()
    assert all(start.takes(A, 1, 0, 0.0) for _ in range(200))


def test_slow_start_ends_when_the_broker_that_owes_an_answer_is_silent() -> None:
    """Or one broker that is dead would keep back what is for all others."""
    start = SlowStart(100, 100, LINGER, True, 0)
    assert all(start.takes(A, 1, 0, 0.0) for _ in range(100))
    assert not start.answered(0, 100, measuring=True)
    assert start.answered(0, 100, measuring=True, over=True)
    assert start.takes(A, 1, 0, 0.0)


def test_slow_start_ends_when_the_lane_is_empty() -> None:
    """What was refused in between is resolved by nothing."""
    start = SlowStart(100, 100, LINGER, True, 0)
    start.takes(A, 1, 0, 0.0)
    start.takes(A, 1, 0, 0.0)
    assert start.answered(1, 0, measuring=False)


@pytest.mark.parametrize("size", [1, 0, -10])
def test_the_first_record_goes_though_no_batch_takes_one(size: int) -> None:
    """A batch may be smaller than what a record takes in it: then nothing else would end the wait."""
    start = SlowStart(100, size, LINGER, True, 0)
    assert not start.closes()
    assert start.takes(A, 1000, 0, 0.0)
    assert not start.takes(A, 1, 0, 0.0)


def test_a_start_that_is_not_wanted_holds_nothing() -> None:
    start = SlowStart(1, 1, LINGER, False, 0)
    assert all(start.takes(A, 5, 0, 0.0) for _ in range(5))
    assert not start.closes()


def test_a_batch_of_each_partition_goes_at_a_time() -> None:
    """The next one once all that went is answered, and the linger of a batch is left to fill it."""
    start = PacedStart(2, 100, LINGER)
    assert start.look(True, False, 0, 10.0)
    assert [start.takes(A, 1) for _ in range(3)] == [True, True, False]
    assert start.takes(B, 1)
    assert not start.look(True, False, 3, 10.0 + LINGER / 2)
    assert start.takes(B, 1)
    assert not start.look(True, False, 4, 10.0 + LINGER)
    assert start.closes(B)
    assert not start.takes(B, 1)
    assert start.look(True, False, 0, 10.1)
    assert start.takes(A, 1)


@pytest.mark.parametrize(("wanted", "in_slow_start", "now"), [(False, False, 11), (True, True, 11), (True, False, 21)])
def test_the_paced_start_is_over(wanted: bool, in_slow_start: bool, now: float) -> None:
    """A lane is ready, or not wanted any more; or it does not come."""
    start = PacedStart(2, 100, LINGER)
    start.look(True, False, 0, 10.0)
    assert start.open
    assert now < 10 + LONGEST_PACE or wanted
    assert start.look(wanted, in_slow_start, 1, float(now))
    assert not start.open
    assert not start.closes(A)
