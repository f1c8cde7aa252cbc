"""Credentials that change while there are several lanes."""

from safeproducer import SafeProducer
from safeproducer.testing import FakeCluster
from safeproducer.testing.fake.state.sasl import Credentials
from tests.lanes.conftest import RETAIN
from tests.lanes.traffic import Traffic


class Guard(Credentials):
    """Credentials that keep which passwords were tried."""

    def __init__(self, users: dict[str, str]) -> None:
        super().__init__(users)
        self.tried: list[str] = []

    def verify(self, user: str, password: str) -> bool:
        self.tried.append(password)
        return super().verify(user, password)


def test_a_rotated_password_is_not_tried_again() -> None:
    """By nobody: some companies lock the account. The client that asks for windows gets the new one too, and a lane
    that is made later; the window does not stay at what nobody announced."""
    with FakeCluster(1, users={"alice": "old"}) as cluster:
        cluster.create_topic("t", config={RETAIN: "20"})
        cluster.delay(0.02, api="Produce")
        producer = SafeProducer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": "old",
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                "safeproducer.mode": "held",
                "safeproducer.ordering": "key",
                "batch.num.messages": 10,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        load = Traffic(producer, "t")

        def window() -> int:
            return min((window.size for window in producer.snapshot().windows), default=0)

        load.until(lambda: window() == 20, backlog=20)
        lanes = producer.snapshot().lanes
        guard = Guard({"alice": "new"})
        producer.set_sasl_credentials("alice", "new")
        cluster._state.access.credentials = guard
        asked = len(cluster.journal("DescribeConfigs"))
        cluster.cut()
        load.until(lambda: len(cluster.journal("DescribeConfigs")) > asked and window() == 20, backlog=20)
        load.until(lambda: producer.snapshot().lanes > lanes, backlog=500)
        load.finish()
        assert set(guard.tried) == {"new"}
        assert len(guard.tried) >= 3, "two lanes at least, and the client that asks"
        producer.close()
