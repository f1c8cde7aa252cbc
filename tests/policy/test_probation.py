"""One batch of a partition until its answer, whatever others have had answered."""

from __future__ import annotations

import pytest

from safeproducer.policy.probation import (
    FREE,
    LONGEST_ALONE,
    LONGEST_PACE,
    LONGEST_UNPLACED,
    ON_PROBATION,
    WAITS,
    Answers,
    Asked,
    Probation,
    Seen,
)
from safeproducer.policy.types import UNPLACED, TopicPartition

A, B = ("a", 0), ("b", 0)
NO_ANSWERS: Answers = 0, 0


def told(delivered: int, failed: int = 0) -> Asked:
    """Each partition, and each topic, has so many answers."""
    return lambda _: (delivered, failed)


NONE = told(0)
LINGER = 0.005


class Counts:
    """Records of each partition that were delivered, and that failed."""

    def __init__(self) -> None:
        self.by_tp: dict[TopicPartition, Answers] = {}
        self.asked = 0

    def __call__(self, tp: TopicPartition) -> Answers:
        self.asked += 1
        return self.by_tp.get(tp, NO_ANSWERS)


def begun(records: int = 100, size: int = 10_000, **given: bool) -> Probation:
    """One whose producer has its ID."""
    start = Probation(records, size, LINGER, True, **given)
    start.look(Counts(), Seen(), 0, 0.0)
    return start


def test_what_comes_within_a_linger_is_one_batch() -> None:
    """The next one would be taken by a leader that has rejected the first one for now."""
    start = begun()
    assert start.takes(A, 1, NONE, 5.0) == ON_PROBATION
    assert start.takes(A, 1, NONE, 5.0 + LINGER / 2) == ON_PROBATION
    assert not start.closes(A, NONE, 5.0 + LINGER / 2)
    assert start.takes(A, 1, NONE, 5.0 + LINGER) == WAITS
    assert start.closes(A, NONE, 5.0 + LINGER)


@pytest.mark.parametrize(("records", "size"), [(3, 10_000), (100, 3)])
def test_a_batch_ends_by_count_and_by_size(records: int, size: int) -> None:
    start = begun(records, size)
    assert [start.takes(A, 1, NONE, 5.0) for _ in range(4)] == [ON_PROBATION] * 3 + [WAITS]
    assert start.closes(A, NONE, 5.0)
    assert start.takes(B, 1, NONE, 5.0) == ON_PROBATION


@pytest.mark.parametrize("size", [1, 0, -10])
def test_the_first_record_goes_whatever_its_size(size: int) -> None:
    """Nothing else would end the wait."""
    start = begun(100, size)
    assert start.takes(A, 1_000, NONE, 0.0) == ON_PROBATION
    assert start.takes(A, 1, NONE, 0.0) == WAITS


@pytest.mark.parametrize("others", [1, 1_000])
def test_a_partition_waits_for_its_own_answer_alone(others: int) -> None:
    """Those of others may be late: too few replicas are in sync, perhaps."""
    start, sick = begun(), [("sick", number) for number in range(others)]
    for tp in (*sick, A):
        assert start.takes(tp, 1, NONE, 5.0) == ON_PROBATION
    assert start.takes(A, 1, NONE, 6.0) == WAITS
    assert [start.takes(A, 1, told(1, 0), 6.0) for _ in range(500)] == [FREE] * 500
    assert start.takes(sick[-1], 1, NONE, 6.0) == WAITS
    assert not start.closes(A, told(1), 6.0)
    assert start.takes(B, 1, NONE, 6.0) == ON_PROBATION, "a partition that comes later"


def test_a_batch_without_a_partition_may_be_of_each_one_of_its_topic() -> None:
    """Until all of it is answered: it may be of another one, which is refused."""
    start, unplaced = begun(), ("a", UNPLACED)
    assert start.takes(unplaced, 1, NONE, 5.0) == ON_PROBATION
    assert start.takes(unplaced, 1, NONE, 5.0) == ON_PROBATION
    assert start.takes(A, 1, NONE, 5.0) == ON_PROBATION, "it is of the same batch"
    other = ("a", 1)
    assert start.takes(unplaced, 1, NONE, 5.1) == start.takes(other, 1, NONE, 5.1) == WAITS
    assert start.takes(B, 1, NONE, 5.1) == ON_PROBATION, "a partition of another topic"
    assert start.takes(other, 1, told(1), 5.11) == WAITS, "half of it"
    assert not start.look(told(1), Seen(), 3, 5.12), "and what comes now is not free"
    assert start.takes(other, 1, told(1), 5.13) == WAITS
    assert start.takes(other, 1, told(1, 1), 5.13) == ON_PROBATION, "as soon as all of it is answered"
    assert start.takes(unplaced, 1, told(1, 1), 5.15) == ON_PROBATION
    assert start.takes(("a", 2), 1, told(1, 1), 5.2) == WAITS, "for that one, which is another batch"
    assert start.takes(("a", 2), 1, told(1, 1), 5.2 + LINGER + LONGEST_UNPLACED) == ON_PROBATION


@pytest.mark.parametrize("topics", [1, 1_000])
def test_no_partition_waits_for_what_another_one_has_of_such_a_batch(topics: int) -> None:
    """Statistics show that librdkafka has nothing of it. A look at one topic is none at others."""
    start, counts = begun(), Counts()
    names = [f"t{number}" for number in range(topics)]
    for name in names:
        assert start.takes((name, UNPLACED), 1, counts, 5.0) == ON_PROBATION
    sick = {("t0", 0)}
    placed = names[1:]

    def has_nothing_of(tp: TopicPartition, since: float) -> bool:
        """Librdkafka knows the other topics, and has given all their records to partitions."""
        return since < 5.5 and tp not in sick and (tp[0] in placed or tp[1] >= 0)

    start.acknowledged(has_nothing_of)
    counts.asked = 0
    for name in names:
        expected = ON_PROBATION if name in placed else WAITS
        assert start.takes((name, 1), 1, counts, 6.0) == expected
        assert start.takes((name, 0), 1, counts, 6.0) == expected
    assert counts.asked <= 2 * topics + 1
    placed = names
    assert start.takes(("t0", 1), 1, counts, 7.0) == ON_PROBATION
    assert start.takes(("t0", 0), 1, counts, 7.0) == WAITS


def test_what_failed_is_followed_by_another_first_batch() -> None:
    """Its leader knows no batch of this producer."""
    start = begun()
    assert start.takes(A, 1, NONE, 5.0) == ON_PROBATION
    assert start.takes(A, 1, told(0, 1), 6.0) == ON_PROBATION
    assert start.takes(A, 1, told(0, 1), 7.0) == WAITS


def test_no_answer_is_waited_for_without_end() -> None:
    start = begun()
    start.takes(A, 1, NONE, 5.0)
    end = 5.0 + LINGER + LONGEST_ALONE
    assert start.takes(A, 1, NONE, end - 0.1) == WAITS
    assert start.closes(A, NONE, end - 0.1)
    assert not start.closes(A, NONE, end)
    assert start.takes(A, 1, NONE, end) == ON_PROBATION


def test_all_is_one_batch_that_comes_before_the_producer_has_its_id() -> None:
    """Nothing leaves librdkafka until then."""
    start = Probation(3, 100, LINGER, True)
    assert not start.look(Counts(), Seen(unreached=True), 1, 4.0)
    start.takes(A, 1, NONE, 5.0)
    assert start.takes(A, 1, NONE, 6.0) == ON_PROBATION
    start.look(Counts(), Seen(), 1, 6.0)
    assert start.takes(A, 1, NONE, 6.0) == WAITS
    start.look(Counts(), Seen(unreached=True), 1, 6.0)
    assert start.takes(A, 1, NONE, 6.0) == WAITS, "it had an ID before"


@pytest.mark.parametrize(("first", "second"), [(A, B), (B, A)])
def test_it_ends_when_each_partition_has_its_answer(first: TopicPartition, second: TopicPartition) -> None:
    start, counts = begun(), Counts()
    start.takes(A, 1, NONE, 0.0)
    start.takes(B, 1, NONE, 0.0)
    counts.by_tp[first] = (1, 0)
    start.look(counts, Seen(), 2, 1.0)
    assert start.open
    counts.by_tp[second] = (0, 1)
    assert start.look(counts, Seen(), 2, 1.0)
    assert not start.open
    assert start.takes(A, 1, NONE, 1.0) == FREE
    assert not start.closes(A, NONE, 1.0)


def test_it_ends_though_an_answer_never_comes() -> None:
    start = begun()
    start.takes(A, 1, NONE, 0.0)
    start.look(Counts(), Seen(), 1, LONGEST_ALONE)
    assert start.open
    start.look(Counts(), Seen(), 1, LONGEST_ALONE + 2 * LINGER)
    assert not start.open


def test_it_ends_when_the_lane_is_empty() -> None:
    """What was refused in between is answered by nothing; and a thread may be about to give its record away."""
    start = begun()
    start.takes(A, 1, NONE, 0.0)
    start.look(Counts(), Seen(), 0, LINGER)
    assert start.open
    start.look(Counts(), Seen(), 0, 1.0)
    assert not start.open


def test_a_look_asks_for_no_more_than_has_changed() -> None:
    """At 1 000 partitions each look would cost a thousand questions."""
    start, counts = begun(), Counts()
    for number in range(1_000):
        start.takes(("a", number), 1, NONE, 0.0)
    for number in range(1_000):
        start.look(counts, Seen(), 1, 0.1)
        counts.by_tp["a", number] = (1, 0)
    assert not start.look(counts, Seen(), 1, 0.1) or not start.open
    assert counts.asked < 4_000


def test_statistics_show_what_came_though_its_reports_are_kept_back() -> None:
    start = begun()
    start.takes(A, 1, NONE, 5.0)
    start.takes(B, 1, NONE, 5.0)
    start.acknowledged(lambda tp, since: tp == A and since > 5.0 + LINGER)
    assert start.takes(A, 1, NONE, 6.0) == FREE
    assert start.takes(B, 1, NONE, 6.0) == WAITS


def test_a_record_that_was_not_sent_leaves_its_room() -> None:
    start = begun(2, 100)
    start.takes(A, 1, NONE, 0.0)
    start.give_back(A, 1)
    assert [start.takes(A, 1, NONE, 0.0) for _ in range(3)] == [ON_PROBATION, ON_PROBATION, WAITS]
    start.give_back(A, 1)
    assert [start.takes(A, 1, NONE, 0.0) for _ in range(2)] == [ON_PROBATION, WAITS]
    start.give_back(B, 1)


@pytest.mark.parametrize("seen", [Seen(measuring=True), Seen(wants_lane=True)])
def test_the_next_batch_is_alone_too_until_it_is_known_which_way_it_goes(seen: Seen) -> None:
    """All that comes would go directly just before round trips prove long, or a lane for them is ready."""
    start, counts = begun(), Counts()
    start.takes(A, 1, NONE, 5.0)
    counts.by_tp[A] = (1, 0)
    start.look(counts, seen, 0, 6.0)
    assert start.open
    assert start.starts is seen.measuring
    assert [start.takes(A, 1, told(1, 0), 6.0 + wait) for wait in (0, LINGER)] == [ON_PROBATION, WAITS]
    start.look(counts, Seen(), 1, 6.1)
    counts.by_tp[A] = (2, 0)
    start.look(counts, Seen(), 0, 6.2)
    assert not start.open


def test_a_lane_is_not_waited_for_without_end() -> None:
    start, counts = Probation(2, 100, LINGER, False), Counts()
    assert start.look(counts, Seen(wants_lane=True), 9, 10.0)
    assert start.paced
    assert [start.takes(A, 1, NONE, 10.0) for _ in range(3)] == [ON_PROBATION, ON_PROBATION, WAITS]
    assert not start.look(counts, Seen(wants_lane=True), 9, 10.0 + LONGEST_PACE)
    assert start.look(counts, Seen(wants_lane=True), 9, 10.1 + LONGEST_PACE)
    assert not start.open


def test_after_a_rest_it_waits_for_the_first_record() -> None:
    start = begun(rest=True)
    assert start.waits
    start.look(Counts(), Seen(unreached=True), 0, 100.0)
    assert start.waits
    start.takes(A, 1, NONE, 100.0)
    assert not start.waits
    assert start.takes(A, 1, NONE, 100.0 + LINGER) == WAITS


def test_one_that_is_not_wanted_holds_nothing() -> None:
    start = Probation(1, 1, LINGER, False)
    assert [start.takes(A, 5, NONE, 0.0) for _ in range(5)] == [FREE] * 5
    assert not start.closes(A, NONE, 0.0)
