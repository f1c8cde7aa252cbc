"""Checks return findings; here numbers become words of a person, too. Pure.

Two commands find replication throttles (KIP-73) that no move needs, by the configs of topics and brokers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import groupby
from typing import Any

from safeproducer.cli.common.screen import Screen
from safeproducer.kafka.admin import Configs
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.replication import Facts, Replicas, Side, ThrottledReplicas
from safeproducer.policy.types import TopicPartition

_MOST = 10
_CAUSES = {
    "broker-silent": HoldReason.LEADER_SILENT.value,
    "in-sync-below-minimum": "replication",
    "in-sync-at-minimum": "replication",
    "replication-throttle-left-over": "replication",
    "host-over-limit": HoldReason.PRODUCER_ID_LIMIT.value,
}
"""Code -> that of the reason of health() for which records of a producer wait meanwhile, or may soon."""
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
_CLEAR = "Remove both lists, and the rates that no move needs: safeproducer replication clear."


class Severity(StrEnum):
    """How bad a finding is. All but INFO make the command exit with 1."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """`code` is stable, `message` and `cure` are sentences; `topic`, `partition` and `broker` where they apply."""

    severity: Severity
    code: str
    message: str
    cure: str
    topic: str | None = None
    partition: int | None = None
    broker: int | None = None

    def document(self) -> dict[str, Any]:
        """Return the JSON form, without what does not apply."""
        found = {**asdict(self), "cause": _CAUSES.get(self.code)}
        return {name: value for name, value in found.items() if value is not None}


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 1 if one of them is a warning or an error, else 0."""
    return int(any(finding.severity is not Severity.INFO for finding in findings))


_STYLES = {Severity.INFO: "dim", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}


def draw_findings(screen: Screen, findings: Sequence[Finding], *, failed: bool) -> None:
    """Draw the first of each kind."""
    from rich.text import Text  # noqa: PLC0415 - rich is an extra

    for (severity, code), same in groupby(findings, key=lambda finding: (finding.severity, finding.code)):
        found = list(same)
        for finding in found[:_MOST]:
            text = Text(f"{severity.value}: ", style=_STYLES[severity])
            screen.result(text.append(f"{code}: {finding.message}\n  {finding.cure}", style="default"))
        if len(found) > _MOST:
            screen.result(f"{len(found) - _MOST:,} more of {code}: --json shows all")
    if not findings and not failed:
        screen.result("Nothing was found.")


def span(seconds: float) -> str:
    """A time in its largest unit: 45 s, 12 min, 3.5 h, 2 d."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.0f} s"


def moment(seconds: float) -> str:
    """A time since 1970 in UTC, to the minute."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def some(names: list[str], most: int = 3) -> str:
    """The first of these names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def facts_of(
    known: Mapping[TopicPartition, Replicas], brokers: Mapping[int, Configs], topics: Mapping[str, Configs]
) -> Facts:
    """The facts without those that were not told. A list that cannot be read is left out, too."""
    asked = {broker: one.values for broker, one in brokers.items() if one.error is None}
    found = {(broker, side): values.get(side("rate")) for broker, values in asked.items() for side in Side}
    told = {topic: one.values for topic, one in topics.items() if one.error is None}
    texts = {(topic, side): values.get(side("replicas")) or "" for topic, values in told.items() for side in Side}
    return Facts(
        known,
        {key: one for key, text in texts.items() if (one := ThrottledReplicas.read(text)) is not None},
        {key: None if text is None else float(text) for key, text in found.items()},
        minimum={topic: int(values.get("min.insync.replicas") or 1) for topic, values in told.items()},
    )


def unreadable(facts: Facts) -> list[str]:
    return sorted({topic for topic in facts.minimum for side in Side if (topic, side) not in facts.lists})


def lists_unreadable(facts: Facts) -> Iterator[Finding]:
    for topic in unreadable(facts):
        text, cure = f"A list of throttled replicas of {topic} cannot be read.", "Write partition:broker,... or *."
        yield Finding(Severity.WARNING, "replication-list-unreadable", text, cure, topic)


def left_over(facts: Facts, brokers: Collection[int], moving: Collection[str]) -> Iterator[Finding]:
    """Lists and rates that no move needs. `moving`: the topics with a move; their lists are none of them."""
    yield from lists_unreadable(facts)
    silent = set(brokers) - {broker for broker, _ in facts.rates}
    listed: dict[str, set[tuple[int, Side]]] = {}
    for (topic, side), one in facts.lists.items():
        named = brokers if one.every else {broker for _, broker in one.entries}
        listed.setdefault(topic, set()).update((broker, side) for broker in named)
    for topic in sorted(listed.keys() - set(moving)):
        rated = sorted(broker for broker, side in listed[topic] if facts.rates.get((broker, side)) is not None)
        text, cure = f"{topic} lists replicas, and none of it moves", _CLEAR
        if rated:
            text += f": if a broker restarts, acknowledgements may wait for it, at the rate of broker {rated[0]}."
            yield Finding(Severity.WARNING, "replication-throttle-left-over", text, cure, topic)
        elif listed[topic] and not silent & {broker for broker, _ in listed[topic]}:
            text += ": no rate is set, and the next one limits them."
            yield Finding(Severity.WARNING, "replication-list-without-rate", text, cure, topic)
    # Kafka's tool sets both rates of each broker of a move.
    needed = {broker for entries in listed.values() for broker, _ in entries}
    for broker in sorted({broker for (broker, _), rate in facts.rates.items() if rate is not None} - needed):
        text = f"Broker {broker} has a rate, and no topic lists a replica of it."
        yield Finding(Severity.INFO, "replication-rate-without-list", text, _CLEAR, broker=broker)
