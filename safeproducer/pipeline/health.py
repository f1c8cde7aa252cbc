"""health(): whether records wait for what waiting does not mend, for probes. It asks no broker."""

from __future__ import annotations

from collections.abc import Iterable

from safeproducer.pipeline.causes import Cause, tp_name
from safeproducer.pipeline.closing import reached_nobody
from safeproducer.pipeline.engine import Engine
from safeproducer.pipeline.inspection import Inspection
from safeproducer.policy.client_reports import Trouble
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.types import NEVER
from safeproducer.runtime import clock
from safeproducer.snapshot import Health, HealthReason, Snapshot

_HOLDS = HoldReason.LEADER_SILENT, HoldReason.UNKNOWN_TOPIC
_LASTS = frozenset({*_HOLDS, "replication", "client_error", "expired", "not_polled"})
"""Codes of what waiting does not mend."""
_MOST_REASONS = 5
_NO_BROKER = "Check bootstrap.servers, and that its brokers run."
_ENDED = {"fatal": "Close it and make a new one.", "closed": "Make a new one.", "forked": "Make a new one here."}


def check(engine: Engine, inspection: Inspection, unresolved_for: float, timeout: float | None) -> Health:
    """As SafeProducer.health(). No record waits for longer than `timeout`, so half of that is enough."""
    if not isinstance(unresolved_for, int | float) or not 0 <= unresolved_for < NEVER:
        raise ValueError(
            f"unresolved_for={unresolved_for!r} is no time: give the seconds that a record may wait, 0 or more"
        )
    if timeout:
        unresolved_for = min(unresolved_for, timeout / 2)
    account, located, troubles = inspection.look()
    leaders, addressed = engine.holds.partitions.leaders, engine.holds.cluster.addressed
    if account.state in ("closed", "forked"):
        return judge(account, [], 0.0)
    reasons = list[HealthReason]()
    for row, count in located.waiting(account.partitions):
        age = located.ages.get((row.topic, row.partition))
        found = list(located.causes(row, troubles, leaders))
        if not found:
            late = timeout and age is not None and age >= timeout  # purged, and its report is on its way
            sentence = f"{count} record(s) for {tp_name(row)} have no acknowledgement yet"
            found = [Cause("expired" if late else "waiting", sentence, HoldReason.EXPIRY.cure if late else None, age)]
        for one in found:
            since = one.seconds if age is None or one.code == "expired" else age
            reasons.append(HealthReason(str(one.code), addressed(one.sentence), since, one.cure))
    if reports := sum(located.reports.values()):
        sentence, age = f"{reports} report(s) wait for poll()", engine.serving.not_polled_for(clock.monotonic())
        reasons.append(HealthReason("not_polled", sentence, age, "Call poll() or flush()."))
    if not account.accepted or account.delivered or not reached_nobody(engine):
        return judge(account, reasons, unresolved_for)
    last = next((one for one in troubles if one.node is None), Trouble("", None, over=False, cure=_NO_BROKER))
    sentence = f"No broker has answered yet{last.clause and '; '}{last.clause}"
    return judge(account, reasons, unresolved_for, HealthReason("no_broker", sentence, None, last.cure))


def judge(
    account: Snapshot, waits: Iterable[HealthReason], unresolved_for: float, unreached: HealthReason | None = None
) -> Health:
    """By what records wait for, and whether brokers answered or were not asked."""
    told = [reason for reason in waits if (reason.since or 0.0) >= unresolved_for]
    ok = account.state in ("open", "closed") and not any(reason.code in _LASTS for reason in told)
    if unreached is not None:
        told.append(unreached)
    if (cure := _ENDED.get(account.state)) is not None:
        told.insert(0, HealthReason(account.state, f"The producer is {account.state}", None, cure))
    once = {(reason.code, reason.sentence): reason for reason in reversed(told)}
    ready = unreached is None and account.state == "open"
    return Health(ok, ready, tuple(reversed(once.values()))[:_MOST_REASONS])
