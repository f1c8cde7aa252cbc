"""What records wait for, by partition: explain(), health() and snapshot() tell the same of one look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from safeproducer.policy.client_reports import Trouble
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.types import UNPLACED, TopicPartition
from safeproducer.snapshot import PartitionSnapshot

Leaders = Callable[[str, int], set[int]]
"""Who may lead a partition; nobody while that is not known."""
Windows = Mapping[TopicPartition, str]
"""How many batches of a partition may be under way, as a clause."""


class Cause(NamedTuple):
    """One thing that records of a partition wait for, with what to do, None for nothing. `code`: as of HealthReason.

    `clause`: the sentence among those of other partitions, where `name` follows it; "1 for name" is in front of it.
    `seconds`: for how long it has been so, None where that is as long as records wait.
    """

    code: str
    sentence: str
    cure: str | None = None
    seconds: float | None = None
    clause: str = ""
    name: str = ""


class Located(NamedTuple):
    """Where records are that wait, beside those that are held.

    - `reports`: by partition, those that poll() has to run. `sent`: records that librdkafka has, by the last
      statistics; also of those whose caller named no partition.
    - `counts`: partitions of topics that are known. `missing`: a clause for each topic that is not there.
    - `refused`: a clause for each partition that gets answers and no acknowledgements. `linger`: seconds.
    - `silent`: partition -> its leader, which acknowledges nothing of what librdkafka has.
    - `failed`: the name of the last error, for each topic with records that failed. `lost`: as Losses.known().
    - `ages`: partition -> seconds for which its oldest record has waited, as far as that is known.
    """

    reports: Mapping[TopicPartition, int] = MappingProxyType({})
    sent: Mapping[TopicPartition, int] = MappingProxyType({})
    counts: Mapping[str, int] = MappingProxyType({})
    missing: Mapping[str, str] = MappingProxyType({})
    refused: Mapping[TopicPartition, str] = MappingProxyType({})
    linger: float = 0.0
    failed: Mapping[str, str] = MappingProxyType({})
    silent: Mapping[TopicPartition, int] = MappingProxyType({})
    lost: Mapping[TopicPartition, tuple[float, str]] = MappingProxyType({})
    ages: Mapping[TopicPartition, float] = MappingProxyType({})

    def of(self, topic: str | None, partition: int | None) -> tuple[int, int]:
        """(reports that wait for poll(), records that librdkafka has)."""
        return _sum(self.reports, topic, partition), _sum(self.sent, topic, partition)

    def waiting(self, rows: Iterable[PartitionSnapshot]) -> Iterator[tuple[PartitionSnapshot, int]]:
        """Rows with records that have no acknowledgement, and how many; or lost some, while none got through.

        A record that names no partition counts where it is held, and not where it was accepted as well.
        """
        elsewhere, reports = Counter[str](), Counter(self.reports)
        for (topic, number), count in self.reports.items():
            reports[topic, UNPLACED] += count if number >= 0 else 0
        for row in sorted(rows, key=lambda row: row.partition < 0):
            tp = row.topic, row.partition
            owed = row.unresolved - reports[tp] - elsewhere[row.topic] * (row.partition < 0)
            unplaced = max(0, row.held - row.unresolved)
            elsewhere[row.topic] += unplaced
            if (count := max(owed, row.held, 0)) or tp in self.lost:
                yield row, count

    def causes(
        self, rows: Iterable[PartitionSnapshot], troubles: Iterable[Trouble], leaders: Leaders, windows: Windows
    ) -> Iterator[tuple[PartitionSnapshot, int, Iterator[Cause]]]:
        """What waiting() gives, with what each row waits for, its own reason first."""
        present = [one for one in troubles if not one.over]
        made = {id(one): Cause(one.code, one.clause, one.cure or None, one.seconds) for one in present}
        of_brokers = any(one.node is not None for one in present)
        hides = any(one.node is None for one in present)  # a topic that no broker could tell of may be there
        silent = dict[str, list[TopicPartition]]()
        for tp in sorted(self.silent):
            silent.setdefault(tp[0], []).append(tp)
        for row, count in self.waiting(rows):
            tp = row.topic, row.partition
            matters = [made[id(one)] for one in concerning(present, [row], leaders)] if of_brokers else made.values()
            places = silent.get(row.topic, ()) if row.partition < 0 else [tp] if tp in self.silent else ()
            yield row, count, self._of(row, matters, places, hides, windows.get(tp, ""))

    def _of(
        self, row: PartitionSnapshot, matters: Iterable[Cause], led: Iterable[TopicPartition], hides: bool, window: str
    ) -> Iterator[Cause]:
        tp, why, held = (row.topic, row.partition), row.reason, f"{row.held} for {tp_name(row)}" if row.held else ""
        if stops(row) and (known := row.replication) is not None:
            yield Cause("replication", known.sentence, known.cure or None, None, f"{known.sentence}{window}", held)
            return
        missing = self.missing.get(row.topic)
        if missing:
            yield Cause(HoldReason.UNKNOWN_TOPIC, missing, HoldReason.UNKNOWN_TOPIC.cure, None, missing, held)
        elif held and why is not None:
            cure = None if hides and why is HoldReason.UNKNOWN_TOPIC else why.cure
            yield Cause(why, f"{tp_name(row)} {row.why}", cure, None, f"the partition {row.why}{window}", held)
        yield from [one for one in matters if one.code != why] if held else matters
        for topic, number in () if held or missing else led:
            clause, name = f"broker {self.silent[topic, number]} acknowledges nothing of", f"{topic} [{number}]"
            silent = HoldReason.LEADER_SILENT
            yield Cause(silent, f"{clause} {name}", silent.cure, None, clause, name)
        if clause := self.refused.get(tp, ""):
            yield Cause(HoldReason.LEADER_SILENT, clause, HoldReason.LEADER_SILENT.cure)
        if lost := self.lost.get(tp):
            yield Cause("expired", lost[1], HoldReason.EXPIRY.cure, lost[0])


def _sum(counts: Mapping[TopicPartition, int], topic: str | None, partition: int | None) -> int:
    found = counts.items()
    return sum(count for (name, number), count in found if topic in (None, name) and partition in (None, number))


def tp_name(row: PartitionSnapshot) -> str:
    """For people."""
    return f"{row.topic} [{row.partition}]" if row.partition >= 0 else row.topic


def stops(row: PartitionSnapshot) -> bool:
    """Whether records wait because of replicas."""
    delays = row.replication is not None and row.replication.delays
    return delays and row.reason in (None, HoldReason.LEADER_SILENT)


def concerning(troubles: Iterable[Trouble], rows: list[PartitionSnapshot], leaders: Leaders) -> list[Trouble]:
    """Those of brokers that lead none of the partitions left out."""
    led = [leaders(row.topic, row.partition) for row in rows if row.unresolved or row.held]
    nodes = set().union(*led) if all(led) else None
    return [trouble for trouble in troubles if nodes is None or trouble.node is None or trouble.node in nodes]
