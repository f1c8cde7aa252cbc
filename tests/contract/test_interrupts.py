"""Ctrl-C while a call waits: KeyboardInterrupt comes out soon and the producer goes on."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.contract.support import NOWHERE, Reports, poll_until, run_script, wait_until


@pytest.fixture
def interrupt_soon() -> Iterator[Callable[[], None]]:
    """Send this process SIGINT after 0.3 s."""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    timers: list[threading.Timer] = []

    def arm() -> None:
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timers.append(timer)
        timer.start()

    yield arm
    for timer in timers:
        timer.join(5)


@pytest.mark.parametrize("arguments", [(), (-1,), (20,)], ids=["no-limit", "minus-one", "twenty-seconds"])
@pytest.mark.parametrize("call", ["poll", "flush"])
def test_interrupt_ends_a_waiting_call(
    make: Any, interrupt_soon: Callable[[], None], call: str, arguments: tuple[float, ...]
) -> None:
    """poll() and flush() that wait for long raise KeyboardInterrupt within a second of the signal."""
    producer = make({"bootstrap.servers": NOWHERE, "message.timeout.ms": 4000})  # which ends a wait that goes on
    producer.produce("t", b"v")
    interrupt_soon()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        wait_until(lambda: getattr(producer, call)(*arguments) is None, timeout=3)  # poll() ends at each event
    assert time.monotonic() - started < 1.5


@pytest.mark.parametrize("attempt", range(4))
def test_interrupt_is_not_lost_between_connection_errors(
    make: Any, interrupt_soon: Callable[[], None], attempt: int
) -> None:
    """The interrupt comes out although connection errors keep arriving that nobody asked to hear of."""
    producer = make(
        {
            "bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in range(1, 8)),
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 20,
            "message.timeout.ms": 4000,
        }
    )
    producer.produce("t", b"v")
    interrupt_soon()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        producer.flush()
    assert time.monotonic() - started < 1.5


def test_producer_goes_on_after_an_interrupt(
    make: Any, cluster: Any, topic: str, interrupt_soon: Callable[[], None]
) -> None:
    """Nothing that was accepted is lost by an interrupted wait: a later flush() delivers it."""
    producer = make({"linger.ms": 2000})
    reports = Reports()
    producer.produce(topic, b"v", on_delivery=reports)
    interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        poll_until(producer, lambda: False, pause=5)
    producer.produce(topic, b"w", on_delivery=reports)
    assert producer.flush(10) == 0
    assert reports.codes == [None, None]
    assert sorted(cluster.values(topic)) == [b"v", b"w"]


def test_interrupt_ends_a_program(producer_class: type, mock_cluster: Any) -> None:
    """A program that waits in flush() without a limit dies of SIGINT like any other, with a traceback."""
    done = run_script(
        producer_class,
        NOWHERE,
        "p = Producer({'bootstrap.servers': bootstrap, 'log_level': 0})\n"
        "p.produce('t', b'v')\n"
        "threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "try:\n"
        "    p.flush()\n"
        "finally:\n"
        "    p.purge(); p.flush()\n",
        timeout=15,
    )
    assert done.returncode in (-signal.SIGINT, 1, 130)
    assert "KeyboardInterrupt" in done.stderr


@pytest.mark.parametrize("call", ["poll", "flush"])
def test_signal_handler_may_produce(make: Any, cluster: Any, topic: str, call: str) -> None:
    """A signal handler that produces while a call waits neither blocks nor loses its record."""
    producer = make({"linger.ms": 600})
    reports = Reports()
    producer.produce(topic, b"first", partition=0, on_delivery=reports)
    before = signal.signal(
        signal.SIGUSR1, lambda *_: producer.produce(topic, b"second", partition=0, on_delivery=reports)
    )
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        timer.start()
        deadline = time.monotonic() + 15
        while len(reports) < 2 and time.monotonic() < deadline:
            producer.poll(1) if call == "poll" else producer.flush(1)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert reports.codes == [None, None]
    assert cluster.values(topic) == [b"first", b"second"]
