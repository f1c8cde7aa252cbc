"""librdkafka's counts go on under a new owner: its records are told from those of the former one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from safeproducer.kafka.statistics import PartitionStatistics, Statistics
from safeproducer.pipeline.cluster.cluster_view import BrokerInfo
from safeproducer.pipeline.lanes.direct_lane import DirectLane, DirectLaneCounts
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


def lane(counters: DeliveryCounters, given: DirectLaneCounts | None = None) -> DirectLane:
    return DirectLane(read({}, OwnSettings(), idempotent=True, wants_statistics=False), counters, given)


def unheard(_: int) -> BrokerInfo:
    """No broker was seen to answer."""
    return BrokerInfo()


def batch(counters: DeliveryCounters, count: int) -> None:
    """The native produce_batch() takes so many records."""
    counters.open("t").explicit(0).begin_batch(count).end(count)


def counting() -> DeliveryCounters:
    return DeliveryCounters(only_errors=False, times_batches=True)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), min_size=1, max_size=4),
    st.integers(1, 9),
    st.integers(0, 9),
)
def test_records_of_the_new_owner_are_waited_for(
    former: list[tuple[int, int, bool]], singly: int, in_batches: int
) -> None:
    """Whatever former owners gave singly and by batch calls, and whether statistics told of it or not."""
    given_by_all, accepted, total, at = DirectLaneCounts(), 0, 0, 1e6
    for one_by_one, by_batch, seen in former:
        counters = counting()
        owner = lane(counters, given_by_all)
        if by_batch:
            batch(counters, by_batch)
        accepted, total = accepted + one_by_one, total + one_by_one + by_batch
        at += 1e6
        if seen:
            owner.update(shown(at, accepted, total - min(1, one_by_one), inside=min(1, one_by_one)), 0.0, unheard)
        given_by_all = owner.given.passed_on(counters, at + 1)
        given_by_all.taken_over(at + 2)
        assert given_by_all.backlogs.earliest() is None, "what has ended has no age"
    counters = counting()
    owner = lane(counters, given_by_all)
    if in_batches:
        batch(counters, in_batches)
    at += 1e6
    accepted, new = accepted + singly, singly + in_batches
    owner.update(shown(at, accepted, total, inside=new), 0.0, unheard)
    assert owner.backlogs.waiting() == {TP}
    earliest = owner.backlogs.earliest()
    assert earliest is not None
    assert earliest >= given_by_all.since, "no record of the new owner is older than its time"
    owner.update(shown(at + 1, accepted, total + new - 1, inside=1), 0.0, unheard)
    assert owner.backlogs.waiting() == {TP}
    owner.update(shown(at + 2, accepted, total + new), 0.0, unheard)
    assert not owner.backlogs.waiting()


def test_statistics_from_before_are_not_the_new_owners() -> None:
    """They show records that have ended since."""
    counters = counting()
    given_by_all = lane(counters).given.passed_on(counters, 10.0)
    given_by_all.taken_over(20.0)
    owner = lane(counting(), given_by_all)
    owner.update(shown(19.0, 5, 2, inside=3), 0.0, unheard)
    assert not owner.backlogs.waiting()
    assert owner.unacknowledged(20.0) != 0


def test_the_proof_of_never_sent_counts_the_new_owners_records_alone() -> None:
    """The former one gave 5 singly and 4 by a batch call, all of them sent; of the new one's 3 one was sent."""
    counters = counting()
    former = lane(counters)
    former.update(shown(1e6, 2, 2), 0.0, unheard)
    batch(counters, 4)
    given_by_all = former.given.passed_on(counters, 2e6)
    given_by_all.taken_over(2e6)
    owner = lane(counting(), given_by_all)
    owner.purging(3e6)
    assert given_by_all.unsent.counts(shown(4e6, 8, 9, sent=10), 0.0) == {TP: 2}
