"""A clock that is not ours is put on ours, and on Linux nothing is changed."""

import pytest

from safeproducer.kafka.statistics import LibrdkafkaClock

WALL = 1_790_000_000.0


def test_on_the_same_clock_a_time_is_what_it_says() -> None:
    """However late it is served."""
    assert LibrdkafkaClock().monotonic(100.0, 100.4) == 100.0
    assert LibrdkafkaClock().monotonic(100.0, 159.0) == 100.0


def test_on_another_clock_the_quickest_look_counts() -> None:
    """What one look was late by is not in the next one's time."""
    clock = LibrdkafkaClock()
    clock.monotonic(WALL, 100.2)
    clock.monotonic(WALL + 1.0, 101.001)
    assert clock.monotonic(WALL + 2.0, 102.3) == pytest.approx(102.001)


@pytest.mark.parametrize("change", [3600.0, -3600.0])
def test_a_clock_that_is_set_is_believed_again_after_a_minute(change: float) -> None:
    """Forwards at once; backwards once the looks from before are forgotten. Until then all seems too old: safe."""
    clock = LibrdkafkaClock()
    for look in range(10):
        clock.monotonic(WALL + look * 0.5, look * 0.5)
    for look in range(10, 140):
        now = look * 0.5
        found = clock.monotonic(WALL + now + change, now)
        assert found <= now + 0.01
    assert found == pytest.approx(now)
