"""On real Kafka: producers one after another are one producer ID of the broker's, with `reuse` (KIP-936)."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from confluent_kafka.cimpl import Producer

from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import read_records
from safeproducer import SafeProducer
from safeproducer.pipeline import reuse
from safeproducer.runtime.patience import Patience
from tests.inside import engine_of

COUNT = 1000


def ids(kafka: KafkaCluster, topic: str) -> set[int]:
    """What the broker remembers."""
    return {state.producer_id for state in kafka.admin.describe_producers(topic, 0)}


def reusing(kafka: KafkaCluster, **more: Any) -> dict[str, Any]:
    """`more`: makes the configuration a test's own, so that it takes over nothing of another test."""
    return {"bootstrap.servers": kafka.bootstrap, "safeproducer.producer.ids.policy": "reuse", **more}


def connections(kafka: KafkaCluster) -> int:
    ports = {int(server.rpartition(":")[2]) for server in kafka.bootstrap.split(",")}
    found = psutil.Process().net_connections("tcp")
    return sum(1 for one in found if one.raddr and one.raddr.port in ports and one.status == psutil.CONN_ESTABLISHED)


def test_a_thousand_one_after_another(
    kafka: KafkaCluster, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of them never closed: one ID, each record once, no callback of a former owner, no connection more."""
    # On a busy machine, too.
    monkeypatch.setattr(reuse, "Patience", lambda seconds, starved: Patience(10 * seconds, starved))
    name, told, present = topic(), Counter[tuple[int, bool]](), [0]
    seen: list[int] = []
    changes: list[tuple[int, int, bool, float]] = []
    natives: list[Any] = []

    def note(number: int) -> Callable[..., None]:
        def report(error: Any, _: Any) -> None:
            assert error is None
            told[number, number == present[0]] += 1

        return report

    for number in range(COUNT):
        present[0] = number
        producer = SafeProducer(reusing(kafka, **{"client.id": name}))
        producer.produce(name, b"%d" % number, on_delivery=note(number))
        assert producer.flush(30) == 0
        engine = engine_of(producer)
        round_trip = engine.updates.holds.round_trip
        if natives != (now := list(engine.natives)):
            changes.append((number, len(now), round_trip.long, round_trip.seconds))
            natives[:] = now
        del engine, round_trip
        if number in (COUNT // 10, COUNT - 1):
            seen.append(connections(kafka))
        if number % 2:
            assert producer.close()
        present[0] = -1
        del producer
    assert told == {(number, True): 1 for number in range(COUNT)}
    assert len(ids(kafka, name)) == 1, f"of which producer, how many clients then, whether far, distance: {changes}"
    assert seen[0] == seen[1], "connections"
    values = Counter(record.value for record in read_records(kafka.bootstrap, name)[0])
    assert values == {b"%d" % number: 1 for number in range(COUNT)}


def test_threads_take_one_each_at_most(kafka: KafkaCluster, topic: Callable[..., str]) -> None:
    """8 threads x 125."""
    name = topic()

    def work() -> None:
        for number in range(125):
            producer = SafeProducer(reusing(kafka, **{"client.id": name}))
            producer.produce(name, b"v")
            assert producer.flush(30) == 0
            if number % 2:
                producer.close()
            del producer

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= len(ids(kafka, name)) <= 8


@pytest.mark.parametrize("made", ["plain confluent_kafka", "warn"])
def test_without_reuse_each_is_an_id(kafka: KafkaCluster, topic: Callable[..., str], made: str) -> None:
    """Or the tests above show nothing."""
    name = topic()
    for _ in range(10):
        config: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True}
        producer: Any = Producer(config) if made.startswith("plain") else SafeProducer(config)
        producer.produce(name, b"v")
        assert producer.flush(30) == 0
        del producer
    assert len(ids(kafka, name)) == 10
