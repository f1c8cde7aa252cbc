"""poll(), flush(), len() and bool(): what they return, how long they take, what they count."""

import statistics
import time
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from tests.contract.support import NOWHERE, Reports, poll_until, reports_of, wait_until

SCHEDULING = 0.25
"""Seconds that a busy machine may add."""


@pytest.mark.parametrize("call", ["poll", "flush"])
@pytest.mark.parametrize("timeout", [0, 0.0, -0.0, False, True, 0.01, Decimal("0.01"), np.float64(0.01)], ids=repr)
def test_timeout_may_be_any_real_number(producer: Any, call: str, timeout: Any) -> None:
    """int, float, bool, Decimal and numpy numbers are timeouts, by position and by name."""
    assert isinstance(getattr(producer, call)(timeout), int)
    assert isinstance(getattr(producer, call)(timeout=timeout), int)


@pytest.mark.parametrize("timeout", [0.05, 0.7])
def test_poll_with_nothing_to_serve_takes_its_timeout(producer: Any, timeout: float) -> None:
    """Whatever the producer is told meanwhile that is not for the application; loops pace themselves by poll()."""
    poll_until(producer, lambda: producer.poll(0.05) == 0)
    took = []
    for _ in range(3):
        started = time.monotonic()
        assert producer.poll(timeout) == 0
        took.append(time.monotonic() - started)
    assert min(took) >= timeout * 0.95
    assert statistics.median(took) < timeout + SCHEDULING


def test_poll_returns_as_soon_as_it_served_something(producer: Any, topic: str) -> None:
    """poll() with a long timeout returns at the first report, and says so by a number that is not zero."""
    reports = Reports()
    producer.produce(topic, b"v", on_delivery=reports)
    started = time.monotonic()
    served = 0
    while not reports:
        served = producer.poll(20)
    assert served > 0
    assert time.monotonic() - started < 5


def test_poll_without_timeout_waits_for_an_event(producer: Any, topic: str) -> None:
    """poll() without arguments waits until there is something to serve."""
    reports = Reports()
    producer.produce(topic, b"v", on_delivery=reports)
    while not reports:
        assert producer.poll() > 0


def test_flush_returns_zero_when_everything_has_its_report(producer: Any, topic: str) -> None:
    """flush() without arguments waits for everything, runs the callbacks and returns 0."""
    reports = Reports()
    for _ in range(100):
        producer.produce(topic, b"v", on_delivery=reports)
    assert producer.flush() == 0
    assert len(reports) == 100


def test_flush_of_an_empty_producer_returns_at_once(producer: Any) -> None:
    """With nothing to wait for, flush() returns 0 without waiting."""
    started = time.monotonic()
    assert producer.flush(20) == 0
    assert time.monotonic() - started < 1


@pytest.mark.parametrize("timeout", [0, 0.1, 0.5])
def test_flush_that_cannot_finish_returns_what_is_left(make: Any, timeout: float) -> None:
    """flush() gives up after its timeout and returns the number of records left."""
    producer = make({"bootstrap.servers": NOWHERE})
    poll_until(producer, lambda: producer.poll(0.5) == 0)  # connection errors are counted too until served
    for _ in range(3):
        producer.produce("t", b"v")
    started = time.monotonic()
    assert producer.flush(timeout) >= 3
    assert timeout - 0.02 <= time.monotonic() - started < timeout + 1


def test_flush_sends_before_linger_is_over(make: Any, topic: str) -> None:
    """flush() does not wait for linger.ms."""
    producer = make({"linger.ms": 20_000})
    producer.produce(topic, b"v")
    started = time.monotonic()
    assert producer.flush(15) == 0
    assert time.monotonic() - started < 5


def test_len_counts_records_until_their_report_was_served(producer: Any, cluster: Any, topic: str) -> None:
    """len() counts each accepted record from produce() until poll() served its report."""
    for number in range(10):
        producer.produce(topic, b"v", partition=0)
        assert len(producer) >= number + 1
    wait_until(lambda: sum(cluster.end_offsets(topic)) == 10)
    assert len(producer) >= 10, "delivered, but nobody was told"
    poll_until(producer, lambda: len(producer) == 0)


def test_records_expire_after_message_timeout(make: Any) -> None:
    """A record not delivered within message.timeout.ms is reported with _MSG_TIMED_OUT."""
    producer = make({"bootstrap.servers": NOWHERE, "message.timeout.ms": 300})
    reports = reports_of(producer, "t", b"v", b"k")
    error, message = reports.only
    assert error is not None
    assert error.name() == "_MSG_TIMED_OUT"
    assert message.error() is not None
    assert (message.value(), message.key()) == (b"v", b"k")
