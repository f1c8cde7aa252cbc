"""How many batches of a partition have no final answer yet, over all lanes, by what a tap saw."""

from __future__ import annotations

from collections.abc import Iterable

from integration.tap import Tap
from integration.tap.ledger import RETRIABLE

Count = tuple[float, int]
"""(when, how many from then on): time.monotonic() as the tap noted it."""


def history(tap: Tap, topic: str, partition: int = 0) -> list[Count]:
    """Each change, from the client's point of view.

    A batch counts from its first arrival at the tap until an answer that is no reason to send it again has left for the
    client. One that was given up inside the client counts for ever.
    """
    batches = [batch for batch in tap.batches if (batch.topic, batch.partition) == (topic, partition)]
    identities = {(batch.connection, batch.correlation_id): batch.identity for batch in batches}
    events = [(batch.time, batch.identity, True) for batch in batches if batch.attempt == 1]
    for answer in tap.answers:
        ends = answer.delivered and answer.error_code not in RETRIABLE
        if ends and (answer.topic, answer.partition) == (topic, partition):
            events.append((answer.time, identities[answer.connection, answer.correlation_id], False))
    found: list[Count] = []
    open_ones: set[object] = set()
    for when, identity, begins in sorted(events, key=lambda event: event[0]):
        (open_ones.add if begins else open_ones.discard)(identity)
        found.append((when, len(open_ones)))
    return found


def most(counts: Iterable[Count], since: float = 0.0) -> int:
    """The most there ever were at a change after `since`."""
    return max((count for when, count in counts if when > since), default=0)


def first_below(counts: Iterable[Count], limit: int, since: float) -> float:
    """When there were first no more than `limit` after `since`; infinity for never."""
    return next((when for when, count in counts if when > since and count <= limit), float("inf"))
