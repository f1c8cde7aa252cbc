"""A producer with lanes takes few threads: three beside its sender at most, and one admin client."""

import threading
import time
from typing import Any

import pytest

from safeproducer import SafeProducer
from safeproducer.kafka import admin
from safeproducer.pipeline.cluster import id_expirations
from safeproducer.testing import FakeCluster
from tests.inside import engine_of

OURS = {"safeproducer-metadata", "safeproducer-asker", "safeproducer-notices"}
SENDER = "safeproducer-sender"


class Names(set[str]):
    """Those of our threads that were seen, and the largest number of them beside the sender at once."""

    most = 0

    def look(self, before: set[threading.Thread]) -> None:
        found = [one.name for one in threading.enumerate() if one not in before and one.name.startswith("safeproducer")]
        self.update(found)
        self.most = max(self.most, len([name for name in found if name != SENDER]))


def test_a_producer_with_lanes_has_three_threads_beside_the_sender_and_one_admin_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It asks for windows, for producer ID expirations, whose timestamps a topic keeps, and who leads new topics."""
    made: list[Any] = []
    real = admin.AdminClient

    def count(config: dict[str, Any]) -> Any:
        made.append(real(config))
        return made[-1]

    monkeypatch.setattr(admin, "AdminClient", count)
    monkeypatch.setattr(id_expirations, "NOT_BEFORE", 0.5)
    before, names = set(threading.enumerate()), Names()
    with FakeCluster(brokers=2) as cluster:
        for number in range(4):
            cluster.create_topic(f"t{number}", 2, config={"producer.state.batches.to.retain": "20"})
        cluster.set_broker_config(1, "producer.id.expiration.ms", "60000")
        cluster.set_broker_config(2, "producer.id.expiration.ms", "60000")
        cluster.delay(0.05)
        config = {"bootstrap.servers": cluster.bootstrap, "safeproducer.ordering": "key", "log_level": 0}
        producer = SafeProducer({**config, "linger.ms": 1})
        deadline, asked = time.monotonic() + 20, set[str]()
        while time.monotonic() < deadline and len(asked) < 3:
            for number in range(400):
                stamp = int((time.time() - 3600) * 1000)
                producer.produce(f"t{number % 4}", b"x" * 100, b"%d" % (number % 50), timestamp=stamp)
            names.look(before)
            producer.poll(0.02)
            asker = engine_of(producer).questions.asker
            asked |= {question.what for question in tuple(asker._wanted)}
        assert len(asked) >= 3
        assert len(producer.snapshot().windows) > 0
        assert producer.flush(30) == 0
        names.look(before)
        producer.close()
    assert names <= {*OURS, SENDER}, names
    assert "safeproducer-asker" in names
    assert names.most <= 3
    assert len(made) == 1
