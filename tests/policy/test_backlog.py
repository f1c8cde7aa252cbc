"""Backlogs: ages from counts, never younger than the truth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy.backlog import Backlogs
from safeproducer.policy.expiry import LEAST_LIMIT
from safeproducer.policy.types import NEVER, TopicPartition

A, B = ("a", 0), ("b", 0)


def never(_: TopicPartition) -> float:
    """When the leader of a partition answered."""
    return -NEVER


@pytest.fixture
def backlogs() -> Backlogs:
    return Backlogs()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30))
def test_the_oldest_record_is_no_younger_than_it_is(steps: list[tuple[int, int]]) -> None:
    """Records are given between two looks; the earlier look is the safe one."""
    backlogs = Backlogs()
    backlogs.observe(A, 0, 0, 0.25)
    given_at: list[float] = []
    acknowledged = 0
    for second, (more, done) in enumerate(steps, start=1):
        given_at += [second - 0.5] * more
        acknowledged = min(len(given_at), acknowledged + done)
        backlogs.observe(A, len(given_at), acknowledged, float(second))
        oldest = backlogs.earliest()
        if acknowledged == len(given_at):
            assert oldest is None
        else:
            assert oldest is not None
            assert oldest <= given_at[acknowledged]
            assert given_at[acknowledged] - oldest <= 1.0
        assert backlogs.has_nothing_of(A, second - 1.0) == (acknowledged == len(given_at))


def test_records_that_waited_before_are_as_old_as_that(backlogs: Backlogs) -> None:
    """They are no longer under way than others, and what is given behind them is not older for it."""
    backlogs.observe(A, 0, 0, 10.0)
    backlogs.released(A, 10.2, 6.0)
    backlogs.observe(A, 5, 0, 10.5)
    assert backlogs.earliest() == 6.0
    assert backlogs.old(10.6, age=3.0) == frozenset()
    backlogs.observe(A, 8, 5, 11.0)
    assert backlogs.earliest() == 10.5
    backlogs.released(A, 11.2, 7.0)
    backlogs.observe(A, 9, 9, 11.5)
    backlogs.observe(A, 10, 9, 12.0)
    assert backlogs.earliest() == 11.5


def test_drained_is_said_by_a_look_from_after(backlogs: Backlogs) -> None:
    """One from before knows nothing of what was given since."""
    assert not backlogs.has_nothing_of(A, 0.0)
    backlogs.observe(A, 3, 3, 10.0)
    assert backlogs.has_nothing_of(A, 9.9)
    assert not backlogs.has_nothing_of(A, 10.0)


def test_stuck_is_what_is_not_acknowledged_or_too_old(backlogs: Backlogs) -> None:
    """An acknowledgement in between starts the patience anew, but makes no record younger."""
    for second in range(10):
        backlogs.observe(A, 5, 0, float(second))
        backlogs.observe(B, 100, second, float(second))
    assert backlogs.silent(9.0, 5.0, never) == {A}
    assert backlogs.silent(9.0, 100.0, never) == frozenset()
    assert backlogs.old(9.0, age=8.0) == {A, B}
    assert backlogs.old(9.0, age=100.0) == frozenset()
    assert backlogs.earliest() == 0.0


def test_the_oldest_record_is_too_old_though_others_keep_coming(backlogs: Backlogs) -> None:
    """The newest one of the same partition is young."""
    for second in range(10):
        backlogs.observe(A, second + 1, 0, float(second))
    assert backlogs.old(9.0, age=8.0) == {A}


UNDER_WAY = {
    "it queues behind requests of others": ((0, 0), 9.0, False),
    "and nobody answers any": ((0, 0), 3.0, True),
    "its request has no answer": ((5, 5), 9.0, True),
    "its request was answered with an error": ((0, 5), 9.0, True),
    "it is tried again": ((5, 10), 9.0, True),
}


@pytest.mark.parametrize(("under_way", "answered", "silent"), UNDER_WAY.values(), ids=UNDER_WAY)
def test_a_leader_that_answers_owes_nothing_to_what_queues(
    under_way: tuple[int, int], answered: float, silent: bool, backlogs: Backlogs
) -> None:
    """Lateness is no silence: a thousand partitions share five requests of a connection."""
    for second in range(1, 10):
        backlogs.observe(A, 5, 0, float(second), under_way=under_way if second > 1 else (0, 0))
    assert bool(backlogs.silent(9.0, 5.0, lambda _: answered)) is silent


def test_a_request_that_is_answered_begins_the_wait_anew(backlogs: Backlogs) -> None:
    for second in range(10):
        backlogs.observe(A, 100, second, float(second), under_way=(5, 5 + second))
    assert not backlogs.silent(9.0, 2.0, lambda _: 9.0)


def test_forgiven_records_are_no_backlog(backlogs: Backlogs) -> None:
    """An empty lane has nothing that could still be acknowledged, whatever the counts say."""
    backlogs.observe(A, 5, 2, 1.0)
    backlogs.forgive()
    assert backlogs.earliest() is None
    backlogs.observe(A, 6, 2, 2.0)
    assert backlogs.earliest() == 1.0
    backlogs.observe(A, 6, 6, 3.0)
    assert backlogs.earliest() is None
    assert backlogs.has_nothing_of(A, 2.5)


def test_records_beside_the_count_are_given_too(backlogs: Backlogs) -> None:
    """They may be fewer later, when some were refused after all."""
    backlogs.observe(A, 0, 0, 1.0)
    backlogs.observe(A, 2, 0, 2.0, uncounted=8)
    assert backlogs.earliest() == 1.0
    backlogs.observe(A, 2, 0, 2.5, uncounted=6)
    assert backlogs.earliest() == 1.0, "the others are as old as before"
    backlogs.observe(A, 2, 7, 3.0, uncounted=5)
    assert backlogs.earliest() is None
    assert backlogs.has_nothing_of(A, 2.5)


def test_a_count_that_begins_anew_goes_on(backlogs: Backlogs) -> None:
    """A partition that librdkafka forgot counts from zero again, while the numbers of its records go on."""
    backlogs.observe(A, 7, 7, 1.0)
    backlogs.observe(A, 2, 7, 2.0)
    assert backlogs.earliest() == 1.0
    assert not backlogs.has_nothing_of(A, 1.5)
    backlogs.observe(A, 2, 9, 3.0)
    assert backlogs.has_nothing_of(A, 2.5)


def test_times_that_applications_gave_are_asked_by_topic() -> None:
    """The horizon of a leader goes by them."""
    backlogs, asked = Backlogs(), list[str]()
    for at in (1.0, 1.0 + LEAST_LIMIT):
        backlogs.observe(A, 1, 0, at)

    def stamped(topic: str, given: float) -> float:
        asked.append(topic)
        return given

    backlogs.purge_at(10.0, stamped)
    assert asked == [A[0]]


def test_a_partition_that_is_new_is_no_older_than_the_last_look(backlogs: Backlogs) -> None:
    """However long ago the lane was idle: all partitions were looked at since, and this one was not there."""
    backlogs.observe(A, 5, 5, 10.0)
    backlogs.looked(10.0)
    backlogs.idle(20.0)
    backlogs.observe(A, 9, 8, 400.0)
    backlogs.looked(400.0)
    backlogs.observe(B, 1, 0, 400.5)
    assert backlogs.oldest() == {A: 20.0, B: 400.0}
    assert backlogs.purge_at(300.0, lambda topic, at: NEVER) == 320.0


def test_a_record_may_have_had_no_partition_at_the_last_look(backlogs: Backlogs) -> None:
    """It is as old as the oldest of its topic that had none then."""
    backlogs.observe((B[0], -1), 1, 0, 10.0)
    backlogs.looked(10.0)
    backlogs.observe((B[0], -1), 1, 0, 14.0)
    backlogs.looked(14.0)
    backlogs.observe(B, 1, 0, 14.5)
    backlogs.observe((B[0], -1), 1, 1, 14.5)
    assert backlogs.oldest() == {B: 10.0}


def test_a_look_at_the_same_counts_is_a_look_at_an_idle_partition_only(backlogs: Backlogs) -> None:
    """What comes behind it was given after it; one that waits, or has a request under way, is looked at as a whole."""
    assert not backlogs.observe_same(A, 9.0)  # it was never looked at
    backlogs.observe(A, 5, 5, 10.0)
    assert backlogs.observe_same(A, 20.0)
    assert backlogs.has_nothing_of(A, 19.0)
    backlogs.observe(A, 6, 5, 21.0)
    assert backlogs.oldest() == {A: 20.0}
    assert not backlogs.observe_same(A, 22.0)
    backlogs.observe(A, 6, 6, 23.0, 0, 0, (1, 1))
    assert not backlogs.observe_same(A, 24.0)
    backlogs.observe(A, 6, 6, 25.0)
    backlogs.released(A, 25.5, 3.0)
    assert not backlogs.observe_same(A, 26.0)


def test_a_look_at_the_same_counts_forgets_no_record_that_a_former_owner_left(backlogs: Backlogs) -> None:
    backlogs.observe(A, 5, 4, 10.0)
    backlogs.all_ended(11.0)  # its acknowledgement is counted later
    assert not backlogs.observe_same(A, 12.0)
