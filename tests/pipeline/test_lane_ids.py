"""How many producer IDs the lanes of one producer take (KIP-936), on scripted brokers in virtual time."""

from __future__ import annotations

from unittest import mock

import pytest

from safeproducer.policy.idle_lanes import IdleLanes
from tests.pipeline.rig import Rig, rigged
from tests.pipeline.test_lane_pool import CONFIG, LONG_ROUND_TRIP

LANES = 20
A_QUARTER = 25
"""Of the default rate, 100 an hour."""
RECORDS = 300
HOUR = 3600


def wrote(rig: Rig) -> int:
    """How many producer IDs brokers remember."""
    return sum(any(native.produce_requests.values()) for native in rig.natives)


def bursts(hours: float, every: float) -> tuple[int, int]:
    """A burst over 20 lanes, and then a rest, again and again: how many IDs wrote, and in the first burst."""
    with rigged(CONFIG, LONG_ROUND_TRIP, {"a": 1}) as rig:
        rig.cluster.windows[1, "a"] = LANES
        end, first = rig.time.now + hours * HOUR, 0
        while rig.time.now < end:
            began = rig.time.now
            for number in range(RECORDS):
                assert rig.produce("a", 0, b"%d" % number)
            rig.flush(20)
            first = first or wrote(rig)
            rig.report_queue(began + every - rig.time.now)
        found = wrote(rig)
        rig.close()
    return found, first


@pytest.mark.parametrize(("hours", "every"), [(6, 90), (3, 900)])
def test_bursts_do_not_take_an_id_for_each_lane_each_time(hours: float, every: float) -> None:
    """20 once, and a quarter of the rate at most; where the rests are short, the lanes are kept."""
    found, first = bursts(hours, every)
    assert first == LANES
    assert found <= LANES + hours * A_QUARTER
    if every == 90:
        assert found == LANES


def test_that_is_noticed_when_idle_lanes_are_given_up_as_before() -> None:
    """After an idle minute, whatever it costs to make them again: 19 in each burst."""
    with mock.patch.object(IdleLanes, "pause", 0.0):
        assert bursts(1, 90)[0] > LANES + 6 * A_QUARTER
