"""What happens to a callback's exception, and to the reports behind it."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.support import poll_until, wait_until


class OddError(Exception):
    """An exception that only these tests raise."""


def produce_five(producer: Any, topic: str, bad: set[int], exception: type[BaseException] = OddError) -> list[int]:
    """Five records of one partition, of which `bad` have a callback that raises; the numbers called so far."""
    called: list[int] = []

    def callback(number: int) -> Callable[[Any, Any], None]:
        def report(_error: Any, _message: Any) -> None:
            called.append(number)
            if number in bad:
                raise exception(number)

        return report

    for number in range(5):
        producer.produce(topic, b"v", partition=0, on_delivery=callback(number))
    return called


@pytest.fixture
def batching(make: Any) -> Callable[[int], Any]:
    """Make a producer that sends exactly this many records in a batch."""
    return lambda size: make({"linger.ms": 20_000, "batch.num.messages": size, "max.in.flight": 1})


@pytest.fixture
def five(batching: Callable[[int], Any], cluster: Any, topic: str) -> Callable[[set[int]], tuple[Any, list[int]]]:
    """Produce five records in one batch; their reports wait to be served."""

    def build(bad: set[int]) -> tuple[Any, list[int]]:
        producer = batching(5)
        called = produce_five(producer, topic, bad)
        wait_until(lambda: sum(cluster.end_offsets(topic)) == 5)
        return producer, called

    return build


@pytest.mark.parametrize("bad", [{0}, {2}, {4}, {1, 3}, {0, 1, 2, 3, 4}], ids=str)
def test_flush_runs_every_callback_and_raises_the_last_exception(
    five: Callable[[set[int]], tuple[Any, list[int]]], bad: set[int]
) -> None:
    """flush() runs all callbacks once, then raises the last of their exceptions; nothing is left behind."""
    producer, called = five(bad)
    with pytest.raises(OddError) as caught:
        producer.flush(10)
    assert (called, caught.value.args) == ([0, 1, 2, 3, 4], (max(bad),))
    assert len(producer) == 0
    assert producer.flush(10) == 0
    assert called == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("bad", [{0}, {2}, {4}, {1, 3}, {0, 1, 2, 3, 4}], ids=str)
def test_poll_raises_each_exception_and_resumes(producer: Any, five: Callable[..., list[int]], bad: set[int]) -> None:
    """poll() raises at the raising callback and the next poll() goes on behind it: none is lost, none is doubled."""
    producer, called = five(bad)
    raised: list[int] = []
    called_by_then: list[list[int]] = []

    def everything_called() -> bool:
        try:
            producer.poll(0.1)
        except OddError as error:
            raised.append(error.args[0])
            called_by_then.append(list(called))
        return len(called) == 5

    wait_until(everything_called)
    assert called == [0, 1, 2, 3, 4]
    assert raised == sorted(bad)
    assert called_by_then == [list(range(number + 1)) for number in raised], "nothing behind it has run yet"


@pytest.mark.parametrize("call", ["poll", "flush"])
def test_reports_behind_a_raising_callback_may_come_after_those_of_later_batches(
    batching: Callable[[int], Any], cluster: Any, topic: str, call: str
) -> None:
    """With several batches each report still comes exactly once, but not in order: so it is in confluent_kafka."""
    producer = batching(1)
    called = produce_five(producer, topic, {0, 2})
    wait_until(lambda: sum(cluster.end_offsets(topic)) == 5)

    def everything_called() -> bool:
        with contextlib.suppress(OddError):
            getattr(producer, call)(1)
        return len(called) >= 5

    wait_until(everything_called)
    assert sorted(called) == [0, 1, 2, 3, 4]
    assert called[0] == 0


def test_the_same_exception_object_comes_out(producer: Any, topic: str) -> None:
    """poll() raises the callback's own exception object, not a copy or a wrapper."""
    error = OddError("this one")

    def report(_error: Any, _message: Any) -> None:
        raise error

    producer.produce(topic, b"v", on_delivery=report)
    with pytest.raises(OddError) as caught:
        poll_until(producer, lambda: False)
    assert caught.value is error


@pytest.mark.parametrize("exception", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("call", ["poll", "flush"])
def test_exceptions_that_end_programs_pass_through(
    producer: Any, topic: str, call: str, exception: type[BaseException]
) -> None:
    """KeyboardInterrupt and its like, raised in a callback, come out of poll() and flush() unchanged."""

    def report(_error: Any, _message: Any) -> None:
        raise exception

    producer.produce(topic, b"v", on_delivery=report)
    with pytest.raises(exception):
        producer.flush(10) if call == "flush" else poll_until(producer, lambda: False)
    assert producer.flush(10) == 0


def test_records_after_a_raising_callback_are_delivered(producer: Any, cluster: Any, topic: str) -> None:
    """A raising callback changes nothing for the records of others. Their callbacks may run in another order."""
    called = produce_five(producer, topic, bad={0, 1, 2, 3, 4})
    with pytest.raises(OddError):
        producer.flush(10)
    produce_five(producer, topic, bad=set())
    assert producer.flush(10) == 0
    assert sorted(called) == [0, 1, 2, 3, 4]
    assert len(cluster.values(topic)) == 10


@pytest.mark.parametrize("callback", [5, "text", False, lambda: None], ids=["int", "str", "false", "no-args"])
@pytest.mark.parametrize("call", ["poll", "flush"])
def test_callback_that_cannot_be_called_is_accepted_and_fails_later(
    producer: Any, topic: str, callback: Any, call: str
) -> None:
    """produce() takes any object as callback; the error comes out of poll() or flush() when it is called."""
    producer.produce(topic, b"v", callback=callback)
    with pytest.raises((SystemError, TypeError)):  # confluent_kafka: SystemError, made from a TypeError it lost
        producer.flush(10) if call == "flush" else poll_until(producer, lambda: False)
    assert producer.flush(10) == 0
    assert len(producer) == 0
