"""What the sender does for an application that does not poll."""

from __future__ import annotations

from tests.pipeline.rig import rigged

CONFIG = {"safeproducer.mode": "auto", "message.timeout.ms": 30_000, "linger.ms": 5, "queue.buffering.max.kbytes": 1}
LIMIT = 1024


def test_reports_of_the_direct_lane_are_taken_up_to_half_of_the_buffer() -> None:
    """Or what nobody serves would take all room, and no record would wait for a broker that is throttled."""
    with rigged(CONFIG) as rig:
        while not rig.engine.route.goes_direct or rig.engine.updates.holds.slow_start:
            assert rig.produce("a", 0)
            rig.poll(0.05)
        rig.flush(5)
        for _ in range(250):
            assert rig.produce("a", 0)
        rig.report_queue(1)
        kept = rig.engine.counters.report_queue.bytes
        assert kept > LIMIT / 2
        for _ in range(20):
            assert rig.produce("a", 0)
        rig.report_queue(1)
        assert rig.engine.counters.report_queue.bytes == kept
        assert len(rig.natives[0]) >= 20, "they wait in librdkafka, whose limit is the application's"
        rig.flush(5)
        assert not rig.open_records
        rig.close()
