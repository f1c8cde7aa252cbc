"""Who behaves never waits for a producer ID: days of one producer with ten lanes, under every policy, at 20 an hour."""

from typing import get_args

import pytest

from safeproducer import HoldReason
from safeproducer.settings.id_settings import LEDGER_VARIABLE, POLICY_VARIABLE, Policy
from tests.pipeline.rig import Rig, rigged
from tests.pipeline.test_switch import LONG_ROUND_TRIP

CONFIG = {
    "message.timeout.ms": 30_000,
    "linger.ms": 5,
    "batch.num.messages": 20,
    "safeproducer.ordering": "none",
    "safeproducer.lanes": 10,
    "safeproducer.producer.ids.per.hour": 20,
}
DAYS = 2
NIGHT = 12 * 3600.0
HOUR = 3600.0


def worked(rig: Rig, moved_to: int) -> float:
    """An hour's work, with a leader that moves in the middle of it; how long its slowest record took."""
    began = rig.time.now
    for number in range(200):
        assert rig.produce("a", number % 3)
        if number == 100:
            rig.cluster.move(("a", 0), moved_to)
            rig.poll(0.05)
    rows = rig.producer.snapshot().partitions
    assert HoldReason.PRODUCER_ID_LIMIT not in {row.reason for row in rows}
    rig.flush(25)
    assert not rig.open_records
    return rig.time.now - began


@pytest.mark.parametrize("policy", get_args(Policy))
def test_a_well_behaved_producer_never_waits(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaders move, and nights are idle. It uses fewer IDs than two hours give."""
    monkeypatch.delenv(POLICY_VARIABLE, raising=False)
    monkeypatch.setenv(LEDGER_VARIABLE, "off")
    with rigged({**CONFIG, "safeproducer.producer.ids.policy": policy}, LONG_ROUND_TRIP) as rig:
        slowest = 0.0
        for _ in range(DAYS):
            for hour in range(8):
                slowest = max(slowest, worked(rig, 1 + hour % 3))
                rig.report_queue(2)
                rig.time.now += HOUR  # at once: hours of statistics would be read for nothing
            rig.report_queue(5)
            rig.time.now += NIGHT
            rig.report_queue(2)
        assert slowest < 15
        assert len(rig.natives) > 10
        assert all(record.reports == [None] for record in rig.records.values())
        assert 1 <= rig.producer.snapshot().producer_ids <= 40
