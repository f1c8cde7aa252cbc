"""What becomes of the permit for a producer ID when its producer ends (KIP-936).

A producer ID costs brokers memory once it writes. So a producer that has certainly sent nothing gives its permit back,
and restarts while the brokers are away cost nothing.
"""

from __future__ import annotations

from typing import Any

from safeproducer.kafka.native import KafkaException
from safeproducer.pipeline.engine import Engine
from safeproducer.runtime import clock

_STATISTICS_LATE = 0.3
"""Seconds beyond their interval for which statistics are waited for."""
_SLICE = 0.05


def await_proof(engine: Engine) -> Exception | None:
    """Wait for statistics before close() ends a producer whose records have all failed; what a callback raised.

    Only they tell of a record that was given a partition whether it was in a request, once a broker was reached. Not
    where nothing can be proven.
    """
    raised = None
    interval, gate = engine.updates.interval, engine.gate
    accepted, _, failed = engine.counters.totals()
    if engine.route.inside or engine.route.state != "open" or not gate.used:
        return None
    if accepted != failed or gate.wrote or _never_sent(engine):
        return None
    if _reached_nobody(engine):
        gate.unsent_at = clock.monotonic()
        return None
    if not interval:
        return None
    deadline = clock.monotonic() + interval + _STATISTICS_LATE
    while not (_shown_unsent(engine) or gate.wrote) and clock.monotonic() < deadline:
        try:
            engine.serving.poll(_SLICE)
        except Exception as error:
            raised = error
    return raised


def end_permit(engine: Engine, how: str, begun: bool) -> None:
    """End it; give it back if nothing was sent with it. `how` as in Guard.note(). The first call counts.

    `begun`: whether a transaction was, which writes even if it is of offsets alone.
    """
    how = how if engine.events.fatal is None else "failed"
    never_sent = _never_sent(engine) or _reached_nobody(engine)
    engine.gate.end(how, not begun and (never_sent or _shown_unsent(engine)))
    engine.dispatcher.lanes.permits().end(how, never_sent)


def _never_sent(engine: Engine) -> bool:
    """Whether each record that was accepted has ended without having been in a request."""
    return engine.failures.unsent >= engine.counters.totals()[0]


def _reached_nobody(engine: Engine) -> bool:
    """Whether no native producer has had an answer of a broker: librdkafka sends to leaders, which only those tell.

    Once the producer is closed it is not known any more.
    """
    if engine.route.state != "open" or engine.holds.partitions.nodes():
        return False
    return not any(_knows_its_cluster(engine, native) for native in engine.natives)


def _knows_its_cluster(engine: Engine, native: Any) -> bool:
    try:
        engine.calls.ask(native.cluster_id, 0)  # asks nobody: of the first metadata
    except KafkaException:
        return False
    except RuntimeError as error:  # a thread has closed it meanwhile
        if type(error) is not RuntimeError:  # a time limit
            raise
        return True
    return True


def _shown_unsent(engine: Engine) -> bool:
    """Whether statistics from after the last record's end show that there never was a request."""
    accepted, delivered, failed = engine.counters.totals()
    return not delivered and accepted == failed and engine.gate.unsent_at > engine.failures.failed_at > 0
