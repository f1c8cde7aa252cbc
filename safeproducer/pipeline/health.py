"""health(): whether records wait for what waiting does not mend, for probes. It asks no broker."""

from __future__ import annotations

from collections.abc import Callable

from safeproducer.pipeline.engine import Engine
from safeproducer.pipeline.inspection import LOST, Inspection, not_polled, waits, whole
from safeproducer.policy.diagnosis import Cause, told_first, tp_name
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.types import NEVER
from safeproducer.runtime import clock
from safeproducer.snapshot import Health, HealthReason, Snapshot

_HOLDS = HoldReason.LEADER_SILENT, HoldReason.UNKNOWN_TOPIC, HoldReason.OUTDATED_METADATA, HoldReason.NO_BROKER
_LASTS = {*_HOLDS, "replication", "coordinator", "client_error", "refusing", "expired", "not_polled", "callback"}
"""Codes of what waiting does not mend."""
_MOST_REASONS = 5
_ENDED = {"fatal": "Close it and make a new one.", "closed": "Make a new one.", "forked": "Make a new one here."}


def check(engine: Engine, inspection: Inspection, unresolved_for: float, timeout: float | None) -> Health:
    """The health of SafeProducer.health(). No record waits for longer than `timeout`: half of that is enough."""
    # A broker's restart holds records for a moment, and would alarm at each look. So what counts is how long records
    # have waited for a cause: only what lasts `unresolved_for` is told, but for refused records, which no wait mends.
    if not isinstance(unresolved_for, int | float) or not 0 <= unresolved_for < NEVER:
        told_how = "give the seconds that a record may wait, 0 or more"
        raise ValueError(f"unresolved_for={unresolved_for!r} is no time: {told_how}")
    if timeout:
        unresolved_for = min(unresolved_for, timeout / 2)
    account, located, troubles = inspection.look(unresolved_for)
    leaders, addressed = engine.holds.partitions.leaders, engine.holds.cluster.addressed
    if account.state in ("closed", "forked"):
        return judge(account, [], addressed)
    told = list[Cause]()
    for row, count, causes in located.causes(account.partitions, troubles, leaders, {}):
        age, tp = located.ages.get((row.topic, row.partition)), (row.topic, row.partition)
        if age is not None and age < unresolved_for and tp not in located.lost:
            continue
        late = timeout and age is not None and age >= timeout  # purged, and its report is on its way
        if late or not causes:
            code, cure = ("expired", HoldReason.EXPIRY.cure) if late else ("waiting", None)
            told.append(Cause(code, waits(count, of=f" for {tp_name(row)}"), cure, age))
        told += causes if age is None else [one if one.code in LOST else one._replace(since=age) for one in causes]
    told += whole(located, troubles)
    if located.blocked is None and not located.served and (reports := sum(located.reports.values())):
        told.append(not_polled(reports, engine.serving.not_polled_for(clock.monotonic())))
    told = told_first(one for one in told if one.code == "refused" or (one.since or 0.0) >= unresolved_for)
    if not account.accepted or account.delivered or not engine.reached_nobody:
        return judge(account, told, addressed)
    last = next((one for one in troubles if one.node is None), Cause("", "", HoldReason.NO_BROKER.cure))
    sentence = f"No broker has answered yet{last.sentence and '; '}{last.sentence}"
    return judge(account, told, addressed, Cause("no_broker", sentence, last.cure))


def _lasts(one: Cause) -> bool:
    return one.code in _LASTS or one.harms


def judge(
    account: Snapshot, told: list[Cause], addressed: Callable[[str], str], unreached: Cause | None = None
) -> Health:
    """By what records wait for, and whether brokers answered or were not asked."""
    ok = account.state in ("open", "closed") and not any(map(_lasts, told))
    if unreached is not None and unreached.code not in [one.code for one in told]:
        told.append(unreached)
    if (cure := _ENDED.get(account.state)) is not None:
        told.insert(0, Cause(account.state, f"The producer is {account.state}", cure))
    once = list({(str(one.code), one.sentence): one for one in reversed(told)}.values())[::-1]
    if len(once) > _MOST_REASONS:  # those that are not ok are among them
        once.sort(key=lambda one: not (_lasts(one) or one.code in _ENDED))
    shown = [HealthReason(str(one.code), addressed(one.sentence), one.since, one.cure) for one in once]
    return Health(ok, unreached is None and account.state == "open", tuple(shown[:_MOST_REASONS]))
