"""Causes that keep a client waiting for a producer ID or another epoch, or for the coordinator of transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from safeproducer.policy.diagnosis import SLOW, Cause, What
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.types import DIRECT_LANE, NEVER

_ASKED = 0.9  # seconds in statistics, which come each half second; a whole one then
_RECENT = 2.5  # seconds within which what statistics showed still goes on: they come each second
_TRIED_AGAIN = "answers with errors that librdkafka tries again, as while it moves or is not ready"


class Call(NamedTuple):
    """A call of the application that waits for the coordinator of transactions since then.

    `drains`: it waits for records meanwhile, and for the coordinator only where that has to take note of a partition.
    """

    method: str
    since: float
    drains: bool = False


def _sends_nothing(told: Any, now: float) -> Cause | None:
    """A client, by its Statistics, has asked for a producer ID for long, or may not change its epoch yet."""
    since, state = told.asks_id
    if told.at < since + _ASKED:
        return None
    if state.startswith("Drain"):
        hang = [f"broker {node}" for node, it in sorted(told.brokers.items()) if it.open_since < told.at]
        whom, cure = " and ".join(hang) or "each broker", HoldReason.LEADER_SILENT.cure
        clause = f"as a record was refused or expired, nothing is sent until {whom} has answered what is under way"
        return Cause("coordinator", f"{clause}, for {now - since:.0f} s so far", cure, now - since, clause)
    how = "a request for one has no answer" if state == "WaitPID" else f"who is asked for one {_TRIED_AGAIN}"
    told = f"no broker has given this client a producer ID for {now - since:.0f} s: {how}"
    cure = "See whether the cluster has a controller, and what the brokers' logs say of InitProducerId."
    return Cause("coordinator", told, cure, now - since, "no broker gives this client a producer ID: " + how)


def coordinating(calls: Mapping[str, Call], statistics: Mapping[int, Any], now: float) -> Cause | None:
    """Why a call waits, by the last Statistics of each lane, or what does without a call; None when nothing does."""
    if (call := next(iter(list(calls.values())), None)) is None:
        first = min(list(statistics.values()), key=lambda one: one.asks_id[0], default=None)
        return first and _sends_nothing(first, now)
    found = statistics.get(DIRECT_LANE)
    told = found if found is not None and now < found.at + _RECENT else None
    adds = told is not None and any(row.queued and not row.in_flight for row in told.partitions.values())
    return _coordinating(call, told and told.coordinator, adds, now)


def _coordinating(call: Call, told: Any, adds: bool, now: float) -> Cause | None:
    """The cause that keeps a call waiting, by a Coordinator, None where none is known. `adds`: whether records wait
    that are in no request."""
    how, known = "", told is not None
    if known and not (told.address and told.up):
        how = f"it ({told.address}) is not connected" if told.address else "no broker tells who that is"
    elif known and now >= told.open_since + SLOW:
        how = f"it ({told.address}) has not answered a request for {now - told.open_since:.0f} s"
    elif known and told.open_since == NEVER and (told.again or not call.drains):
        how = f"it ({told.address}) {_TRIED_AGAIN}"
    if (seconds := now - call.since) < SLOW or (call.drains and not (how and adds)):
        return None
    clause = f"the transaction coordinator keeps {call.method}() waiting"
    sentence = f"{clause}, for {seconds:.0f} s so far{how and ': '}{how}"
    cure = "Look at the brokers that have replicas of __transaction_state, and at their logs."
    return Cause("coordinator", sentence, cure, seconds, sentence, what=What("call", call.method))
