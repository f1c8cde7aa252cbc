"""Replicas in the cluster's own time: who is in sync, what is committed, and KIP-73's throttles. No broker runs."""

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from safeproducer.testing.fake.rules.replication import FETCH_BYTES as FETCH
from safeproducer.testing.fake.rules.replication import FOLLOWER, LEADER, LISTS, RATES, Copies, ReplicaRate, Side
from safeproducer.testing.fake.state.cluster_state import BrokerState, ClusterState
from safeproducer.testing.fake.state.fetchers import Fetchers
from safeproducer.testing.fake.state.topics import Partition, Topic

MB = 1_000_000


class Play:
    """Brokers without a network, and a clock that only the test moves."""

    def __init__(self, brokers: int, link: float = 1000 * MB) -> None:
        self.state = ClusterState(BrokerState(broker, 0, kip_1269=True) for broker in range(1, brokers + 1))
        self.fetchers = Fetchers(link, self.state, set(self.state.brokers))
        self.topic = Topic("t", uuid.uuid4(), [], {})
        self.now = 0

    def add(self, *assignments: Sequence[int], size: int = 0) -> None:
        """Partitions whose replicas have so many bytes each."""
        for replicas in assignments:
            partition = Partition(len(self.topic.partitions), tuple(replicas), replicas[0])
            self.topic.partitions.append(partition)
            self.fetchers.add(self.topic, partition)
            partition.log.end_bytes += size
            self.fetchers.append(self.topic, partition, size, replicated=True)

    def throttle(self, rate: float | None, leaders: str = "*", followers: str = "*") -> None:
        """One rate for all brokers, as the tools set it; None takes it away."""
        for side, replicas in ((LEADER, leaders), (FOLLOWER, followers)):
            self.topic.config[LISTS[side]] = replicas
            for broker in self.state.brokers.values():
                broker.dynamic.pop(RATES[side], None)
                if rate is not None:
                    broker.dynamic[RATES[side]] = str(int(rate))

    def move(self, *targets: Sequence[int]) -> None:
        for partition, target in zip(self.topic.partitions, targets, strict=True):
            partition.move(target)
            self.fetchers.review(self.topic, partition)

    def advance(self, seconds: float, writes: float = 0, step: float = 0.1) -> None:
        """Let time pass, in which so many bytes/s are written, evenly to all partitions."""
        until = self.now + round(seconds * 1000)
        while self.now < until:
            if writes:
                for partition in self.topic.partitions:
                    partition.log.end_bytes += round(writes * step / len(self.topic.partitions))
                    self.fetchers.append(self.topic, partition, round(writes * step / len(self.topic.partitions)))
            self.now = min(self.now + round(step * 1000), until) if writes else until
            self.fetchers.run(self.now)

    def set_alive(self, broker: int, alive: bool) -> None:
        self.state.brokers[broker].alive = alive
        self.set_working(broker, alive)

    def set_working(self, broker: int, works: bool) -> None:
        self.fetchers.interrupt(broker, lives=self.state.brokers[broker].alive, works=works)
        for partition in self.topic.partitions:
            self.fetchers.review(self.topic, partition)

    def copies(self, partition: int = 0) -> Copies:
        found = self.topic.partitions[partition].copies
        assert found is not None
        return found

    def unacknowledged(self) -> int:
        """Bytes of partition 0 that no `acks=all` is answered for."""
        return self.copies().ends[self.topic.partitions[0].leader] - self.copies().committed

    def lag(self) -> int:
        return sum(self.fetchers.lag(broker) for broker in self.state.brokers)

    def is_over(self) -> bool:
        return not any(partition.adding for partition in self.topic.partitions)

    def seconds_until(self, happened: Callable[[], bool], most: float, writes: float = 0) -> float:
        began = self.now
        while not happened():
            assert self.now - began < most * 1000, f"not within {most} s"
            self.advance(0.1, writes)
        return (self.now - began) / 1000


@pytest.fixture
def play() -> Play:
    return Play(3)


# --- KIP-73's test plan ----------------------------------------------------------------------------------------------

P, SIZE, QUOTA = 100, 60 * MB, 20 * MB


def listed(*brokers: Sequence[int]) -> str:
    """A list with these replicas, the first one of each is of partition 0."""
    return ",".join(f"{index}:{broker}" for one in brokers for index, broker in enumerate(one))


def moving(writes: float, assignments: Sequence[Sequence[int]], added: Sequence[int]) -> tuple[Play, float]:
    """Each partition gets one replica more (r = 2); returns the bytes/s by which what is missing shrinks."""
    play = Play(3)
    play.add(*assignments, size=SIZE)
    listed = [
        ",".join(f"{i}:{broker}" for i, broker in enumerate(side)) for side in ([a[0] for a in assignments], added)
    ]
    play.throttle(QUOTA, *listed)
    play.move(*([*replicas, broker] for replicas, broker in zip(assignments, added, strict=True)))
    play.advance(15, writes, 0.5)
    before = play.lag()
    play.advance(40, writes, 0.5)
    assert not play.is_over()
    return play, (before - play.lag()) / 40


@pytest.mark.parametrize("writes", [0, 6 * MB], ids=["static", "with produce requests"])
@pytest.mark.parametrize(
    ("assignments", "added", "limited"),
    [
        ([[1]] * P, [2] * P, [(LEADER, 1), (FOLLOWER, 2)]),
        ([[1]] * P, [2, 3] * (P // 2), [(LEADER, 1)]),  # the leader's quota limits both followers together
        ([[1], [2]] * (P // 2), [3] * P, [(FOLLOWER, 3)]),  # the follower's quota what it gets from both leaders
    ],
    ids=["two nodes", "three nodes, from one to two", "three nodes, from two to one"],
)
def test_replicas_move_at_the_quota(
    writes: float, assignments: list[list[int]], added: list[int], limited: Any
) -> None:
    """Less what is written."""
    play, rate = moving(writes, assignments, added)
    assert rate == pytest.approx(QUOTA - writes, rel=0.1)
    for side, broker in limited:
        assert play.fetchers.rate(side, broker) == pytest.approx(QUOTA, rel=0.1)


def test_a_hundred_gigabytes_take_seconds() -> None:
    """At 50 MB/s they are 33 minutes of the cluster's time."""
    play = Play(2)
    play.add(*[[1]] * P, size=1000 * MB)
    play.throttle(50 * MB)
    play.move(*[[1, 2]] * P)
    began = time.thread_time()
    play.advance(2300)
    assert play.is_over()
    assert time.thread_time() - began < 5


# --- measured on Kafka 4.3.1, within 30 % ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "out", "gap", "link"),
    [
        pytest.param(1 * MB, 15, 15.0, 1000 * MB, id="left-over throttle"),
        pytest.param(None, 18, 3.5, 18.5 * MB, id="no throttle"),
        pytest.param(1 * MB, 46, 0.5, 1000 * MB, id="out for longer than replica.lag.time.max.ms"),
    ],
)
def test_how_long_acknowledgements_wait_for_a_replica_that_returns(
    rate: float | None, out: float, gap: float, link: float
) -> None:
    """3 MB/s are written. A throttle matters while the replica was in sync less than 30 s ago, and lives."""
    play = Play(3, link)
    play.add([1, 3])
    play.throttle(rate)
    play.advance(5, 3 * MB)
    assert play.copies().in_sync == {1, 3}
    play.set_alive(3, alive=False)
    play.advance(out, 3 * MB)
    assert play.unacknowledged() == 0, "nobody waits for the dead"
    play.set_alive(3, alive=True)
    play.advance(0.5, 3 * MB)
    waited = 0.5 + play.seconds_until(lambda: play.unacknowledged() <= MB, 40, 3 * MB)
    assert waited == pytest.approx(gap, rel=0.3)
    play.advance(3, 3 * MB)
    assert (3 in play.copies().in_sync) == (rate is None)


def test_a_move_within_the_kips_bound_that_never_ends(play: Play) -> None:
    """The leader's meter counts what it sends to the follower in sync, too: 2 - 2 x 1.2 MB/s is less than nothing."""
    play.add([1, 2], size=8 * MB)
    play.throttle(2 * MB, "0:1,0:2", "0:3")
    play.move([1, 3])
    play.advance(12, 1.2 * MB)
    before = play.lag()
    play.advance(36, 1.2 * MB)
    assert (play.lag() - before) / 36 == pytest.approx(0.4 * MB, rel=0.3)
    play.throttle(6 * MB, "0:1,0:2", "0:3")
    assert play.seconds_until(play.is_over, 12, 1.2 * MB) < 12


def test_a_new_replica_delays_no_acknowledgement(play: Play) -> None:
    """3 MB/s are written, the limit is 1 MB/s, and nobody waits for the new one."""
    play.add([1, 2], size=8 * MB)
    play.throttle(1 * MB, "0:1,0:2", "0:3")
    play.move([1, 3])
    for _ in range(100):
        play.advance(0.1, 3 * MB)
        assert play.unacknowledged() <= MB


@pytest.mark.parametrize(
    ("partitions", "size", "writes", "measured"),
    [(12, 2 * MB, 0, 1.07), (4, 6 * MB, 0, 1.16), (1, 25 * MB, 0, 1.34), (1, 40 * MB, 0.3 * MB, 1.31)],
)
def test_the_time_of_a_move(partitions: int, size: int, writes: float, measured: float, play: Play) -> None:
    """Times bytes / room: the fewer partitions, the longer, since each brings 1 MB a fetch."""
    play.add(*[[1, 2]] * partitions, size=size)
    play.throttle(2 * MB, listed([1] * partitions, [2] * partitions), listed([3] * partitions))
    play.move(*[[1, 3]] * partitions)
    took = play.seconds_until(play.is_over, 120, writes)
    assert took / (partitions * size / (2 * MB - 2 * writes)) == pytest.approx(measured, rel=0.3)


# --- the rules, one by one -------------------------------------------------------------------------------------------


def test_a_rate_is_not_padded() -> None:
    """1 MB in the first second is 1 MB/s, and 10 s later a tenth of it; in the twelfth it is forgotten."""
    rate = ReplicaRate()
    rate.record(MB, 5000)
    assert rate.per_second(5000) == rate.per_second(6000) == MB
    assert rate.per_second(15_000) == MB / 10
    assert rate.per_second(16_000) == 0


@pytest.mark.parametrize("side", list(LISTS))
def test_each_side_alone_holds_back(side: Side) -> None:
    """At rate 0 one fetch passes, then one in each window of 11 s."""
    play = Play(2)
    play.add([1], size=20 * MB)
    play.throttle(0, "*" if side is LEADER else "", "*" if side is FOLLOWER else "")
    play.move([1, 2])
    play.advance(3 * 11 - 1)
    assert play.copies().ends[2] == 3 * FETCH
    play.throttle(None)
    play.advance(2)
    assert play.is_over()


def test_a_replica_in_sync_is_never_held_back_but_counts(play: Play) -> None:
    """KAFKA-4313: it stays in sync at five times the rate; another one gets nothing then."""
    play.add([1, 2])
    play.throttle(1 * MB)
    play.advance(60, 5 * MB)
    assert play.copies().in_sync == {1, 2}
    assert play.fetchers.rate(LEADER, 1) == pytest.approx(5 * MB, rel=0.1)
    play.move([1, 2, 3])
    play.advance(20, 5 * MB)
    assert play.copies().ends[3] <= 2 * FETCH


def test_partitions_share_an_answer_and_take_turns() -> None:
    """10 MB an answer, 1 MB a partition; who got something is asked for last."""
    play = Play(2, link=10 * FETCH)
    play.add(*[[1]] * 15, size=5 * FETCH)
    play.move(*[[1, 2]] * 15)
    play.advance(1)
    assert [play.copies(i).ends[2] // FETCH for i in range(15)] == [1] * 10 + [0] * 5
    play.advance(1)
    assert [play.copies(i).ends[2] // FETCH for i in range(15)] == [2] * 5 + [1] * 10


def test_a_follower_that_hangs_leaves_the_set_after_the_lag_time(play: Play) -> None:
    """Until then everything waits for it, and from then on nothing; one that only has nothing to fetch stays."""
    play.add([1, 2])
    play.advance(60, MB)
    play.set_working(2, works=False)
    play.advance(29, MB)
    assert play.copies().in_sync == {1, 2}
    assert play.unacknowledged() == pytest.approx(29 * MB, rel=0.1)
    play.advance(2, MB)
    assert play.copies().in_sync == {1}
    assert play.unacknowledged() == 0
    play.set_working(2, works=True)
    play.advance(1)
    assert play.copies().in_sync == {1, 2}
    play.advance(600)
    assert play.copies().in_sync == {1, 2}


def test_the_last_replica_in_sync_leads_and_others_cut_their_logs() -> None:
    """A replica that lacks committed bytes never leads; bytes that were not committed are lost with their leader."""
    play = Play(3, link=MB)
    play.add([1, 2, 3])
    play.set_alive(3, alive=False)
    play.advance(2, 0.5 * MB)
    play.advance(1)
    committed = play.copies().committed
    partition = play.topic.partitions[0]
    play.set_alive(3, alive=True)
    play.set_working(3, works=False)
    play.set_working(2, works=False)
    play.advance(1, MB)
    play.set_alive(1, alive=False)
    assert (partition.leader, partition.log.end_bytes) == (2, committed)
    play.set_alive(2, alive=False)
    assert partition.leader == -1
    play.set_alive(1, alive=True)
    play.set_working(3, works=True)
    assert partition.leader == -1
    play.set_alive(2, alive=True)
    play.advance(5)
    assert partition.leader == 2
    assert play.copies().in_sync == {1, 2, 3}
    assert set(play.copies().ends.values()) == {committed}


def test_a_move_ends_with_an_election_where_the_leader_goes(play: Play) -> None:
    """The first replica in sync of the new ones leads, at a new epoch; one that stays goes on."""
    play.add([1, 2], [2, 1], size=MB)
    play.move([3, 2], [2, 3])
    assert [set(p.replicas) for p in play.topic.partitions] == [{1, 2, 3}, {1, 2, 3}]
    play.advance(5)
    assert [(p.replicas, p.leader) for p in play.topic.partitions] == [((3, 2), 3), ((2, 3), 2)]
    assert all(p.leader_epoch == 1 for p in play.topic.partitions)
    assert play.copies().in_sync == {2, 3}
    assert play.copies().ends == {2: MB, 3: MB}


def test_a_move_back_drops_the_new_replica(play: Play) -> None:
    play.add([1, 2], size=20 * MB)
    play.throttle(0)
    play.move([1, 3])
    play.advance(5)
    play.move([1, 2])
    play.throttle(None)
    play.advance(5)
    partition = play.topic.partitions[0]
    assert (partition.replicas, partition.adding, partition.removing) == ((1, 2), (), ())
    assert play.copies().ends == {1: 20 * MB, 2: 20 * MB}
