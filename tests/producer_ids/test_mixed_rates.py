"""How many IDs people are told of where processes with different rates share an hour, and where records were lost."""

from __future__ import annotations

import pytest

from safeproducer.producer_ids.guard import AUTO, OFF, Guard
from safeproducer.producer_ids.ledger_reader import read_ledgers
from safeproducer.producer_ids.permit_log import SLOTS
from tests.producer_ids.host import IDENTITY, Host, first

HIGH = 720


def told_by_doctor(rate: float) -> int:
    """What it says of the only ledger."""
    (found,) = read_ledgers(AUTO)
    return found.taken(rate)


@pytest.mark.parametrize("taken", [1, 3])
def test_a_permit_at_another_rate_is_one_permit(still: Host, taken: int) -> None:
    """It uses more of the hour, or leaves a debt, and is told as one by all."""
    for _ in range(taken):
        assert still.start().ask(first(1, enforce=False)).permit
    refused = still.start().ask(first(HIGH))
    assert (refused.permit, refused.in_hour, refused.by_site) == (None, taken, taken)
    assert told_by_doctor(HIGH) == taken


@pytest.mark.parametrize("place", [AUTO, OFF])
def test_an_hour_that_others_used_up_is_no_churn(still: Host, place: object) -> None:
    """One at 1 an hour, one at 720: the policy `warn` has nothing to tell."""
    guard = Guard(IDENTITY, place)  # type: ignore[arg-type]
    assert guard.ask(first(1)).permit
    second = guard.ask(first(HIGH, enforce=False))
    assert second.permit is not None
    assert not second.over_limit


def test_a_count_that_was_damaged_names_nobody(still: Host) -> None:
    """The hour counts as used up; it is not known who used it."""
    assert still.start().ask(first()).permit
    for file in still.files:
        file.write_bytes(b"x" * file.stat().st_size)
    refused = still.start().ask(first())
    assert (refused.permit, refused.in_hour, refused.by_site) == (None, 0, 0)
    assert told_by_doctor(20) == 0


@pytest.mark.parametrize("place", [AUTO, OFF])
def test_permits_that_the_ring_has_lost_are_told_by_the_hour(still: Host, place: object) -> None:
    """With a limit above its size: 301 taken, of which 256 have a record."""
    guard, rate = Guard(IDENTITY, place), SLOTS + 44  # type: ignore[arg-type]
    answers = [guard.ask(first(rate, enforce=False)) for _ in range(rate + 1)]
    assert [answer.over_limit for answer in answers[-2:]] == [False, True]
    assert answers[-1].in_hour == rate + 1
    if place == AUTO:
        assert told_by_doctor(rate) == rate + 1


def test_no_more_are_told_than_were_ever_counted(still: Host) -> None:
    """A full ring, and an hour with debt that 1 440 permits of this rate would fill."""
    for _ in range(SLOTS + 1):
        assert still.start().ask(first(1, enforce=False)).permit
    refused = still.start().ask(first(HIGH))
    assert (refused.permit, refused.in_hour) == (None, SLOTS + 1)
    assert told_by_doctor(HIGH) == SLOTS + 1
