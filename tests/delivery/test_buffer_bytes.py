"""queue.buffering.max.kbytes bounds all that is kept of records, reports that nobody has served included."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from safeproducer import SafeProducer
from tests.clusters import cluster_of

LIMIT_KB = 1024
VALUE = b"x" * 20_000


def test_a_record_larger_than_the_room_left_is_refused(unreachable: dict[str, object]) -> None:
    """A share of the buffer would let it in: nobody else waits."""
    producer = SafeProducer({**unreachable, "safeproducer.mode": "held", "queue.buffering.max.kbytes": 100})
    producer.produce("t", bytes(70_000), partition=0)
    with pytest.raises(BufferError):
        producer.produce("t", bytes(70_000), partition=0)
    producer.produce("t", bytes(20_000), partition=0)
    producer.purge()
    producer.close(5)


@pytest.mark.parametrize(
    ("cls", "mode", "times"), [(Producer, None, 1.05), (SafeProducer, "held", 1.05), (SafeProducer, "auto", 1.55)]
)
@pytest.mark.parametrize("callback", [None, lambda error, message: None], ids=["no callback", "callback"])
def test_an_application_that_never_polls_is_stopped(
    cls: Any, mode: str | None, times: float, callback: Callable[..., Any] | None
) -> None:
    """Once what it produced has been acknowledged, too. In auto librdkafka's buffer may be full beside half of ours."""
    with cluster_of({"t": 1}) as cluster:
        own = {} if mode is None else {"safeproducer.mode": mode}
        config = {"bootstrap.servers": cluster.bootstrap, "queue.buffering.max.kbytes": LIMIT_KB, "linger.ms": 0, **own}
        producer = cls(config)
        accepted, end = 0, time.monotonic() + 3
        while time.monotonic() < end and accepted < 1_000:
            try:
                producer.produce("t", VALUE, partition=0, on_delivery=callback)
                accepted += 1
            except BufferError:
                time.sleep(0.05)  # for room, and without poll()
        assert LIMIT_KB * 1024 * 0.8 < accepted * len(VALUE) < LIMIT_KB * 1024 * times
        while True:
            try:
                producer.produce("t", VALUE, partition=0)
                break
            except BufferError:
                producer.poll(0.05)
        assert producer.flush(10) == 0
