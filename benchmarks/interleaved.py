"""Block-interleaved measuring: what a busy machine does to one variant in a round, it does to all of them.

Every round runs one block of every variant, in random order, in this process. A comparison is the median over the
rounds of the ratio within one round; absolute figures of different rounds are never compared.
"""

from __future__ import annotations

import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import psutil

Block = Callable[[], None]


@dataclass(frozen=True)
class Timing:
    """One block: seconds of wall clock, and of CPU (user and system) of all threads of this process."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of one figure over the rounds, and its lowest and highest round."""

    low: float
    median: float
    high: float
    least: float
    most: float

    @classmethod
    def of(cls, figures: list[float]) -> Spread:
        if len(figures) == 1:
            return cls(*figures * 5)
        low, median, high = statistics.quantiles(figures, n=4, method="inclusive")
        return cls(low, median, high, min(figures), max(figures))


@dataclass(frozen=True)
class Row:
    """The result of one comparison: throughput and CPU as ratios to its peer, over the rounds."""

    title: str
    throughput: Spread
    cpu: Spread


@dataclass(frozen=True)
class Rounds:
    """The timings of every round, and `disturbance`: the share of the machine's CPU that strangers used meanwhile."""

    timings: list[dict[str, Timing]]
    disturbance: float


def joined(sittings: Sequence[Rounds]) -> Rounds:
    """The rounds of several measurements of the same variants as one."""
    timings = [timing for sitting in sittings for timing in sitting.timings]
    return Rounds(timings, statistics.fmean(sitting.disturbance for sitting in sittings))


class Bystanders:
    """CPU that neither this process nor its children, such as the broker, use."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._before = self._strangers()

    def share(self) -> float:
        """The share of all cores, since this object was made."""
        available = (time.perf_counter() - self._started) * (psutil.cpu_count() or 1)
        return max(0.0, (self._strangers() - self._before) / available)

    @staticmethod
    def _strangers() -> float:
        machine = psutil.cpu_times()
        busy: float = sum(machine) - machine.idle - getattr(machine, "iowait", 0.0) - getattr(machine, "guest", 0.0)
        me = psutil.Process()
        for process in (me, *me.children(recursive=True)):
            used = process.cpu_times()
            busy -= used.user + used.system + used.children_user + used.children_system  # of those that ended, too
        return busy


def measure(variants: Mapping[str, Block], rounds: int, warm_up: int, seed: int, label: str) -> Rounds:
    """Run `rounds` rounds after `warm_up` unrecorded ones. Shows the progress on stderr."""
    order = list(variants)
    shuffler = random.Random(seed)
    timings: list[dict[str, Timing]] = []
    bystanders = Bystanders()
    for number in range(warm_up + rounds):
        show(f"{label}: round {number - warm_up + 1} of {rounds}" if number >= warm_up else f"{label}: warming up")
        shuffler.shuffle(order)
        gc.collect()
        if number == warm_up:
            bystanders = Bystanders()
        measured = {name: timed(variants[name]) for name in order}
        if number >= warm_up:
            timings.append(measured)
    show("")
    return Rounds(timings, bystanders.share())


def timed(block: Block) -> Timing:
    cpu, wall = time.process_time(), time.perf_counter()
    block()
    return Timing(time.perf_counter() - wall, time.process_time() - cpu)


def throughput_ratio(rounds: Rounds, variant: str, baseline: str) -> Spread:
    """How many records the variant passes in the time in which the baseline passes one; blocks are equally long."""
    return Spread.of([timings[baseline].wall / timings[variant].wall for timings in rounds.timings])


def cpu_ratio(rounds: Rounds, variant: str, baseline: str) -> Spread:
    """The CPU time the variant needs for a record, in units of what the baseline needs."""
    return Spread.of([timings[variant].cpu / timings[baseline].cpu for timings in rounds.timings])


def rate(rounds: Rounds, variant: str, records: int) -> Spread:
    """Records per second."""
    return Spread.of([records / timings[variant].wall for timings in rounds.timings])


def show(text: str) -> None:
    """Progress that overwrites itself on a terminal; elsewhere only the first round of each measurement is told."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif ": round 1 of " in text:
        print(text.partition(":")[0], file=sys.stderr, flush=True)
