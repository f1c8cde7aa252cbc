"""KIP-936 (under discussion upstream): notice producer-ID churn before the brokers have to.

Every new producer takes a producer ID, and every leader it writes to remembers that ID for
`producer.id.expiration.ms` (a day by default, KIP-854). A line of code that makes producers in a loop fills the
brokers' memory. This policy counts new producers per cluster and principal over the last hour, exactly: a client
knows its own producers, it needs no Bloom filter.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from safeproducer.records import CallSite

HOUR = 3600.0

Identity = tuple[str, str]
"""(cluster, principal): whom a KIP-936 quota would charge."""


@dataclass(slots=True)
class ChurnPolicy:
    """Counts producers made within the last hour. Not thread-safe: its owner locks."""

    _made: dict[Identity, deque[tuple[float, CallSite]]] = field(default_factory=dict)
    _told: set[tuple[Identity, CallSite]] = field(default_factory=set)

    def record(self, identity: Identity, site: CallSite, limit_per_hour: int, now: float) -> tuple[int, int] | None:
        """Count one new producer made at `now`, in seconds; (made by `site`, made in all) when `site` first exceeds.

        More than `limit_per_hour` within 3600 s is too many; exactly the limit is allowed.
        """
        made = self._made.setdefault(identity, deque())
        made.append((now, site))
        while now - made[0][0] >= HOUR:
            made.popleft()
        # A crash loop must not grow our own memory: beyond the limit only the excess itself needs to be seen.
        while len(made) > max(limit_per_hour, 1) * 2:
            made.popleft()
        if len(made) <= limit_per_hour or (identity, site) in self._told:
            return None
        self._told.add((identity, site))
        return sum(made_at == site for _, made_at in made), len(made)

    def made_last_hour(self, identity: Identity, now: float) -> int:
        """Producers of `identity` made within the hour before `now`; a lower bound once twice the limit is passed."""
        return sum(1 for at, _ in self._made.get(identity, ()) if now - at < HOUR)
