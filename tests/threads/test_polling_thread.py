"""An application with a thread that only polls, while another one produces: nobody waits for the end of a poll."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from safeproducer import SafeProducer
from safeproducer.pipeline import polling
from tests.clusters import cluster_of
from tests.inside import engine_of

ROUND_TRIP = 0.03
"""Far enough to hold back, and near enough for flush triggers that keep the order of reports."""
LINGER_MS = 5
RECORDS, GAP = 20, 0.1
PARTITIONS = 3
SOON = 0.15
"""Of a second: statistics alone would end a poll after half of one."""


@contextmanager
def polled(producer: SafeProducer) -> Iterator[None]:
    stopped = threading.Event()

    def poll() -> None:
        while not stopped.is_set():
            producer.poll(1.0)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def times_to_report(producer: SafeProducer, records: int, gap: float = GAP) -> list[float]:
    took: list[float] = []

    def since(began: float) -> Callable[[Any, Any], None]:
        return lambda error, message: took.append(time.monotonic() - began)

    for number in range(records):
        producer.produce("t", b"x", partition=number % PARTITIONS, on_delivery=since(time.monotonic()))
        time.sleep(gap)
    return took


@pytest.mark.parametrize("mode", ["held", "auto"])
def test_a_record_is_not_kept_waiting_by_a_poll_of_another_thread(mode: str) -> None:
    with cluster_of({"t": PARTITIONS}) as cluster, mock.patch.object(polling, "_LONG_SLICE", 1.0):
        cluster.delay(ROUND_TRIP, api="Produce")
        config = {"bootstrap.servers": cluster.bootstrap, "linger.ms": LINGER_MS, "safeproducer.mode": mode}
        with SafeProducer(config) as producer, polled(producer):
            deadline = time.monotonic() + 20
            while engine_of(producer).route.goes_direct or producer.snapshot().handed_over < 3:
                assert time.monotonic() < deadline, "it does not hold back"
                times_to_report(producer, PARTITIONS, gap=0.02)
            assert producer.flush(10) == 0  # it has connected, and has its producer ID
            took = times_to_report(producer, RECORDS)
    assert sorted(took)[RECORDS * 3 // 4] < SOON, took  # a busy machine makes some late


def test_first_records_one_after_the_other_are_heard_of_at_once() -> None:
    """Each goes directly, on probation, while the thread that polls waits for the sender, which has nothing to do."""
    took: list[float] = []
    with cluster_of({"t": 1}) as cluster, mock.patch.object(polling, "_LONG_SLICE", 1.0):
        for _ in range(8):  # round trips are measured soon, and nothing waits like that any more
            config = {"bootstrap.servers": cluster.bootstrap, "linger.ms": LINGER_MS}
            with SafeProducer(config) as producer, polled(producer):
                for number in range(15):
                    heard, began = threading.Event(), time.monotonic()
                    producer.produce("t", b"x", on_delivery=lambda *_, heard=heard: heard.set())
                    assert heard.wait(10)
                    took += [time.monotonic() - began] if number else []  # the first one waits for the connection
    assert sorted(took)[-16] < 0.06, took  # a busy machine makes some late; else a quarter are


def test_events_that_the_sender_serves_are_not_taken_off_the_count_of_a_poll() -> None:
    """Statistics that come while the application is away are no reason to return less than 0, or 0 for a report."""
    with cluster_of({"t": 1}) as cluster, SafeProducer({"bootstrap.servers": cluster.bootstrap}) as producer:
        producer.produce("t", b"warm")
        assert producer.flush(10) == 0
        cluster.delay(2.0, api="Produce")
        reports: list[Any] = []
        producer.produce("t", b"x", on_delivery=lambda error, message: reports.append(error))
        time.sleep(1.15)
        counts = []
        deadline = time.monotonic() + 10
        while not reports:
            assert time.monotonic() < deadline
            counts.append(producer.poll(0))
            time.sleep(0.01)
        assert (min(counts), max(counts), sum(counts)) == (0, 1, 1)
