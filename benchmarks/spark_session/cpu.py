"""CPU time of the session's processes, from /proc: the JVM, and by thread the Python workers that it started.

The daemon of Spark that forks the workers does not ask how they end, so Linux adds their time to nobody's. Spark ends
one that is idle for a minute: a write that has no use for them takes as long on a long link.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import psutil

from benchmarks.spark_session.parts import Cpu

LIBRDKAFKA = "rdk:"
"""Its threads' names begin so."""
NONE = Cpu(0.0, 0.0, 0.0)


class Watch:
    """The descendants of a process. If one has ended, the time counts that was read last."""

    def __init__(self, root: psutil.Process) -> None:
        self._root = root
        self._seen: dict[psutil.Process, Cpu] = {}

    def now(self) -> Cpu:
        """Since they were started."""
        while (found := self._read()) is None:
            pass  # one ended or began meanwhile
        self._seen.update(found)
        return sum(self._seen.values(), NONE)

    def _read(self) -> Mapping[psutil.Process, Cpu] | None:
        processes = self._root.children(recursive=True)
        try:
            found = {process: of(process) for process in processes}
        except psutil.NoSuchProcess:
            return None
        return found if set(self._root.children(recursive=True)) == set(processes) else None


class Strangers:
    """CPU that neither the benchmark nor what it has started uses: its broker, and this session."""

    def __init__(self) -> None:
        self._benchmark = psutil.Process().parent() or psutil.Process()
        self._watch = Watch(self._benchmark)
        self._started, self._before = time.perf_counter(), self._used()

    def look(self) -> None:
        """Take note of processes that may end until the next look."""
        self._watch.now()

    def share(self) -> float:
        """The share of all cores, since this object was made."""
        available = (time.perf_counter() - self._started) * (psutil.cpu_count() or 1)
        return max(0.0, (self._used() - self._before) / available)

    def _used(self) -> float:
        machine = psutil.cpu_times()
        busy: float = sum(machine) - machine.idle - getattr(machine, "iowait", 0.0) - getattr(machine, "guest", 0.0)
        return busy - self._watch.now().total - spent(self._benchmark)


def of(process: psutil.Process) -> Cpu:
    used = spent(process)
    if process.name() == "java":
        return Cpu(used, 0.0, 0.0)
    native = native_seconds(process)
    return Cpu(0.0, native, used - native)


def spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def native_seconds(process: psutil.Process) -> float:
    names = {}
    for thread in process.threads():
        try:
            with open(f"/proc/{process.pid}/task/{thread.id}/comm", encoding="ascii", errors="replace") as comm:
                names[thread.id] = comm.read()
        except OSError:
            continue
    return sum(
        thread.user_time + thread.system_time
        for thread in process.threads()
        if names.get(thread.id, "").startswith(LIBRDKAFKA)
    )
