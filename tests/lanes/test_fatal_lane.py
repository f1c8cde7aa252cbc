"""One lane's fatal error is not the producer's, wherever it surfaces."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from safeproducer import FatalError
from safeproducer.testing import FakeCluster
from tests.contract.support import wait_until
from tests.inside import engine_of
from tests.lanes.conftest import BATCH, LATE, Changes, Make
from tests.lanes.traffic import Traffic, most_unresolved

BACKLOG = 15 * BATCH
"""Enough for batches to be ready at once for the few lanes here."""
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
"""The one that librdkafka takes for fatal when the first batch in flight is answered so."""

Plant = Callable[[Any], None]


def test_the_first_lane_is_replaced_too(cluster: FakeCluster, make: Make, changes: Changes) -> None:
    """The one that tells of the cluster: what the application asks it, and new topics, go to the one after it."""
    cluster.create_topic("t")
    cluster.create_topic("later")
    producer = make(safeproducer_lanes=1)
    load = Traffic(producer, "t")
    load.send(BATCH)
    load.finish()
    cluster.fail_next("Produce", OUT_OF_ORDER_SEQUENCE_NUMBER)
    load.send(BATCH)
    load.until(lambda: [event.after for event in changes.lanes] == [0, 1])
    later = Traffic(producer, "later")
    later.send(BATCH)
    assert set(later.finish(5)) == {"delivered"}
    assert "later" in producer.list_topics(timeout=5).topics
    assert load.finish() == {"delivered": BATCH, "unknown": BATCH}
    load.check(cluster)


@pytest.mark.parametrize("surface", ["trigger_flush", "serve"])
def test_a_fatal_error_may_surface_anywhere(
    cluster: FakeCluster, make: Make, changes: Changes, plant_fatal: Plant, surface: str
) -> None:
    """While a batch is flushed, which may be inside produce(), as well as while reports are served."""
    cluster.create_topic("t")
    producer = make(safeproducer_lanes=3)
    load = Traffic(producer, "t")
    load.until(lambda: most_unresolved(cluster, "t", LATE) == 3, backlog=BACKLOG)
    load.finish()
    lane = list(engine_of(producer).dispatcher.lanes)[1]
    plant_fatal(lane)
    lane.client.trigger_flush() if surface == "trigger_flush" else lane.client.serve()
    load.until(lambda: any("failed" in event.reason for event in changes.lanes), backlog=BACKLOG)
    load.until(lambda: changes.lanes[-1].after == 3, backlog=BACKLOG)
    load.finish()
    assert producer.snapshot().state == "open"
    load.check(cluster)


@pytest.mark.parametrize("surface", ["trigger_flush", "serve"])
def test_the_only_lane_that_fails_for_good_is_the_producers_end(
    cluster: FakeCluster, make: Make, changes: Changes, plant_fatal: Plant, surface: str
) -> None:
    """With ordering=partition nothing could take over and keep the order; poll() raises it, not who flush triggers."""
    cluster.create_topic("t")
    producer = make(safeproducer_ordering="partition")
    load = Traffic(producer, "t")
    load.send(BATCH)
    load.finish()
    (lane,) = engine_of(producer).dispatcher.lanes
    plant_fatal(lane)
    if surface == "trigger_flush":
        lane.client.trigger_flush()
    with pytest.raises(FatalError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        load.until(lambda: False, timeout=5)
    assert producer.snapshot().state == "fatal"
    wait_until(lambda: changes.fatal)
    assert len(changes.fatal) == 1


def test_a_batch_whose_connection_is_lost_when_its_lane_fails_ends_soon(
    cluster: FakeCluster, make: Make, changes: Changes, plant_fatal: Plant
) -> None:
    """librdkafka keeps it for a retry that it makes no more; later records of its keys do not wait for that."""
    cluster.create_topic("t")
    producer = make(safeproducer_lanes=1)
    load = Traffic(producer, "t", 1)
    load.send(1)
    load.finish()
    cluster.delay(30, api="Produce", side="request")
    load.send(1)
    (lane,) = engine_of(producer).dispatcher.lanes
    load.until(lambda: bool(lane.batches) and time.monotonic() > lane.used_at + 0.1)
    plant_fatal(lane)
    load.until(lambda: lane.client.failed)
    cluster.delay(0, api="Produce", side="request")
    began = time.monotonic()
    cluster.cut()
    load.send(1)
    load.until(lambda: len(load.ended) == 3, timeout=20)
    assert time.monotonic() - began < 10, "the time-out of both is 60 s"
    assert load.finish() == {"delivered": 2, "unknown": 1}
    load.check(cluster)


def test_a_batch_on_its_way_when_its_lane_fails_stays_in_front(
    cluster: FakeCluster, make: Make, changes: Changes, plant_fatal: Plant
) -> None:
    """Its request arrives late, by a lane that is of no use any more; later records of its keys wait for the answer."""
    cluster.create_topic("t")
    producer = make(safeproducer_lanes=3)
    load = Traffic(producer, "t")
    load.until(lambda: most_unresolved(cluster, "t", LATE) == 3, backlog=BACKLOG)
    load.finish()
    key = Traffic(producer, "t", 1, first=5000)
    cluster.delay(0.8, api="Produce", side="request")
    key.send(1)
    key.until(lambda: sum(len(lane.batches) for lane in engine_of(producer).dispatcher.lanes) == 1)
    (lane,) = (lane for lane in engine_of(producer).dispatcher.lanes if lane.batches)
    key.until(lambda: time.monotonic() > lane.used_at + 0.1)  # by when the request has left
    plant_fatal(lane)
    key.until(lambda: lane.client.failed)
    cluster.delay(0, api="Produce", side="request")
    key.send(1)
    key.until(lambda: any("failed" in event.reason for event in changes.lanes))
    assert key.finish() == {"delivered": 2}
    assert [record.value for record in cluster.log("t") if record.key == b"k5000"] == list(key.ended)
    key.check(cluster)
