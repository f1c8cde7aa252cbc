"""The state machine over permits, and the planted bugs that it must notice."""

from contextlib import ExitStack
from typing import Any
from unittest import mock

import pytest
from hypothesis.stateful import run_state_machine_as_test

from safeproducer.policy import permits
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids import guard
from safeproducer.producer_ids.guard import Claim, Guard
from safeproducer.producer_ids.ledger import LedgerRound
from tests.effort import effort
from tests.producer_ids.host import SITE
from tests.producer_ids.machine import PermitMachine, RuleError

EFFORT = effort(150, 25)
UNTIL_FOUND = effort(1000, 25)

real_granted = permits.granted
real_decided = guard._decided
real_begin = Guard.__init__
real_begin_round = LedgerRound.begin
real_write = LedgerRound.write


def test_processes_share_the_hour_exactly() -> None:
    run_state_machine_as_test(PermitMachine, settings=EFFORT)


def reserving(hour: guard.Hour, request: Claim, *more: Any) -> Any:
    answer = real_decided(hour, request, *more)
    if answer.permit is None:
        hour.write(permits.counted(hour.until, request.rate, hour.now.boot), b"")
    return answer


def asking_at_construction(self: Guard, *arguments: Any) -> None:
    real_begin(self, *arguments)
    self.ask(Claim(Kind.FIRST, 100, True, SITE))


def letting_go(self: LedgerRound) -> None:
    real_begin_round(self)
    self.close()


def second_round(self: LedgerRound, *arguments: Any, **more: Any) -> None:
    self.close()
    self._copies.clear()
    self._ledger.open(self._copies)
    real_write(self, *arguments, **more)


MIXED = {Kind.FIRST: Kind.FURTHER, Kind.FURTHER: Kind.FIRST}
PLANTS: dict[str, list[tuple[Any, str, Any]]] = {
    "waiting reserves": [(guard, "_decided", reserving)],
    "refilled twice": [(permits, "given_back", lambda used_until, seconds, age: used_until - seconds)],
    "first and further mixed up": [
        (permits, "granted", lambda used, kind, *at: real_granted(used, MIXED.get(kind, kind), *at))
    ],
    "permit at construction": [(Guard, "__init__", asking_at_construction)],
    "read and written in two rounds": [(LedgerRound, "begin", letting_go), (LedgerRound, "write", second_round)],
}


def with_bug(bug: str) -> None:
    with ExitStack() as patches:
        for plant in PLANTS[bug]:
            patches.enter_context(mock.patch.object(*plant))
        run_state_machine_as_test(PermitMachine, settings=UNTIL_FOUND)


@pytest.mark.parametrize("bug", PLANTS)
def test_a_planted_bug_is_noticed(bug: str) -> None:
    with pytest.raises(RuleError):
        with_bug(bug)
