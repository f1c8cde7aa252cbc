"""Silent brokers: those that owe an answer and give none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy.health import BrokerObservation, Health

BUSY = BrokerObservation(up=True, needed=True, outstanding=1, received=7)
IDLE = BrokerObservation(up=True, needed=True, outstanding=0, received=7)
UNCONNECTED = BrokerObservation(up=False, needed=False, outstanding=0, received=0)
UNREACHABLE = BrokerObservation(up=False, needed=True, outstanding=0, received=7)
observations = st.builds(
    BrokerObservation, st.booleans(), st.booleans(), outstanding=st.integers(0, 2), received=st.integers(0, 3)
)


def watch(*seen: BrokerObservation) -> list[float | None]:
    """What is said of broker 1 after each observation, one a second."""
    health = Health()
    answers = []
    for second, observation in enumerate(seen):
        health.observe(float(second), {1: observation})
        answers.append(health.silent(1))
    return answers


def test_a_broker_that_owes_an_answer_is_silent_from_when_it_was_seen_to() -> None:
    """One observation proves nothing, because the request may just have been sent."""
    assert watch(IDLE, BUSY, BUSY, BUSY) == [None, None, 1.0, 1.0]


def test_any_answer_starts_anew() -> None:
    """A slow broker is not a silent one."""
    answered = BrokerObservation(up=True, needed=True, outstanding=1, received=8)
    assert watch(BUSY, BUSY, answered, answered) == [None, 0.0, None, 2.0]
    assert watch(BUSY, BUSY, IDLE, BUSY) == [None, 0.0, None, None]


def test_a_lost_connection_is_silence_at_once_if_records_are_for_it() -> None:
    """A broker without a connection and without work is not silent."""
    assert watch(IDLE, UNREACHABLE, UNREACHABLE) == [None, 1.0, 1.0]
    assert watch(UNCONNECTED, UNCONNECTED) == [None, None]


def test_silence_goes_on_when_the_connection_is_lost_and_made_again() -> None:
    """It ends with an answer, not with a connection."""
    assert watch(BUSY, BUSY, UNREACHABLE, BUSY, BUSY) == [None, 0.0, 0.0, 0.0, 0.0]


def test_brokers_that_are_gone_are_forgotten() -> None:
    """A broker that comes back starts anew."""
    health = Health()
    health.observe(0.0, {1: UNREACHABLE, 2: UNREACHABLE})
    assert health.all_silent() == {1: 0.0, 2: 0.0}
    health.observe(1.0, {2: UNREACHABLE})
    assert health.all_silent() == {2: 0.0}
    health.observe(2.0, {1: UNREACHABLE, 2: UNREACHABLE})
    assert health.all_silent() == {1: 2.0, 2: 0.0}
    assert health.silent(3) is None


def naive(history: list[tuple[float, BrokerObservation]]) -> float | None:
    """From the whole history: when the current stretch of waiting without an answer began."""
    began, received = None, None
    stretch = 0
    for now, seen in history:
        waits = seen.outstanding > 0 or (seen.needed and not seen.up)
        if not waits:
            began, stretch = None, 0
        elif began is None or received != seen.received:
            began, stretch = now, 1
        else:
            stretch += 1
        received = seen.received
    return began if stretch > 1 or (stretch == 1 and not history[-1][1].up) else None


@given(st.lists(st.tuples(st.floats(0.001, 5), observations, observations), max_size=20))
def test_brokers_are_judged_each_for_itself_as_by_its_whole_history(
    steps: list[tuple[float, BrokerObservation, BrokerObservation]],
) -> None:
    """Against a model that sees everything; silence never begins in the future, and never while nothing is owed."""
    health = Health()
    now = 0.0
    histories: dict[int, list[tuple[float, BrokerObservation]]] = {1: [], 2: []}
    for pause, *seen in steps:
        now += pause
        brokers = dict(zip(histories, seen, strict=True))
        health.observe(now, brokers)
        for number, observation in brokers.items():
            histories[number].append((now, observation))
            since = health.silent(number)
            assert since == naive(histories[number])
            assert since is None or since <= now
            assert since is None or observation.outstanding or not observation.up
