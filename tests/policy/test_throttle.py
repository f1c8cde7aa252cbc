"""Throttle deadlines: each broker's own, never moving back, told once for each episode."""

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from safeproducer.policy.throttle import CALM, QUIET, Throttle

BROKERS = st.integers(-1, 3)


@pytest.fixture
def throttle() -> Throttle:
    return Throttle()


def test_a_broker_is_calmed_for_as_long_again(throttle: Throttle) -> None:
    """And a little; a shorter throttle time does not end it."""
    assert not throttle.probes(None, 0.0)
    throttle.announce(1, 5.0, now=100.0)
    throttle.announce(1, 0.1, now=106.0)
    assert throttle.probes(1, 110.9)
    assert throttle.probes(None, 110.9)
    assert not throttle.probes(2, 106.0)
    assert not throttle.probes(1, 110.0 + CALM)
    assert not throttle.probes(None, 110.0 + CALM)
    throttle.announce(2, 1.0, now=200.0)
    assert not throttle.probes(1, 200.0)


@pytest.mark.parametrize("seconds", [0.0, -0.0, -1.0, math.inf, -math.inf, math.nan])
def test_a_time_that_is_no_wait_changes_nothing(seconds: float, throttle: Throttle) -> None:
    """A zero may come from any broker."""
    throttle.announce(1, 5.0, now=0.0)
    before = throttle.deadlines(1.0)
    assert not throttle.announce(1, seconds, now=1.0)
    assert not throttle.announce(2, seconds, now=1.0)
    assert throttle.deadlines(1.0) == before
    assert throttle.deadlines(4.0) == {1: 5.0}


def test_brokers_that_are_quiet_are_forgotten(throttle: Throttle) -> None:
    for number in range(10_000):
        throttle.announce(number, 1.0, now=float(number))
    assert len(throttle._known.deadlines) <= QUIET + 2


class ThrottleMachine(RuleBasedStateMachine):
    """Against a model that remembers every announcement."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.throttle = Throttle()
        self.announced: dict[int, list[float]] = {}
        self.seen: dict[int, float] = {}

    @rule(seconds=st.floats(0, 100))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(broker=BROKERS, seconds=st.floats(0, 300) | st.sampled_from([0.0, math.nan, -3.0]))
    def announce(self, broker: int, seconds: float) -> None:
        others = {number: until for number, until in self.throttle.deadlines(self.now).items() if number != broker}
        quiet = all(until + QUIET <= self.now for until in self.announced.get(broker, []))
        assert self.throttle.announce(broker, seconds, self.now) == (seconds > 0 and quiet)
        if seconds > 0:
            self.announced.setdefault(broker, []).append(self.now + seconds)
        after = self.throttle.deadlines(self.now)
        assert {number: until for number, until in after.items() if number != broker} == others

    @invariant()
    def deadlines_are_those_announced(self) -> None:
        expected = {broker: max(untils) for broker, untils in self.announced.items() if max(untils) > self.now}
        assert self.throttle.deadlines(self.now) == expected
        for broker in range(-1, 4):
            assert self.throttle.deadline(broker, self.now) == expected.get(broker)
        assert self.throttle.deadline(None, self.now) == max(expected.values(), default=None)

    @invariant()
    def deadlines_never_move_back(self) -> None:
        for broker, until in self.seen.items():
            assert until <= self.now or (self.throttle.deadline(broker, self.now) or 0.0) >= until
        self.seen = self.throttle.deadlines(self.now)


TestThrottleMachine = ThrottleMachine.TestCase
TestThrottleMachine.settings = settings(max_examples=60, stateful_step_count=30)
