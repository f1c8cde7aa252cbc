"""Records that ended in librdkafka without having been in a request are not written, and no others are."""

import time
from typing import Any

import pytest

from safeproducer import Outcome, SafeProducer
from safeproducer.kafka.statistics import PartitionStatistics, Statistics
from safeproducer.pipeline.cluster.cluster_view import ClusterView
from safeproducer.testing import FakeCluster
from tests.clusters import cluster_of, fake_cluster
from tests.inside import engine_of

TIMEOUT = {"message.timeout.ms": 2000, "log_level": 0}
HELD = {"safeproducer.mode": "held", **TIMEOUT}


cluster = fake_cluster({"t": 3}, brokers=3)


class Ends:
    def __init__(self, cluster: FakeCluster, config: dict[str, Any]) -> None:
        self.producer = SafeProducer({"bootstrap.servers": cluster.bootstrap, **config})
        self.found: list[Any] = []

    def produce(self, count: int, partition: int = 0) -> None:
        for number in range(count):
            value = b"%d" % number
            self.producer.produce(
                "t", value, partition=partition, on_delivery=lambda error, _: self.found.append(error)
            )

    def outcomes(self) -> set[Any]:
        """Of all, once they have ended."""
        assert self.producer.flush(30) == 0
        return {error and (error.outcome, error.attempts) for error in self.found}


def test_a_batch_whose_leader_was_never_connected_is_not_written(cluster: FakeCluster) -> None:
    """Its lane has a producer ID of another broker, and librdkafka would go on trying: it is taken out of there."""
    leader, _ = cluster.leader("t", 0)
    cluster.pause(leader)
    ends, said = Ends(cluster, HELD), set()
    ends.produce(20)
    ends.producer.flush(1)
    ends.produce(5)  # these wait behind
    while not ends.found:
        ends.producer.poll(0.02)
        said.add("quota" in ends.producer.explain())
    assert ends.outcomes() == {(Outcome.NOT_WRITTEN, 0)}
    assert said == {False}
    assert "was not sent within message.timeout.ms" in str(ends.found[0])
    cluster.resume(leader)
    ends.found.clear()
    ends.produce(5)
    assert ends.outcomes() == {None}
    assert [record.value for record in cluster.log("t", 0)] == [b"%d" % number for number in range(5)]
    ends.producer.close()


def test_a_batch_that_was_sent_and_whose_answer_is_lost_is_unknown(cluster: FakeCluster) -> None:
    cluster.lose_acks(n=1000)
    ends = Ends(cluster, HELD)
    ends.produce(5)
    assert ends.outcomes() == {(Outcome.UNKNOWN, None)}
    assert [record.value for record in cluster.log("t", 0)] == [b"%d" % number for number in range(5)]
    ends.producer.close(0)


def test_a_batch_that_left_behind_the_look_is_unknown(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may leave between the statistics and the purge: those from after the purge count."""
    never_sent, looks = ClusterView.never_sent, list[bool]()

    def looked(*args: Any) -> bool:
        looks.append(never_sent(*args))
        return len(looks) == 1 or looks[-1]

    monkeypatch.setattr(ClusterView, "never_sent", looked)
    leader, _ = cluster.leader("t", 0)
    cluster.lose_acks(n=1000)
    ends = Ends(cluster, HELD | {"socket.timeout.ms": 1000, "retry.backoff.ms": 2000})  # then it waits for its retry
    ends.produce(5)
    assert {outcome for outcome, _ in ends.outcomes()} == {Outcome.UNKNOWN}
    assert not any(looks), leader
    assert len(cluster.log("t", 0)) == 5
    ends.producer.close(0)


def test_neighbours_in_the_lane_are_not_purged_with_it(cluster: FakeCluster) -> None:
    """One of another broker goes on; then the outcome stays unknown."""
    cluster.pause(cluster.leader("t", 0)[0])
    ends = Ends(cluster, HELD)
    delivered, other = list[Any](), next(at for at in (1, 2) if cluster.leader("t", at) != cluster.leader("t", 0))
    cluster.delay(0.5, broker=cluster.leader("t", other)[0])  # something of it is always under way
    ends.produce(3)
    deadline = time.monotonic() + 3.5
    while time.monotonic() < deadline:
        ends.producer.produce("t", b"x", partition=other, on_delivery=lambda error, _: delivered.append(error))
        ends.producer.poll(0.02)
    assert len(ends.outcomes()) == 1
    assert delivered
    assert set(delivered) == {None}
    ends.producer.close(0)


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_without_a_producer_id_nothing_was_sent(mode: str) -> None:
    """An idempotent client waits for it: no broker was there."""
    with cluster_of({"t": 1}) as cluster:
        cluster.stop(1)
        ends = Ends(cluster, {"safeproducer.mode": mode, **TIMEOUT})
        ends.produce(10)
        assert ends.outcomes() == {(Outcome.NOT_WRITTEN, 0)}
        ends.producer.close(0)


def test_statistics_prove_it_only_of_what_they_count() -> None:
    """Those from before, of a partition that is not chosen yet, of another lane, or that began anew, prove nothing."""
    producer = SafeProducer({"log_level": 0})
    view = engine_of(producer).holds.cluster
    producer.close(0)

    def proves(
        sent: int = 0, accepted: int = 5, at: float = 11.0, tp: tuple[str, int] = ("t", 0), lane: int | None = 0
    ) -> bool:
        row = PartitionStatistics(1, 0, 0, accepted, sent, accepted, 0)
        view.statistics = {0: Statistics(at, 7, 0, accepted, 0, {}, {tp: row})}
        return view.never_sent(tp, lane, 10.0, 5)

    assert proves()
    assert proves(accepted=6)
    assert not proves(sent=1)
    assert not proves(accepted=4)
    assert not proves(at=10.0)
    assert not proves(tp=("t", -1))
    assert not proves(lane=1)
    assert not proves(lane=None)
    view.statistics = {0: Statistics(11.0, None, None, 5, 0, {}, {}, no_id_yet=True)}
    assert view.never_sent(("t", -1), 0, 10.0, 5)
    assert not view.never_sent(("t", -1), 0, 11.0, 5)
