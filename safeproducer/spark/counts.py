"""The counts of a worker's producer over its life, in a form that can be added up over two producers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from safeproducer import Snapshot


@dataclass(frozen=True)
class Counts:
    """Records, as in Snapshot; `by_topic`: delivered ones. `ids_used`: producer IDs, `known_ids`: those that are
    known."""

    delivered: int = 0
    interrupted: int = 0
    unresolved: int = 0
    ids_used: int = 0
    known_ids: frozenset[int] = frozenset()
    by_topic: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, account: Snapshot) -> Counts:
        """Those of one producer."""
        by_topic: Counter[str] = Counter()
        for row in account.partitions:
            by_topic[row.topic] += row.delivered
        return cls(
            account.delivered,
            account.interrupted,
            account.unresolved,
            account.producer_ids,
            frozenset(account.known_producer_ids),
            by_topic,
        )

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.delivered + other.delivered,
            self.interrupted + other.interrupted,
            self.unresolved + other.unresolved,
            self.ids_used + other.ids_used,
            self.known_ids | other.known_ids,
            self.by_topic + other.by_topic,
        )
