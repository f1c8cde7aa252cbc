"""Which broker coordinates which group and which transaction; the groups, and the transactions."""

from collections.abc import Sequence
from zlib import crc32

from safeproducer.testing.fake.rules.groups import Group
from safeproducer.testing.fake.rules.transactions import Transaction


class Coordinators:
    """A key is coordinated by a broker that follows from its name, until it is moved; next by the one that lives."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.transactions: dict[str, Transaction] = {}
        self.busy: dict[str, Transaction] = {}
        """Those that are ongoing, or whose end is prepared."""
        self._moved: dict[str, int] = {}

    def of(self, key: str, brokers: Sequence[int], alive: Sequence[int]) -> int:
        """The coordinator of a group or a transaction; -1 if no broker lives."""
        first = brokers.index(self._moved[key]) if key in self._moved else crc32(key.encode()) % len(brokers)
        ring = (*brokers[first:], *brokers[:first])
        return next((broker for broker in ring if broker in alive), -1)

    def move(self, key: str, to: int) -> None:
        self._moved[key] = to
