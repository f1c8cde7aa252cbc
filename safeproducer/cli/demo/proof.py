"""The oracle of the demonstration, pure: reports against the log's content, and whether each step happened.

A step is proved by the cluster's journal and by what the producer held back. A fault that did not happen proves
nothing, so each step has to be shown, or the demonstration fails.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

Row = int | None
"""The partition or step of a row of the table; None for records that belong to none."""


class Fate(Enum):
    """The producer's last word about a record. Without any report it is of unknown outcome."""

    REFUSED = "refused"
    DELIVERED = "delivered"
    NOT_WRITTEN = "not_written"
    UNKNOWN = "unknown"


class Sent(NamedTuple):
    """The fate of one record; ``partition`` is None where no report named one."""

    fate: Fate
    partition: int | None


@dataclass(slots=True)
class Counts:
    """Records of one row, or of all.

    accepted = delivered + not_written + unknown; produce() refused others. in_log: found there, every copy. lost:
    reported delivered and not in the log. duplicated: further copies of a record. reordered: the first copy of a
    record that stands behind a later record of the same source. unexpected: in the log but never sent. contradicted:
    refused or reported as not written, and in the log all the same. unconfirmed: of unknown outcome and in the log,
    which is allowed.
    """

    accepted: int = 0
    delivered: int = 0
    not_written: int = 0
    unknown: int = 0
    refused: int = 0
    in_log: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    unexpected: int = 0
    contradicted: int = 0
    unconfirmed: int = 0

    def add(self, other: Counts) -> None:
        for column in fields(self):
            setattr(self, column.name, getattr(self, column.name) + getattr(other, column.name))

    @property
    def flawless(self) -> bool:
        """Every record delivered, and the log holds each once, in order, and nothing else."""
        return not any(getattr(self, flaw) for flaw in FLAWS) and self.accepted == self.delivered == self.in_log


FLAWS = ("refused", "not_written", "unknown", "lost", "duplicated", "reordered", "unexpected", "contradicted")
"""Columns that have to be 0."""

Identify = Callable[[bytes], tuple[bytes, int] | None]
RowOf = Callable[[int | None, bytes], Row]


def by_partition(partition: int | None, value: bytes) -> Row:
    """The row of a record in a table with one row for each partition."""
    del value
    return partition


def compare(
    sent: Mapping[bytes, Sent], log: Iterable[tuple[int, bytes]], identify: Identify, row_of: RowOf = by_partition
) -> tuple[dict[Row, Counts], Counts]:
    """Return the rows and their total.

    ``sent`` maps each value, which is unique, to its fate. ``log`` holds (partition, value) in offset order within
    each partition. ``identify`` gives a value's source and its position in that source. ``row_of`` says which row a
    record belongs to, from its partition and value.
    """
    rows: dict[Row, Counts] = {}
    for value, (fate, partition) in sent.items():
        row = rows.setdefault(row_of(partition, value), Counts())
        row.accepted += fate is not Fate.REFUSED
        setattr(row, fate.value, getattr(row, fate.value) + 1)

    found = _count_log(rows, sent, log, identify, row_of)
    for value, (fate, partition) in sent.items():
        if fate is Fate.DELIVERED and value not in found:
            rows[row_of(partition, value)].lost += 1

    total = Counts()
    for row in rows.values():
        total.add(row)
    return rows, total


def _count_log(
    rows: dict[Row, Counts],
    sent: Mapping[bytes, Sent],
    log: Iterable[tuple[int, bytes]],
    identify: Identify,
    row_of: RowOf,
) -> set[bytes]:
    """Count what is in the log, into its rows; the values of ``sent`` that are there."""
    found: set[bytes] = set()
    newest: dict[tuple[int, bytes], int] = {}
    for partition_in_log, value in log:
        row = rows.setdefault(row_of(partition_in_log, value), Counts())
        row.in_log += 1
        identity = identify(value)
        if value not in sent or identity is None:
            row.unexpected += 1
        elif value in found:
            row.duplicated += 1
        else:
            found.add(value)
            row.unconfirmed += sent[value].fate is Fate.UNKNOWN
            row.contradicted += sent[value].fate in (Fate.REFUSED, Fate.NOT_WRITTEN)
            source, position = identity
            last = newest.get((partition_in_log, source), position)
            row.reordered += position < last
            newest[partition_in_log, source] = max(position, last)
    return found


if TYPE_CHECKING:
    from safeproducer.testing.fake.state.cluster_state import JournalBatch, JournalEntry

_NOT_LEADER = 6


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether a step happened, in a sentence and in figures."""

    shown: bool
    sentence: str
    facts: Mapping[str, object]


class Waiting(NamedTuple):
    """At one moment: records that wait in the producer because of a throttle time, by partition."""

    time: float
    held: Mapping[int, int]


class Report(NamedTuple):
    """One record of a step: its partition, how long its report took, and when it came, in seconds."""

    partition: int
    latency: float
    time: float


def of_flow(entries: Sequence[JournalEntry], brokers: Collection[int]) -> Proof:
    """Each broker acknowledged records."""
    taken = [entry for entry in entries if entry.outcome == "answered" and any(not b.error_code for b in entry.batches)]
    served = sorted({entry.broker for entry in taken})
    return Proof(
        served == sorted(brokers),
        f"{len(taken):,} requests acknowledged, by brokers {_listed(served)}.",
        {"requests": len(taken), "brokers": served},
    )


def of_move(
    entries: Sequence[JournalEntry], partition: int, old: int, new: int, moved_at: float, epochs: tuple[int, int]
) -> Proof:
    """The old leader took the partition's records before the move, the new one after it. ``moved_at``: Unix time."""
    mine = [(entry, batch) for entry in entries for batch in entry.batches if batch.partition == partition]
    before = [entry for entry, batch in mine if entry.broker == old and not batch.error_code]
    refused = sum(entry.broker == old and batch.error_code == _NOT_LEADER for entry, batch in mine)
    after = [entry.time for entry, batch in mine if entry.broker == new and not batch.error_code]
    gap = min(after) - moved_at if after else None
    if gap is None:
        sentence = f"Broker {new} was given none of its records."
    else:
        sentence = (
            f"Leader epoch {epochs[0]} became {epochs[1]}; broker {old} refused {refused} request(s), and after "
            f"{gap * 1000:.0f} ms broker {new} took over."
        )
    return Proof(
        bool(before and after) and epochs[1] > epochs[0],
        sentence,
        {
            "partition": partition,
            "from": old,
            "to": new,
            "epochs": list(epochs),
            "refused": refused,
            "gap_ms": None if gap is None else round(gap * 1000, 1),
        },
    )


def _held(waiting: Sequence[Waiting]) -> tuple[set[int], int, float, float]:
    """The partitions that waited, how many records at most, and from when to when."""
    seen = [one for one in waiting if any(one.held.values())]
    held = {partition for one in seen for partition, count in one.held.items() if count}
    most = max((sum(one.held.values()) for one in seen), default=0)
    return held, most, seen[0].time if seen else 0.0, seen[-1].time if seen else 0.0


def of_throttle(
    entries: Sequence[JournalEntry],
    broker: int,
    led: Collection[int],
    waiting: Sequence[Waiting],
    reports: Sequence[Report],
) -> Proof:
    """One broker told the client to wait, its partitions (``led``) waited as long, and the others went on.

    The last wait that was told may be longer than there were records to send, so nobody has to have waited for it.
    """
    told = [(entry.broker, entry.throttled_ms) for entry in entries if entry.throttled_ms]
    held, most, first, last = _held(waiting)
    meanwhile = sum(first <= report.time <= last for report in reports if report.partition not in led)
    slowest = max((report.latency for report in reports if report.partition in led), default=0.0)
    others = max((report.latency for report in reports if report.partition not in led), default=0.0)
    longest = max((milliseconds for _, milliseconds in told[:-1]), default=0) / 1000
    told_alone = {who for who, _ in told} == {broker} and longest > 0
    others_went_on = meanwhile > 0 and slowest > others
    shown = told_alone and bool(held) and held <= set(led) and others_went_on and slowest >= longest
    sentence = f"Broker {broker} asked {len(told)} times to wait, and records of {len(held)} partitions waited for it."
    if told and held:
        sentence = (
            f"Broker {broker} asked {len(told)} times to wait, {longest:.1f} s at most; up to {most:,} records of "
            f"{_partitions(led)} waited in this process, {slowest:.1f} s at most. Meanwhile the other partitions "
            f"had {meanwhile:,} acknowledged, in {others * 1000:.0f} ms at most."
        )
    facts = {
        "broker": broker,
        "partitions": sorted(led),
        "throttled_answers": len(told),
        "brokers_that_throttled": sorted({who for who, _ in told}),
        "longest_throttle_ms": round(longest * 1000),
        "partitions_held": sorted(held),
        "most_records_held": most,
        "slowest_ms": round(slowest * 1000, 1),
        "slowest_of_others_ms": round(others * 1000, 1),
        "acknowledged_by_others": meanwhile,
    }
    return Proof(shown, sentence, facts)


def of_lost_answers(entries: Sequence[JournalEntry], ordered: int) -> Proof:
    """Batches were written and their answers dropped; they came again, and the brokers recognised each of them."""
    answers = [entry for entry in entries if entry.outcome == "lost"]
    lost = {_identity(batch) for entry in answers for batch in entry.batches if not batch.error_code}
    known = {
        _identity(batch)
        for entry in entries
        if entry.outcome == "answered"
        for batch in entry.batches
        if batch.duplicate
    }
    twice = f" The other {len(lost - known)} were written twice." if lost - known else ""
    return Proof(
        len(answers) == ordered and bool(lost) and lost <= known,
        f"{len(answers)} answers lost, so {len(lost)} batches that were written came again; the brokers recognised "
        f"{len(lost & known)} by their sequence numbers and did not write them twice.{twice}",
        {"answers_lost": len(answers), "batches_lost": len(lost), "recognised": len(lost & known)},
    )


def _identity(batch: JournalBatch) -> tuple[str, int, int, int, int]:
    return batch.topic, batch.partition, batch.producer_id, batch.epoch, batch.first_sequence


def _partitions(numbers: Collection[int]) -> str:
    return f"partition{'s' if len(numbers) > 1 else ''} {_listed(numbers)}"


def _listed(numbers: Collection[int]) -> str:
    *most, last = [str(number) for number in sorted(numbers)] or ["none"]
    return f"{', '.join(most)} and {last}" if most else last
