"""How many lanes: as many as the budget can use while round trips limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy.lanes import needed, wanted

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


@given(counts, counts, st.integers(5, 1000))
def test_never_more_than_the_budget_can_use(lanes: int, ready: int, budget: int) -> None:
    """Nor fewer than there are: giving up is another decision."""
    more = wanted(lanes, min(lanes, ready), budget, None)
    assert lanes <= more <= max(lanes, budget)


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
    """Whatever happens."""
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
