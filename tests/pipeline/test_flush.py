"""flush() in the whole pipeline, on scripted brokers: it ends when every record has its report."""

import pytest

from safeproducer.pipeline import turn
from tests.pipeline.cluster import OK
from tests.pipeline.warmed import warmed

CONFIG = {"message.timeout.ms": 30_000, "socket.timeout.ms": 1000, "linger.ms": 5}


def test_events_of_a_lane_that_is_not_in_use_do_not_keep_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch lane goes on telling statistics when everything goes directly again, and len() counts them."""
    monkeypatch.setattr(turn, "_RESTS_AFTER", 60.0)
    with warmed(CONFIG, rest=1) as rig:
        rig.cluster.brokers[1].script.append((OK, 2.0))
        for _ in range(3):
            assert rig.produce("a", 0)
            rig.poll(1)
        rig.flush(10)
        assert len(rig.natives) == 2
        rig.report_queue(5)
        rig.poll(0)
        assert rig.engine.route.goes_direct
        rig.time.pass_(4)
        before = rig.time.now
        assert rig.producer.flush(10) == 0
        assert rig.time.now - before < 0.5


def test_statistics_that_nobody_has_served_do_not_keep_flush() -> None:
    """An idle producer has some half of the time: each close() waited for a record that was not there, 0.15 s."""
    with warmed(CONFIG, rest=10) as rig:
        rig.poll(0)
        rig.time.pass_(0.6)
        assert len(rig.natives[0])
        before = rig.time.now
        assert rig.producer.flush(10) == 0
        assert rig.time.now - before < 0.01
