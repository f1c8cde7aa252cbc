"""How many permits for producer IDs the producers of a block hold, beside what brokers saw."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from safeproducer.policy.permits import Kind
from safeproducer.producer_ids import guard
from safeproducer.producer_ids.guard import Guard
from safeproducer.producer_ids.permit import Answer, Claim, Permit


@dataclass
class Permits:
    """Those that were granted and not given back; how many were `refused`.

    `ids`: which producer ID came of which; `ended`: how each ended.
    """

    held: Counter[Kind] = field(default_factory=Counter)
    refused: int = 0
    ids: dict[int, int] = field(default_factory=dict)
    ended: dict[int, str] = field(default_factory=dict)

    @property
    def of_lanes(self) -> int:
        """All but the first ones of producers."""
        return self.held.total() - self.held[Kind.FIRST]


@contextmanager
def permits_counted() -> Iterator[Permits]:
    """Whoever is asked, and by whom."""
    found = Permits()
    ask, give_back, note = Guard.ask, Guard.give_back, Guard.note

    def counted(self: Guard, request: Claim) -> Answer:
        answer = ask(self, request)
        if answer.permit is not None:
            found.held[request.kind] += 1
        else:
            found.refused += 1
        return answer

    def given_back(self: Guard, permit: Permit) -> None:
        found.held[permit.kind] -= 1
        give_back(self, permit)

    def noted(self: Guard, permit: Permit, producer_id: Any = None, ended: Any = None) -> None:
        if producer_id is not None:
            found.ids[permit.serial] = producer_id
        if ended is not None:
            found.ended[permit.serial] = ended
        note(self, permit, producer_id, ended)

    fresh = mock.patch.dict(guard._guards, clear=True)  # what other producers of this cluster took does not count
    with fresh, mock.patch.multiple(Guard, ask=counted, give_back=given_back, note=noted):
        yield found
