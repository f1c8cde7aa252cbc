"""Callbacks: exceptions, signals and calls back into the producer."""

import gc
import signal
import time
import traceback
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from safeproducer import Hook, QueueFullError, Record, SafeProducer
from safeproducer.pipeline import closing
from tests.contract.support import handling, send_one, wait_until
from tests.inside import engine_of


@contextmanager
def alarm(seconds: float, handler: Any) -> Iterator[None]:
    """Runs `handler` as a signal handler after `seconds`."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    with handling(signal.SIGALRM, handler):
        yield


def test_flush_serves_all_and_raises_the_last_exception_with_its_traceback(producer: SafeProducer) -> None:
    """As confluent_kafka, no report is skipped; unlike confluent_kafka, the traceback leads into the callback."""
    seen = []

    def fail(error: object, message: Any) -> None:
        seen.append(message.value())
        raise ValueError(message.value())

    for number in range(10):
        producer.produce("callbacks", b"%d" % number, partition=0, on_delivery=fail)
    with pytest.raises(ValueError, match="9") as caught:
        producer.flush(10)
    assert len(seen) == 10
    assert "in fail" in "".join(traceback.format_tb(caught.value.__traceback__))
    assert producer.snapshot().delivered == 10


@pytest.mark.parametrize("mode", ["auto", "held", "passthrough"])
@pytest.mark.parametrize("serve", ["flush", "poll"])
def test_an_exception_of_a_callback_keeps_nothing(serve: str, mode: str, mock_bootstrap: str) -> None:
    """The C client never lets go of an exception that goes through it, nor of its frames, which know the producer."""

    class OddError(Exception):
        pass

    def fail(error: object, message: object) -> None:
        raise OddError

    producer = SafeProducer({"bootstrap.servers": mock_bootstrap, "log_level": 0, "safeproducer.mode": mode})
    producer.produce("callbacks", b"x", on_delivery=fail)
    with pytest.raises(OddError) as caught:
        getattr(producer, serve)(10)
    kept = weakref.ref(producer), weakref.ref(caught.value)
    del producer, caught
    gc.collect()
    assert [reference() for reference in kept] == [None, None]


def test_a_signal_handlers_own_exception_leaves_flush_at_once(unreachable: dict[str, object]) -> None:
    """The SIGALRM time-out idiom works: it is not held back like a callback's exception."""
    producer = SafeProducer(unreachable)
    producer.produce("t", b"x")

    def handler(*_: object) -> None:
        raise TimeoutError

    started = time.monotonic()
    with alarm(0.3, handler), pytest.raises(TimeoutError):
        producer.flush(20)
    assert time.monotonic() - started < 3
    producer.close(0)


def test_statistics_at_the_end_of_a_close_are_no_record(mock_bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a lost report their event was taken for the record that the report was of: lost at the close."""
    producer = SafeProducer({"bootstrap.servers": mock_bootstrap, "log_level": 0})
    send_one(producer, "callbacks", b"x")
    counters = engine_of(producer).counters
    counters.interrupts += 1
    counters.topics["callbacks"].accepted += 1

    def meanwhile(engine: Any) -> None:
        wait_until(lambda: engine.queued)

    monkeypatch.setattr(closing, "await_proof", meanwhile)
    assert producer.close(5).left == 0


def test_a_signal_handler_that_produces(producer: SafeProducer) -> None:
    """Re-entry from a signal handler in the middle of produce() neither deadlocks nor miscounts."""
    handled: list[int] = []

    def handler(*_: object) -> None:
        handled.append(1)
        producer.produce("callbacks", b"signal")

    done = 0
    with alarm(0.05, handler):
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.005)
        deadline = time.monotonic() + 30
        while len(handled) < 50 and time.monotonic() < deadline:
            producer.produce("callbacks", b"main")
            done += 1
            if len(producer) > 10_000:
                producer.poll(0.1)
    assert len(handled) >= 50
    assert producer.flush(20) == 0
    assert producer.snapshot().delivered == done + len(handled)


def test_a_full_queue_names_the_settings_and_the_way_out(unreachable: dict[str, object]) -> None:
    """BufferError as confluent_kafka; the refused record is not counted."""
    producer = SafeProducer({**unreachable, "queue.buffering.max.messages": 3})
    for _ in range(3):
        producer.produce("t", b"x")
    with pytest.raises(QueueFullError, match=r"queue\.buffering\.max\.messages.*poll\(\)") as caught:
        producer.produce("t", b"x")
    assert isinstance(caught.value, BufferError)
    assert producer.snapshot().accepted == 3
    producer.close(0)


def test_methods_of_two_objects_are_told_apart(producer: SafeProducer) -> None:
    """A bound method is compared by what it is bound to; each object gets its own reports and no other's."""

    class Sender:
        def __init__(self, name: bytes) -> None:
            self.name = name
            self.seen: list[bytes] = []

        def __eq__(self, other: object) -> bool:
            return True  # as value objects may be; it must not matter

        def __hash__(self) -> int:
            return 0

        def delivered(self, error: object, message: Any) -> None:
            self.seen.append(message.value())

    senders = [Sender(b"a"), Sender(b"b")]
    for number in range(10):
        sender = senders[number % 2]
        producer.produce("callbacks", sender.name, on_delivery=sender.delivered)
    assert producer.flush(10) == 0
    assert [sender.seen for sender in senders] == [[b"a"] * 5, [b"b"] * 5]


def test_hooks_see_each_record_before_the_callback(producer: SafeProducer, mock_bootstrap: str) -> None:
    """Accepted, resolved, then the application's callback; refused records never resolve."""
    events: list[str] = []

    class Recorder(Hook):
        def record_accepted(self, record: Record) -> None:
            events.append("accepted")

        def record_refused(self, record: Record, error: BaseException) -> None:
            events.append(f"refused {type(error).__name__}")

        def record_resolved(self, record: Record, error: object, message: object) -> None:
            events.append("resolved")

    observed = SafeProducer({"bootstrap.servers": mock_bootstrap, "log_level": 0}, hooks=[Recorder()])
    send_one(observed, "callbacks", b"x", on_delivery=lambda *_: events.append("callback"))
    with pytest.raises(TypeError):
        observed.produce("callbacks", bytearray(b"x"))
    assert events == ["accepted", "resolved", "callback", "accepted", "refused TypeError"]
    assert observed.snapshot().accepted == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        observed.close(5)
