"""What becomes of the permit for a producer ID when its producer ends (KIP-936)."""

from __future__ import annotations

from safeproducer.pipeline.engine import Engine


def end_permit(engine: Engine, how: str) -> None:
    """Give it back if nothing was sent with it, certainly. `how` as in Guard.note(). The first call counts.

    A producer ID costs brokers memory once it writes. So restarts while the brokers are away cost nothing.
    """
    engine.updates.holds.gate.end(how if engine.events.fatal is None else "failed", _nothing_was_sent(engine))


def _nothing_was_sent(engine: Engine) -> bool:
    """Whether each record that was accepted has ended without having been in a request."""
    return engine.updates.failures.unsent >= engine.counters.totals()[0]
