"""Idle lanes are given up so seldom that making them again takes few producer IDs."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy.lanes import HOUR, LONGEST_IDLE, SHARE, IdleLanes

counts = st.integers(1, 50)
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
def test_a_number_that_was_set_is_kept(lanes: int, fixed: int, rate: int) -> None:
    """However long they idle; what was made beyond it goes again."""
    assert IdleLanes(fixed, rate).spare(lanes, 0.0, True, 100 * HOUR) == (lanes > fixed)


class Pool:
    """So many lanes as are needed, given up as IdleLanes says."""

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


@pytest.mark.parametrize("rest", [90, 150, 300, 1000, 2700, 2800, 5400])
def test_bursts_over_twenty_lanes_take_few_ids(rest: int) -> None:
    """20 once, and a quarter of the default rate at most; none again where the rests are short."""
    made = bursts(DEFAULT_RATE, [(20, rest)], 6).made
    assert made <= 20 + 25 * 6
    if rest == 90:
        assert made == 20


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
