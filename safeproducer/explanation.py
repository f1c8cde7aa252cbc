"""Why records wait, as a sentence. Pure: a Snapshot in, text out."""

from __future__ import annotations

from safeproducer.snapshot import PartitionSnapshot, Snapshot, WindowSnapshot

_MOST_REASONS = 5
FATAL = "It met a fatal error and takes no more records; close it and make a new one. "


def explanation(account: Snapshot, topic: str | None, partition: int | None) -> str:
    """What the records of `account` (or of one topic or partition of it) are waiting for, and what to do."""
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
    fatal = (
        "It met a fatal error and takes no more records; close it and make a new one. "
        if account.state == "fatal"
        else ""
    )
    if not waiting:
        return f"{fatal}Nothing waits{subject}: {_told(rows)}."
    windows = {(window.topic, window.partition): window for window in account.windows}
    reasons = [
        f"{row.held} for {_place(row)} are held back: the partition {row.why}"
        + _window(windows.get((row.topic, row.partition)))
        for row in rows
        if row.held
    ][:_MOST_REASONS]
    if account.throttled_brokers:
        brokers = ", ".join(
            f"broker {broker} for {seconds:.3f} s" for broker, seconds in account.throttled_brokers.items()
        )
        reasons.append(f"the broker's quota throttled this client, last {brokers}")
    if account.last_error:
        reasons.append(f"the last client error was: {account.last_error.rstrip('.')}")
    if not reasons:
        reasons.append("the brokers have not acknowledged them yet, or poll() has not been called to serve the reports")
    return f"{fatal}{waiting} record(s) wait{subject}: {'; '.join(reasons)}."


def _window(window: WindowSnapshot | None) -> str:
    return "" if window is None else f" (up to {window.size} batches may be under way, because {window.reason})"


def _subject(topic: str | None, partition: int | None) -> str:
    if topic is None:
        return ""
    return f" for {topic}" if partition is None else f" for {topic} [{partition}]"


def _place(row: PartitionSnapshot) -> str:
    return f"{row.topic} [{row.partition}]" if row.partition >= 0 else row.topic


def _told(rows: list[PartitionSnapshot]) -> str:
    delivered = sum(row.delivered for row in rows)
    failed = sum(row.failed for row in rows)
    return f"{delivered} record(s) delivered, {failed} failed"
