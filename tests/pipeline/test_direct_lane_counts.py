"""librdkafka's counts go on under a new owner: its records are told from those of the former one."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.kafka.statistics import PartitionStatistics, Statistics
from safeproducer.pipeline import bulk
from safeproducer.pipeline.cluster.cluster_view import BrokerInfo
from safeproducer.pipeline.lanes import direct_lane
from safeproducer.pipeline.lanes.direct_lane import BatchCall, BatchCalls, DirectLane, DirectLaneCounts
from safeproducer.pipeline.reports.counters import DeliveryCounters
from safeproducer.settings.delivery import read
from safeproducer.settings.own_settings import OwnSettings

TP = ("t", 0)


def shown(at: float, accepted: int, acknowledged: int, sent: int | None = None, inside: int = 0) -> Statistics:
    """Statistics of a native producer with one partition; `accepted` leaves out what produce_batch() took."""
    sent = acknowledged if sent is None else sent
    entry = PartitionStatistics(1, 0, inside, 0, sent, accepted, acknowledged)
    return Statistics(
        at=at, messages=inside, message_bytes=0, producer_id=7, producer_epoch=0, brokers={}, partitions={TP: entry}
    )


def lane(given: DirectLaneCounts | None = None) -> DirectLane:
    delivery = read({}, OwnSettings(), idempotent=True, wants_statistics=False)
    return DirectLane(delivery, DeliveryCounters(only_errors=False), given)


def unheard(_: int) -> BrokerInfo:
    return BrokerInfo()


def batch(lane: DirectLane, count: int) -> None:
    """The native produce_batch() takes so many records."""
    lane.begin_batch(TP, call := BatchCall(count))
    call.end(count)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), min_size=1, max_size=4),
    st.integers(1, 9),
    st.integers(0, 9),
)
def test_a_new_owners_records_are_waited_for(former: list[tuple[int, int, bool]], singly: int, in_batches: int) -> None:
    """Whatever former owners gave singly and by batch calls, and whether statistics told of it or not."""
    counts, accepted, total, at = DirectLaneCounts(), 0, 0, 1e6
    for one_by_one, by_batch, seen in former:
        owner = lane(counts)
        if by_batch:
            batch(owner, by_batch)
        accepted, total = accepted + one_by_one, total + one_by_one + by_batch
        at += 1e6
        if seen:
            owner.update(
                shown(at, accepted, total - min(1, one_by_one), inside=min(1, one_by_one)), 0.0, unheard, set()
            )
        counts.taken_over(at + 2)
        assert counts.backlogs.earliest() is None, "what has ended has no age"
    owner = lane(counts)
    if in_batches:
        batch(owner, in_batches)
    at += 1e6
    accepted, new = accepted + singly, singly + in_batches
    owner.update(shown(at, accepted, total, inside=new), 0.0, unheard, set())
    assert owner.backlogs.waiting() == {TP}
    earliest = owner.backlogs.earliest()
    assert earliest is not None
    assert earliest >= counts.since, "no record of the new owner is older than its time"
    owner.update(shown(at + 1, accepted, total + new - 1, inside=1), 0.0, unheard, set())
    assert owner.backlogs.waiting() == {TP}
    owner.update(shown(at + 2, accepted, total + new), 0.0, unheard, set())
    assert not owner.backlogs.waiting()


def test_statistics_from_before_are_not_the_new_owners() -> None:
    """They show records that have ended since."""
    counts = lane().counts
    counts.taken_over(20.0)
    owner = lane(counts)
    owner.update(shown(19.0, 5, 2, inside=3), 0.0, unheard, set())
    assert not owner.backlogs.waiting()
    assert owner.unacknowledged(20.0) != 0


def test_the_proof_of_never_sent_counts_the_new_owners_records_alone() -> None:
    """The former one gave 5 singly and 4 by a batch call, all of them sent; of the new one's 3 one was sent."""
    former = lane()
    former.update(shown(1e6, 2, 2), 0.0, unheard, set())
    batch(former, 4)
    former.counts.taken_over(2e6)
    owner = lane(former.counts)
    owner.purging(3e6)
    assert owner.counts.unsent.counts(shown(4e6, 8, 9, sent=10), 0.0) == {TP: 2}


def test_another_native_producer_begins_without_batch_calls() -> None:
    """Also without one that has begun and not ended: it went to the former one."""
    former = lane()
    batch(former, 4)
    former.begin_batch(TP, under_way := BatchCall(3))
    renewed = former.renewed(DirectLaneCounts(5.0))
    under_way.end(3)
    assert renewed.counts.batches(1e9) == {}
    assert former.counts.batches(1e9) == {TP: (7, 7)}


def test_a_batch_that_a_handler_interrupts_as_it_begins_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the lane would be thought to have its records for ever."""

    class Interrupted(BatchCalls):
        def add(self, call: BatchCall) -> None:
            super().add(call)
            raise KeyboardInterrupt

    monkeypatch.setattr(direct_lane, "BatchCalls", Interrupted)
    owner, counters = lane(), DeliveryCounters(only_errors=False)
    engine: Any = SimpleNamespace(holds=SimpleNamespace(direct=owner))
    with pytest.raises(KeyboardInterrupt):
        bulk._native(engine, counters, TP[0], [{"value": b"v"}], TP[1], None)
    assert owner.counts.batches(1e18) == {TP: (0, 0)}
    assert counters.interrupts == 1
