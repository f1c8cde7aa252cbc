"""What statistics tell of a topic's partitions."""

import pytest

from safeproducer.kafka.statistics import PartitionStatistics, Statistics
from safeproducer.pipeline.cluster.cluster_view import ClusterView, Leader
from safeproducer.policy.cluster_metadata import PartitionMetadata
from safeproducer.policy.decision import PartitionFacts
from safeproducer.policy.throttle import Throttle
from safeproducer.policy.types import DIRECT_LANE, UNPLACED
from safeproducer.settings import delivery
from safeproducer.settings.own_settings import OwnSettings


def seen(*leaders: int, at: float = 1.0) -> Statistics:
    """Of partition 0, 1 ... of a topic, whose metadata came at `at`; -1 where no leader is known."""
    partitions = {("a", number): PartitionStatistics(leader, 0, 0, 0, 0, 0, 0) for number, leader in enumerate(leaders)}
    return Statistics(500.0, 1, 0, 0, 0, {}, partitions, {"a": 500.0 - at if max(leaders) >= 0 else 0.0})


def test_a_topic_that_was_not_heard_of_has_any_partition() -> None:
    """librdkafka lists it with the partitions records were made for, which says nothing about others."""
    cluster = ClusterView(delivery.read({}, OwnSettings(mode="held"), True, False), Throttle())
    cluster.update(DIRECT_LANE, seen(-1))
    assert cluster.partitions.has("a", 5)
    cluster.update(DIRECT_LANE, seen(1, 2))
    assert not cluster.partitions.has("a", 5)
    assert cluster.partitions.has("a", 1)
    cluster.update(DIRECT_LANE, seen(-1, -1))  # all brokers are away, and there is no other metadata
    assert cluster.partitions.leader("a", 1) == 2
    assert not cluster.partitions.has("a", 5)
    cluster.update(DIRECT_LANE, seen(1, -1, at=5.0))  # its replicas are away
    assert cluster.partitions.leader("a", 1) is None


def test_a_lane_that_has_not_heard_of_a_topic_tells_nothing_of_it() -> None:
    """A new one lists the partitions that it was given records for: a key must not change its partition for that."""
    cluster = ClusterView(delivery.read({}, OwnSettings(mode="held"), True, False), Throttle())
    cluster.update(DIRECT_LANE, seen(1, 2, 1))
    cluster.update(DIRECT_LANE, seen(-1))
    assert cluster.partitions.count("a") == 3
    assert cluster.partitions.leader("a", 0) == 1
    cluster.update(DIRECT_LANE, seen(2, at=3.0))  # made anew, with fewer partitions
    assert cluster.partitions.count("a") == 1


def test_the_facts_of_a_leader_are_facts_of_its_partition_in_the_same_order() -> None:
    """HoldFacts and ReadyCheck pass them on by position, and two of one type could change places unseen."""
    first = PartitionFacts._fields.index("node")
    assert PartitionFacts._fields[first : first + len(Leader._fields)] == Leader._fields


def test_a_partition_that_is_gone_has_no_leader_since_then() -> None:
    """An answer that its former leader gave before must not count for one that is added later."""
    cluster = ClusterView(delivery.read({}, OwnSettings(mode="held"), True, False), Throttle())
    cluster.update(DIRECT_LANE, seen(1, 2))
    assert not cluster.partitions.info(("a", 1)).led_since
    cluster.update(DIRECT_LANE, seen(1, at=3.0))
    assert cluster.partitions.leader("a", 1) is None
    assert cluster.partitions.info(("a", 1)).led_since


def test_who_leads_is_counted() -> None:
    """No one looks at all partitions for it."""
    cluster = ClusterView(delivery.read({}, OwnSettings(mode="held"), True, False), Throttle())
    partitions = cluster.partitions
    partitions.update("a", {number: PartitionMetadata(number % 3 + 1) for number in range(6)}, 1.0)
    partitions.update("b", {0: PartitionMetadata(7), 1: PartitionMetadata(-1)}, 1.0)
    assert partitions.nodes() == {1, 2, 3, 7}
    assert partitions.leaders("a", UNPLACED) == {1, 2, 3}
    assert partitions.leaders("a", 1) == {2}
    assert partitions.leaders("b", 1) == partitions.leaders("c", UNPLACED) == set()
    assert partitions.leaders("b", UNPLACED) == set()  # it may be the broker that leads none any more
    partitions.update("b", {0: PartitionMetadata(1), 1: PartitionMetadata(1)}, 5.0)
    assert partitions.nodes() == {1, 2, 3}
    partitions.update("a", {0: PartitionMetadata(1)}, 9.0)  # made anew, with fewer partitions
    assert partitions.nodes() == {1}
    assert partitions.leaders("a", UNPLACED) == {1}


def test_statistics_are_learned_where_they_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not twice a second for each partition; but what a lane has heard anew counts, though it be the same."""
    cluster = ClusterView(delivery.read({}, OwnSettings(mode="held"), True, False), Throttle())
    learned: list[str] = []
    update = cluster.partitions.update
    monkeypatch.setattr(
        cluster.partitions, "update", lambda topic, *rest: learned.append(topic) or update(topic, *rest)
    )
    heard = {"a": 400.0, "b": 400.0}

    def tell(at: float, **leaders: int) -> list[str]:
        learned.clear()
        rows = {(topic, 0): PartitionStatistics(leader, 3, 0, 0, int(at), 0, 0) for topic, leader in leaders.items()}
        ages = {topic: at - heard[topic] for topic in leaders}
        cluster.update(DIRECT_LANE, Statistics(at, 1, 0, 0, 0, {}, rows, ages))
        return sorted(learned)

    assert tell(500.0, a=1, b=1) == ["a", "b"]
    assert tell(500.5, a=1, b=1) == []
    assert tell(501.0, a=1, b=2) == ["b"]
    heard["a"] = 501.2
    assert tell(501.5, a=1, b=2) == ["a"]
    assert cluster.partitions.info(("a", 0)).at == pytest.approx(501.2)
    assert tell(502.0, a=1, b=2) == []
