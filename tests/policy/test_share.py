"""Shares: whatever some groups do, the rest of the buffer is kept for the others."""

from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy.types import has_share

limits = st.integers(1, 1000)


@given(limits, st.lists(st.integers(0, 3), max_size=3000))
def test_no_group_takes_what_is_left_for_others(limit: int, asks: list[int]) -> None:
    held = [0, 0, 0, 0]
    for group in asks:
        if has_share(held[group], sum(held), limit, others=True):
            held[group] += 1
    assert sum(held) <= limit
    assert max(held) <= (limit + 1) // 2


@given(limits)
def test_one_greedy_group_leaves_half(limit: int) -> None:
    held = 0
    while has_share(held, held, limit, others=True):
        held += 1
    assert held == (limit + 1) // 2


@given(limits)
def test_without_others_the_whole_buffer_is_its_own(limit: int) -> None:
    """Nobody is there for whom the rest could be kept."""
    assert has_share(limit - 1, limit - 1, limit, others=False)
    assert not has_share(limit, limit, limit, others=False)
