"""Shared throttle deadlines: one for each cluster of the process, for any thread, gone when nobody uses it."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from safeproducer.pipeline import throttles
from safeproducer.pipeline.throttles import ThrottleRegistry


def test_producers_of_one_cluster_share_its_deadlines() -> None:
    """And no other cluster's."""
    one, same, other = throttles.of("a:9092"), throttles.of("a:9092"), throttles.of("b:9092")
    one.announce(1, 5.0, now=0.0)
    assert same is one
    assert same.deadline(1, 1.0) == same.deadline(None, 1.0) == same.latest == 5.0
    assert same.held(1.0) == {1: 5.0}
    assert other.deadline(1, 1.0) is None


def test_nobody_waits_for_another_while_nothing_throttles() -> None:
    """Dozens of producers that ask at the same time must not stand in a queue for an answer that is always no."""
    shared = ThrottleRegistry().of("a:9092")
    shared.announce(1, 5.0, now=0.0)
    answers: list[object] = []

    def ask() -> None:
        answers.extend((shared.deadline(1, 100.0), shared.deadline(None, 100.0), shared.held(100.0)))
        answers.append(shared.calms(1, 100.0))

    with shared._lock:
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(5)
        assert answers == [None, None, {}, False]


def test_a_cluster_that_nobody_uses_goes_away() -> None:
    """With its deadlines and its name."""
    registry = ThrottleRegistry()
    kept = registry.of("kept")
    registry.of("gone").announce(1, 5.0, now=0.0)
    gc.collect()
    assert registry.clusters() == 1
    assert registry.of("gone").deadline(1, 1.0) is None
    registry.of("third")
    assert "gone" not in registry._references
    assert registry.of("kept") is kept


def test_a_forked_child_starts_without_deadlines() -> None:
    """Its parent's may be locked in the middle of a change."""
    registry = ThrottleRegistry()
    parent = registry.of("a:9092")
    registry.reset()
    assert registry.of("a:9092") is not parent


def test_threads_get_the_same_deadlines_and_lose_none() -> None:
    """Eight threads ask for the cluster and announce; the latest of all stays."""
    registry = ThrottleRegistry()
    keep = []

    def work(thread: int) -> None:
        shared = registry.of("a:9092")
        keep.append(shared)
        for number in range(2_000):
            shared.announce(number % 3, 1.0 + (number * 7 + thread) % 1_000, now=0.0)
            shared.deadline(None, 0.0)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len({id(shared) for shared in keep}) == 1
    assert keep[0].held(0.0) == {0: 1000.0, 1: 1000.0, 2: 1000.0}


@pytest.fixture
def interrupts() -> Iterator[None]:
    """The signal handler of before is put back."""
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("interrupts")
def test_a_signal_handler_in_the_middle_of_an_announcement_is_not_undone() -> None:
    """It may poll, and so announce, on any instruction: the later deadline stays, whichever was first."""
    registry = ThrottleRegistry()
    shared = registry.of("a:9092")
    shared.announce(1, 1.0, now=0.0)

    def handler(_number: int, _frame: FrameType | None) -> None:
        assert shared.announce(1, 50.0, now=0.0) is None
        assert registry.of("a:9092") is shared

    class Slow(dict[int, float]):
        """The deadlines, with the signal between reading and writing."""

        def __setitem__(self, broker: int, until: float) -> None:
            if until == 5.0:
                os.kill(os.getpid(), signal.SIGUSR1)
            super().__setitem__(broker, until)

    signal.signal(signal.SIGUSR1, handler)
    shared._throttle._deadlines = Slow(shared._throttle._deadlines)
    shared.announce(1, 5.0, now=0.0)
    assert shared.deadline(1, 0.0) == 50.0
