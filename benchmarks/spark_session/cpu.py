"""CPU time of the session's processes, from /proc: the JVM, and by thread the Python workers that it started."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

LIBRDKAFKA = "rdk:"
"""Its threads' names begin so."""


@dataclass(frozen=True)
class Cpu:
    """Seconds, user and system: of the JVM, of librdkafka's threads, of all the rest of the Python processes."""

    jvm: float
    librdkafka: float
    python: float

    def __sub__(self, before: Cpu) -> Cpu:
        return Cpu(self.jvm - before.jvm, self.librdkafka - before.librdkafka, self.python - before.python)


def now(driver: psutil.Process) -> Cpu:
    """Since they were started. The driver's own Python is left out: it only waits."""
    while (found := _read(driver.children(recursive=True))) is None or found[0] != set(driver.children(recursive=True)):
        pass  # one ended or began meanwhile: its time would be missing, or be counted with its parent's again
    return found[1]


def _read(processes: list[psutil.Process]) -> tuple[set[psutil.Process], Cpu] | None:
    jvm = librdkafka = python = 0.0
    for process in processes:
        try:
            if process.name() == "java":
                jvm += spent(process)
            else:
                native = native_seconds(process)
                librdkafka += native
                python += spent(process) - native
        except psutil.NoSuchProcess:
            return None
    return set(processes), Cpu(jvm, librdkafka, python)


def spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    # Of its children that have ended as well: those of the JVM are the ones that plan and commit.
    return times.user + times.system + times.children_user + times.children_system


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
