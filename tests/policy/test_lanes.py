"""Lanes: how many, which of them are given up, and what their requests tell."""

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy.lanes import HOUR, LONGEST_IDLE, SHARE, IdleLanes, RequestCounts, needed, wanted

counts = st.integers(1, 50)


@pytest.mark.parametrize(
    ("lanes", "ready", "budget", "expected"),
    [
        (1, 1, 20, 2),
        (2, 2, 20, 4),
        (16, 16, 20, 20),
        (20, 20, 20, 20),
        (4, 4, 5, 5),
        (5, 5, 5, 5),
        (2, 1, 20, 2),
        (20, 20, 8, 20),
    ],
)
def test_the_number_of_lanes_that_are_wanted(lanes: int, ready: int, budget: int, expected: int) -> None:
    """They double up to the budget while all of them are ready and busy, and do not go because it is lowered."""
    assert wanted(lanes, ready, budget, None) == expected


@given(st.integers(1, 1000))
def test_the_budget_is_reached(budget: int) -> None:
    """In few steps: each new lane takes a producer ID, but so does each step a while."""
    lanes = steps = 1
    while (more := wanted(lanes, lanes, budget, None)) > lanes:
        lanes, steps = more, steps + 1
    assert lanes == budget
    assert steps <= 11


@given(counts, counts, counts, counts)
def test_a_number_that_was_set_is_kept(lanes: int, ready: int, budget: int, fixed: int) -> None:
    assert wanted(lanes, ready, budget, fixed) == fixed


@pytest.mark.parametrize(
    ("under_way", "waiting", "waited", "expected"),
    [
        (1, 1, 0.005, 0),  # a record now and then: nothing says that there will be more
        (1, 3, 0.1, 2),
        (1, 101, 0.1, 20),  # 1,000/s: a batch each linger
        (1, 3, 0.002, 4),  # two at once: no more lanes than there are records for
        (1, 2_001, 0.1, 20),
        (1, 20_001, 0.1, 200),  # full batches: as many as come
        (5, 2_001, 0.0, 2_000),
    ],
)
def test_the_number_of_lanes_that_are_needed(under_way: int, waiting: int, waited: float, expected: int) -> None:
    """By how fast records came while they waited, at a round trip of 100 ms and batches of 100."""
    assert needed(under_way, waiting, waited, 0.1, 0.005, 100) == expected


@given(counts, counts, st.integers(5, 1000), st.integers(0, 2000))
def test_needed_lanes_come_at_once(lanes: int, ready: int, budget: int, of_use: int) -> None:
    """Also while others are on their way, and never beyond the budget."""
    more = wanted(lanes, min(lanes, ready), budget, None, of_use)
    assert max(lanes, min(of_use, budget)) <= more <= max(lanes, budget)


# --- idle lanes are given up so seldom that making them again takes few producer IDs ---------------------------------

DEFAULT_RATE = 100


def test_the_last_of_several_goes_when_it_has_idled_for_long() -> None:
    """One always stays. Without idempotence a lane takes no ID, and nothing else counts."""
    idle = IdleLanes(None, None)
    assert idle.spare(2, 0.0, True, LONGEST_IDLE + 1)
    assert not idle.spare(2, 0.0, True, LONGEST_IDLE)
    assert not idle.spare(1, 0.0, True, LONGEST_IDLE + 1)


def test_one_whose_id_was_used_is_kept_for_longer() -> None:
    """At the default rate for 144 s: 25 an hour. One that has sent nothing leaves nothing behind at the brokers."""
    idle = IdleLanes(None, DEFAULT_RATE)
    assert idle.pause == 144.0
    assert not idle.spare(20, 1000.0, True, 1144.0)
    assert idle.spare(20, 1000.0, True, 1144.1)
    assert idle.spare(20, 1000.0, False, 1060.1)


def test_lanes_go_one_after_the_other() -> None:
    """However long the others have been idle by then."""
    idle = IdleLanes(None, DEFAULT_RATE)
    idle.gave_up(5000.0)
    assert not idle.spare(19, 0.0, True, 5144.0)
    assert idle.spare(19, 0.0, True, 5144.1)


@given(counts, counts, st.integers(1, 1000))
def test_no_lane_of_a_number_that_was_set_is_spare(lanes: int, fixed: int, rate: int) -> None:
    """However long they idle; what was made beyond it goes again."""
    assert IdleLanes(fixed, rate).spare(lanes, 0.0, True, 100 * HOUR) == (lanes > fixed)


class Pool:
    def __init__(self, rate: float) -> None:
        self.idle = IdleLanes(None, rate)
        self.used_at = [0.0]
        self.made = 1

    def use(self, lanes: int, now: float) -> None:
        self.made += max(0, lanes - len(self.used_at))
        self.used_at += [now] * (lanes - len(self.used_at))
        self.used_at[:lanes] = [now] * lanes

    def rest(self, since: float, until: float) -> None:
        """The sender looks once in a while."""
        for step in range(int(until - since) // 5):
            now = since + 5 * step
            if self.idle.spare(len(self.used_at), self.used_at[-1], True, now):
                self.used_at.pop()
                self.idle.gave_up(now)


def bursts(rate: float, rests: list[tuple[int, int]], hours: float) -> Pool:
    """Bursts over so many lanes, each followed by a rest of so many seconds."""
    pool, now, turn = Pool(rate), 0.0, 0
    while now < hours * HOUR:
        lanes, rest = rests[turn % len(rests)]
        pool.use(lanes, now)
        pool.rest(now, now + rest)
        now, turn = now + rest, turn + 1
    return pool


RESTS = st.lists(st.tuples(st.integers(1, 20), st.integers(30, 4000)), min_size=1, max_size=8)


@given(st.sampled_from([1, 20, 100, 720]), RESTS)
def test_no_load_makes_lanes_take_more(rate: int, rests: list[tuple[int, int]]) -> None:
    """Whatever number of lanes each burst needs, and however long it is until the next one."""
    made = bursts(rate, rests, 6).made
    assert made <= 20 + SHARE * rate * (6 + max(rest for _, rest in rests) / HOUR)


def test_a_rule_without_the_pause_is_noticed() -> None:
    """As it was before: every burst made all of its lanes again."""
    with mock.patch.object(IdleLanes, "pause", 0.0):
        assert bursts(DEFAULT_RATE, [(20, 300)], 6).made > 20 + 25 * 6


# --- splits show as requests too many, between two moments at which a lane was empty ---------------------------------

AT = 100.0


def after(*batches: int, partitions: int = 0) -> RequestCounts:
    """Batches of so many records, all of which were answered before AT."""
    counts = RequestCounts()
    for records in batches:
        counts.handed_over(records)
        counts.resolved(partitions, AT - 1)
    return counts


@pytest.mark.parametrize(
    ("requests", "sent", "splits"),
    [
        (2, 20, 0),
        (3, 20, 1),
        (4, 20, 2),
        (3, 30, 0),  # a retry
        (2, 10, 0),
    ],
)
def test_more_requests_than_batches_are_splits(requests: int, sent: int, splits: int) -> None:
    """Unless records were sent again."""
    counts = after(10, 10)
    assert counts.observe(AT, requests, sent) == splits
    assert counts.splits == splits


def test_counts_that_began_anew_show_nothing() -> None:
    """librdkafka forgets those of a broker that has gone."""
    counts = after(10, 10)
    assert counts.observe(AT, 2, 20) == 0
    counts.handed_over(10)
    counts.resolved(0, AT + 1)
    assert counts.observe(AT + 2, 1, 30) == 0


def test_counts_from_before_the_last_answer_show_nothing() -> None:
    """It may be of records, and not yet of their request."""
    counts = after(10)
    assert counts.observe(AT - 1, 2, 10) == 0
    assert counts.observe(AT, 2, 10) == 1


def test_a_batch_without_a_partition_is_one_for_each_that_was_chosen() -> None:
    counts = after(10, partitions=3)
    assert counts.batches == 3
    assert counts.observe(AT, 3, 10) == 0


def test_a_lane_that_is_not_empty_yet_keeps_its_time() -> None:
    counts = after(10)
    counts.handed_over(10)
    counts.resolved(0, None)
    assert counts.observe(AT, 3, 20) == 1


def test_requests_of_a_former_owner_show_nothing() -> None:
    """The first counts of a native producer that somebody else had are where it begins."""
    counts = RequestCounts(new=False)
    counts.handed_over(10)
    counts.resolved(0, AT - 1)
    assert counts.observe(AT, requests=99, sent=10) == 0
    counts.handed_over(5)
    counts.resolved(0, AT + 1)
    assert counts.observe(AT + 2, requests=102, sent=15) == 2
