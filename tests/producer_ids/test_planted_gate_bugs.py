"""Each rule of the gate is broken here on purpose, and the test of that rule must notice."""

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import pytest

from safeproducer import ProducerIdLimitError
from safeproducer.pipeline.dispatch.hold_facts import HoldFacts
from safeproducer.pipeline.route import Route
from safeproducer.producer_ids.gate import Gate
from safeproducer.producer_ids.lane_permits import OwnPermit
from safeproducer.producer_ids.permit import Answer, Permit
from tests.pipeline import test_gate_paths as paths
from tests.producer_ids import test_gate as units
from tests.producer_ids.test_gate import Told

real_init, real_look, real_end, real_enter = Gate.__init__, Gate.look, Gate.end, Gate.enter
real_route_enter, real_tell_of = Route.enter, Gate._tell_of


def at_construction(self: Gate, *args: Any) -> None:
    real_init(self, *args)
    real_enter(self)


def keeping_all(self: OwnPermit) -> Answer:
    answer = self._guard.ask(self._request)
    self.permit = answer.permit
    return answer


def always_asking(self: Gate, now: float) -> bool:
    self.ask_at = now
    return real_look(self, now)


def reserving(self: Gate, answer: Answer) -> None:
    """A waiter that takes the refusal for its turn in a queue, and goes when its time has come."""
    self.ask_at = 0.0
    self._own._guard = mock.Mock(ask=lambda request: Answer(Permit(0, request.kind, request.site, 0, 1)))


def telling_under_its_lock(self: Gate, answer: Answer) -> str:
    locked = self._lock.acquire(timeout=0.5)
    try:
        return real_tell_of(self, answer)
    finally:
        if locked:
            self._lock.release()


def telling_for_ever(self: Gate, answer: Answer) -> str:
    self._telling = False
    return real_tell_of(self, answer)


def staying_gated(self: Route) -> Any:
    way = real_route_enter(self)
    self.gated = mock.Mock(gate=self._dispatcher._holds.gate)
    self.way = self.send = mock.Mock(side_effect=way)
    return way


def unit(test: Callable[..., object], *args: Any) -> Callable[[], object]:
    return lambda: test(Told(), *args)


BUGS: dict[str, tuple[type, str, Any, Callable[[], object]]] = {
    "a permit at construction": (Gate, "__init__", at_construction,
        unit(units.test_the_gate_asks_once_and_not_before_the_first_record)),
    "the same, with a pipeline": (Gate, "__init__", at_construction,
        partial(paths.test_a_permit_is_asked_for_with_the_first_record, "auto")),
    "a permit too many is kept": (OwnPermit, "ask", keeping_all,
        unit(units.test_a_signal_handler_that_produces_in_the_middle_takes_none_for_itself)),
    "a closed producer keeps its permit": (OwnPermit, "ask", keeping_all,
        unit(units.test_a_producer_closed_in_the_middle_keeps_nothing)),
    "it asks all the time": (Gate, "look", always_asking,
        unit(units.test_delay_waits_and_asks_when_a_permit_may_be_there)),
    "waiting reserves": (Gate, "_wait", reserving, partial(paths.test_somebody_else_took_the_permit)),
    "what was sent goes back": (Gate, "end", lambda self, how, _: real_end(self, how, unsent=True),
        partial(paths.test_a_permit_that_was_used_does_not_go_back)),
    "what was not sent is kept": (Gate, "end", lambda self, how, unsent: real_end(self, how, unsent=False),
        unit(units.test_an_unused_permit_goes_back_once, True)),
    "a hook runs under the lock": (Gate, "_tell_of", telling_under_its_lock,
        unit(units.test_no_lock_is_held_while_a_hook_runs)),
    "a hook that produces is told for ever": (Gate, "_tell_of", telling_for_ever,
        unit(units.test_a_hook_that_produces_is_not_told_of_that)),
    "a batch lane takes what waited": (HoldFacts, "waited_for_id", lambda *_: False,
        partial(paths.test_far_from_its_brokers_what_waited_leaves_by_the_native_producer_of_the_permit)),
    "each record passes the gate": (Route, "enter", staying_gated,
        partial(paths.test_a_permit_is_asked_for_with_the_first_record, "auto")),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    owner, name, broken, test = BUGS[bug]
    test()
    with (
        mock.patch.object(owner, name, broken),
        pytest.raises((AssertionError, ProducerIdLimitError, RecursionError, ValueError, pytest.fail.Exception)),
    ):
        test()
