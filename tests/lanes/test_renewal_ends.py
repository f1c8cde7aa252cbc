"""What may come while a renewal is under way, and yet each record ends once, truly, or is told to be lost."""

import gc
import os
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from safeproducer import ForkedProducerError, SafeProducer
from safeproducer.testing import FakeCluster
from tests.contract.support import noting
from tests.inside import engine_of
from tests.lanes.traffic import Traffic
from tests.threads.test_forks import in_child

CELLS = [("auto", "partition"), ("held", "partition"), ("held", "key")]
INTERRUPTIONS = 5


def closed(load: Traffic, timeout: float = 20) -> int:
    """How many records have no report, because their callbacks were interrupted."""
    report, account = load.producer.close(timeout), load.producer.snapshot()
    assert (report.left, account.unresolved) == (0, 0) or not timeout
    assert report.accepted == load.accepted == report.delivered + report.failed + account.interrupted
    return account.interrupted


def closed_at_once(load: Traffic) -> int:
    return closed(load, 0)


def flushed(load: Traffic) -> int:
    load.finish()
    return closed(load)


def forked(load: Traffic) -> int:
    """The child can do nothing with it, and ends; the parent goes on."""

    def child() -> int:
        try:
            load.producer.flush()
        except ForkedProducerError:
            del load.producer
            gc.collect()
            return 0
        return 1

    assert in_child(os.fork, child) == 0
    return flushed(load)


def interrupted(load: Traffic) -> int:
    """Ctrl-C comes again and again, wherever it may."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    former, raised = signal.signal(signal.SIGALRM, stop), 0
    began = time.monotonic()
    try:
        while raised < INTERRUPTIONS and time.monotonic() < began + 20:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.03)
                while True:
                    load.producer.flush(20)
            except KeyboardInterrupt:
                raised += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    assert raised == INTERRUPTIONS
    return flushed(load)


def collected(load: Traffic) -> int:
    del load.producer
    gc.collect()
    return 0


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning", "ignore:.*were lost at:ResourceWarning")
@pytest.mark.parametrize(("mode", "ordering"), CELLS)
@pytest.mark.parametrize("end", [closed, closed_at_once, flushed, forked, interrupted, collected])
def test_the_account_is_right(
    cluster: FakeCluster, plant_fatal: Callable[[Any], None], end: Callable[[Traffic], int], mode: str, ordering: str
) -> None:
    """Accepted are those that were delivered, of unknown outcome, not written or lost; and the log agrees."""
    cluster.create_topic("t", 2)
    losses = noting("records_lost")
    own = {"safeproducer.fatal": "renew", "safeproducer.mode": mode, "safeproducer.ordering": ordering}
    load = Traffic(SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **own}, hooks=[losses]), "t")
    load.send(20)
    load.finish()
    cluster.delay(0.12, api="Produce", side="request")
    load.send(20)
    load.keep(0.03, backlog=0)  # they are on their way
    load.send(20)
    fail(load, plant_fatal)
    load.send(20)
    without_report = end(load)
    lost = sum(event.count for event in losses.told)
    assert 0 <= load.accepted - len(load.ended) - lost <= without_report
    assert without_report == 0 or end is interrupted
    assert (lost > 0) == (end is collected)
    for number in range(load.accepted):
        load.ended.setdefault(b"k%d:%d" % (number, number), "unknown")
    load.check(cluster, partitions=2)


def fail(load: Traffic, plant: Callable[[Any], None]) -> None:
    """A fatal error, and it was noticed. Its frame goes: nothing here refers to the producer then."""
    engine = engine_of(load.producer)
    direct, lanes = engine.holds.direct, engine.dispatcher.lanes
    plant(load.producer if direct is not None else next(iter(lanes)))
    load.until(lambda: any(lane.client.failed for lane in lanes) if direct is None else direct.failure)
    assert load.producer.snapshot().renewals == 0 or direct is None
