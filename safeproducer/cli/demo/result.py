"""How a demonstration ended: exit status, sentence, JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from safeproducer.cli.common.failure import NOT_ALL_DELIVERED
from safeproducer.cli.common.stop import StopRequest
from safeproducer.cli.demo.comparison import FLAWS, Counts, Row
from safeproducer.cli.demo.experiment import Experiment
from safeproducer.cli.demo.steps import Step


@dataclass(frozen=True, slots=True)
class Result:
    """The comparison with what a person needs around it.

    ``partitions`` are rows of the comparison by partition. ``steps`` is empty for a run without any,
    and ``step_rows`` the same comparison by their numbers, from 1. ``limits`` are sentences about what it cannot show.
    """

    cluster: str
    topic: str
    partitions: Mapping[Row, Counts]
    total: Counts
    experiment: Experiment
    seconds_to_read: float
    limits: tuple[str, ...]
    stop: StopRequest
    steps: Sequence[Step] = ()
    step_rows: Mapping[Row, Counts] | None = None

    @property
    def exit_code(self) -> int:
        """0 only if nothing is wrong and every step was shown; 128 + signal when stopped by one."""
        if self.stop:
            return self.stop.exit_code
        return 0 if self.total.flawless and not self.not_shown else NOT_ALL_DELIVERED

    @property
    def not_shown(self) -> list[int]:
        """The numbers of the steps whose fault had no effect: they prove nothing."""
        return [number for number, step in enumerate(self.steps, start=1) if not step.proof.shown]

    @property
    def rate(self) -> float:
        """Delivered records per second, from the first produce() to the last report."""
        return self.total.delivered / self.experiment.seconds if self.experiment.seconds > 0 else 0.0

    def sentence(self) -> str:
        """Say the result."""
        total = self.total
        if total.flawless:
            order = "each partition in the order of produce()" if self.steps else "each file's lines in order"
            return (
                f"All {total.accepted:,} records were delivered; the log holds each of them exactly once and {order}."
            )
        flaws = [f"{getattr(total, name):,} {words(name)}" for name in FLAWS if getattr(total, name)]
        given = total.accepted + total.refused
        return f"Of {given:,} records {total.delivered:,} were delivered: {', '.join(flaws) or 'none failed'}."

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        latencies = self.experiment.latencies
        rows = self.step_rows or {}
        return {
            "command": "demo",
            "cluster": self.cluster,
            "topic": self.topic,
            "files": len(self.experiment.names),
            "steps": [
                {
                    "step": number,
                    "name": step.name,
                    "title": step.title,
                    "shown": step.proof.shown,
                    "evidence": step.proof.sentence,
                    "facts": dict(step.proof.facts),
                    **asdict(rows.get(number, Counts())),
                }
                for number, step in enumerate(self.steps, start=1)
            ],
            "partitions": [{"partition": number} | asdict(row) for number, row in ordered(self.partitions)],
            "total": asdict(self.total),
            "bytes": self.experiment.tally.bytes_delivered,
            "seconds": round(self.experiment.seconds, 3),
            "seconds_to_read_back": round(self.seconds_to_read, 3),
            "records_per_second": round(self.rate, 1),
            "latency_ms": {f"p{percent}": _milliseconds(latencies.percentile(percent)) for percent in (50, 95)},
            "errors": [
                {"code": kind.code, "count": kind.count, "advice": kind.sentence}
                for kind in self.experiment.tally.ranked_errors()
            ],
            "limits": list(self.limits),
            "stopped_by": self.stop.signal.name if self.stop.signal is not None else None,
            "verdict": self.sentence(),
            "exit_code": self.exit_code,
        }


def ordered(rows: Mapping[Row, Counts]) -> list[tuple[Row, Counts]]:
    """By number; what belongs nowhere comes last."""
    return sorted(rows.items(), key=lambda item: math.inf if item[0] is None else item[0])


def words(column: str) -> str:
    """A column's name for a person."""
    return column.replace("_", " ")


def _milliseconds(seconds: float) -> float | None:
    return None if math.isnan(seconds) else round(seconds * 1000, 3)
