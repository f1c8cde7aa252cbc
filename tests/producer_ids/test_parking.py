"""Who may have what a closed producer leaves: one at a time, for a while, and never in a child."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from safeproducer import clock, forks
from safeproducer.pipeline import leaving
from safeproducer.producer_ids import parking as module
from safeproducer.producer_ids import patience
from safeproducer.producer_ids.parking import MOST, Key, Parking, Same

KEY = Key("a", frozenset())
CLUSTER = "kafka:9092"
LONG = 300.0


class InterruptedHereError(Exception):
    """Raised by a signal handler."""


class Lanes:
    """What a producer leaves. `owners`: threads that have it now, which is one at most."""

    def __init__(self) -> None:
        self.natives: list[Any] = [object()]
        self.served = self.closed = 0
        self.useful = self.ended = True
        self.inside = 0
        self.most_inside = 0

    def settled(self, timeout: float) -> bool:
        if not self.ended and timeout > 0.01:
            time.sleep(0.05)
        return self.ended

    def serve(self) -> bool:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        time.sleep(0.0005)
        self.inside -= 1
        self.served += 1
        return self.useful

    def close(self) -> None:
        self.closed += 1


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def parking(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parking]:
    monkeypatch.setattr(module, "SERVE_EVERY", 0.005)
    made = Parking()
    yield made
    made.end()


def test_the_next_one_with_an_equal_key_gets_it_and_nobody_else(parking: Parking) -> None:
    left = Lanes()
    assert parking.park(KEY, CLUSTER, left, LONG)
    assert parking.take(Key("b", frozenset())) is None
    assert parking.take(KEY) is left
    assert parking.take(KEY) is None
    served = left.served
    time.sleep(0.05)
    assert left.served == served, "who owns it serves it"
    assert not left.closed


def test_a_native_producer_is_served_while_it_is_parked(parking: Parking) -> None:
    left = Lanes()
    parking.park(KEY, CLUSTER, left, LONG)
    until(lambda: left.served > 5)
    assert parking.take(KEY) is left
    assert left.most_inside == 1


def test_a_parked_producer_is_closed_after_its_time(parking: Parking) -> None:
    left = Lanes()
    parking.park(KEY, CLUSTER, left, 0.1)
    until(lambda: left.closed)
    assert parking.take(KEY) is None
    assert left.closed == 1
    assert not parking.park(KEY, CLUSTER, Lanes(), 0.0), "0 keeps nothing"


def test_the_oldest_go_beyond_the_most(parking: Parking) -> None:
    left = [Lanes() for _ in range(MOST + 3)]
    for number, one in enumerate(left):
        parking.park(Key(number, frozenset()), CLUSTER, one, LONG)
    until(lambda: sum(one.closed for one in left) == 3)
    assert [one.closed for one in left[:4]] == [1, 1, 1, 0]
    assert len(parking) == MOST


def test_those_of_a_cluster_go_when_its_credentials_change(parking: Parking) -> None:
    here, there = Lanes(), Lanes()
    parking.park(KEY, CLUSTER, here, LONG)
    parking.park(KEY, "other:9092", there, LONG)
    parking.release(CLUSTER)
    until(lambda: here.closed)
    assert parking.take(KEY) is there
    assert not there.closed


@pytest.mark.parametrize("taken", [True, False], ids=["by the next", "by nobody"])
def test_a_parked_producer_that_has_failed_is_closed(parking: Parking, taken: bool) -> None:
    left = Lanes()
    parking.park(KEY, CLUSTER, left, LONG)
    left.useful = False
    if taken:
        assert parking.take(KEY) is None
    until(lambda: left.closed)
    assert left.closed == 1
    assert parking.take(KEY) is None


def test_a_former_owner_that_is_still_inside_is_waited_for(parking: Parking) -> None:
    left = Lanes()
    left.ended = False
    parking.park(KEY, CLUSTER, left, LONG)
    time.sleep(0.05)
    assert not left.served, "two threads would be inside"
    threading.Timer(0.1, setattr, (left, "ended", True)).start()
    time.sleep(0.15)
    assert parking.take(KEY) is left


def test_one_that_stays_inside_is_not_taken_and_not_closed(parking: Parking, monkeypatch: pytest.MonkeyPatch) -> None:
    """close() would wait for it for ever; the last one that refers to it destroys it."""
    left = Lanes()
    left.ended = False
    parking.park(KEY, CLUSTER, left, LONG)
    assert parking.take(KEY) is None
    time.sleep(0.1)
    assert not left.closed


def test_no_entry_is_kept_after_the_end(parking: Parking) -> None:
    left = Lanes()
    parking.park(KEY, CLUSTER, left, LONG)
    parking.end()
    until(lambda: left.closed)
    assert not parking.park(KEY, CLUSTER, Lanes(), LONG)


def test_an_object_made_anew_is_told_once(parking: Parking, caplog: pytest.LogCaptureFixture) -> None:
    """A lambda in the configuration is another one each time."""

    def key() -> Key:
        return Key("a", frozenset({("oauth_cb", Same(lambda _: None)), ("logger", Same(logging))}))

    with caplog.at_level(logging.WARNING, "safeproducer"):
        for _ in range(3):
            assert parking.take(key()) is None
            parking.park(key(), CLUSTER, Lanes(), LONG)
    (told,) = caplog.messages
    assert "oauth_cb is another object" in told
    same = key()
    parking.park(same, CLUSTER, left := Lanes(), LONG)
    assert parking.take(Key("a", frozenset(same.objects))) is left


def test_no_two_have_the_same_one(parking: Parking) -> None:
    """Eight threads that take and park, beside the one that serves."""
    made: list[Lanes] = []
    owners: Counter[int] = Counter()
    twice: list[Lanes] = []

    def work(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(150):
            taken = parking.take(KEY)
            if taken is None:
                taken = Lanes()
                made.append(taken)
            assert isinstance(taken, Lanes)
            owners[id(taken)] += 1
            taken.inside += 1
            if dice.random() < 0.3:
                time.sleep(0.001)
            if owners[id(taken)] != 1 or taken.inside != 1 or taken.closed:
                twice.append(taken)
            taken.inside -= 1
            owners[id(taken)] -= 1
            parking.park(KEY, CLUSTER, taken, LONG)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not twice
    assert len(made) <= 8
    assert all(one.most_inside <= 1 for one in made)


def test_a_signal_handler_may_take_and_park_at_any_moment(parking: Parking) -> None:
    """In the middle of either, on the same thread, thousands of times; and it may raise."""

    calls, inside = [0], list[Any]()

    def handler(_: int, frame: Any) -> None:
        calls[0] += 1
        inside.append(frame)
        parking.park(KEY, CLUSTER, parking.take(KEY) or Lanes(), LONG)
        inside.pop()
        if not inside and frame.f_globals is vars(module) and calls[0] % 2:
            raise InterruptedHereError

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            with contextlib.suppress(InterruptedHereError):
                parking.park(KEY, CLUSTER, parking.take(KEY) or Lanes(), LONG)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert calls[0] > 100
    parking.park(KEY, CLUSTER, left := Lanes(), LONG)
    assert parking.take(KEY) is left
    assert len(parking) <= MOST


def test_a_child_never_touches_what_its_parent_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor destroys it: librdkafka's threads are not there."""
    immortal: list[Any] = []
    monkeypatch.setattr(forks, "make_immortal", immortal.append)
    parking, left = Parking(), Lanes()
    parking.park(KEY, CLUSTER, left, LONG)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            parking.renew()
            served = left.served
            ours = Lanes()
            # At the fork itself those of other tests were made so.
            known = (immortal[-len(left.natives) :] == left.natives, len(parking), parking.take(KEY))
            parking.park(KEY, CLUSTER, ours, LONG)
            deadline = time.monotonic() + 5
            while not ours.served and time.monotonic() < deadline:
                time.sleep(0.01)
            good = known == (True, 0, None) and ours.served and parking.take(KEY) is ours and left.served == served
            code = 0 if good and not left.closed else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert parking.take(KEY) is left
    parking.end()


class Stalls:
    """A clock of a machine that gives each sleeper the processor `late` seconds after it asked for."""

    def __init__(self, late: float) -> None:
        self.late = late
        self.now = 0.0
        self.sleeps = 0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        self.now += seconds + self.late

    perf_counter_ns = staticmethod(time.perf_counter_ns)


@pytest.mark.parametrize("inside", ["sender", "metadata", "first_question", "application"])
def test_on_a_busy_machine_the_former_owners_threads_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    """Half a second by the clock may be two looks, while the thread that was waited for was not run at all."""
    machine = Stalls(0.3)
    monkeypatch.setattr(patience, "time", machine)
    monkeypatch.setattr(clock, "monotonic", machine.monotonic)
    monkeypatch.setattr(clock, "sleep", machine.sleep)
    threads, serving = {name: mock.Mock() for name in ("sender", "metadata", "first_question")}, set[int]()
    for name, thread in threads.items():
        thread.join.side_effect = lambda _, name=name: name != inside or machine.sleeps >= 5
    if inside == "application":
        serving = mock.MagicMock(__bool__=lambda _: machine.sleeps < 5)
    engine: Any = SimpleNamespace(threads=SimpleNamespace(**threads), client=SimpleNamespace(threads=serving))
    assert leaving._outside(engine)(0.5)
    assert machine.now > 1


def test_one_whose_thread_stays_inside_is_for_a_later_constructor(parking: Parking) -> None:
    """Only the first one waits for it."""
    left, waits = Lanes(), list[float]()
    left.ended = False
    settled = left.settled
    left.settled = lambda timeout: (waits.append(timeout), settled(timeout))[1]  # type: ignore[method-assign]
    parking.park(KEY, CLUSTER, left, LONG)
    assert parking.take(KEY) is None
    assert parking.take(KEY) is None
    assert len([timeout for timeout in waits if timeout > 0.01]) == 1
    left.ended = True
    assert parking.take(KEY) is left
    assert left.most_inside <= 1
    assert not left.closed


def test_one_that_is_served_for_long_is_for_a_later_constructor(parking: Parking) -> None:
    """The thread that serves may be in the application's oauth_cb."""
    left, goes_on, began = Lanes(), threading.Event(), threading.Event()
    serve = left.serve

    def slow() -> bool:
        began.set()
        return goes_on.wait(10) and serve()

    left.serve = slow  # type: ignore[method-assign]
    parking.park(KEY, CLUSTER, left, LONG)
    assert began.wait(10)
    assert parking.take(KEY) is None
    goes_on.set()
    until(lambda: parking.take(KEY) is left)
    assert left.most_inside == 1
    assert not left.closed
