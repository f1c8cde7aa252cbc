"""What a producer leaves at its end: its native producers, if another one may have them.

Only what is beyond doubt goes over: each record has its report, none has failed inside librdkafka, and nothing was
purged. So no report of a former owner can come any more, librdkafka has acknowledged all that it has counted, and
sequence numbers have no gap.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from safeproducer.pipeline.engine import Engine
from safeproducer.pipeline.lanes.batch_lane import BatchLane
from safeproducer.pipeline.lanes.direct_lane import DirectLane
from safeproducer.pipeline.lanes.lane_log import LaneLog
from safeproducer.pipeline.parked import Former, ParkedLane, ParkedLanes
from safeproducer.policy.never import NEVER
from safeproducer.producer_ids.parking import STARVED
from safeproducer.producer_ids.patience import Patience, until


def left_by(engine: Engine) -> ParkedLanes | None:
    """What an open engine leaves, None when that is of no use to others. Its threads may still be inside."""
    # One that never wrote has no permit yet, which the next owner would not ask for.
    wrote = [lane for lane in engine.dispatcher.lanes if lane.counts.batches or engine.makes.took(lane.client.native)]
    direct, lanes = engine.holds.direct, wrote
    if not (engine.makes.reusable and _all_delivered(engine) and _is_sound(direct, lanes)):
        return None
    natives: list[tuple[Any, LaneLog | None]] = [] if direct is None else [(engine.native, None)]
    natives += [(lane.client.native, lane.log) for lane in lanes]
    relays = engine.makes.relays
    left = [ParkedLane(native, relays[id(native)], log) for native, log in natives if id(native) in relays]
    if not left or len(left) != len(natives):
        return None
    given = None if direct is None else partial(direct.given.passed_on, engine.counters)
    round_trip, expiry = engine.holds.round_trip.passed_on(), engine.horizons.known
    return ParkedLanes(left, round_trip, Former(_outside(engine), given), expiry=expiry)


def reports_taken(engine: Engine, since: float) -> int:
    """Records whose reports a call has taken that a signal handler, the caller, interrupted in a callback at `since`.

    Their callbacks run when that call goes on. 0 while statistics have not told which of its records are no others.
    """
    direct, knows = engine.holds.direct, engine.counters.times_batches  # for the backlogs
    if direct is None or not (knows and engine.route.behind_callback):
        return 0
    elsewhere = engine.dispatcher.record_buffer.records - len(engine.native)
    unacknowledged = direct.unacknowledged(since)
    return 0 if unacknowledged is None else max(0, engine.unresolved() - elsewhere - unacknowledged)


def _outside(engine: Engine) -> Callable[[float], bool]:
    """Waits until no thread is inside a native producer, of ours or of the application; False when one is for longer.

    The application's are those that serve now: once the engine is retired, others find no native producer.
    """
    threads = engine.threads
    ours = threads.sender, threads.metadata, threads.first_question
    serving = engine.route.threads

    def ended(timeout: float) -> bool:
        return until(lambda: not serving and all(thread.join(0.0) for thread in ours), Patience(timeout, STARVED))

    return ended


def _all_delivered(engine: Engine) -> bool:
    """Whether it wrote something, and each record has had its report, which no failure inside librdkafka caused."""
    route, failures, report_queue = engine.route, engine.failures, engine.counters.report_queue
    if route.state != "open" or failures.unknown:
        return False
    if failures.failed_at or report_queue.failed_at or report_queue.records:
        return False
    rejected = engine.dispatcher.quota_retry.rejections.count
    accepted, delivered, failed = engine.counters.totals()
    return delivered > 0 and accepted == delivered + failed and not rejected


def _is_sound(direct: DirectLane | None, lanes: list[BatchLane]) -> bool:
    """Whether no lane has failed, been purged, or was rejected by a quota; nothing is inside."""
    if direct is not None and (direct.rejected or direct.draining or direct.gaps.purged_at > -NEVER):
        return False
    return not any(
        lane.client.failed or lane.quarantined or lane.batches or lane.inside or lane.gaps.purged_at > -NEVER
        for lane in lanes
    )
