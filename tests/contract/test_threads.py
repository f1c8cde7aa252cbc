"""Several threads on one producer."""

import collections
import threading
from typing import Any

import pytest

from tests.contract.support import PARTITIONS, together

THREADS = 8
EACH = 500


def test_many_threads_produce_and_one_polls(make: Any, cluster: Any, topic: str) -> None:
    """Every record of every thread is delivered and reported exactly once, in the order of its thread."""
    producer = make({"enable.idempotence": True})
    reported: collections.Counter[bytes] = collections.Counter()
    finished = threading.Event()

    def report(error: Any, message: Any) -> None:
        assert error is None
        reported[message.value()] += 1

    def produce(thread: int) -> None:
        for number in range(EACH):
            producer.produce(topic, f"{thread}:{number}", partition=thread % PARTITIONS, on_delivery=report)

    def poll() -> None:
        while not finished.is_set():
            producer.poll(0.05)

    poller = threading.Thread(target=poll)
    poller.start()
    together(*[lambda thread=thread: produce(thread) for thread in range(THREADS)])
    finished.set()
    poller.join(10)
    assert producer.flush(20) == 0
    expected = {f"{thread}:{number}".encode() for thread in range(THREADS) for number in range(EACH)}
    assert set(reported) == expected
    assert set(reported.values()) == {1}
    values = [value for value in cluster.values(topic) if value is not None]
    assert len(values) == THREADS * EACH
    for thread in range(THREADS):
        own = [int(value.split(b":")[1]) for value in values if value.startswith(b"%d:" % thread)]
        assert own == list(range(EACH))


def polls_and_flushes(producer: Any, topic: str, value: str, number: int, report: Any) -> None:
    """Threads may poll, flush and produce at once."""
    producer.produce(topic, value, on_delivery=report)
    if number % 10 == 0:
        producer.poll(0)
    if number % 50 == 0:
        producer.flush(10)


def waits_for_room(producer: Any, topic: str, value: str, number: int, report: Any) -> None:
    """Threads that wait for room in a small queue all get through."""
    while True:
        try:
            return producer.produce(topic, value, on_delivery=report)
        except BufferError:
            producer.poll(0.05)


def produces_a_batch(producer: Any, topic: str, value: str, number: int, report: Any) -> None:
    """produce_batch() from several threads loses nothing."""
    messages = [{"value": f"{value}:{each}"} for each in range(3)]
    assert producer.produce_batch(topic, messages, on_delivery=report) == 3


@pytest.mark.parametrize(
    ("way", "config", "records"),
    [
        (polls_and_flushes, {}, 400),
        (waits_for_room, {"queue.buffering.max.messages": 10}, 400),
        (produces_a_batch, {}, 1200),
    ],
    ids=["poll and flush", "full queue", "batches"],
)
def test_threads_lose_and_double_no_report(
    make: Any, cluster: Any, topic: str, way: Any, config: dict[str, Any], records: int
) -> None:
    """Whatever each of them calls."""
    producer = make(config)
    reported: collections.Counter[bytes] = collections.Counter()

    def work(thread: int) -> None:
        for number in range(100):
            way(producer, topic, f"{thread}:{number}", number, lambda _, message: reported.update([message.value()]))

    together(*[lambda thread=thread: work(thread) for thread in range(4)])
    assert producer.flush(10) == 0
    assert len(reported) == records == len(cluster.values(topic))
    assert set(reported.values()) == {1}


@pytest.mark.parametrize("serve", ["poll", "flush"])
def test_close_while_another_thread_serves(make: Any, topic: str, serve: str) -> None:
    """close() waits for each report, whoever runs it; the other thread then gets a RuntimeError and nothing worse."""
    producer = make({"enable.idempotence": True})
    reported: collections.Counter[bytes] = collections.Counter()
    for number in range(EACH):
        producer.produce(topic, b"%d" % number, on_delivery=lambda _, message: reported.update([message.value()]))

    def loop() -> None:
        while True:
            getattr(producer, serve)(0.05)

    def serve_until_closed() -> None:
        with pytest.raises(RuntimeError):
            loop()

    def close() -> None:
        assert producer.close()

    together(serve_until_closed, close)
    assert len(reported) == EACH
    assert set(reported.values()) == {1}
