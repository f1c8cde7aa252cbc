"""Credentials that change while there are several lanes."""

from __future__ import annotations

import time

from safeproducer import SafeProducer
from safeproducer.testing import FakeCluster


def test_new_credentials_reach_every_lane() -> None:
    """Those that exist, which were refused until then, and those that are made later."""
    with FakeCluster(1, users={"alice": "secret"}) as cluster:
        cluster.create_topic("t", 1)
        producer = SafeProducer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": "misspelt",
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                "error_cb": lambda error: None,
                "safeproducer.mode": "held",
                "safeproducer.ordering": "none",
                "safeproducer.lanes": 3,
                "batch.num.messages": 2,
            }
        )
        for number in range(60):
            producer.produce("t", b"%d" % number, partition=0)
        end = time.monotonic() + 10
        while producer.snapshot().lanes < 3 and time.monotonic() < end:
            producer.poll(0.05)
        assert producer.snapshot().delivered == 0
        producer.set_sasl_credentials("alice", "secret")
        cluster.delay(0.02)
        assert producer.flush(20) == 0
        assert len({record.producer_id for record in cluster.log("t")}) == 3
        producer.close()
