"""Order across the switch from the direct lane to the batch lane, on scripted brokers."""

from unittest import mock

import pytest

from safeproducer.pipeline.lanes.direct_lane import DirectLane
from tests.pipeline.cluster import LOSE_REQUEST, OK
from tests.pipeline.rig import RuleError, rigged

CONFIG = {"message.timeout.ms": 30_000, "socket.timeout.ms": 1000, "linger.ms": 5}


def switch_while_a_record_is_under_way() -> int:
    """How many lanes there were."""
    with rigged(CONFIG) as rig:
        for topic in ("a", "b"):
            assert rig.produce(topic, 0)
        rig.flush(5)
        rig.report_queue(1)
        rig.cluster.brokers[1].script.extend([(LOSE_REQUEST, 0.0), (OK, 0.3)])
        assert rig.produce("a", 0)
        rig.poll(0.02)
        assert rig.produce("b", 0)
        rig.poll(0.1)
        assert rig.told_deadline
        assert rig.produce("a", 0)
        for _ in range(30):
            rig.poll(0.1)
        rig.close()
        return len(rig.natives)


def test_a_partition_changes_lanes_when_the_old_one_has_nothing_of_it() -> None:
    """The record before waits for its second attempt meanwhile."""
    assert switch_while_a_record_is_under_way() == 2


def test_a_change_of_lanes_too_early_is_found() -> None:
    """Planted: the lane is taken for empty."""
    with mock.patch.object(DirectLane, "has_nothing_of", return_value=True), pytest.raises(RuleError, match="rule 6"):
        switch_while_a_record_is_under_way()
