"""The five integration cases of KIP-1269's test plan.

librdkafka refuses max.in.flight.requests.per.connection above 5 with idempotence. So where the plan gives 20, the
producer has safeproducer.lanes=20: twenty connections that take a batch of a partition each.
"""

from safeproducer.testing import FakeCluster
from tests.lanes.conftest import BATCH, LATE, RETAIN, Changes, Make
from tests.lanes.traffic import Traffic, batches, depths, most_unresolved

BACKLOG = 60 * BATCH
IN_FLIGHT = "max.in.flight.requests.per.connection"


def create(cluster: FakeCluster, **retain: int) -> None:
    """Topics with these values, all led by broker 1."""
    for topic, value in retain.items():
        cluster.create_topic(topic, config={RETAIN: str(value)})
        if cluster.leader(topic)[0] != 1:
            cluster.move_leader(topic, to=1)


def test_max_in_flight_1_with_a_topic_of_20(cluster: FakeCluster, make: Make) -> None:
    """At most one request to the broker at once: the connection's limit counts over all lanes and partitions."""
    create(cluster, wide=20, other=20)
    producer = make(**{IN_FLIGHT: 1, "safeproducer_lanes": 20})
    loads = [Traffic(producer, topic) for topic in ("wide", "other")]
    for load in loads:
        load.send(10 * BATCH)
    for load in loads:
        assert set(load.finish()) == {"delivered"}
        load.check(cluster)
    journal = batches(cluster, LATE)
    assert {batch.broker for batch in journal} == {1}
    assert max(depth for _, depth in depths(journal)) == 1


def test_max_in_flight_4_with_topics_of_20(cluster: FakeCluster, make: Make) -> None:
    """As case 1 with room for more: at each broker the sum over its topics and all lanes reaches 4 and stays there."""
    create(cluster, wide=20, other=20, elsewhere=20)
    cluster.move_leader("elsewhere", to=2)
    producer = make(**{IN_FLIGHT: 4, "safeproducer_lanes": 20})
    loads = [Traffic(producer, topic) for topic in ("wide", "other", "elsewhere")]
    for load in loads:
        load.send(25 * BATCH)
    for load in loads:
        assert set(load.finish()) == {"delivered"}
        load.check(cluster)
    for broker in (1, 2):
        at_broker = [batch for batch in batches(cluster, LATE) if batch.broker == broker]
        assert max(depth for _, depth in depths(at_broker)) == 4


def test_max_in_flight_20_with_a_topic_of_5(cluster: FakeCluster, make: Make) -> None:
    """At most five of the partition, whatever the lanes could carry."""
    create(cluster, narrow=5)
    producer = make(safeproducer_lanes=20)
    load = Traffic(producer, "narrow")
    load.until(lambda: producer.snapshot().lanes == 20, backlog=BACKLOG)
    load.keep(5 * LATE, BACKLOG)
    assert set(load.finish()) == {"delivered"}
    assert most_unresolved(cluster, "narrow", LATE) == 5
    load.check(cluster)


def test_max_in_flight_20_with_topics_of_5_and_20_on_one_broker(
    cluster: FakeCluster, make: Make, changes: Changes
) -> None:
    """Each has its own limit, and neither changes the other's."""
    create(cluster, narrow=5, wide=20)
    producer = make(safeproducer_lanes=20)
    loads = {topic: Traffic(producer, topic) for topic in ("narrow", "wide")}
    loads["narrow"].send(400)
    loads["wide"].until(lambda: most_unresolved(cluster, "wide", LATE) == 20, backlog=BACKLOG)
    loads["narrow"].send(200)
    loads["wide"].keep(5 * LATE, BACKLOG)
    assert {window.topic: window.size for window in producer.snapshot().windows} == {"narrow": 5, "wide": 20}
    assert [(event.topic, event.before, event.after) for event in changes.windows] == [("wide", 5, 20)]
    for load in loads.values():
        assert set(load.finish()) == {"delivered"}
        load.check(cluster)
    assert most_unresolved(cluster, "narrow", LATE) == 5
    assert most_unresolved(cluster, "wide", LATE) == 20
    assert {batch.broker for batch in batches(cluster, LATE)} == {1}


def test_an_old_broker_with_20_set_on_the_topic(cluster: FakeCluster, make: Make) -> None:
    """Five: it lists the name, because somebody set it, but it does not know what it means."""
    create(cluster, wide=20)
    for broker in (1, 2):
        cluster.set_kip_1269(broker, False)
    producer = make(safeproducer_lanes=20)
    load = Traffic(producer, "wide")
    load.until(lambda: cluster.journal("DescribeConfigs"), backlog=BACKLOG)
    load.keep(5 * LATE, BACKLOG)
    assert set(load.finish()) == {"delivered"}
    assert most_unresolved(cluster, "wide", LATE) == 5
    (window,) = producer.snapshot().windows
    assert (window.size, window.source) == (5, "assumed")
    assert window.reason == "broker 1, its leader, does not announce a window (KIP-1269)"


def test_a_window_set_by_the_user_is_not_asked_for(cluster: FakeCluster, make: Make) -> None:
    """safeproducer.window=20 is for brokers that remember 20 and cannot say so: it is what the user says."""
    create(cluster, narrow=5)
    producer = make(safeproducer_window=20)
    load = Traffic(producer, "narrow")
    load.until(lambda: most_unresolved(cluster, "narrow", LATE) == 20, backlog=BACKLOG)
    load.keep(3 * LATE, BACKLOG)
    assert set(load.finish()) == {"delivered"}
    assert most_unresolved(cluster, "narrow", LATE) == 20
    assert cluster.journal("DescribeConfigs") == []
    load.check(cluster)
