"""The new decision and the present one, compared on every look of the state machine."""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from safeproducer.pipeline.dispatch.dispatcher import Dispatcher
from safeproducer.pipeline.dispatch.facts import Facts
from safeproducer.pipeline.dispatch.holds import Holds
from safeproducer.policy.decision import Hold, Send, decide
from tests.pipeline import test_hold_reasons as reasons
from tests.pipeline import test_lane_permits as permits
from tests.pipeline.machine import (
    CalmHeldMachine,
    CalmKeyedMachine,
    CalmMachine,
    CountedMachine,
    ExpiryMachine,
    FeedMachine,
    HeldExpiryMachine,
    HeldMachine,
    KeyedAutoMachine,
    KeyedMachine,
)

EFFORT = settings(
    max_examples=int(os.environ.get("FEED_EXAMPLES", "25")),
    stateful_step_count=30,
    deadline=None,
    derandomize="FEED_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
SEEN: dict[Any, int] = {}
DIFFER: list[Any] = []
real_hand_over, real_give, real_send, real_reason = (
    Dispatcher._hand_over,
    Dispatcher._give_batch,
    Dispatcher._send_directly,
    Holds.reason,
)


def look(self: Dispatcher, buffer: Any, now: float) -> Any:
    if not hasattr(self, "_facts"):
        rejections = self.quota_retry.rejections
        self._facts = Facts(  # type: ignore[attr-defined]
            self._delivery,
            self._holds,
            self._direct,
            self.lanes,
            self._placement,
            self.record_buffer,
            self.schedule,
            self._choice,
            rejections,
        )
    found = self._facts.of(buffer, now)  # type: ignore[attr-defined]
    return None if found is None else (decide(found[0], now), found)


def note(self: Dispatcher, was: Any, did: Any, buffer: Any) -> None:
    verdict = None if was is None else was[0]
    same = verdict == did or (verdict is Send.BATCH and isinstance(did, tuple) and did[1] is was[1][1])
    if isinstance(verdict, Hold) and isinstance(did, Hold):
        node = verdict.node if did.node is not None else None
        same = verdict._replace(node=node) == did
        SEEN[verdict.reason] = SEEN.get(verdict.reason, 0) + 1
    if verdict is Send.BATCH and isinstance(did, Hold):  # the permit was denied in the end
        same = was[1][1].permit.denied
    SEEN[str(did)[:5]] = SEEN.get(str(did)[:5], 0) + 1
    if not same:
        DIFFER.append((buffer.tp, was, did))


def hand_over(self: Dispatcher, buffer: Any, now: float) -> float:
    expected = look(self, buffer, now)
    if expected is None and not buffer.waiting:
        SEEN["placed"] = SEEN.get("placed", 0) + 1
        return real_hand_over(self, buffer, now)
    did: list[Any] = []

    def give(buffer: Any, lane: Any, node: Any, now: float) -> None:
        note(self, expected_[0], ("batch", lane), buffer)
        real_give(self, buffer, lane, node, now)
        expected_[0] = look(self, buffer, now) if buffer.waiting else "end"

    def send(lane: Any, buffer: Any) -> Any:
        note(self, expected_[0], Send.DIRECTLY, buffer)
        expected_[0] = "end"
        return real_send(self, lane, buffer)

    expected_: list[Any] = [expected]
    with mock.patch.object(self, "_give_batch", give), mock.patch.object(self, "_send_directly", send):
        due = real_hand_over(self, buffer, now)
    if expected_[0] != "end" and buffer.waiting:
        note(self, expected_[0], None if buffer.why is None else buffer.why._replace(again=due), buffer)
    return due


def reason(self: Holds, buffer: Any, now: float) -> Any:
    old, new = real_reason(self, buffer, now), self.why(buffer, now)
    key = new and (new.until, new.reason), old and (old.until, old.reason)
    if key[0] != key[1]:
        DIFFER.append((buffer.tp, new, old))
    SEEN["held", old and old.reason] = SEEN.get(("held", old and old.reason), 0) + 1
    return old


@pytest.fixture(autouse=True)
def compared(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(Dispatcher, "_hand_over", hand_over)
    monkeypatch.setattr(Holds, "reason", reason)
    SEEN.clear()
    DIFFER.clear()
    yield
    for each in DIFFER[:3]:
        print(each)
    print(len(DIFFER), {str(key): count for key, count in SEEN.items()})
    assert not DIFFER


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "machine",
    [
        FeedMachine,
        HeldMachine,
        CalmMachine,
        CalmHeldMachine,
        KeyedMachine,
        KeyedAutoMachine,
        CalmKeyedMachine,
        CountedMachine,
        ExpiryMachine,
        HeldExpiryMachine,
    ],
)
def test_both_decide_alike(machine: type[RuleBasedStateMachine]) -> None:
    run_state_machine_as_test(machine, settings=EFFORT)


@pytest.mark.parametrize("scenario", reasons.SCENARIOS)
def test_both_tell_the_same_reason(scenario: str) -> None:
    reason, found = reasons.SCENARIOS[scenario]
    assert found() is reason


def test_both_keep_to_the_limit() -> None:
    permits.taken_between()
