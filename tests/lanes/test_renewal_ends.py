"""What may come while a renewal is under way, and yet each record ends once, truly, or is told to be lost."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from safeproducer import ForkedProducerError, Hook, RecordsLost, SafeProducer
from safeproducer.testing import FakeCluster
from tests.inside import engine_of
from tests.lanes.traffic import Traffic
from tests.test_forks import in_child

CELLS = [("auto", "partition"), ("held", "partition"), ("held", "key")]
INTERRUPTIONS = 5


class Lost(Hook):
    def __init__(self) -> None:
        self.records = 0

    def records_lost(self, event: RecordsLost) -> None:
        self.records += event.count


def closed(load: Traffic) -> None:
    report = load.producer.close(20)
    assert (report.accepted, report.delivered + report.failed, report.left) == (load.accepted, load.accepted, 0)


def closed_at_once(load: Traffic) -> None:
    report = load.producer.close(0)
    assert (report.accepted, report.delivered + report.failed) == (load.accepted, load.accepted)


def flushed(load: Traffic) -> None:
    load.finish()
    closed(load)


def forked(load: Traffic) -> None:
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
    flushed(load)


def interrupted(load: Traffic) -> None:
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
    flushed(load)


def collected(load: Traffic) -> None:
    del load.producer
    gc.collect()


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning", "ignore:.*were lost at:ResourceWarning")
@pytest.mark.parametrize(("mode", "ordering"), CELLS)
@pytest.mark.parametrize("end", [closed, closed_at_once, flushed, forked, interrupted, collected])
def test_the_account_is_right(
    cluster: FakeCluster,
    plant_fatal: Callable[[Any], None],
    end: Callable[[Traffic], None],
    mode: str,
    ordering: str,
) -> None:
    """Accepted are those that were delivered, of unknown outcome, not written or lost; and the log agrees."""
    cluster.create_topic("t", 2)
    lost = Lost()
    own = {"safeproducer.fatal": "renew", "safeproducer.mode": mode, "safeproducer.ordering": ordering}
    load = Traffic(SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **own}, hooks=[lost]), "t")
    load.send(20)
    load.finish()
    cluster.delay(0.12, api="Produce", side="request")
    load.send(20)
    load.keep(0.03, backlog=0)  # they are on their way
    load.send(20)
    fail(load, plant_fatal)
    load.send(20)
    end(load)
    counts = Counter(load.ended.values())
    assert counts.total() + lost.records == load.accepted == 80
    assert (lost.records > 0) == (end is collected)
    for number in range(80):
        load.ended.setdefault(b"k%d:%d" % (number, number), "unknown")
    load.check(cluster, partitions=2)


def fail(load: Traffic, plant: Callable[[Any], None]) -> None:
    """A fatal error, and it was noticed. Its frame goes: nothing here refers to the producer then."""
    engine = engine_of(load.producer)
    direct, lanes = engine.holds.direct, engine.dispatcher.lanes
    plant(load.producer if direct is not None else next(iter(lanes)))
    load.until(lambda: any(lane.client.failed for lane in lanes) if direct is None else direct.failure)
    assert load.producer.snapshot().renewals == 0 or direct is None
