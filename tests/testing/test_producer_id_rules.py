"""The memory of KIP-936: layers of producer IDs, and the quota on new ones that uses it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safeproducer.testing.fake.rules.producer_id_quota import ProducerIdQuota, ProducerIdWindow, RecentIds

START = 1_700_000_000_000
HOUR = 3_600_000
WINDOW, LAYERS = 1000, 4
STEP = WINDOW // LAYERS


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 15)), max_size=150))
@settings(max_examples=60)
def test_no_id_is_forgotten_too_early_or_kept_too_long(steps: list[tuple[int, int]]) -> None:
    """Against the time of each sighting: known for W - s after the last one, unknown W after it."""
    memory, now = RecentIds(WINDOW), START
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
        memory.add(item, now)
        seen[item] = now
        assert memory.holds(item, now)


@pytest.mark.parametrize("items", [1, 3])
def test_hot_ids_cost_nothing(items: int) -> None:
    """IDs that come hundreds of times a step open no layer before its time."""
    memory = RecentIds(WINDOW)
    for now in range(START, START + 3 * WINDOW):
        item = now % items
        assert memory.holds(item, now) or now < START + items
        memory.add(item, now)
        assert memory.layers(now) <= LAYERS


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
    """A tiny one as well as a huge one."""
    quota = ProducerIdQuota(ProducerIdWindow())
    assert quota.admit("a", 1, rate, START) == 0
    assert quota.admit("a", (1 << 63) - 1, rate, START) >= 0
    assert quota.usage(START)["a"].layers >= 1


@given(st.lists(st.tuples(st.integers(0, HOUR // 20), st.integers(0, 400)), max_size=200), st.integers(1, 20))
@settings(max_examples=40)
def test_admitted_ids_keep_to_the_rate(steps: list[tuple[int, int]], rate: int) -> None:
    """Against a count of admissions: never more than the burst, the refill and the one that may go below 0."""
    quota, now, admitted = ProducerIdQuota(ProducerIdWindow()), START, set[int]()
    for gap, producer_id in steps:
        now += gap
        if not quota.admit("a", producer_id, rate, now):
            admitted.add(producer_id)
    assert len(admitted) <= rate + rate * (now - START) / HOUR + 1 + 1e-6
