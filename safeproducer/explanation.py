"""Why records wait, as a sentence. Pure: a Snapshot in, text out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from safeproducer.policy.client_reports import Trouble
from safeproducer.snapshot import PartitionSnapshot, Snapshot, WindowSnapshot

_MOST_REASONS = 5
_FATAL = "It met a fatal error and takes no more records; close it and make a new one. "


def explanation(
    account: Snapshot,
    topic: str | None,
    partition: int | None,
    troubles: Iterable[Trouble],
    leaders: Callable[[str, int], set[int]],
) -> str:
    """Say what the records of `account` (or of one topic or partition of it) wait for, and what to do.

    The `troubles`, newest first, leave out those of brokers that lead none of the partitions; those that are over are
    told as such, behind what the records wait for. `leaders(topic, partition)`: none while it is not known.
    """
    if account.state == "closed":
        return "This producer is closed; make a new one to produce again."
    if account.state == "forked":
        return "This producer was made before a fork and does not work in this process; make a new one here."
    rows = [
        row
        for row in account.partitions
        if (topic is None or row.topic == topic) and (partition is None or row.partition in (partition, -1))
    ]
    waiting = max(sum(row.unresolved for row in rows), sum(row.held for row in rows))
    subject = _subject(topic, partition)
    fatal = _FATAL if account.state == "fatal" else ""
    if not waiting:
        return f"{fatal}Nothing waits{subject}: {_told(rows)}."
    windows = {(window.topic, window.partition): window for window in account.windows}
    reasons = [
        f"{row.held} for {_tp(row)} are held back: the partition {row.why}"
        + _window(windows.get((row.topic, row.partition)))
        for row in rows
        if row.held
    ][:_MOST_REASONS]
    concerning = _concerning(troubles, rows, leaders)
    reasons += [trouble.clause for trouble in concerning if not trouble.over][:_MOST_REASONS]
    if not reasons:
        reasons.append("the brokers have not acknowledged them yet, or poll() has not been called to serve the reports")
    past = [trouble.clause for trouble in concerning if trouble.over][:_MOST_REASONS]
    over = f" Over by now, and not the cause: {'; '.join(past)}." if past else ""
    return f"{fatal}{waiting} record(s) wait{subject}: {'; '.join(reasons)}.{_cures(rows)}{over}"


def _cures(rows: list[PartitionSnapshot]) -> str:
    """The cures, once for all partitions that the same one would help."""
    cures = dict.fromkeys(row.reason.cure for row in rows if row.reason is not None and row.reason.cure is not None)
    return "".join(f" {cure}" for cure in list(cures)[:_MOST_REASONS])


def _concerning(
    troubles: Iterable[Trouble], rows: list[PartitionSnapshot], leaders: Callable[[str, int], set[int]]
) -> list[Trouble]:
    led = [leaders(row.topic, row.partition) for row in rows if row.unresolved or row.held]
    nodes = set().union(*led) if all(led) else None
    return [trouble for trouble in troubles if nodes is None or trouble.node is None or trouble.node in nodes]


def _window(window: WindowSnapshot | None) -> str:
    return "" if window is None else f" (up to {window.size} batches may be under way, because {window.reason})"


def _subject(topic: str | None, partition: int | None) -> str:
    if topic is None:
        return ""
    return f" for {topic}" if partition is None else f" for {topic} [{partition}]"


def _tp(row: PartitionSnapshot) -> str:
    return f"{row.topic} [{row.partition}]" if row.partition >= 0 else row.topic


def _told(rows: list[PartitionSnapshot]) -> str:
    delivered = sum(row.delivered for row in rows)
    failed = sum(row.failed for row in rows)
    return f"{delivered} record(s) delivered, {failed} failed"
