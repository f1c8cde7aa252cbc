"""How soon another native producer may follow one that failed, and when epochs are used up."""

import pytest

from safeproducer.policy.renewals import (
    FENCED,
    LATEST,
    LONGEST,
    SHORTEST,
    Epochs,
    Identity,
    Renewals,
    Session,
    taken_over,
)

RATE = 20


def made_until(end: float, delivered_between: bool) -> list[float]:
    """When each was made, by who makes it as soon as it may."""
    renewals, now, made, delivered = Renewals(RATE), 100.0, [], 0
    while now < 100.0 + end:
        due = renewals.due(now, delivered)
        if due > now:
            now = due
            continue
        renewals.made(now, delivered)
        delivered += delivered_between
        made.append(now - 100.0)
    return made


def test_the_pause_doubles_until_a_record_is_acknowledged() -> None:
    """The first one comes at once."""
    assert made_until(15, delivered_between=False) == pytest.approx([0, 0.1, 0.3, 0.7, 1.5])
    assert made_until(15, delivered_between=True) == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])


def test_the_pause_never_gets_longer_than_five_seconds() -> None:
    renewals, now = Renewals(10_000), 0.0
    for _ in range(12):
        now = renewals.due(now, 0)
        renewals.made(now, 0)
    assert renewals.due(now, 0) == now + LONGEST
    assert renewals.due(now, 1) == now + SHORTEST


def test_a_quarter_of_the_hour_is_there_at_first_and_comes_back_evenly() -> None:
    """5 of 20 an hour, then one every 720 s."""
    made = made_until(3600, delivered_between=True)
    assert len(made) == 9
    assert made[5:] == pytest.approx([720.0, 1440.0, 2160.0, 2880.0], abs=1)


def test_the_lowest_rate_has_one() -> None:
    renewals = Renewals(1)
    assert renewals.due(5.0, 0) == 5.0
    renewals.made(5.0, 0)
    assert renewals.due(6.0, 1) == 5.0 + 4 * 3600


def test_a_topic_waits_alone_from_the_third_in_a_row_on() -> None:
    """Others get theirs at once; its own deliveries alone end that."""
    renewals, now, waits = Renewals(RATE), 100.0, []
    for _ in range(5):
        now = renewals.due(now, 7, "sick")
        waits.append(round(renewals.made(now, 7, "sick") - now, 1))
        assert renewals.due(now, 7, "other") <= max(now + SHORTEST, 100.0 + 4 * 3600)
    assert waits == [0, 0, 0.4, 0.8, 1.6]
    assert Renewals(RATE).made(0.0, 7, None) == 0, "the topic is not known"
    assert renewals.made(now, 8, "sick") == now, "a record of it was delivered"


def test_a_topic_waits_as_long_as_another_producer_id_needs() -> None:
    """It uses up no others: a healthy topic beside it would wait for them."""
    renewals, now = Renewals(100), 0.0
    for _ in range(200):
        due = renewals.due(now, 0, "sick")
        assert due - now <= SHORTEST or now < 1.0, "the rate was not used up"
        now = renewals.made(due, 0, "sick")
    assert now > 180 * 144


@pytest.mark.parametrize(
    ("seen", "used_up"),
    [
        ([0, 1, 2], False),
        ([None, 5, 5], False),
        ([0, LATEST - 1], False),
        ([0, LATEST], True),
        ([LATEST + 9, LATEST + 9], False),
        ([LATEST + 9, LATEST + 10], True),
        ([32_767, 0], True),
        ([7, 6], True),
    ],
)
def test_epochs_are_used_up_before_they_end(seen: list[int | None], used_up: bool) -> None:
    """One that begins so late has no better one to hope for."""
    epochs = Epochs()
    assert [epochs.used_up(epoch) for epoch in seen][-1] is used_up


def test_three_refused_batches_in_a_row_are_no_accident() -> None:
    epochs = Epochs()
    found = [epochs.fenced(refused) for refused in [True, True, False, True, True, True]]
    assert found == [False] * 5 + [True]


def test_counts_tell_the_same_of_a_lane_whose_batches_are_not_known() -> None:
    """So many requests, no acknowledgement, and records that were refused."""
    epochs = Epochs()
    assert not epochs.only_fenced(10, 100, 0)
    assert not epochs.only_fenced(10 + FENCED, 150, 5), "some were acknowledged"
    assert not epochs.only_fenced(10 + FENCED + 1, 150, 9), "one request tells too little"
    assert epochs.only_fenced(10 + 2 * FENCED, 150, 9)
    assert not epochs.only_fenced(99, 150, 9), "none was refused"


def test_a_session_is_doubted_for_what_a_transaction_lost() -> None:
    """Not for what was lost before it began, and for good once it was."""
    session = Session()
    session.begin(lost=3, unknown=1)
    session.end(lost=3, unknown=1)
    assert not session.doubt
    session.begin(lost=5, unknown=1)
    session.end(lost=5, unknown=1)
    assert not session.doubt, "the connections were idle"
    session.begin(lost=5, unknown=1)
    session.end(lost=6, unknown=1)
    assert "lost" in session.doubt
    session.begin(lost=6, unknown=1)
    session.end(lost=6, unknown=1)
    assert session.doubt


def test_a_session_is_doubted_for_records_of_unknown_outcome() -> None:
    session = Session()
    session.begin(lost=0, unknown=0)
    session.end(lost=0, unknown=2)
    assert "unknown outcome" in session.doubt


def test_a_call_without_an_answer_is_remembered_until_another_one_ends_the_transaction() -> None:
    """Offsets are no end. A commit that an abort follows is still the open question."""
    session = Session()
    session.give_up("send_offsets_to_transaction")
    assert (session.doubt, session.left) == ("send_offsets_to_transaction() has no answer", "")
    session.give_up("commit_transaction")
    session.give_up("abort_transaction")
    assert session.left == "commit_transaction"
    session.end(lost=0, unknown=0)
    assert not session.left
    assert session.doubt


@pytest.mark.parametrize(
    ("after", "ended", "lost", "other"),
    [
        (Identity(1, 6), True, 0, False),
        (Identity(1, 7), True, 0, True),  # the other one registered, and then this one
        (Identity(1, 7), False, 0, False),  # the coordinator aborted what was open
        (Identity(1, 8), False, 0, True),
        (Identity(1, 8), True, 2, False),  # two registrations of this one had no answer
        (Identity(2, 0), True, 0, False),  # its epochs were used up, or it was forgotten
        (Identity(2, 1), True, 0, True),
        (None, True, 0, False),
    ],
)
def test_epochs_tell_whether_another_one_was_there(after: Identity | None, ended: bool, lost: int, other: bool) -> None:
    assert taken_over(Identity(1, 5), after, ended, lost) is other
    assert not taken_over(None, after, ended, lost)
