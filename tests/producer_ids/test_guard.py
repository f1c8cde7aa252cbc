"""What a producer asks the guard, and what it is told: with a ledger and without."""

import os
from functools import partial

import pytest

from safeproducer.producer_ids import permit_record
from safeproducer.producer_ids.guard import AUTO, OFF, Claim, Guard, Kind, guard_of
from safeproducer.records import CallSite
from tests.producer_ids import host
from tests.producer_ids.host import IDENTITY, SITE, Host

OTHER = CallSite("/srv" * 100 + "/app.py", 9, "other" * 20)
"""Its line is known again though the name is long."""


@pytest.fixture(params=[OFF, AUTO])
def guard(still: Host, request: pytest.FixtureRequest) -> Guard:
    return Guard(IDENTITY, request.param)


first = partial(host.first, 3)


def test_beyond_the_rate_it_refuses_and_says_for_how_long(guard: Guard, still: Host) -> None:
    """The line is told once as new."""
    assert all(guard.ask(first()).permit for _ in range(3))
    refused = guard.ask(first())
    assert refused.permit is None
    assert refused.retry_after == pytest.approx(1200, abs=0.1)
    assert (refused.over_limit, refused.in_hour, refused.by_site, refused.told_before) == (True, 3, 3, False)
    assert guard.ask(first()).told_before
    assert not guard.ask(first(site=OTHER)).told_before
    still.pass_time(1201)
    assert guard.ask(first()).permit, "waiting reserved nothing, and asking used nothing"


def test_a_policy_that_only_tells_counts_and_grants(guard: Guard) -> None:
    """Over the limit from the first one beyond the rate on, whose line gets its own share."""
    assert not any(guard.ask(first(enforce=False)).over_limit for _ in range(3))
    beyond = guard.ask(first(enforce=False, site=OTHER))
    assert beyond.permit is not None
    assert (beyond.over_limit, beyond.in_hour, beyond.by_site) == (True, 4, 1)
    assert guard.ask(first()).permit is None, "one that refuses shares the count"


def test_an_orphan_has_another_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    before = permit_record.this()
    assert before[:2] == (os.getpid(), os.getppid())
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert permit_record.this() == before._replace(parent=1)


def test_the_hour_counts_even_at_a_slow_pace(guard: Guard, still: Host) -> None:
    """One each 1000 s with 3 an hour: the fourth within the hour is over the limit, though there is room for it."""
    for _ in range(3):
        assert not guard.ask(first()).over_limit
        still.pass_time(1000)
    fourth = guard.ask(first())
    assert fourth.permit is not None
    assert fourth.over_limit
    still.pass_time(3600)
    assert not guard.ask(first()).over_limit


def test_a_known_transactional_id_is_not_counted_again(guard: Guard) -> None:
    """A fixed one may come back as often as it likes; one for each start is churn."""
    known = guard.ask(first(transactional="orders")).permit
    assert known.after > known.before
    for _ in range(10):
        again = guard.ask(first(transactional="orders"))
        assert again.permit.after == again.permit.before
        assert not again.over_limit
    assert guard.ask(first(transactional="a")).permit
    assert guard.ask(first(transactional="b")).permit
    assert guard.ask(first(transactional="c")).permit is None
    assert guard.ask(first(transactional="c")).permit is None, "what was refused is not known"


def test_a_transactional_id_whose_permit_goes_back_is_not_known(guard: Guard) -> None:
    """Its producer sent nothing; the next one that does is to be counted."""
    unused = guard.ask(first(transactional="orders")).permit
    assert unused is not None
    guard.give_back(unused)
    for counted in (True, False):
        permit = guard.ask(first(transactional="orders")).permit
        assert (permit.after > permit.before) is counted
        if not counted:
            guard.give_back(permit)
    again = guard.ask(first(transactional="orders")).permit
    assert again.after == again.before, "what was not counted is not given back"


@pytest.mark.parametrize("kind", [Kind.LANE, Kind.FIXED_LANE])
def test_the_refusal_of_a_lane_leaves_its_line_to_be_told_of(guard: Guard, kind: Kind) -> None:
    """It is no churn, and nobody is told of it."""
    assert all(guard.ask(first()).permit for _ in range(3))
    lane = guard.ask(Claim(kind, 3, True, SITE))
    assert (lane.permit, lane.told_before) == (None, False)
    assert not guard.ask(first()).told_before
    assert guard.ask(first()).told_before


def test_a_permit_that_is_given_back_is_free_and_not_told(guard: Guard) -> None:
    """A producer that sent nothing, because brokers were away."""
    for _ in range(20):
        answer = guard.ask(first())
        assert answer.permit is not None
        assert not answer.over_limit
        guard.give_back(answer.permit)


def test_each_identity_and_place_has_one_guard() -> None:
    assert guard_of(("a", "b"), OFF) is guard_of(("a", "b"), OFF)
    assert guard_of(("a", "b"), OFF) is not guard_of(("a", "c"), OFF)
