"""health(): whether records wait for what waiting does not mend, for probes. It asks no broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from safeproducer.pipeline.closing import reached_nobody
from safeproducer.pipeline.engine import Engine
from safeproducer.pipeline.inspection import Inspection, Located, concerning, stops
from safeproducer.policy.client_reports import Trouble
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.types import NEVER, TopicPartition
from safeproducer.runtime import clock
from safeproducer.snapshot import Health, HealthReason, PartitionSnapshot, Snapshot

_LASTS = frozenset({HoldReason.LEADER_SILENT, HoldReason.UNKNOWN_TOPIC, "replication", "client_error", "not_polled"})
"""Codes of what waiting does not mend."""
_MOST_REASONS = 5
_ENDED = {"fatal": "Close it and make a new one.", "closed": "Make a new one.", "forked": "Make a new one here."}


def check(engine: Engine, inspection: Inspection, unresolved_for: float, timeout: float | None) -> Health:
    """As SafeProducer.health(). No record waits for longer than `timeout`, so half of that is enough."""
    if not isinstance(unresolved_for, int | float) or not 0 <= unresolved_for < NEVER:
        raise ValueError(
            f"unresolved_for={unresolved_for!r} is no time: give the seconds that a record may wait, 0 or more"
        )
    if timeout:
        unresolved_for = min(unresolved_for, timeout / 2)
    account = inspection.snapshot()
    if account.state in ("closed", "forked"):
        return judge(account, [], 0.0, True)
    now, troubles, located = clock.monotonic(), list(inspection.troubles()), inspection.located(account)
    ages = {tp: now - accepted for tp, accepted in engine.dispatcher.record_buffer.oldest().items()}
    for topic, _ in tuple(ages):  # of a record that names no partition it may not be known yet
        ages[topic, -1] = max(age for (name, _), age in ages.items() if name == topic)
    leaders, reasons, elsewhere = engine.holds.partitions.leaders, list[HealthReason](), Counter[str]()
    for each in reversed(account.partitions):  # what names no partition last: where it is held is known by then
        row = replace(each, unresolved=each.unresolved - elsewhere[each.topic] * (each.partition < 0))
        unplaced = max(0, row.held - row.unresolved)
        elsewhere[row.topic] += unplaced
        reasons += waits(row, ages, located, concerning(troubles, [row], leaders))
    if reports := sum(located.reports.values()):
        sentence, age = f"{reports} report(s) wait for poll()", engine.serving.not_polled_for(now)
        reasons.append(HealthReason("not_polled", sentence, age, "Call poll() or flush()."))
    reached = not account.accepted or account.delivered > 0 or not reached_nobody(engine)
    return judge(account, reasons, unresolved_for, reached)


def judge(account: Snapshot, waits: Iterable[HealthReason], unresolved_for: float, reached: bool) -> Health:
    """By what records wait for, and whether brokers answered or were not asked."""
    told = [reason for reason in waits if reason.since is not None and reason.since >= unresolved_for]
    ok = account.state in ("open", "closed") and not any(reason.code in _LASTS for reason in told)
    if not reached:
        told.append(HealthReason("no_broker", "No broker has answered yet", None, account.last_error))
    if (cure := _ENDED.get(account.state)) is not None:
        told.insert(0, HealthReason(account.state, f"The producer is {account.state}", None, cure))
    once = {(reason.code, reason.sentence): reason for reason in reversed(told)}
    return Health(ok, reached and account.state == "open", tuple(reversed(once.values()))[:_MOST_REASONS])


def waits(
    row: PartitionSnapshot, ages: Mapping[TopicPartition, float], located: Located, troubles: Iterable[Trouble]
) -> list[HealthReason]:
    """What those records of a row wait for that have no acknowledgement.

    While nobody has told whether the topic is there, it is not to blame.
    """
    reports, _ = located.of(row.topic, None if row.partition < 0 else row.partition)
    waiting = max(row.unresolved - reports, row.held)
    if waiting <= 0:
        return []
    age = ages.get((row.topic, row.partition))
    name = f"{row.topic} [{row.partition}]" if row.partition >= 0 else row.topic
    if stops(row) and row.replication is not None:
        return [HealthReason("replication", row.replication.sentence, age, row.replication.cure or None)]
    found = [
        HealthReason("throttled" if one.ends else "client_error", one.clause, one.seconds if age is None else age, None)
        for one in troubles
        if not one.over
    ]
    if row.reason is not None and (row.reason is not HoldReason.UNKNOWN_TOPIC or row.topic in located.absent):
        sentence = located.absent.get(row.topic) or f"{name} {row.why}"
        told = HealthReason(row.reason.value, sentence, age, row.reason.cure)
        return [*found, told] if row.reason is HoldReason.LEADER_SILENT else [told]
    return found or [HealthReason("waiting", f"{waiting} record(s) for {name} have no acknowledgement yet", age, None)]
