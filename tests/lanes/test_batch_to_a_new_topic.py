"""A batch to a topic that no broker has told of yet."""

import time

import pytest
from confluent_kafka import Producer

from safeproducer import SafeProducer
from safeproducer.testing import FakeCluster
from tests.contract.support import poll_until
from tests.inside import engine_of

BATCH = 3


def test_a_batch_to_a_new_topic_leaves_no_backlog() -> None:
    """librdkafka counts its records after all, and what was added to that seemed to have no acknowledgement.

    The partition was held for a silent leader until the lane was empty once or its oldest record's time was over.
    """
    with FakeCluster(brokers=1) as cluster:
        for topic in ("busy", "new"):
            cluster.create_topic(topic, 1)
        with SafeProducer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0}) as producer:
            producer.produce("busy", b"first")
            poll_until(producer, lambda: engine_of(producer).route.goes_direct and not len(producer))
            cluster.delay(0.002)
            assert producer.produce_batch("new", [{"value": b"v"}] * BATCH, partition=0) == BATCH
            direct = engine_of(producer).updates.holds.direct
            assert direct is not None
            poll_until(producer, lambda: cluster.log("new", 0), timeout=30)

            def drained() -> bool:
                """Statistics say so, though the lane itself is never empty."""
                producer.produce("busy", b"v")
                return direct.backlogs.has_nothing_of(("new", 0), 0.0)

            poll_until(producer, drained, timeout=10, pause=0.001)


@pytest.mark.parametrize("count", [3, 1000])
def test_a_batch_that_waits_for_its_topic_is_not_cut_by_a_flush(count: int) -> None:
    """As it would be where the broker's thread took records while others still get their partition: a flush trigger for
    another batch of the lane would leave two requests. The scripted native producer of tests/pipeline relies on it."""
    with FakeCluster(brokers=1) as cluster:
        config = {"linger.ms": 60_000, "batch.num.messages": count, "enable.sparse.connections": False}
        config |= {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True}
        native = Producer(config)
        for topic in ("first", *(f"new-{number}" for number in range(10))):  # the first one brings the producer ID
            cluster.create_topic(topic, 1)
            for _ in range(count):
                native.produce(topic, b"v", partition=0)
            end = time.monotonic() + 30
            while native.flush(0.001):
                assert time.monotonic() < end
            assert len(cluster.batches(topic)) == 1
        native.close()
