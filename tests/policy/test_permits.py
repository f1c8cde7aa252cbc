"""Permits beside an exact model: a whole hour at first, then one for each 3600 / rate seconds, whoever asks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy.permits import (
    HOUR,
    LONGEST_JITTER,
    LONGEST_WAIT,
    Kind,
    ask_again_in,
    counted,
    given_back,
    granted,
    in_hour,
    room,
    wait,
)

START = 1_234_567.891
RATES = st.sampled_from([1, 2, 3, 7, 20, 100, 720, 10_000])
KINDS = st.sampled_from(list(Kind))
LEVELS = st.floats(-2 * HOUR, 2 * HOUR)


def taken(used_until: float, kind: Kind, rate: float, now: float, most: int = 20_000) -> tuple[int, float]:
    for count in range(most):
        until = granted(used_until, kind, rate, now)
        if until is None:
            return count, used_until
        used_until = until
    return most, used_until


@pytest.mark.parametrize("rate", [1, 2, 3, 7, 20, 100, 720, 3600, 10_000])
def test_a_whole_hour_is_free_at_first_and_comes_back_evenly(rate: int) -> None:
    """`rate` permits at once, then one each 3600 / rate seconds: none a moment earlier."""
    count, used_until = taken(0.0, Kind.FIRST, rate, START)
    assert count == rate
    for number in range(1, 4):
        at = START + number * HOUR / rate
        assert granted(used_until, Kind.FIRST, rate, at - min(0.01, 0.1 * HOUR / rate)) is None
        again, used_until = taken(used_until, Kind.FIRST, rate, at)
        assert again == 1
    assert taken(used_until, Kind.FIRST, rate, START + 5 * HOUR)[0] == rate, "no more than an hour is ever free"


def test_processes_with_different_rates_share_it() -> None:
    """One at 1 an hour uses the hour up; one at 720 an hour then waits 5 s, and one at 1 an hour an hour."""
    used_until = granted(0.0, Kind.FIRST, 1, START)
    assert used_until is not None
    assert wait(used_until, Kind.FIRST, 720, START) == pytest.approx(5.0, abs=0.01)
    assert wait(used_until, Kind.FIRST, 1, START) == pytest.approx(3600.0, abs=0.01)
    assert granted(used_until, Kind.FIRST, 720, START + 4.9) is None
    assert granted(used_until, Kind.FIRST, 720, START + 5.1) is not None


def test_additional_lanes_leave_half_of_the_hour() -> None:
    """`lanes=auto` takes fifty of a hundred, `lanes=n` all of them; a first one gets what lanes left."""
    count, used_until = taken(0.0, Kind.LANE, 100, START)
    assert count == 50
    assert taken(used_until, Kind.FIXED_LANE, 100, START)[0] == 50
    assert taken(used_until, Kind.FIRST, 100, START)[0] == 50
    assert wait(used_until, Kind.LANE, 100, START) == pytest.approx(0.0, abs=0.01)
    assert taken(0.0, Kind.LANE, 1, START)[0] == 1, "an unused hour is more than half of one"


def test_a_further_one_is_granted_into_debt_and_the_debt_ends() -> None:
    """At most an hour of it: two hours later the whole hour is free again."""
    used_until = 0.0
    for _ in range(1000):
        until = granted(used_until, Kind.FURTHER, 100, START)
        assert until is not None
        used_until = until
    assert wait(used_until, Kind.FURTHER, 100, START) == 0.0
    assert granted(used_until, Kind.FIRST, 100, START + HOUR) is None
    assert granted(used_until, Kind.FIRST, 100, START + HOUR + 37) is not None
    assert taken(used_until, Kind.FIRST, 100, START + 2 * HOUR + 1)[0] == 100


@given(LEVELS, KINDS, RATES, st.floats(0, 1e8))
def test_a_waiter_is_granted_when_told_and_no_earlier(level: float, kind: Kind, rate: int, now: float) -> None:
    """If nobody else takes one."""
    seconds = wait(now + level, kind, rate, now)
    assert granted(now + level, kind, rate, now + seconds) is not None
    assert (seconds == 0.0) == (granted(now + level, kind, rate, now) is not None)
    if seconds > 0.01:
        assert granted(now + level, kind, rate, now + seconds - 0.01) is None


@given(LEVELS, RATES, st.floats(0, 1e8))
def test_a_permit_that_is_always_granted_costs_as_much(level: float, rate: int, now: float) -> None:
    """Policies that only tell count like those that refuse, up to an hour of debt."""
    used_until = counted(now + level, rate, now)
    assert used_until <= now + HOUR + HOUR  # in this order, as it is summed: else rounding decides
    until = granted(now + level, Kind.FIRST, rate, now)
    assert until is None or until == used_until


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), KINDS),
        st.tuples(st.just("pass"), st.floats(0, 2 * HOUR)),
        st.tuples(st.just("back"), st.integers(0, 30)),
    ),
    max_size=60,
)


@given(STEPS, RATES)
def test_giving_back_never_frees_more_than_if_it_had_not_been_taken(steps: list[tuple[str, object]], rate: int) -> None:
    """What was given back is left out of a second history; that one never has less of the hour free."""
    now, used_until = START, 0.0
    held: list[tuple[float, float, float]] = []
    history: list[tuple[float, float, float]] = []
    for what, argument in steps:
        if what == "pass":
            assert isinstance(argument, float)
            now += argument
        elif what == "take":
            assert isinstance(argument, Kind)
            until = granted(used_until, argument, rate, now)
            if until is not None:
                permit = (now, max(used_until, now), until)
                used_until = until
                held.append(permit)
                history.append(permit)
        elif held:
            assert isinstance(argument, int)
            permit = held.pop(argument % len(held))
            used_until = given_back(used_until, permit[2] - permit[1], now - permit[0])
            history.remove(permit)
            without = 0.0
            for at, before, after in history:
                without = max(without, at) + (after - before)
            assert max(used_until, now) >= max(without, now) - 1e-6


def test_a_permit_that_is_given_back_at_once_costs_nothing() -> None:
    """And one that is given back later what came back by the clock meanwhile, not twice."""
    _, used_until = taken(0.0, Kind.FIRST, 20, START)
    last = used_until - HOUR / 20
    assert given_back(used_until, HOUR / 20, 0.0) == pytest.approx(last)
    first = granted(0.0, Kind.FIRST, 20, START)
    assert first is not None
    assert given_back(first, HOUR / 20, 60.0) == pytest.approx(START + 60)
    assert given_back(first, HOUR / 20, 500.0) == first


def test_a_permit_behind_one_that_went_back_is_in_its_place() -> None:
    """Of two the first goes back at once, so by the clock the second one comes back first: no third one is free."""
    _, used_until = taken(0.0, Kind.FIRST, 2, START)
    used_until = given_back(used_until, HOUR / 2, 0.0)
    later = START + HOUR / 2
    used_until = granted(used_until, Kind.FIRST, 2, later) or 0.0
    assert given_back(used_until, HOUR / 2, HOUR / 2) == used_until == later + HOUR / 2


def test_the_used_part_of_the_hour_in_permits() -> None:
    assert in_hour(0.0, 20, START) == 0
    assert in_hour(START + HOUR, 20, START) == 20
    assert in_hour(START + 181, 20, START) == 1


@pytest.mark.parametrize(("kind", "expected"), [(Kind.FIRST, 20), (Kind.FIXED_LANE, 20), (Kind.LANE, 10)])
def test_the_number_of_permits_in_a_row(kind: Kind, expected: int) -> None:
    """As many as would be granted one after the other, and no more than is asked for."""
    assert room(0.0, kind, 20, 1000.0, 100) == expected
    assert room(0.0, kind, 20, 1000.0, 3) == 3
    until: float | None = 0.0
    for left in range(expected, 0, -1):
        assert until is not None
        assert room(until, kind, 20, 1000.0, 100) == left
        until = granted(until, kind, 20, 1000.0)
    assert until is not None
    assert room(until, kind, 20, 1000.0, 100) == 0


# --- when a producer asks again for an ID ----------------------------------------------------------------------------


@given(wait=st.floats(0, 7200), rate=st.floats(1, 100_000), share=st.floats(0, 1))
def test_a_waiter_asks_when_a_permit_may_be_there_and_a_little_later(wait: float, rate: float, share: float) -> None:
    """Never sooner than that or than half a minute, and not much later than one more ID takes to come back."""
    again = ask_again_in(wait, rate, share)
    assert min(wait, LONGEST_WAIT) <= again <= min(wait, LONGEST_WAIT) + min(LONGEST_JITTER, 360.0 / rate)


def test_two_that_were_refused_together_ask_apart() -> None:
    assert ask_again_in(5.0, 720, 0.1) != ask_again_in(5.0, 720, 0.9)
