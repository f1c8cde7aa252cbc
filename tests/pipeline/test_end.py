"""The end of a producer on scripted brokers: fatal errors and close() with a deadline lose no record's report."""

import contextlib

import pytest

from safeproducer import DeliveryError, FatalError
from tests.pipeline.warmed import warmed

CONFIG = {"message.timeout.ms": 30_000, "socket.timeout.ms": 1000, "linger.ms": 5, "batch.num.messages": 2}


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_fatal_error_ends_every_record(mode: str) -> None:
    """With an outcome that is true of the log."""
    with warmed({"safeproducer.mode": mode, **CONFIG}) as rig:
        rig.cluster.brokers[1].silent = True
        rig.accept(9)
        rig.poll(0.2)
        for native in rig.natives:
            native.fail_fatally()
        with contextlib.suppress(FatalError):
            rig.producer.poll(1)
        with pytest.raises(FatalError):
            rig.producer.produce("a", b"late")
        with contextlib.suppress(FatalError):
            rig.close()
        rig.cluster.heal()
        rig.time.pass_(100)
        rig.check_ends()
        errors = [record.reports[0] for record in rig.records.values()][1:]
        assert all(isinstance(error, DeliveryError) for error in errors)
        assert len(errors) == 9


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_close_with_a_deadline_ends_every_record(mode: str) -> None:
    with warmed({"safeproducer.mode": mode, **CONFIG}) as rig:
        rig.cluster.brokers[1].silent = True
        rig.accept(9)
        rig.close(2.0)
        assert all(record.reports for record in rig.records.values())
