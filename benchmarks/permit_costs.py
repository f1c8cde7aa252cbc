"""Measures the costs of permits (KIP-936): a decision, a round of a ledger with two copies, and a round beside eight
writers.

Bars: 5 us, 100 us and 0.5 ms at the median. Files are in the directories that "auto" takes on this host.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from unittest import mock

from benchmarks.table import Bar
from safeproducer.policy import permits
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids import ledger_places
from safeproducer.producer_ids.guard import AUTO, Claim, Guard
from safeproducer.records import CallSite
from safeproducer.settings.id_settings import LEDGER_VARIABLE, POLICY_VARIABLE

IDENTITY = ("benchmark", "")
"""The same in each writer: they are to share one ledger."""
REQUEST = Claim(Kind.FIRST, 1e7, True, CallSite("application.py", 7, "handler"))
WRITERS = 8
PAUSE = 0.002
"""Seconds between two rounds of a writer: 4 000 new producers a second together."""
ROUNDS, QUICK = 4000, 800
BARS = {"decision": 5e-6, "round with two copies": 100e-6, f"round beside {WRITERS} writers": 500e-6}


def median(work: Callable[[], object], times: int) -> float:
    """Seconds that it takes."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


@contextmanager
def ledgers() -> Iterator[None]:
    """Two directories that nobody else uses: one in memory, if there is one, and one on the disk."""
    memory = Path("/dev/shm")  # noqa: S108
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as first,
        tempfile.TemporaryDirectory() as second,
        mock.patch.dict(os.environ, {ledger_places.AUTO_VARIABLE: os.pathsep.join((first, second))}),
    ):
        for variable in (LEDGER_VARIABLE, POLICY_VARIABLE):  # most have none, and reading one is felt
            os.environ.pop(variable, None)
        yield


def write(stop: Event) -> None:
    """Write until the event."""
    guard = Guard(IDENTITY, AUTO)
    while not stop.is_set():
        guard.ask(REQUEST)
        time.sleep(PAUSE)


def measured(rounds: int) -> dict[str, float]:
    """Seconds at the median, by what is in BARS."""
    now = 1e6
    found = {"decision": median(lambda: permits.granted(now, Kind.FIRST, 20, now), 20 * rounds)}
    with ledgers():
        guard = Guard(IDENTITY, AUTO)
        guard.ask(REQUEST)
        found["round with two copies"] = median(lambda: guard.ask(REQUEST), rounds)
        context = multiprocessing.get_context("spawn")
        stop = context.Event()
        writers = [context.Process(target=write, args=(stop,)) for _ in range(WRITERS)]
        for writer in writers:
            writer.start()
        try:
            time.sleep(3.0)
            taken = []
            for _ in range(rounds // 4):
                taken.append(median(lambda: guard.ask(REQUEST), 1))
                time.sleep(PAUSE)
            found[f"round beside {WRITERS} writers"] = statistics.median(taken)
        finally:
            stop.set()
            for writer in writers:
                writer.join()
    return found


def judged(found: dict[str, float]) -> list[Bar]:
    """The bars for what was measured, in microseconds."""
    return [Bar(f"{name}, microseconds", found[name] * 1e6, bar * 1e6, at_least=False) for name, bar in BARS.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--check", action="store_true", help="exit with 1 for a missed bar")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--mock", action="store_true", help="changes nothing: no broker is asked")
    arguments = parser.parse_args()
    found = measured(QUICK if arguments.quick else ROUNDS)
    if arguments.json:
        print(json.dumps({name: seconds * 1e6 for name, seconds in found.items()}))
    else:
        for name, seconds in found.items():
            print(f"{name:28} {seconds * 1e6:8.1f} us   bar {BARS[name] * 1e6:5.0f} us")
    missed = [name for name, seconds in found.items() if seconds > BARS[name]]
    return 1 if arguments.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
