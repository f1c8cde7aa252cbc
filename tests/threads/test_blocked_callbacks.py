"""While a callback of the application runs long, the reports of other records are taken and counted by the sender."""

import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pytest

from safeproducer import SafeProducer
from safeproducer.pipeline import polling
from safeproducer.pipeline.polling import Serving
from safeproducer.runtime import interrupts
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.conformance.target import until
from tests.contract.support import uncollected
from tests.inside import engine_of

PATIENCE = 10.0
LONG = 0.6
"""Seconds for which a callback runs: longer than any native call that is not in one."""

SHORT = 0.12
"""And so shortly that a native flush() goes on after it."""


cluster = fake_cluster(dict.fromkeys(("orders", "audit"), 2))


@pytest.fixture
def producer(cluster: FakeCluster) -> Iterator[SafeProducer]:
    """Its first record is acknowledged."""
    with SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0}) as producer:
        producer.produce("orders", b"first", partition=0)
        assert producer.flush(20) == 0
        yield producer


@contextmanager
def blocked(producer: SafeProducer, serve: Callable[[SafeProducer], Any]) -> Iterator[threading.Thread]:
    """A thread serves, and is inside a callback until the end."""
    free, called = threading.Event(), threading.Event()

    def blocks(*_: Any) -> None:
        called.set()
        free.wait(60)

    producer.produce("orders", b"blocks", partition=0, on_delivery=blocks)
    server = threading.Thread(target=serve, args=(producer,))
    server.start()
    assert called.wait(20)
    try:
        yield server
    finally:
        free.set()
        server.join()


SERVES: dict[str, Callable[[SafeProducer], Any]] = {
    "poll": lambda producer: producer.poll(20),
    "flush": lambda producer: producer.flush(20),
}


@pytest.mark.parametrize("serve", SERVES)
@pytest.mark.parametrize("count", [1, 1_000])
def test_records_for_another_partition_are_sent_meanwhile(
    cluster: FakeCluster, producer: SafeProducer, serve: str, count: int
) -> None:
    """Their partition is new: the second batch of it waits for the answer to the first."""
    with blocked(producer, SERVES[serve]):
        producer.produce("audit", b"first", partition=0)
        until(lambda: len(cluster.log("audit")) == 1, "the first is written", PATIENCE)
        for number in range(count):
            producer.produce("audit", str(number), partition=0)
        until(lambda: len(cluster.log("audit")) == count + 1, "the others are written", PATIENCE)
        answers = engine_of(producer).counters.answers
        until(lambda: answers(("audit", 0)) == (count + 1, 0), "and counted", PATIENCE)
        assert producer.snapshot().delivered <= 2, "no callback has run yet"
    assert producer.flush(20) == 0
    snapshot = producer.snapshot()
    assert (snapshot.delivered, snapshot.accepted) == (count + 3, count + 3)
    assert engine_of(producer).counters.answers(("audit", 0)) == (count + 1, 0)
    assert not engine_of(producer).counters.report_queue.reports.waiting_of


@pytest.mark.parametrize("serve", SERVES)
def test_callbacks_come_in_the_order_of_their_records(producer: SafeProducer, serve: str) -> None:
    """What the thread in the callback has of its own comes first, then what the sender took, then what came later."""
    ran: dict[int, list[int]] = defaultdict(list)

    def produce(number: int, seconds: float = 0.0) -> None:
        def report(error: Any, _: Any) -> None:
            assert error is None
            ran[number % 2].append(number)
            time.sleep(seconds)

        producer.produce("orders", str(number), partition=number % 2, on_delivery=report)

    blocks, beside = Serving._blocks, list[float]()

    def noting(serving: Serving, now: float) -> bool:
        if found := blocks(serving, now):
            beside.append(now - serving._served_at)
        return found

    with mock.patch.object(Serving, "_blocks", noting):
        for number in range(10):  # some of them are in the same native call
            produce(number, LONG if number in (0, 5) else 0.0)
        server = threading.Thread(target=SERVES[serve], args=(producer,))
        server.start()
        for number in range(10, 200):
            produce(number, 0.0 if number % 10 else SHORT)
            time.sleep(0.01)
        server.join()
        assert producer.flush(20) == 0
    assert beside
    assert min(beside) > polling._ROUND, "a native flush() would go on with what is younger"
    assert ran == {0: list(range(0, 200, 2)), 1: list(range(1, 200, 2))}


@pytest.mark.parametrize("serve", SERVES)
def test_what_the_sender_took_runs_before_what_came_behind_it(
    cluster: FakeCluster, producer: SafeProducer, serve: str
) -> None:
    """Its report came when the sender had looked, and the callback ended before it looked again."""
    ran, engine = list[int](), engine_of(producer)
    until(lambda: engine.route.goes_direct, "records go directly", PATIENCE)
    with ExitStack() as later, blocked(producer, SERVES[serve]):
        producer.produce("orders", b"1", partition=0, on_delivery=lambda *_: ran.append(1))
        until(lambda: engine.counters.report_queue.reports.count, "the sender has taken it", PATIENCE)
        later.enter_context(mock.patch.object(Serving, "stand_by"))
        producer.produce("orders", b"2", partition=0, on_delivery=lambda *_: ran.append(2))
        until(lambda: len(cluster.log("orders", 0)) == 4, "the second is written", PATIENCE)
        time.sleep(SHORT)  # it is acknowledged, too
    assert producer.flush(20) == 0
    assert ran == [1, 2]


@pytest.mark.parametrize("serve", SERVES)
def test_what_the_sender_took_runs_before_what_the_client_has(
    cluster: FakeCluster, producer: SafeProducer, serve: str
) -> None:
    """It takes one while a thread comes out of a callback: after that thread found that no report waits here."""
    ran, between, serves_direct = list[int](), threading.Event(), Serving._serves_direct
    queue = engine_of(producer).counters.report_queue

    def late(serving: Serving) -> bool:
        between.set()
        end = time.monotonic() + 0.1
        while not queue.reports and time.monotonic() < end:
            engine_of(producer).sender.wake(0.0)
            time.sleep(0.001)
        between.clear()
        until(lambda: queue.thread == 0, "the sender has ended", PATIENCE)
        found: bool = serves_direct.fget(serving)  # type: ignore[attr-defined]
        return found

    with (
        mock.patch.object(Serving, "_serves_direct", property(late)),
        mock.patch.object(Serving, "_blocks", side_effect=lambda *_: between.is_set()),
        mock.patch.object(Serving, "_is_slow", return_value=True),
    ):
        cluster.delay(0.005)
        server = threading.Thread(target=lambda: [SERVES[serve](producer) for _ in range(10)])
        for number in range(100):
            producer.produce("orders", str(number), partition=0, on_delivery=lambda *_, n=number: ran.append(n))
            if not number:
                server.start()
            time.sleep(0.005)
        server.join()
        assert producer.flush(20) == 0
    assert ran == list(range(100))


def test_a_call_blocks_from_a_round_after_it_was_seen_in_a_callback(producer: SafeProducer) -> None:
    """Its thread may stand still before the native call, whose time-out then ends later than it seems."""
    serving = engine_of(producer).serving
    with mock.patch.object(interrupts, "in_callbacks", return_value=True):
        serving._served_at = began = time.monotonic() + 1_000
        seen = began + 5 * polling._ROUND
        assert not serving._blocks(seen)
        assert not serving._blocks(seen + 0.9 * polling._ROUND), "a native flush() may go on with what is younger"
        assert serving._blocks(seen + 1.1 * polling._ROUND)
        serving._served_at = began + 10 * polling._ROUND  # another call
        assert not serving._blocks(began + 20 * polling._ROUND)


def test_reports_of_quick_callbacks_stay_with_the_application(producer: SafeProducer) -> None:
    """Many of them take as long in one native call as a few slow ones, and to take reports away costs more."""
    late = threading.Event()
    is_slow, found = Serving._is_slow, list[bool]()

    def noting(serving: Serving, now: float) -> bool:
        found.append(is_slow(serving, now))
        return found[-1]

    # A busy machine runs a few of them in a second.
    with mock.patch.object(Serving, "_is_slow", noting), mock.patch.object(polling, "_QUICK", 2):
        for _ in range(10_000):
            producer.produce("orders", b"x", partition=0, on_delivery=lambda *_: late.wait(0.0001))
        assert producer.flush(60) == 0
    assert found
    assert not any(found)


def test_who_is_in_a_callback_is_told_from_the_innermost_call(producer: SafeProducer) -> None:
    """A signal handler may serve inside a callback, and a thread that waits in poll() is in none."""
    own, engine = threading.get_ident(), engine_of(producer)
    with blocked(producer, SERVES["poll"]) as server:
        assert server.ident is not None
        assert interrupts.in_callbacks({server.ident})
        assert not interrupts.in_callbacks({server.ident, own})
    seen: list[bool] = []
    reports = engine.counters.report_queue.reports
    reports.add_event(lambda *_: seen.append(interrupts.in_callbacks({own})), None, None)
    reports.run()
    assert seen == [True]
    reports.add_event(lambda *_: engine.serving._poll_native(0.15), None, None)
    server = threading.Thread(target=reports.run)
    server.start()
    time.sleep(0.05)
    assert not interrupts.in_callbacks({server.ident or 0})
    server.join()


@pytest.mark.parametrize("look", [interrupts.in_callbacks, interrupts.callbacks])
def test_who_looks_keeps_nothing_of_other_threads(look: Callable[[set[int]], object]) -> None:
    """A producer that is deleted is at its end at once, and not on a thread in which the collector happens to run."""

    class Held:
        pass

    def use() -> weakref.ref[Held]:
        held = Held()
        looking = threading.Thread(target=look, args=({threading.main_thread().ident or 0},))
        looking.start()
        looking.join()
        return weakref.ref(held)

    with uncollected():
        assert use()() is None
