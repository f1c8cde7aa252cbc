"""message.timeout.ms of records that went directly: kept whatever the client's clock and name, and never early.

Their ages come from librdkafka's statistics.
"""

import collections
import time
from typing import Any

import pytest

from safeproducer import DeliveryError, SafeProducer
from safeproducer.pipeline.dispatch import updates
from safeproducer.testing import FakeCluster
from tests.clusters import cluster_of
from tests.contract.support import send_one


def timed_out_after(config: dict[str, Any], cluster: FakeCluster) -> tuple[float, Any]:
    """(seconds, error) of a record whose leader is gone."""
    told: list[tuple[float, Any]] = []
    with SafeProducer(
        {"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": 2000, "socket.timeout.ms": 2000, "log_level": 0}
        | config
    ) as producer:
        for _ in range(20):
            producer.produce("t", b"warm")
        assert producer.flush(10) == 0
        producer.poll(0.6)
        cluster.stop(1)
        began = time.monotonic()
        producer.produce("t", b"late", on_delivery=lambda error, _: told.append((time.monotonic() - began, error)))
        while not told and time.monotonic() < began + 25:
            producer.poll(0.1)
    return told[0]


def test_nothing_is_waited_for_at_a_deadline_while_no_broker_is_connected() -> None:
    """Else what is healthy has a quarter of the time-out more to leave the lane: records were reported 3.5 s late."""
    timeout, late = 12.0, list[float]()
    with cluster_of({"t": 4}, brokers=2) as cluster:
        config = {"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": 12_000, "log_level": 0}
        with SafeProducer(config) as producer:
            for number in range(40):
                producer.produce("t", b"warm", partition=number % 4)
            assert producer.flush(10) == 0
            producer.poll(0.6)
            for broker in cluster.brokers:
                cluster.stop(broker)
            began, produced = time.monotonic(), 0
            while time.monotonic() < began + timeout + 1:
                due, produced = time.monotonic() + timeout, produced + 1
                report = lambda *_, due=due: late.append(time.monotonic() - due)  # noqa: E731
                producer.produce("t", b"x", partition=produced % 4, on_delivery=report)
                producer.poll(0.01)
            while len(late) < produced and time.monotonic() < began + 40:
                producer.poll(0.1)
    assert len(late) == produced
    assert max(late) < 2.5


@pytest.mark.parametrize("client_id", ["plain", 'my "app"', "HOST\\user", "tab\there", "naïve"])
def test_the_name_of_the_client_does_not_matter(client_id: str) -> None:
    """librdkafka writes it into its statistics as it is, and a quote spoiled them."""
    with cluster_of({"t": 1}) as cluster:
        seconds, error = timed_out_after({"client.id": client_id}, cluster)
    assert isinstance(error, DeliveryError)
    assert 1.5 < seconds < 6.0


@pytest.mark.parametrize("timeout_ms", [250, 400, 600])
def test_a_short_timeout_fails_no_healthy_record(timeout_ms: int) -> None:
    """A record that is acknowledged at once was taken for one that had waited since the statistics before: 6 to 18 of
    100. A machine that lets nothing run for so long makes some late, but not three times."""
    outcomes = [outcomes_in_three_seconds(timeout_ms)]
    while late_of_hundred(outcomes[-1]) > 1 and len(outcomes) < 3:
        outcomes.append(outcomes_in_three_seconds(timeout_ms))
    assert late_of_hundred(outcomes[-1]) <= 1, outcomes


def late_of_hundred(outcomes: collections.Counter[str]) -> float:
    return 100 * (1 - outcomes["delivered"] / outcomes.total())


def outcomes_in_three_seconds(timeout_ms: int) -> collections.Counter[str]:
    """How often records were delivered, and with which errors they failed; each has its report."""
    outcomes: collections.Counter[str] = collections.Counter()

    def count(error: Any, _: Any) -> None:
        outcomes["delivered" if error is None else str(error)] += 1

    with cluster_of({"t": 3}) as cluster:
        cluster.delay(0.008)
        config = {"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": 60_000, "log_level": 0}
        with SafeProducer(config | {"message.timeout.ms": timeout_ms}) as producer:
            produced = 0
            end = time.monotonic() + 3
            while time.monotonic() < end:
                if producer.snapshot().delivered or not produced:
                    for _ in range(20):
                        producer.produce("t", b"x", on_delivery=count)
                        produced += 1
                producer.poll(0.02)
    assert outcomes.total() == produced
    return outcomes


def test_an_idle_time_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after a long rest, of which no statistics were read, has its whole time."""
    monkeypatch.setattr(updates, "_IDLE_AFTER", 1)
    monkeypatch.setattr(updates, "_IDLE_READS", 1_000_000)
    with cluster_of({"t": 1}) as cluster:
        config = {"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": 2000, "log_level": 0}
        with SafeProducer(config) as producer:
            send_one(producer, "t", b"warm")
            producer.poll(4)
            cluster.delay(0.9, api="Produce")
            told: list[Any] = []
            send_one(producer, "t", b"x", on_delivery=lambda error, _: told.append(error))
    assert told == [None]
