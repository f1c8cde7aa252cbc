"""Several threads on one producer."""

import collections
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.support import PARTITIONS

THREADS = 8
EACH = 500


def run(*works: Callable[[], None]) -> None:
    """Run each work in its own thread; an exception in one fails the test."""
    failures: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert failures == []


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
    run(*[lambda thread=thread: produce(thread) for thread in range(THREADS)])
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


def test_many_threads_poll_and_flush(make: Any, topic: str) -> None:
    """Threads may poll, flush and produce at once; no report is lost or doubled."""
    producer = make()
    reported: collections.Counter[bytes] = collections.Counter()

    def work(thread: int) -> None:
        for number in range(100):
            producer.produce(
                topic, f"{thread}:{number}", on_delivery=lambda error, message: reported.update([message.value()])
            )
            if number % 10 == 0:
                producer.poll(0)
            if number % 50 == 0:
                producer.flush(10)

    run(*[lambda thread=thread: work(thread) for thread in range(4)])
    assert producer.flush(10) == 0
    assert len(reported) == 400
    assert set(reported.values()) == {1}


def test_one_full_queue_for_all_threads(make: Any, topic: str) -> None:
    """Threads that wait for room in a small queue all get through."""
    producer = make({"queue.buffering.max.messages": 10})
    reported: collections.Counter[bytes] = collections.Counter()

    def work(thread: int) -> None:
        for number in range(100):
            while True:
                try:
                    producer.produce(
                        topic, f"{thread}:{number}", on_delivery=lambda error, msg: reported.update([msg.value()])
                    )
                    break
                except BufferError:
                    producer.poll(0.05)

    run(*[lambda thread=thread: work(thread) for thread in range(4)])
    assert producer.flush(10) == 0
    assert len(reported) == 400
    assert set(reported.values()) == {1}


def test_batches_from_many_threads(make: Any, cluster: Any, topic: str) -> None:
    """produce_batch() from several threads loses nothing."""
    producer = make()
    reported: collections.Counter[bytes] = collections.Counter()

    def work(thread: int) -> None:
        for batch in range(10):
            messages = [{"value": f"{thread}:{batch}:{number}"} for number in range(20)]
            accepted = producer.produce_batch(
                topic, messages, on_delivery=lambda error, message: reported.update([message.value()])
            )
            assert accepted == 20

    run(*[lambda thread=thread: work(thread) for thread in range(4)])
    assert producer.flush(10) == 0
    assert len(reported) == 800
    assert set(reported.values()) == {1}
    assert len(cluster.values(topic)) == 800


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

    run(serve_until_closed, close)
    assert len(reported) == EACH
    assert set(reported.values()) == {1}
