"""Who may have what a closed producer leaves: one at a time, for a while, and never in a child."""

import contextlib
import logging
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from safeproducer.kafka.native import KafkaError, NativeProducer
from safeproducer.pipeline import reuse as module
from safeproducer.pipeline.lanes.native_producers import Relay
from safeproducer.pipeline.reuse import MOST, Key, ParkedProducers, Parking
from safeproducer.runtime import clock, patience
from safeproducer.settings.config import Settings, parse
from tests.contract.support import handling, together, wait_until

KEY = Key("a")
CLUSTER = "kafka:9092"
LONG = 300.0


class InterruptedHereError(Exception):
    """Raised by a signal handler."""


class Lanes(ParkedProducers):
    """What a producer leaves. `inside`: threads that serve it now, which is one at most."""

    def __init__(self, key: Key = KEY, cluster: str = CLUSTER, seconds: float = LONG) -> None:
        super().__init__(key, cluster, seconds, [], 0.0, None, None, None)
        self.handles = [object()]
        self.served_times = self.closed = 0
        self.useful = self.ended = True
        self.inside = 0
        self.most_inside = 0

    @property
    def natives(self) -> list[Any]:
        return self.handles

    def settled(self, timeout: float) -> bool:
        if not self.ended and timeout > 0.01:
            time.sleep(0.05)
        return self.ended

    def serve(self) -> bool:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        time.sleep(0.0005)
        self.inside -= 1
        self.served_times += 1
        return self.useful

    def close(self) -> None:
        self.closed += 1


def settings(**given: Any) -> Settings:
    named = {name.replace("__", "."): value for name, value in given.items()}
    return parse(({"bootstrap.servers": "a:1", "safeproducer.producer.ids.policy": "reuse", **named},), {})


def parsed(**given: Any) -> Key:
    return Key.of(settings(**given))


@pytest.fixture
def parking(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parking]:
    monkeypatch.setattr(module, "SERVE_EVERY", 0.005)
    made = Parking()
    monkeypatch.setattr(module, "parking", made)
    yield made
    made.end()


def test_the_next_one_with_an_equal_key_gets_it_and_nobody_else(parking: Parking) -> None:
    left = Lanes()
    assert left.park()
    assert parking.take(Key("b")) is None
    assert parking.take(KEY) is left
    assert parking.take(KEY) is None
    served = left.served_times
    time.sleep(0.05)
    assert left.served_times == served, "who owns it serves it"
    assert not left.closed


def test_a_native_producer_is_served_while_it_is_parked(parking: Parking) -> None:
    left = Lanes()
    left.park()
    wait_until(lambda: left.served_times > 5)
    assert parking.take(KEY) is left
    assert left.most_inside == 1


def test_a_parked_producer_is_closed_after_its_time(parking: Parking) -> None:
    left = Lanes(seconds=0.1)
    left.park()
    wait_until(lambda: left.closed)
    assert parking.take(KEY) is None
    assert left.closed == 1
    assert not Lanes(seconds=0.0).park(), "0 keeps nothing"


def test_the_oldest_go_beyond_the_most(parking: Parking) -> None:
    left = [Lanes(Key(number)) for number in range(MOST + 3)]
    for one in left:
        one.park()
    wait_until(lambda: sum(one.closed for one in left) == 3)
    assert [one.closed for one in left[:4]] == [1, 1, 1, 0]
    assert len(parking) == MOST


def test_those_of_a_cluster_go_when_its_credentials_change(parking: Parking) -> None:
    here, there = Lanes(), Lanes(cluster="other:9092")
    here.park()
    there.park()
    parking.release(CLUSTER)
    wait_until(lambda: here.closed)
    assert parking.take(KEY) is there
    assert not there.closed


@pytest.mark.parametrize("taken", [True, False], ids=["by the next", "by nobody"])
def test_a_parked_producer_that_has_failed_is_closed(parking: Parking, taken: bool) -> None:
    left = Lanes()
    left.park()
    left.useful = False
    if taken:
        assert parking.take(KEY) is None
    wait_until(lambda: left.closed)
    assert left.closed == 1
    assert parking.take(KEY) is None


def test_a_former_owner_that_is_still_inside_is_waited_for(parking: Parking) -> None:
    left = Lanes()
    left.ended = False
    left.park()
    time.sleep(0.05)
    assert not left.served_times, "two threads would be inside"
    threading.Timer(0.1, setattr, (left, "ended", True)).start()
    time.sleep(0.15)
    assert parking.take(KEY) is left


def test_one_that_stays_inside_is_not_taken_and_not_closed(parking: Parking, monkeypatch: pytest.MonkeyPatch) -> None:
    """close() would wait for it for ever; the last one that refers to it destroys it."""
    left = Lanes()
    left.ended = False
    left.park()
    assert parking.take(KEY) is None
    time.sleep(0.1)
    assert not left.closed


def test_no_entry_is_kept_after_the_end(parking: Parking) -> None:
    left = Lanes()
    left.park()
    parking.end()
    wait_until(lambda: left.closed)
    assert not Lanes().park()


def test_an_object_made_anew_is_told_once(parking: Parking, caplog: pytest.LogCaptureFixture) -> None:
    """A lambda in the configuration is another one each time."""

    def key() -> Key:
        return parsed(oauth_cb=lambda _: None, logger=logging.Logger("x"))

    with caplog.at_level(logging.WARNING, "safeproducer"):
        for _ in range(3):
            assert parking.take(key()) is None
            Lanes(key()).park()
    (told,) = caplog.messages
    assert "logger and oauth_cb is another object" in told
    same = key()
    left = Lanes(same)
    left.park()
    assert parking.take(same) is left


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
            taken.park()

    together(*(partial(work, seed) for seed in range(8)))
    assert not twice
    assert len(made) <= 8
    assert all(one.most_inside <= 1 for one in made)


def test_a_signal_handler_may_take_and_park_at_any_moment(parking: Parking) -> None:
    """In the middle of either, on the same thread, thousands of times; and it may raise."""

    calls, inside = [0], list[Any]()

    def handler(_: int, frame: Any) -> None:
        calls[0] += 1
        inside.append(frame)
        (parking.take(KEY) or Lanes()).park()
        inside.pop()
        if not inside and frame.f_globals is vars(module) and calls[0] % 2:
            raise InterruptedHereError

    with handling(signal.SIGALRM, handler):
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            with contextlib.suppress(InterruptedHereError):
                (parking.take(KEY) or Lanes()).park()
    assert calls[0] > 100
    left = Lanes()
    assert left.park()
    assert parking.take(KEY) is left
    assert len(parking) <= MOST


def test_a_child_never_touches_what_its_parent_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    parking, left = Parking(), Lanes()
    monkeypatch.setattr(module, "parking", parking)
    left.park()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            parking.renew()
            served = left.served_times
            ours = Lanes()
            known = len(parking), parking.take(KEY)
            ours.park()
            wait_until(lambda: ours.served_times, 5)
            good = (
                known == (0, None) and ours.served_times and parking.take(KEY) is ours and left.served_times == served
            )
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


@pytest.mark.parametrize("inside", ["sender", "metadata", "application"])
def test_on_a_busy_machine_a_former_owners_threads_are_waited_for(monkeypatch: pytest.MonkeyPatch, inside: str) -> None:
    """Half a second by the clock may be two looks, while the thread that was waited for was not run at all."""
    machine = Stalls(0.3)
    monkeypatch.setattr(patience, "time", machine)
    monkeypatch.setattr(clock, "monotonic", machine.monotonic)
    monkeypatch.setattr(clock, "sleep", machine.sleep)
    threads, serving = {name: mock.Mock() for name in ("sender", "metadata")}, set[int]()
    for name, thread in threads.items():
        thread.join.side_effect = lambda _, name=name: name != inside or machine.sleeps >= 5
    if inside == "application":
        serving = mock.MagicMock(__bool__=lambda _: machine.sleeps < 5)
    questions = SimpleNamespace(metadata=threads["metadata"])
    route = SimpleNamespace(threads=serving)
    engine: Any = SimpleNamespace(sender=threads["sender"], questions=questions, route=route)
    assert module._ended(engine)(0.5)
    assert machine.now > 1


def test_one_whose_thread_stays_inside_is_for_a_later_constructor(parking: Parking) -> None:
    """Only the first one waits for it."""
    left, waits = Lanes(), list[float]()
    left.ended = False
    settled = left.settled
    left.settled = lambda timeout: (waits.append(timeout), settled(timeout))[1]  # type: ignore[method-assign]
    left.park()
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
    left.park()
    assert began.wait(10)
    assert parking.take(KEY) is None
    goes_on.set()
    wait_until(lambda: parking.take(KEY) is left)
    assert left.most_inside == 1
    assert not left.closed


# --- real native producers -------------------------------------------------------------------------------------------


def parked(config: dict[str, Any], ended: Any = None) -> ParkedProducers:
    relay = Relay()
    native = NativeProducer(relay.configured(config))
    native.relay = relay
    left = ParkedProducers(KEY, CLUSTER, 0.0, [(native, None)], 0.0, None, ended, None)
    assert not left.park()
    return left


def test_tokens_are_renewed() -> None:
    """By the application's oauth_cb, which is the same object for whoever comes next."""
    asked: list[str] = []

    def token(config: str) -> tuple[str, float]:
        asked.append(config)
        return "token", time.time() + 2

    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": token}
    left = parked({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **login})
    deadline = time.monotonic() + 20
    while len(asked) < 3 and time.monotonic() < deadline:
        left.serve()
        time.sleep(0.05)
    assert len(asked) >= 3
    left.close()


def test_one_that_its_former_owner_has_closed_is_of_no_use() -> None:
    """Its sender may have closed an idle lane while the producer was collected."""
    left = parked({"test.mock.num.brokers": 1})
    left.natives[0].close()
    assert not left.serve()


@pytest.mark.parametrize("fatal", [True, False])
def test_a_fatal_error_is_noted(fatal: bool) -> None:
    left = parked({"test.mock.num.brokers": 1})
    left.natives[0].relay.tell("error", KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "no", fatal=fatal))
    assert left.serve() is not fatal
    left.close()


def test_a_former_owner_is_released_when_its_threads_have_ended() -> None:
    ends = [False, False, True]
    left = parked({"test.mock.num.brokers": 1}, lambda _: ends.pop(0))
    assert [left.settled(0.1) for _ in range(4)] == [False, False, True, True]
    assert left._ended is None
    left.close()


def same(*_: Any) -> None:
    """A callback."""


def test_equal_is_what_librdkafka_got() -> None:
    """Values as text, objects by identity; what is the owner's does not matter."""
    assert parsed() == parsed(error_cb=same, on_delivery=print)
    assert parsed(linger__ms=5) == parsed(linger__ms="5")
    assert parsed(oauth_cb=same) == parsed(oauth_cb=same)
    assert parsed(oauth_cb=same) != parsed(oauth_cb=lambda _: None)
    assert parsed(safeproducer__max__block__ms=5) == parsed()
    for different in (
        {"linger__ms": 6},
        {"sasl__password": "x"},
        {"safeproducer__mode": "held"},
        {"safeproducer__ordering": "key"},
        {"stats_cb": same, "statistics__interval__ms": 100},
        {"bootstrap__servers": "b:1"},
    ):
        assert parsed(**different) != parsed(), different
    assert "secret" not in repr(parsed(sasl__password="secret"))
    assert settings().reuses
    assert not settings(enable__idempotence=False).reuses
    assert not settings(safeproducer__producer__ids__policy="warn").reuses
