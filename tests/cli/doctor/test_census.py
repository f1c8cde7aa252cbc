"""Counting producer IDs."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.cli.common.producer_states import RememberedId
from safeproducer.cli.doctor.census import DAY, HOUR, SMALL, BusiestHour, Idle, TopicCensus, busiest_hour, census

NOW = 1_800_000_000.0
MOMENTS = st.lists(st.integers(0, int(1.2 * DAY)).map(lambda age: NOW - age), max_size=30)


def count(
    *partitions: Sequence[RememberedId], expiration: float = DAY, lines: Mapping[int, str] | None = None
) -> TopicCensus:
    """The census of a topic whose partitions one broker leads."""
    given = [(number, 1, states) for number, states in enumerate(partitions)]
    return census("t", given, {1: expiration}, lines or {}, NOW)


def state(number: int, sequence: int = 0, age: float = 0.0, **more: bool) -> RememberedId:
    """An ID that wrote its last batch `age` seconds ago."""
    return RememberedId(number, sequence, NOW - age, **more)


def test_an_id_counts_once() -> None:
    """Entries are what brokers keep in memory, IDs are producers."""
    found = count([state(1), state(2)], [state(1)], [])
    assert (found.ids, found.distinct_ids, found.small_ids) == (3, 2, 2)
    assert [one.ids for one in found.partitions] == [2, 1, 0]


@pytest.mark.parametrize(
    ("sequences", "small"), [((SMALL - 1,), 1), ((SMALL,), 0), ((0, SMALL), 0), ((SMALL, 0), 0), ((0, 5), 1)]
)
def test_an_id_is_small_where_it_is_small_in_each_partition(sequences: Sequence[int], small: int) -> None:
    """One that writes to a partition only now and then is a producer that lives."""
    assert count(*([state(1, sequence)] for sequence in sequences)).small_ids == small


def test_transactional_ids_are_apart() -> None:
    """Their sequence numbers begin anew with each epoch, so none of them looks large."""
    found = count([state(1, transactional=True), state(2)], [state(2, transactional=True), state(3)])
    assert (found.distinct_ids, found.small_ids, found.transactional_ids) == (3, 1, 2)
    assert found.busiest_hour == BusiestHour(NOW, 1)


@pytest.mark.parametrize(("age", "expiring"), [(0, 0), (DAY - HOUR - 1, 0), (DAY - HOUR, 1), (2 * DAY, 1)])
def test_an_id_that_a_leader_may_forget_within_the_hour_is_about_to_expire(age: float, expiring: int) -> None:
    """By the expiration of the leader; one past it goes at the leader's next look."""
    found = count([state(1, age=age)])
    assert (found.about_to_expire, found.partitions[0].about_to_expire) == (expiring, expiring)


def test_an_open_transaction_does_not_expire() -> None:
    """The leader must remember it."""
    assert count([state(1, age=2 * DAY, transactional=True, in_transaction=True)]).about_to_expire == 0


def test_without_an_expiration_nothing_is_about_to_expire() -> None:
    """Nobody said for how long the leader remembers."""
    assert census("t", [(0, 2, [state(1, age=9 * DAY)])], {1: DAY}, {}, NOW).about_to_expire == 0


def test_idle_times_are_by_record_timestamp() -> None:
    """A timestamp of the future is no negative time."""
    found = count([state(1, age=10), state(2, age=30), state(3, age=-500)])
    assert found.idle_seconds == Idle(0, 10, 30)
    assert count([]).idle_seconds is None


def test_ids_of_this_host_are_joined_with_their_line() -> None:
    """Only those that the topic has."""
    found = count([state(1), state(2), state(3)], lines={1: "a.py:1", 3: "a.py:1", 2: "b.py:2", 9: "c.py:3"})
    assert found.of_this_host == {"a.py:1": [1, 3], "b.py:2": [2]}


@given(MOMENTS)
def test_the_busiest_hour_is_the_one_with_most(moments: list[float]) -> None:
    """As found by looking at every hour that begins with a moment of the last day."""
    found = busiest_hour(moments, NOW)
    recent = [moment for moment in moments if moment > NOW - DAY]
    counts = {start: sum(start <= moment < start + HOUR for moment in recent) for start in recent}
    if found is None:
        assert not recent
    else:
        assert found.small_ids == max(counts.values())
        assert found.start == min(start for start, ids in counts.items() if ids == found.small_ids)


def test_the_busiest_hour_ends() -> None:
    """What is a day old is in none, and what an hour lies between is not in one."""
    assert busiest_hour([NOW - DAY], NOW) is None
    assert busiest_hour([NOW - HOUR - 1, NOW - 1], NOW) == BusiestHour(NOW - HOUR - 1, 1)
