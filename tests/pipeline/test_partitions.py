"""What statistics tell of a topic's partitions."""

from __future__ import annotations

from safeproducer.kafka.statistics import PartitionStatistics, Statistics
from safeproducer.pipeline.cluster.cluster_view import ClusterView, Leader
from safeproducer.policy.decision import PartitionFacts
from safeproducer.policy.throttle import Throttle
from safeproducer.policy.types import DIRECT_LANE
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
    """Holds and FactGatherer pass them on by position, and two of one type could change places unseen."""
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
