"""Two threads at one fed lane: who comes second waits, as whoever serves needs the interpreter lock for each report."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from safeproducer.pipeline.accumulator import Accumulator
from safeproducer.pipeline.fed_lane import FedLane
from safeproducer.pipeline.partitions import UNKNOWN
from safeproducer.pipeline.report_numbers import ReportNumbers
from safeproducer.pipeline.reports import Reports

AT_WORK = 0.05
LONG = 5.0


class Native:
    """Its first call lasts until `done`, the others end at once."""

    def __init__(self) -> None:
        self.began, self.done = threading.Event(), threading.Event()
        self.timeouts: list[float] = []

    def poll(self, timeout: float) -> int:
        if self.began.is_set():
            self.timeouts.append(timeout)
            return 1
        self.began.set()
        assert self.done.wait(LONG)
        return 0

    flush = poll


def lane_of(native: Any) -> FedLane:
    return FedLane(native, 0, Reports(), deque(), set(), ReportNumbers())


@contextmanager
def at_work(native: Native, call: Callable[[], object]) -> Iterator[None]:
    """Another thread is inside `call`, for a moment more."""
    thread = threading.Thread(target=call)
    thread.start()
    assert native.began.wait(LONG)
    timer = threading.Timer(AT_WORK, native.done.set)
    timer.start()
    yield
    native.done.set()
    timer.join()
    thread.join()


def test_a_wait_is_no_loop_while_another_thread_serves() -> None:
    native = Native()
    lane = lane_of(native)
    with at_work(native, lambda: lane.serve(LONG)):
        assert lane.serve(LONG) == 1
        assert native.done.is_set()
    assert native.timeouts == [0.0], "it has waited"


def test_a_wait_ends_in_time_while_another_thread_serves() -> None:
    native = Native()
    lane = lane_of(native)
    with at_work(native, lambda: lane.serve(LONG)):
        assert lane.serve(AT_WORK / 50) == 0
        assert lane.serve(0) == 0
        assert not native.done.is_set()


def test_not_even_a_look_overtakes_a_kick_that_serves_reports() -> None:
    """An application that computes and looks would leave it one report in 5 ms."""
    for beside in (False, True):
        native = Native()
        lane = lane_of(native)
        with at_work(native, lambda lane=lane, beside=beside: lane.kick(beside)):  # type: ignore[misc]
            assert lane.serve(0) == 1
            assert native.done.is_set()


def test_only_what_cannot_be_confused_is_kicked_beside_another_thread() -> None:
    """Two batches of a partition, or batches spread over several, could be reported by two threads at once."""
    for partitions, unconfused in ((), True), ((0, 1), True), ((0, 1, 0), False), ((UNKNOWN,), False):
        lane = lane_of(SimpleNamespace(produce=lambda *_: None))
        places = {number: Accumulator("t", number) for number in partitions}
        for number in partitions:
            record = (b"x", None, lane._numbers.hold(lambda *_: None), 0, None, 1, 0.0)
            lane.hand_over(places[number], [record], True, 0.0, lambda *_: None)
        assert lane.one_of_each is unconfused, partitions
