"""The users of CPU time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cpu:
    """Seconds, user and system: of JVMs, of librdkafka's threads, of all the rest of the Python processes."""

    jvm: float
    librdkafka: float
    python: float

    def __add__(self, more: Cpu) -> Cpu:
        return Cpu(self.jvm + more.jvm, self.librdkafka + more.librdkafka, self.python + more.python)

    def __sub__(self, before: Cpu) -> Cpu:
        return Cpu(self.jvm - before.jvm, self.librdkafka - before.librdkafka, self.python - before.python)

    @property
    def total(self) -> float:
        return self.jvm + self.librdkafka + self.python
