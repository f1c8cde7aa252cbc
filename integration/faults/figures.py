"""The figures of one scenario: a line for people, JSON for programs, and the bars."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from integration.faults.oracle import Verdict
    from integration.faults.scenarios import Scenario
    from integration.faults.scene import Scene

CPU_LIMIT = 0.15
"""Of one core, while nothing can be sent."""
RSS_LIMIT = 16 << 20
"""Bytes that 5 000 buffered records of 100 B, the client's network buffers and the tap's delivery counters may take
together."""
LATENESS = 1.5
"""Seconds after its deadline by which a record must have its report; librdkafka looks once a second."""


@dataclass(frozen=True)
class Figures:
    """What was measured. Seconds, bytes, shares of one core; None where the scenario does not measure it."""

    scenario: str
    producer: str
    seed: int
    verdict: Verdict
    outstanding_at_fault: int
    first_ack: float | None
    oldest_report: float
    cpu: float | None
    peak_outstanding: int
    rss_growth: int
    buffer_full: int
    seconds: float
    fatal: str | None
    errors: dict[str, int] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)
    missed: tuple[str, ...] = ()
    """A sentence for each bar that was missed and each promise that was broken."""

    @classmethod
    def of(cls, scenario: Scenario, producer: str, seed: int, scene: Scene, verdict: Verdict) -> Figures:
        load, account = scene.load, scene.load.account
        first = None
        if scene.struck_at is not None and scene.struck_partitions:
            delivered_at = account.first_delivery(scene.struck_at, scene.struck_partitions)
            first = None if delivered_at is None else delivered_at - scene.struck_at
        oldest = account.oldest_report()
        copies = int(scene.evidence.get("in both topics", 0))
        checks = {
            f"{verdict.unknown} unknown, but {scene.outstanding} outstanding at the fault": verdict.unknown
            > scene.outstanding,
            f"{verdict.not_written + verdict.unknown + verdict.refused} not delivered": scenario.all_delivered
            and verdict.delivered < scenario.records().count,
            f"{copies} in both topics, but {scene.outstanding} outstanding at the fault": copies > scene.outstanding,
            f"{load.peak_outstanding} records in the buffer": load.peak_outstanding > _room(scenario),
            f"{load.rss_growth >> 20} MB more memory": load.rss_growth > RSS_LIMIT,
            f"a report after {oldest:.1f} s": oldest > (scenario.reported or scenario.deadline + LATENESS),
            f"{scene.cpu or 0:.0%} of a core while it could not send": (scene.cpu or 0) > CPU_LIMIT,
            f"first ack after {first or -1:.1f} s": scenario.first_ack is not None
            and (first is None or first > scenario.first_ack),
            f"fatal: {load.fatal}": load.fatal is not None,
        }
        told = (scenario.name, producer, seed, verdict, scene.outstanding, first, oldest, scene.cpu)
        used = (load.peak_outstanding, load.rss_growth, load.buffer_full, load.seconds, load.fatal)
        missed = (*verdict.broken, *_lies(scene, verdict), *(what for what, missed in checks.items() if missed))
        return cls(*(*told, *used, dict(account.errors), scene.evidence, missed))

    def __str__(self) -> str:
        seen = self.verdict
        told = [
            f"{self.scenario} ({self.producer}, seed {self.seed})",
            f"{seen.accepted} accepted = {seen.delivered} delivered + {seen.not_written} not written + {seen.unknown} "
            f"unknown ({seen.unknown_present} in the log)",
            f"lost {seen.lost} duplicated {seen.duplicated} reordered {seen.reordered} phantom {seen.phantom}",
            f"{self.outstanding_at_fault} outstanding at the fault",
            f"peak {self.peak_outstanding} records, +{self.rss_growth / (1 << 20):.1f} MB",
            f"oldest report {self.oldest_report:.1f} s",
            *([f"first ack {self.first_ack:.1f} s"] if self.first_ack is not None else []),
            *([f"CPU {self.cpu:.1%}"] if self.cpu is not None else []),
            *([f"{seen.refused} refused"] if seen.refused else []),
            ", ".join(f"{name} {count}" for name, count in {**self.evidence, **self.errors}.items()),
            f"{self.seconds:.1f} s",
            f"MISSED: {', '.join(self.missed)}" if self.missed else "good",
        ]
        return "; ".join(part for part in told if part)

    def as_json(self) -> dict[str, Any]:
        """Everything, for a file."""
        return asdict(self)


def _room(scenario: Scenario) -> int:
    """How many records the configured buffer holds."""
    settings = scenario.settings("")
    messages, kilobytes = (int(str(settings[f"queue.buffering.max.{unit}"])) for unit in ("messages", "kbytes"))
    return min(messages, kilobytes * 1024 // scenario.records().size)


def _lies(scene: Scene, verdict: Verdict) -> list[str]:
    """Where the producer's own account, if it keeps one, differs from what it reported."""
    snapshot = getattr(scene.load.producer, "snapshot", None)
    if snapshot is None:
        return []
    said, seen = snapshot(), verdict
    truth = {
        "accepted": seen.accepted,
        "delivered": seen.delivered,
        "failed": seen.not_written + seen.unknown,
        "unresolved": seen.unreported,
    }
    return [
        f"snapshot() says {getattr(said, name)} {name}, not {count}"
        for name, count in truth.items()
        if getattr(said, name) != count
    ]
