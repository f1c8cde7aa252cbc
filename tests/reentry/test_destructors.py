"""Destructors that run on the sender: the collector runs wherever something is allocated, and it forgets callbacks."""

import builtins
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from safeproducer import CallbackReentryError, SafeProducer
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.contract.support import wait_until
from tests.inside import engine_of

RECORDS = 20
MODES = {"auto": {}, "held": {"safeproducer.mode": "held"}}
AT_ONCE = 5.0

Ends = Callable[[Any], Any]


class Request:
    """Calls the producer at its end."""

    def __init__(self, end: Callable[[], Any], answers: list[Any]) -> None:
        self._end = end
        self._answers = answers

    def __del__(self) -> None:
        try:
            self._answers.append(self._end())
        except BaseException as error:
            self._answers.append(type(error))


brokers = fake_cluster({"t": 1})


@pytest.fixture
def make(brokers: FakeCluster) -> Callable[..., SafeProducer]:
    """A producer whose records wait, as its broker does not answer."""

    def made(mode: str, **settings: Any) -> SafeProducer:
        config = {"bootstrap.servers": brokers.bootstrap, "log_level": 0, **MODES[mode]}
        producer = SafeProducer(config | {name.replace("_", "."): value for name, value in settings.items()})
        producer.produce("t", b"warm")
        assert producer.flush(10) == 0
        brokers.pause(1)
        for number in range(RECORDS):
            producer.produce("t", b"%d" % number)
        return producer

    return made


def end_on_the_sender(producer: SafeProducer, end: Ends) -> Any:
    """What `end` gives in a destructor on the sender, which must answer at once."""
    answers: list[Any] = []
    kept = [Request(lambda: end(producer), answers)]
    sender = engine_of(producer).sender
    threading.Thread(target=sender.run, args=(kept.clear,), daemon=True).start()
    return wait_until(lambda: answers, timeout=AT_ONCE)[0]


@pytest.mark.filterwarnings("ignore:.*was called inside a callback:RuntimeWarning")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("end", "answer"),
    [
        (lambda producer: producer.flush(), RECORDS),
        (lambda producer: producer.poll(), 0),
        (lambda producer: producer.close(), CallbackReentryError),
        (len, RECORDS),
        (lambda producer: producer.produce("t", b"last"), None),
    ],
    ids=["flush", "poll", "close", "len", "produce"],
)
def test_calls_of_a_destructor_answer_at_once(
    make: Callable[..., SafeProducer], brokers: FakeCluster, mode: str, end: Ends, answer: Any
) -> None:
    """It waited for the thread that it stopped: nothing was sent any more, and no garbage was collected."""
    producer = make(mode)
    assert end_on_the_sender(producer, end) == answer
    brokers.resume(1)
    assert producer.flush(10) == 0
    account = producer.snapshot()
    assert account.delivered == account.accepted == len(brokers.log("t"))
    assert producer.close(10)


def test_a_full_buffer_is_not_waited_for(make: Callable[..., SafeProducer], brokers: FakeCluster) -> None:
    settings = {"safeproducer.max.block.ms": 60_000, "queue.buffering.max.messages": RECORDS}
    producer = make("held", **settings)
    started = time.monotonic()
    end_on_the_sender(producer, lambda producer: producer.produce("t", b"too many"))
    assert time.monotonic() - started < AT_ONCE
    brokers.resume(1)
    assert producer.close(10)


def test_a_purge_waits_for_the_end_of_the_turn(make: Callable[..., SafeProducer], brokers: FakeCluster) -> None:
    """In the middle of a turn it took records away that were just being given to a lane."""
    producer = make("held")
    engine = engine_of(producer)
    kept = [Request(producer.purge, [])]
    failed: list[int] = []

    def turn() -> None:
        kept.clear()
        failed.append(engine.dispatcher.reports.count)

    engine.sender.run(turn)
    assert failed == [0]
    wait_until(lambda: producer.poll(0.01) or producer.snapshot().failed)
    brokers.resume(1)
    assert producer.flush(10) == 0
    assert producer.close(10)


def test_a_producer_with_nothing_left_may_be_closed(make: Callable[..., SafeProducer], brokers: FakeCluster) -> None:
    producer = make("held")
    brokers.resume(1)
    assert producer.flush(10) == 0
    report = end_on_the_sender(producer, lambda producer: producer.close())
    assert (report.left, report.delivered) == (0, RECORDS + 1)
    assert producer.close() is report


def test_one_that_closes_in_the_middle_of_a_question_ends(
    brokers: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The native close() waits for that question, on the thread that it would have to wait for: it is released."""
    answers: list[Any] = []
    imports = builtins.__import__

    def importing(name: str, *args: Any) -> Any:
        """The client imports what it answers with."""
        if name == "confluent_kafka.admin" and threading.current_thread().name == "safeproducer-metadata":
            with contextlib.suppress(IndexError):
                requests.pop()
        return imports(name, *args)

    producer = SafeProducer({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
    requests = [Request(lambda: producer.close(AT_ONCE), answers)]
    monkeypatch.setattr(builtins, "__import__", importing)
    producer.produce("t", b"v")
    wait_until(lambda: bool(answers))
    assert answers[0].accepted == 1
