"""Purged records: which of them were never sent, whatever the order they are reported in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy.outcome import Purged, never_sent

UNKNOWN = float("inf")


def exactly(*times: float, queued: bool = True) -> list[Purged]:
    return [Purged(queued, time, time) for time in times]


def test_as_many_queued_as_were_never_sent_are_those() -> None:
    """The newest come first, then those in flight, then what the broker's thread had taken over."""
    records = [*exactly(5, 6), *exactly(1, 2, queued=False), *exactly(3, 4)]
    assert never_sent(records, 4) == [True, True, False, False, True, True]


def test_after_a_retry_only_the_newest_are_proven() -> None:
    """The count is smaller than it is true, and the oldest of those in the queue wait for their second attempt."""
    assert never_sent([*exactly(5, 6), *exactly(1, 2, 3, 4)], 3) == [True, True, False, False, False, True]


def test_records_whose_order_is_not_known_are_not_proven() -> None:
    """Two that may have been given to librdkafka in either order, and one of which nothing is known."""
    overlapping = [*exactly(1), Purged(True, 1.5, 3.0), Purged(True, 2.0, 2.5)]
    assert never_sent(overlapping, 1) == [False, False, False]
    assert never_sent([*exactly(1, 3), Purged(True, -UNKNOWN, UNKNOWN)], 1) == [False, False, False]
    assert never_sent(exactly(1, 2, 2), 1) == [False, False, False]


def test_a_count_that_cannot_be_proves_nothing() -> None:
    """What was in flight was sent, so no more can be unsent than were queued."""
    assert never_sent([*exactly(1, queued=False), *exactly(2)], 2) == [False, False]
    assert never_sent(exactly(1, 2), -1) == [False, False]


@given(
    given_at=st.lists(st.integers(0, 20), min_size=1, max_size=12).map(sorted),
    data=st.data(),
)
def test_no_record_that_was_sent_is_ever_proven(given_at: list[int], data: st.DataObject) -> None:
    """For any order of the reports, any doubt about times and any count that is too small."""
    sent = data.draw(st.integers(0, len(given_at)))
    in_flight = data.draw(st.integers(0, sent))
    rows = [
        (
            number < sent,
            Purged(
                number >= in_flight,
                now - data.draw(st.integers(0, 3)),
                now + data.draw(st.integers(0, 3)),
            ),
        )
        for number, now in enumerate(given_at)
    ]
    rows = data.draw(st.permutations(rows))
    proven = never_sent([row for _, row in rows], data.draw(st.integers(-1, len(given_at) - sent)))
    assert not any(proof and was_sent for proof, (was_sent, _) in zip(proven, rows, strict=True))
