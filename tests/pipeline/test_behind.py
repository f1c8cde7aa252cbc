"""A batch that is full by its bytes waits inside librdkafka behind the one in flight, and is never mixed with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from safeproducer.pipeline.buffer.in_flight_batch import InFlightBatch
from safeproducer.pipeline.lanes.batch_lane import BatchLane
from safeproducer.policy import pacing
from tests.pipeline.cluster import ScriptedCluster
from tests.pipeline.fake_native import CONNECT
from tests.pipeline.rig import Rig, rigged

LONG_ROUND_TRIP = {1: 0.1, 2: 0.1, 3: 0.1}
CONFIG = {
    "safeproducer.mode": "held",
    "batch.size": 2_000,
    "linger.ms": 5,
    "message.timeout.ms": 60_000,
    "queue.buffering.max.messages": 10_000,
}
RECORDS = 600


class Seen:
    """(when, how many records) of in-flight batches and of requests."""

    def __init__(self) -> None:
        self.handed_over: list[tuple[float, int]] = []
        self.sent: list[tuple[float, int]] = []

    @property
    def overlaps(self) -> int:
        """In-flight batches between a request and the one after it, which carries them."""
        return sum(
            any(before < at < after for before, after in zip(self.times, self.times[1:], strict=False))
            for at, _ in self.handed_over
        )

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.sent]


@contextmanager
def watched(misses: int = 0) -> Iterator[tuple[Rig, Seen]]:
    seen = Seen()
    real_hand_over, real_send = BatchLane.hand_over, ScriptedCluster.send
    with rigged(CONFIG, LONG_ROUND_TRIP, {"a": 1}) as rig:

        def hand_over(self: BatchLane, buffer: Any, records: list[Any], *rest: Any) -> Any:
            seen.handed_over.append((rig.time.now, len(records)))
            if len(records) > 1:
                rig.natives[0].miss_kicks(misses)
            return real_hand_over(self, buffer, records, *rest)

        def send(self: ScriptedCluster, node: int, attempt: Any) -> None:
            seen.sent.append((rig.time.now, len(attempt.messages)))
            real_send(self, node, attempt)

        with mock.patch.object(BatchLane, "hand_over", hand_over), mock.patch.object(ScriptedCluster, "send", send):
            yield rig, seen


def run(rig: Rig) -> None:
    """A few round trips first, so that the time that an answer takes is known; then more than can go at once."""
    for _ in range(3):
        rig.produce("a", 0)
        rig.flush(5)
    for _ in range(RECORDS):
        rig.produce("a", 0)
    rig.flush(10)
    rig.close()


@pytest.mark.parametrize("misses", [0, 1, 2])
def test_a_batch_is_one_request_as_it_was_handed_over(misses: int) -> None:
    """Also when the broker's thread misses the first flush triggers, after which the next batch could be mixed with
    it."""
    with watched(misses) as (rig, seen):
        run(rig)
    assert [count for _, count in seen.sent] == [count for _, count in seen.handed_over]
    assert len(seen.sent) > 8
    assert seen.overlaps >= 3


def test_two_in_the_queue_would_be_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the waiting is for: were a batch taken for gone at once, one whose flush triggers are missed would take the
    next."""
    monkeypatch.setattr(InFlightBatch, "leaves_by", property(lambda self: -1.0))
    with watched(misses=5) as (rig, seen):
        run(rig)
    assert [count for _, count in seen.sent] != [count for _, count in seen.handed_over]


@pytest.mark.parametrize("steady", [pacing.STEADY, float("inf")])
def test_a_time_that_varies_is_no_distance(steady: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where answers take long for want of a processor, flush triggers are missed for the same reason, all of them."""
    monkeypatch.setattr(pacing, "STEADY", steady)
    with watched(misses=5) as (rig, seen):
        for turn in range(6):
            rig.cluster.brokers[1].round_trip = (0.06, 0.3)[turn % 2]
            rig.produce("a", 0)
            rig.flush(5)
        for _ in range(RECORDS // 2):
            rig.produce("a", 0)
        rig.flush(10)
        rig.close()
    same = [count for _, count in seen.sent] == [count for _, count in seen.handed_over]
    assert same == (steady < 1)


def test_a_batch_is_sent_as_soon_as_the_one_before_it_is_answered() -> None:
    """So each round trip carries a batch, however long handing it over takes."""
    with watched() as (rig, seen):
        run(rig)
    pauses = [after - before for before, after in zip(seen.times[3:], seen.times[4:], strict=False)]
    assert max(pauses) < LONG_ROUND_TRIP[1] + 0.012


@pytest.mark.parametrize("misses", [3, 10])
def test_a_mixed_batch_is_sent_to_the_end(misses: int) -> None:
    """All flush triggers missed, a full batch took the one before it along, and is itself short of the count that would
    send it: without a flush trigger the rest of it waits for the guard, a minute.
    """
    with rigged({**CONFIG, "batch.size": 100_000, "batch.num.messages": 50}, LONG_ROUND_TRIP, {"a": 1}) as rig:
        for _ in range(3):
            rig.produce("a", 0)
            rig.flush(5)
        rig.natives[0].miss_kicks(misses)
        for _ in range(10):
            rig.produce("a", 0)
        for _ in range(80):  # until it is taken for gone
            rig.poll(0.001)
        for _ in range(50):
            rig.produce("a", 0)
        began = rig.time.now
        rig.flush(30)
        assert not rig.open_records
        assert rig.time.now - began < 10 * LONG_ROUND_TRIP[1]
        assert rig.producer.snapshot().handed_over == 5


def test_a_batch_that_waits_for_its_topic_is_not_cut_by_a_flush() -> None:
    """By the stand-in, as by librdkafka (tests/lanes/test_batch_to_a_new_topic.py): rule 2 counted the rest of it as
    one more batch of the partition."""
    with rigged(CONFIG, LONG_ROUND_TRIP, {"a": 1}) as rig:
        native = rig.natives[0]
        for _ in range(3):
            native.produce("a", b"v", None, 0, lambda *_: None)
        native.flush(2 * CONNECT)
        assert rig.cluster.requests == native.batches(("a", 0)) == 1
        rig.closed = True  # its rules are about records of the producer
