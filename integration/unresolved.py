"""How many batches of a partition have no final answer yet, over all lanes, by what a tap saw."""

from collections.abc import Iterable

from integration.tap import BatchSeen, Tap

RETRIABLE = frozenset({2, 3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 56, 74, 75, 89, 100})
"""Produce errors after which a client sends the same batch again."""
Count = tuple[float, int]
"""(when, how many from then on): time.monotonic() as the tap noted it."""


def history(tap: Tap, topic: str, partition: int = 0) -> list[Count]:
    """Each change, from the client's point of view.

    A batch counts from its first arrival at the tap until an answer that is no reason to send it again has left for the
    client. One that was given up inside the client counts for ever.
    """
    batches = _batches(tap, topic, partition)
    events = [(batch.time, batch.identity, True) for batch in batches if batch.attempt == 1]
    events += [(when, batch.identity, False) for when, batch in _ended(tap, batches)]
    found: list[Count] = []
    open_ones: set[object] = set()
    for when, identity, begins in sorted(events, key=lambda event: event[0]):
        (open_ones.add if begins else open_ones.discard)(identity)
        found.append((when, len(open_ones)))
    return found


def answered(tap: Tap, topic: str, records: int, partition: int = 0) -> float:
    """When so many of a partition's records had their final answer; infinity for never."""
    left = records
    for when, batch in sorted(_ended(tap, _batches(tap, topic, partition)), key=lambda end: end[0]):
        left -= batch.count
        if left <= 0:
            return when
    return float("inf")


def most(counts: Iterable[Count], since: float = 0.0) -> int:
    """The most there ever were at a change after `since`."""
    return max((count for when, count in counts if when > since), default=0)


def _batches(tap: Tap, topic: str, partition: int) -> list[BatchSeen]:
    return [batch for batch in tap.batches if (batch.topic, batch.partition) == (topic, partition)]


def _ended(tap: Tap, batches: list[BatchSeen]) -> list[tuple[float, BatchSeen]]:
    requests = {(batch.connection, batch.correlation_id): batch for batch in batches}
    ends = (answer for answer in tap.answers if answer.delivered and answer.error_code not in RETRIABLE)
    places = ((answer, requests.get((answer.connection, answer.correlation_id))) for answer in ends)
    return [
        (answer.time, batch)
        for answer, batch in places
        if batch is not None and (answer.topic, answer.partition) == (batch.topic, batch.partition)
    ]
