"""A record ends unknown, its lane is busy, and its copy arrives when the key's next record has long been accepted."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from integration.kafka.cluster import KafkaCluster
from integration.lost_answers import settled
from integration.tap import Tap
from safeproducer import SafeProducer
from safeproducer.policy.affinity import Affinity
from tests.inside import engine_of

TopicFactory = Callable[..., str]

DEADLINE = 1.5
SOCKET_TIMEOUT = 1.0
LATE = 10.0
"""Seconds until the copy arrives: after the record was given up and its lane purged of it."""
EARLIER = 0.6
"""How much earlier its successor is accepted: less than the time for which the other record's request is waited for."""


def forget(affinity: Affinity, keys: Iterable[bytes], _: int) -> None:
    """The lane of keys whose records ended with unknown outcome."""
    affinity.release_all(keys)


class Writer:
    """A producer with three lanes that writes single records to partition 0 of its topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.ended: dict[bytes, str] = {}
        config = {
            "bootstrap.servers": bootstrap,
            "safeproducer.mode": "held",
            "safeproducer.ordering": "key",
            "safeproducer.lanes": 3,
            "message.timeout.ms": int(DEADLINE * 1e3),
            "socket.timeout.ms": int(SOCKET_TIMEOUT * 1e3),
            "log_level": 0,
            "error_cb": lambda error: None,
        }
        self.producer = SafeProducer(config)
        self.produce(b"warm", b"0")
        self.wait(lambda: b"0" in self.ended and self.producer.snapshot().lanes == 3)
        self.wait(lambda: all(lane.ready for lane in self.lanes))

    @property
    def lanes(self) -> Any:
        return engine_of(self.producer).dispatcher.lanes

    def produce(self, key: bytes, value: bytes) -> None:
        self.producer.produce(self.topic, value, key, 0, on_delivery=self._report)

    def wait(self, happened: Callable[[], object], seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < deadline, (self.ended, self.producer.snapshot())
            self.producer.poll(0.01)

    def _report(self, error: Any, message: Any) -> None:
        self.ended[message.value()] = "delivered" if error is None else str(error.outcome)


@pytest.fixture
def tap(kafka_tapped: KafkaCluster) -> Iterator[Tap]:
    with Tap(kafka_tapped) as tap:
        yield tap


@pytest.mark.full
@pytest.mark.parametrize("overtaken", [False, True], ids=["bound", "planted: forgotten"])
def test_no_copy_comes_behind_a_successor(
    kafka_tapped: KafkaCluster, tap: Tap, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch, overtaken: bool
) -> None:
    """The key stays on its lane, whose next batch either waits behind the copy or makes the broker refuse it; on
    another lane its successor would be in the log before the copy."""
    if overtaken:
        monkeypatch.setattr(Affinity, "note_unknown", forget)
    writer = Writer(kafka_tapped.bootstrap, topic(on=kafka_tapped))
    first = tap.batches[0].producer_id
    started = time.monotonic()
    tap.delay(LATE, to_client=False)
    writer.produce(b"x", b"1")
    writer.wait(lambda: len(tap.batches) == 2)
    tap.delay(0)
    tap.drop_requests(n=1_000, producer_id=first)
    writer.wait(lambda: b"1" in writer.ended)
    assert writer.ended[b"1"] == "unknown"
    writer.wait(lambda: not writer.lanes.busy)
    tap.heal()
    writer.wait(lambda: time.monotonic() > started + LATE - EARLIER)
    tap.drop_requests(n=1, keep_open=True, producer_id=first)
    writer.produce(b"y", b"2")
    writer.wait(lambda: not tap.drops_left)
    writer.produce(b"x", b"3")
    writer.wait(lambda: {b"2", b"3"} <= writer.ended.keys())
    writer.wait(lambda: time.monotonic() > started + LATE + 1.0)
    writer.producer.close()
    (values,) = settled(kafka_tapped, writer.topic)
    assert values.count(b"1") == 1, "the copy was to arrive"
    assert (b"3" in values[: values.index(b"1")]) is overtaken, (values, writer.ended)
