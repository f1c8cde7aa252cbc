"""The memory of KIP-936: layers of Bloom filters, and the quota on new producer IDs that uses them."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safeproducer.testing.fake.rules.producer_id_quota import (
    MOST_ITEMS,
    LayeredBloomFilter,
    ProducerIdQuota,
    ProducerIdWindow,
)

START = 1_700_000_000_000
HOUR = 3_600_000
WINDOW, LAYERS = 1000, 4
STEP = WINDOW // LAYERS


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 15)), max_size=150), st.integers(1, 8))
@settings(max_examples=60)
def test_no_item_is_forgotten_too_early_or_kept_too_long(steps: list[tuple[int, int]], room: int) -> None:
    """Against exact sets: known for W - s after the last sighting, unknown W after it, whatever the room of a layer."""
    memory, now = LayeredBloomFilter(WINDOW, LAYERS, 1e-9), START
    seen: dict[int, int] = {}
    for gap, item in steps:
        now += gap
        held = memory.holds(item, now)
        if item in seen:
            if now - seen[item] < WINDOW - STEP:
                assert held
            if now - seen[item] >= WINDOW:
                assert not held
        else:
            assert not held
        (memory.keep if held else memory.add)(item, room, now)
        seen[item] = now
        assert memory.holds(item, now)


@pytest.mark.parametrize("items", [1, 3])
def test_hot_items_cost_nothing(items: int) -> None:
    """Items that come hundreds of times a step are written once a step, though a layer is made for one of them."""
    memory = LayeredBloomFilter(WINDOW, LAYERS, 0.001)
    for now in range(START, START + 3 * WINDOW):
        item = now % items
        assert memory.holds(item, now) or now < START + items
        memory.keep(item, 1, now)
        assert memory.layers(now) <= items * LAYERS


def test_a_full_layer_opens_the_next() -> None:
    """The error rate does not grow with more items than a layer is made for; the number of layers does."""
    memory = LayeredBloomFilter(WINDOW, LAYERS, 0.001)
    for item in range(60):
        memory.add(item, 25, START)
    assert memory.layers(START) == 3
    assert all(memory.holds(item, START) for item in range(60))
    assert memory.layers(START + WINDOW) == 0


def wrong_of_40_000(memory: LayeredBloomFilter, now: int) -> int:
    """How many of 40 000 IDs that were never added look known."""
    return sum(memory.holds(item, now) for item in range(10**9, 10**9 + 40_000))


AT_MOST = 40 + 6 * 7
"""What an error rate of 0.001 allows of 40 000, and six sigma."""


@pytest.mark.parametrize(("layers", "full"), [(1, 1), (4, 1), (1, 30), (4, 12), (7, 3)])
def test_the_error_rate_holds_over_all_layers(layers: int, full: int) -> None:
    """With as many layers as there are steps and with many more, because each step fills several; and where the steps
    do not fit the window.
    """
    memory = LayeredBloomFilter(WINDOW, layers, 0.001)
    step = WINDOW // layers
    for number in range(-(-WINDOW // step)):
        for item in range(200 * full):
            memory.add(number * 100_000 + item, 200, START + number * step)
    now = START + WINDOW - 1
    assert memory.layers(now) == -(-WINDOW // step) * full
    assert 8 <= wrong_of_40_000(memory, now) <= AT_MOST


@pytest.mark.parametrize("windows", [1, 11])
def test_the_error_rate_holds_for_all_that_the_quota_admits(windows: int) -> None:
    """A burst of all the windows and what is refilled in one of them, which is several times what the layers of one
    step are made for; and IDs that come in each step are written again.
    """
    quota, rate = ProducerIdQuota(ProducerIdWindow(samples=windows)), 200
    for step in range(5):
        now = START + step * HOUR // 4
        for known in range(0, windows * rate, 2):
            assert quota.admit("a", known, rate, now) == 0
        new = windows * rate + step * 1000
        while not quota.admit("a", new, rate, now):
            new += 1
    assert wrong_of_40_000(quota._users["a"].memory, now) <= AT_MOST


@pytest.mark.parametrize("rate", [0.0, 1.0, -1.0, math.nan, math.inf])
def test_an_impossible_error_rate_is_refused(rate: float) -> None:
    """The library under it would end the process."""
    with pytest.raises(ValueError, match="error_rate"):
        LayeredBloomFilter(WINDOW, LAYERS, rate)


def test_neighbours_are_told_apart() -> None:
    """Producer IDs count up from 0, and 0 is an ID like any other: the smallest layers tell a hundred of them apart."""
    for known in range(100):
        memory = LayeredBloomFilter(WINDOW, 1, 1e-9)
        memory.add(known, 1, START)
        assert [item for item in range(100) if memory.holds(item, START)] == [known]


def test_a_huge_layer_is_cut_to_size() -> None:
    """10^12 items would end the process; a layer for a million and more layers do the same."""
    memory = LayeredBloomFilter(WINDOW, LAYERS, 0.001)
    memory.add(1, 10**12, START)
    assert memory.holds(1, START)
    assert MOST_ITEMS == 10**6


def test_the_kips_example() -> None:
    """100 IDs an hour: 101 pass at once, the next waits 36 s, a known one never waits."""
    quota = ProducerIdQuota(ProducerIdWindow())
    assert [quota.admit("a", producer_id, 100, START) for producer_id in range(103)] == [0] * 101 + [36_000] * 2
    assert quota.admit("a", 5, 100, START) == 0
    assert quota.admit("b", 5, 100, START) == 0
    assert quota.admit("a", 101, 100, START + 36_000) == 0
    usage = quota.usage(START + 36_000)["a"]
    assert (usage.limit, usage.refused, usage.throttle_time_ms) == (100, 2, 36_000)
    assert usage.tokens == pytest.approx(-1)
    assert usage.rate == pytest.approx(102 / (HOUR + 36_000) * HOUR)


def test_a_refused_id_is_not_known_afterwards() -> None:
    """Remembered before the check it would pass at its second try; here it is refused until its turn has come."""
    quota = ProducerIdQuota(ProducerIdWindow())
    assert [quota.admit("a", producer_id, 1, START) for producer_id in (1, 2, 3, 3, 3)] == [0, 0, HOUR, HOUR, HOUR]
    assert quota.admit("a", 3, 1, START + HOUR - 1) == 1
    assert quota.admit("a", 3, 1, START + HOUR) == 0


def test_an_id_in_use_stays_known() -> None:
    """For as long as it is used at least every W - s; after a pause of W it counts as new."""
    quota = ProducerIdQuota(ProducerIdWindow())
    now = START
    for _ in range(50):
        assert quota.admit("a", 1, 1, now) == 0
        assert quota.usage(now)["a"].tokens == pytest.approx(min(1, (now - START) / HOUR))
        now += HOUR * 3 // 4 - 1
    quota.admit("a", 1, 1, now + HOUR)
    assert quota.usage(now + HOUR)["a"].tokens == 0


def test_an_idle_user_is_dropped_when_he_owes_nothing() -> None:
    """Not before: otherwise a pause of one window would make up for many."""
    quota = ProducerIdQuota(ProducerIdWindow(samples=3))
    for producer_id in range(31):
        assert quota.admit("a", producer_id, 10, START) == 0
    assert quota.usage(START + HOUR)["a"].layers == 0
    assert quota.usage(START + HOUR)["a"].tokens == pytest.approx(9)
    assert quota.usage(START + 4 * HOUR) == {}


def test_without_a_limit_nothing_is_remembered() -> None:
    """Also when the limit is taken away; back again, everybody starts anew."""
    quota = ProducerIdQuota(ProducerIdWindow())
    assert quota.admit("a", 1, 0.5, START) == 0
    assert quota.admit("a", 2, 0.5, START) > 0
    assert quota.admit("a", 2, None, START) == 0
    assert quota.usage(START) == {}


@pytest.mark.parametrize("rate", [1e-3, 1.0, 1e18, 1e300])
def test_any_rate_can_be_served(rate: float) -> None:
    """A tiny one gets layers of one ID, a huge one layers of bounded size."""
    quota = ProducerIdQuota(ProducerIdWindow())
    assert quota.admit("a", 1, rate, START) == 0
    assert quota.admit("a", (1 << 63) - 1, rate, START) >= 0
    assert quota.usage(START)["a"].layers >= 1


@given(st.lists(st.tuples(st.integers(0, HOUR // 20), st.integers(0, 400)), max_size=200), st.integers(1, 20))
@settings(max_examples=40)
def test_admitted_ids_keep_to_the_rate(steps: list[tuple[int, int]], rate: int) -> None:
    """Against a count of admissions: never more than the burst, the refill and the one that may go below 0."""
    quota, now, admitted = ProducerIdQuota(ProducerIdWindow(error_rate=1e-9)), START, set[int]()
    for gap, producer_id in steps:
        now += gap
        if not quota.admit("a", producer_id, rate, now):
            admitted.add(producer_id)
    assert len(admitted) <= rate + rate * (now - START) / HOUR + 1 + 1e-6
