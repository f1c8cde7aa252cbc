"""What contract tests are written with: collected reports, waiting with a deadline, scripts in their own process."""

import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from safeproducer import Hook

PROJECT = Path(__file__).parents[2]

NOWHERE = "127.0.0.1:1"
"""A bootstrap address where nobody listens: records stay in the queue."""

PARTITIONS = 4
"""Partitions of every topic; the mock cluster offers no other number."""


class Reports(list[tuple[KafkaError | None, Message]]):
    """A delivery callback that keeps what it was called with."""

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.append((error, message))

    @property
    def codes(self) -> list[int | None]:
        """The error code of each report, None for a delivered record."""
        return [None if error is None else error.code() for error, _ in self]

    @property
    def only(self) -> tuple[KafkaError | None, Message]:
        assert len(self) == 1, f"expected one report, got {len(self)}"
        return self[0]

    @property
    def message(self) -> Message:
        """The message of the single report, which must be one of success."""
        error, message = self.only
        assert error is None, f"delivery failed: {error}"
        return message


def wait_until(condition: Callable[[], Any], timeout: float = 10, pause: float = 0.005) -> Any:
    """The first true value of `condition`; fails the test after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not true within {timeout} s"
        time.sleep(pause)
    return value


def poll_until(producer: Any, condition: Callable[[], Any], timeout: float = 30, pause: float = 0.05) -> None:
    """Poll `producer`, for `pause` seconds each time, until `condition` is true; fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, (f"not true within {timeout} s", getattr(producer, "explain", str)())
        producer.poll(pause)


def send_one(producer: Any, *arguments: Any, seconds: float = 30, **named: Any) -> None:
    """Produce one record, and flush."""
    producer.produce(*arguments, **named)
    assert producer.flush(seconds) == 0


def reports_of(producer: Any, *arguments: Any, seconds: float = 30, **named: Any) -> Reports:
    """As `send_one`; the report of the record."""
    reports = Reports()
    send_one(producer, *arguments, seconds=seconds, on_delivery=reports, **named)
    return reports


def noting(*events: str) -> Any:
    """A hook that wants these events; `told` has the last argument of each, in order."""
    hook: Any = type(
        "Noting", (Hook,), dict.fromkeys(events, lambda self, *arguments: self.told.append(arguments[-1]))
    )()
    hook.told = []
    return hook


def ran(command: Sequence[str | Path], timeout: float = 120, check: bool = False, **more: Any) -> Any:
    """Run a command to its end, and keep what it says as text."""
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=check, **more)


@contextmanager
def switching(interval: float) -> Iterator[None]:
    """The interpreter switches threads so often."""
    former = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    try:
        yield
    finally:
        sys.setswitchinterval(former)


@contextmanager
def handling(number: int, handler: Any) -> Iterator[None]:
    """`handler` takes this signal meanwhile; no timer is left."""
    former = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(number, former)


def together(*works: Callable[[], object]) -> None:
    """Run each on a thread of its own; an exception in one fails the test."""
    failures: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert failures == []


@contextmanager
def uncollected() -> Iterator[None]:
    """Garbage is collected on demand alone."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def error_of(exception: BaseException) -> KafkaError:
    """The KafkaError that a KafkaException carries."""
    assert isinstance(exception, KafkaException)
    error: KafkaError = exception.args[0]
    assert isinstance(error, KafkaError)
    assert error.str(), "an error says something"
    return error


def run_script(cls: type, bootstrap: str, body: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
    """Run `body` in its own Python process with `Producer` (the class under test) and `bootstrap` at hand."""
    module = "confluent_kafka" if cls.__module__ == "cimpl" else cls.__module__
    script = (
        "import gc, os, signal, sys, threading, time, warnings\n"
        f"from {module} import {cls.__name__} as Producer\n"
        f"bootstrap = {bootstrap!r}\n"
        f"{body}\n"
    )
    return subprocess.run(
        [sys.executable, "-u", "-c", script], capture_output=True, text=True, timeout=timeout, cwd=PROJECT, check=False
    )
