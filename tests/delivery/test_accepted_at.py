"""When a failed record was accepted: the time of its produce(), whatever its own timestamp and whoever serves when."""

import time
from typing import Any

import pytest

from safeproducer import SafeProducer
from tests.clusters import cluster_of

LONG_AGO = 1_000_000
"""A timestamp of 1970."""
TIMEOUT = 1.5
MODES = ["auto", "held", "passthrough"]
MESSAGE_TOO_LARGE = 10


def produced(producer: SafeProducer, told: list[Any]) -> float:
    """When a record of long ago was accepted; its error is told."""
    before = time.time()
    producer.produce("t", b"v", timestamp=LONG_AGO, on_delivery=lambda error, _: told.append(error))
    return (before + time.time()) / 2


def check(error: Any, accepted: float) -> None:
    """The error says so; it is told a second and more later, except where it is told at once."""
    assert error.accepted_at == pytest.approx(accepted, abs=0.7)
    if error.handed_over_at is not None:
        assert error.accepted_at - 0.01 <= error.handed_over_at < accepted + 1.0


@pytest.mark.parametrize("absent", [False, True], ids=["polling", "absent"])
@pytest.mark.parametrize("mode", MODES)
def test_record_that_times_out(mode: str, absent: bool) -> None:
    """Also if the report waits for an application that is away meanwhile."""
    config = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "message.timeout.ms": int(TIMEOUT * 1000)}
    producer = SafeProducer({**config, "safeproducer.mode": mode})
    told: list[Any] = []
    accepted = produced(producer, told)
    if absent:
        time.sleep(TIMEOUT + 2.5)  # long enough for the sender to have served it
    assert producer.flush(30) == 0
    check(told[0], accepted)
    producer.close()


@pytest.mark.parametrize("mode", MODES)
def test_record_that_is_purged(mode: str) -> None:
    """After it has waited for a second."""
    producer = SafeProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "safeproducer.mode": mode})
    told: list[Any] = []
    accepted = produced(producer, told)
    producer.flush(1.2)
    producer.purge()
    assert producer.flush(10) == 0
    check(told[0], accepted)
    producer.close()


@pytest.mark.parametrize("mode", MODES)
def test_record_that_a_broker_refuses(mode: str) -> None:
    """Its answer is late, and it had waited for a lane before, where it is held back."""
    with cluster_of({"t": 1}) as cluster:
        producer = SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "safeproducer.mode": mode})
        producer.produce("t", b"first")
        assert producer.flush(30) == 0
        cluster.delay(1.2, api="Produce")
        cluster.fail_next("Produce", MESSAGE_TOO_LARGE)
        told: list[Any] = []
        accepted = produced(producer, told)
        assert producer.flush(30) == 0
        check(told[0], accepted)
        producer.close()
