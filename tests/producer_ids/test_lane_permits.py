"""What a producer asks for its batch lanes, and when."""

from collections.abc import Iterator
from unittest import mock

import pytest

from safeproducer.policy.permits import Kind
from safeproducer.producer_ids.guard import Claim, Guard
from safeproducer.producer_ids.lane_permits import GRANTED, PAUSE, LanePermit, LanePermits
from safeproducer.producer_ids.permit import Answer
from tests.permit_count import Permits, permits_counted
from tests.producer_ids.host import SITE, Clock

RATE = 20
HALF = 10


@pytest.fixture
def guard(time: Clock) -> Guard:
    return Guard()


@pytest.fixture
def counted() -> Iterator[Permits]:
    with permits_counted() as found:
        yield found


def permits(guard: Guard | None, enforce: bool = True, fixed: bool = False) -> LanePermits:
    return LanePermits(guard, Claim(Kind.FIXED_LANE if fixed else Kind.LANE, RATE, enforce, SITE))


def made(of: LanePermits, most: int, needed: bool = False) -> list[LanePermit]:
    found: list[LanePermit] = []
    while len(found) < most and (kind := of.kind(needed)) is not None:
        found.append(of.of_lane(kind))
    return found


def test_a_lane_asks_at_its_first_batch_and_once(guard: Guard, counted: Permits) -> None:
    """To make it takes none; the producer knows how many it has used."""
    of = permits(guard)
    (lane,) = made(of, 1)
    assert (counted.held, of.used, lane.asked) == ({}, 0, False)
    with mock.patch.object(guard, "ask", wraps=guard.ask) as ask:
        assert lane.may_send()
        assert lane.asked
        assert lane.may_send()
    assert ([call.args[0].kind for call in ask.mock_calls], of.used) == ([Kind.LANE], 1)


def test_without_idempotence_there_is_nothing_to_ask() -> None:
    of = permits(None)
    lanes = made(of, 30)
    assert len(lanes) == 30
    assert all(lane.may_send() for lane in lanes)
    assert of.used == 0


@pytest.mark.parametrize(("fixed", "most"), [(False, HALF), (True, RATE)], ids=["auto", "a number"])
def test_no_more_lanes_are_made_than_the_guard_has_to_spare(
    guard: Guard, counted: Permits, fixed: bool, most: int
) -> None:
    """Those that were made and have not sent yet count: they may all send at once. And all of them may."""
    of = permits(guard, fixed=fixed)
    lanes = made(of, 30)
    assert len(lanes) == most
    assert of.refused
    assert all(lane.may_send() for lane in lanes)
    assert of.used == counted.held.total() == most


def test_without_a_limit_that_holds_lanes_are_only_counted(guard: Guard, counted: Permits) -> None:
    """`warn` and `off`: as many as are of use, and the guard knows of each."""
    of = permits(guard, enforce=False)
    assert all(lane.may_send() for lane in made(of, 30))
    assert counted.held.total() == of.used == 30
    assert not of.refused


def test_a_lane_that_records_need_is_granted_and_counted(guard: Guard, counted: Permits) -> None:
    """The first batch lane, and the replacement of one that failed: beyond the limit, too."""
    of = permits(guard, fixed=True)
    lanes = made(of, RATE)
    assert all(lane.may_send() for lane in lanes)
    assert of.kind(needed=False) is None
    assert of.kind(needed=True) is Kind.FURTHER
    of.ended(lanes[3], wrote=True, failed=True)
    (replacement,) = made(of, 5)
    assert replacement.kind is Kind.FURTHER
    assert replacement.may_send()
    assert counted.held.total() == of.used == RATE + 1
    assert of.kind(needed=False) is None, "one for one"


def test_a_lane_is_denied_if_another_process_was_faster(guard: Guard) -> None:
    """It must not send, and is no use any more."""
    of = permits(guard)
    lanes = made(of, 5)
    others = [guard.ask(Claim(Kind.FIRST, RATE, True, SITE)) for _ in range(HALF - 2)]
    assert all(answer.permit for answer in others)
    assert [lane.may_send() for lane in lanes] == [True, True, False, False, False]
    assert [lane.denied for lane in lanes] == [False, False, True, True, True]
    assert of.used == 2
    assert of._lanes == set(lanes[:2]), "nobody ends a renewal that was denied"


def test_the_guard_is_not_asked_again_and_again(guard: Guard, time: Clock) -> None:
    """A round costs 0.1 ms, and batches come faster. When there is room, more lanes are made."""
    of = permits(guard, fixed=True)
    assert all(lane.may_send() for lane in made(of, 30))
    with mock.patch.object(guard, "room", wraps=guard.room) as room:
        for _ in range(1000):
            assert of.kind(needed=False) is None
        assert not room.called
        assert of.paused
        time.now += PAUSE
        assert not of.paused
        assert of.refused, "until there is an answer"
        assert of.kind(needed=False) is None
        assert room.call_count == 1
    time.now += 3600 / RATE + 1
    assert len(made(of, 5)) == 1


def test_a_lane_that_never_sent_costs_nothing(guard: Guard, counted: Permits) -> None:
    """Nor one that got its permit, but not a single batch."""
    of = permits(guard)
    idle, empty, used = made(of, 3)
    assert empty.may_send()
    assert used.may_send()
    of.ended(idle, wrote=False, failed=False)
    of.ended(empty, wrote=False, failed=False)
    of.ended(used, wrote=True, failed=False)
    assert counted.held.total() == of.used == 1
    assert len(made(of, 30)) == HALF - 1


def test_one_that_somebody_else_asked_for_is_not_counted(guard: Guard, counted: Permits) -> None:
    of = permits(guard)
    assert GRANTED.asked, "its ID is in use, so it is given up as seldom as others"
    assert GRANTED.may_send()
    of.ended(GRANTED, wrote=True, failed=False)
    assert counted.held == {}


def test_a_lane_over_the_limit_is_told_of(guard: Guard) -> None:
    """With whatever policy: the answer goes to who tells."""
    told: list[Answer] = []
    of = LanePermits(guard, Claim(Kind.LANE, RATE, False, SITE), told.append)
    assert all(lane.may_send() for lane in made(of, RATE + 2))
    assert [answer.in_hour for answer in told] == [RATE + 1, RATE + 2]


@pytest.mark.parametrize("unsent", [True, False])
def test_the_end_of_the_producer_is_that_of_its_lanes(guard: Guard, counted: Permits, unsent: bool) -> None:
    """Told once. What certainly sent nothing is given back."""
    of = permits(guard)
    sent, _, gone = made(of, 3)
    assert sent.may_send()
    assert gone.may_send()
    with mock.patch.object(guard, "note") as note:
        of.ended(gone, wrote=True, failed=True)
        of.end("exit", unsent)
        of.end("closed", unsent)
    assert [call.args[2] for call in note.mock_calls] == ["failed", "exit"]
    assert counted.held.total() == of.used == 2 - unsent
