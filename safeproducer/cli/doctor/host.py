"""What this host knows of its own producer IDs."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownId:
    """A producer that took an ID on this host. `line` is the code that made it; `producer_id` None while not known."""

    line: str
    kind: str
    producer_id: int | None = None
    ended: str | None = None


@dataclass(frozen=True, slots=True)
class Ledger:
    """The count of one cluster and principal. `wait`: seconds until the next ID may be taken."""

    name: str
    in_hour: int
    wait: float
    ids: Sequence[KnownId] = ()
    patterns: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Host:
    """`not_kept`: why producers here are counted by process only, as sentences; none where they are counted by host."""

    ledgers: Sequence[Ledger] = ()
    not_kept: Sequence[str] = ()

    @property
    def lines(self) -> dict[int, str]:
        """Producer ID -> the line of code that took it."""
        return {
            one.producer_id: one.line for ledger in self.ledgers for one in ledger.ids if one.producer_id is not None
        }


def read_host(*, rate: float, paths: bool, now: float) -> Host:
    """Read this host's ledgers; without `paths` lines of code are numbered instead of named."""
    del rate, paths, now
    return Host()
