"""Callbacks: exceptions, signals and calls back into the producer."""

import gc
import random
import signal
import threading
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


def test_poll_raises_at_once_and_resumes_later(producer: SafeProducer) -> None:
    """Each poll() raises one callback's exception; the records are counted all the same."""

    def fail(error: object, message: object) -> None:
        raise ValueError("planted")

    for _ in range(3):
        producer.produce("callbacks", b"x", partition=0, on_delivery=fail)
    for served in range(1, 4):
        with pytest.raises(ValueError, match="planted"):
            producer.poll(10)
        assert producer.snapshot().delivered == served


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


def test_ctrl_c_leaves_flush_at_once_although_errors_arrive_all_the_time(unreachable: dict[str, object]) -> None:
    """The C client keeps a KeyboardInterrupt that lands in a callback until its flush ends; ours does not."""
    errors: list[object] = []
    producer = SafeProducer(
        {**unreachable, "error_cb": errors.append, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 10}
    )
    producer.produce("t", b"x")
    gc.collect()  # what other tests left: a signal that lands in a destructor is lost to everybody
    for _ in range(5):
        started = time.monotonic()
        with alarm(0.2, signal.default_int_handler), pytest.raises(KeyboardInterrupt):
            producer.flush(20)
        assert time.monotonic() - started < 3
    assert errors
    producer.close(0)


def test_ctrl_c_in_the_middle_of_a_report_leaves_the_account_true(mock_bootstrap: str) -> None:
    """A signal on a report's first instruction loses its callback, as in confluent_kafka; nothing waits for it for
    ever."""
    producer = SafeProducer({"bootstrap.servers": mock_bootstrap, "log_level": 0})
    called: list[object] = []
    interrupted = 0
    deadline = time.monotonic() + 60
    while producer.snapshot().interrupted == 0 and time.monotonic() < deadline:
        for _ in range(5000):
            producer.produce("callbacks", b"x", on_delivery=lambda error, _: called.append(error))
        try:
            with alarm(random.uniform(0.001, 0.02), signal.default_int_handler):
                producer.flush(10)
        except KeyboardInterrupt:
            interrupted += 1
        assert producer.flush(20) == 0
    account = producer.snapshot()
    assert interrupted
    assert account.interrupted > 0, "no signal hit a report; the test proves nothing"
    assert account.unresolved == 0
    assert account.accepted == account.delivered + account.interrupted
    assert len(called) <= account.delivered
    assert producer.close(5)


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


@pytest.mark.parametrize("method", ["poll", "flush"])
def test_serving_inside_a_callback_answers_and_warns_once(method: str, mock_bootstrap: str) -> None:
    """confluent_kafka aborts the process here; ours serves nothing, says so once, and the outer call serves the
    rest."""
    producer = SafeProducer({"bootstrap.servers": mock_bootstrap, "log_level": 0})
    answers = []

    def again(error: object, message: object) -> None:
        answers.append(getattr(producer, method)(1))

    for _ in range(5):
        producer.produce("callbacks", b"x", partition=1, on_delivery=again)
    wait_until(lambda: len(producer) >= 5)
    with pytest.warns(RuntimeWarning, match=method) as caught:
        assert producer.flush(10) == 0
    assert len([warning for warning in caught if warning.category is RuntimeWarning]) == 1
    assert len(answers) == 5
    assert all(answer == 0 for answer in answers) is (method == "poll")
    producer.close(5)


def test_produce_inside_a_callback(producer: SafeProducer) -> None:
    """A chain of records, each made by the report of the one before."""
    chain: list[int] = []

    def next_one(error: object, message: object) -> None:
        chain.append(len(chain))
        if len(chain) < 10:
            producer.produce("callbacks", b"x", on_delivery=next_one)

    producer.produce("callbacks", b"x", on_delivery=next_one)
    wait_until(lambda: producer.poll(0.1) is not None and len(chain) == 10)
    assert producer.snapshot().delivered == 10


def test_threads_that_produce_and_poll(mock_bootstrap: str) -> None:
    """Eight threads, two of them polling: each record is counted and reported exactly once."""
    producer = SafeProducer({"bootstrap.servers": mock_bootstrap, "log_level": 0})
    reported: list[bytes] = []
    stop = threading.Event()

    def produce(thread: int) -> None:
        for number in range(500):
            producer.produce(
                "callbacks", b"%d-%d" % (thread, number), on_delivery=lambda error, m: reported.append(m.value())
            )

    def poll() -> None:
        while not stop.is_set():
            producer.poll(0.05)

    pollers = [threading.Thread(target=poll) for _ in range(2)]
    workers = [threading.Thread(target=produce, args=(number,)) for number in range(6)]
    for thread in (*pollers, *workers):
        thread.start()
    for thread in workers:
        thread.join()
    wait_until(lambda: len(reported) == 3000)
    stop.set()
    for thread in pollers:
        thread.join()
    assert len(set(reported)) == 3000
    account = producer.snapshot()
    assert (account.accepted, account.delivered, account.unresolved) == (3000, 3000, 0)
    producer.close(5)


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


def test_only_errors_reach_callbacks_when_asked(mock_bootstrap: str, unreachable: dict[str, object]) -> None:
    """delivery.report.only.error: successes are counted without a callback, failures call it."""
    called: list[object] = []
    quiet = {"delivery.report.only.error": True, "log_level": 0, "on_delivery": lambda error, _: called.append(error)}
    producer = SafeProducer({"bootstrap.servers": mock_bootstrap, **quiet})
    producer.produce("callbacks", b"x", partition=0)
    send_one(producer, "callbacks", b"x")
    assert producer.snapshot().delivered == 2
    assert called == []
    producer.close(5)
    failing = SafeProducer({**unreachable, **quiet})
    failing.produce("t", b"x")
    failing.close(0)
    assert len(called) == 1


def test_default_callback_is_used_when_none_is_given(mock_bootstrap: str) -> None:
    """`on_delivery` of the configuration serves records without a callback of their own."""
    default: list[object] = []
    own: list[object] = []
    producer = SafeProducer(
        {"bootstrap.servers": mock_bootstrap, "log_level": 0, "on_delivery": lambda error, m: default.append(m)}
    )
    producer.produce("callbacks", b"x")
    producer.produce("callbacks", b"x", on_delivery=lambda error, m: own.append(m))
    producer.produce("callbacks", b"x", callback=lambda error, m: own.append(m))
    producer.produce_batch("callbacks", [{"value": b"x"}, {"value": b"x", "callback": lambda error, m: own.append(m)}])
    producer.produce_batch("callbacks", [{"value": b"x"}])
    assert producer.flush(10) == 0
    assert (len(default), len(own)) == (3, 3)
    producer.close(5)


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
