"""produce_batch() for a named partition of a topic that no broker has told of yet."""

from __future__ import annotations

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
                return direct.backlogs.drained(("new", 0), 0.0)

            poll_until(producer, drained, timeout=10, pause=0.001)
