"""One record is accepted for a front door whose callback is an object of its own for each record: its future.

As SafeProducer.produce() does it, and told is where the record waits, so that it can be taken back.
"""

from __future__ import annotations

from typing import Any

from safeproducer.errors import NOT_ACCEPTED, RENEWED
from safeproducer.pipeline.buffer.partition_buffer import Ticket
from safeproducer.pipeline.engine import Engine
from safeproducer.policy.types import UNPLACED, Lack
from safeproducer.records import are_known, checked_names

_NOW = 0


# The report may come on another thread before the call returns: counted later, more would have ended than were
# accepted. So the record is counted first; until a refusal has taken it off, `interrupts` says that sums are not exact.
def accept(
    engine: Engine, callback: Any, topic: str, value: Any, key: Any, partition: int, timestamp: int, headers: Any
) -> Ticket | None:
    """Accept a record; where it waits in this process, None if it was handed over. Raises what produce() raises.

    It never waits for room. `callback(error, message)` is called once, on whichever thread serves.
    """
    counters, route = engine.counters, engine.route
    try:
        account: Any = counters.topics[topic]
    except (KeyError, TypeError):
        account = counters.open(topic)
    if partition != UNPLACED:
        account = account.explicit(partition)
    report = account.bind(callback)[1]
    account.accepted += 1  # first, as in produce()
    try:
        if headers is None and timestamp is _NOW:
            return route.send(topic, value, key, partition, report)  # type: ignore[no-any-return]
        if timestamp is not _NOW or not are_known(headers, account.names):
            counters.report_queue.note_headers(topic, headers)
            account.names = checked_names(headers, account.names)
            if timestamp is not _NOW:
                engine.questions.expirations.timestamps.note(topic, timestamp)
        return route.send(topic, value, key, partition, report, None, timestamp, headers)  # type: ignore[no-any-return]
    except BaseException as error:
        counters.interrupts += 1  # whether it was accepted is not known yet
        if not isinstance(error, NOT_ACCEPTED):
            raise
        account.accepted -= 1
        counters.interrupts -= 1  # one step with the line above
        refusal = engine.calls.refusal_of(error)
        try:
            if refusal is not RENEWED:
                raise refusal from None
        finally:
            del refusal  # it refers to this frame: a cycle
    return accept(engine, callback, topic, value, key, partition, timestamp, headers)


def lack_for(engine: Engine, topic: str, partition: int, value: Any, key: Any) -> Lack:
    """The room that such a record would lack. Without a try: a try that is refused is an event of hooks."""
    size = sum(len(part) for part in (value, key) if isinstance(part, bytes | str))
    return engine.dispatcher.intake.lack((topic, partition), size)


def is_empty(engine: Engine) -> bool:
    """Whether nothing takes room. A reported record does until the sender has put it away, which `queued` omits."""
    return not engine.dispatcher.record_buffer.records


def tells_each(engine: Engine) -> bool:
    """Whether each record's end is told: not with delivery.report.only.error."""
    return not engine.counters.only_errors
