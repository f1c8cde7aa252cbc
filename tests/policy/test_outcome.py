"""Outcomes: not written only when it is proven."""

import pytest
from confluent_kafka.cimpl import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy.outcome import REJECTIONS, SHORTEST_BACKOFF, Outcome, Purged, never_sent, outcome_of

CODE_NAMES = sorted(
    {KafkaError(value).name() for name, value in vars(KafkaError).items() if name.isupper() and type(value) is int}
)
AMBIGUOUS = [
    "TOPIC_AUTHORIZATION_FAILED",  # given by metadata, too, to records that wait for a retry
    "_UNKNOWN_TOPIC",
    "_UNKNOWN_PARTITION",
    "_MSG_TIMED_OUT",
    "_PURGE_QUEUE",
    "_PURGE_INFLIGHT",
    "_TRANSPORT",
    "_TIMED_OUT",
    "REQUEST_TIMED_OUT",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "UNKNOWN_PRODUCER_ID",
    "INVALID_PRODUCER_EPOCH",
    "_FENCED",
    "_INCONSISTENT",
    "_GAPLESS_GUARANTEE",
    "_FATAL",
    "_BAD_MSG",
]
codes = st.sampled_from(CODE_NAMES) | st.text(max_size=10)
times = st.none() | st.floats(-1, 1000)


def test_every_code_exists() -> None:
    """A misspelt name would never match."""
    assert set(CODE_NAMES) >= REJECTIONS | set(AMBIGUOUS)


@given(codes, times, st.floats(0.001, 300))
def test_a_record_that_was_in_no_request_is_not_written(code: str, elapsed: float | None, backoff: float) -> None:
    found = outcome_of(code, elapsed=elapsed, retry_backoff=backoff, transmitted=False)
    assert found is Outcome.NOT_WRITTEN


@pytest.mark.parametrize("code", sorted(REJECTIONS))
def test_a_refusal_is_believed_only_before_a_second_attempt_is_possible(code: str) -> None:
    """The limit is 0.8 of the back-off, and no time is no proof."""
    expected = {
        0.0: Outcome.NOT_WRITTEN,
        0.0799: Outcome.NOT_WRITTEN,
        SHORTEST_BACKOFF * 0.1: Outcome.UNKNOWN,
        0.1: Outcome.UNKNOWN,
        7.0: Outcome.UNKNOWN,
        -0.000001: Outcome.UNKNOWN,  # what Message.latency() says when it does not know
        float("nan"): Outcome.UNKNOWN,
        None: Outcome.UNKNOWN,
    }
    found = {elapsed: outcome_of(code, elapsed=elapsed, retry_backoff=0.1) for elapsed in expected}
    assert found == expected


@pytest.mark.parametrize("code", AMBIGUOUS)
def test_ambiguous_codes_prove_nothing(code: str) -> None:
    assert outcome_of(code, elapsed=0.0, retry_backoff=100.0) is Outcome.UNKNOWN


@given(codes.filter(lambda code: code not in REJECTIONS), times, st.floats(0.001, 300))
def test_codes_that_are_not_listed_are_unknown(code: str, elapsed: float | None, backoff: float) -> None:
    assert outcome_of(code, elapsed=elapsed, retry_backoff=backoff) is Outcome.UNKNOWN


# --- purged records: which of them were never sent, whatever the order they are reported in --------------------------

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


@given(given_at=st.lists(st.integers(0, 20), min_size=1, max_size=12).map(sorted), data=st.data())
def test_no_record_that_was_sent_is_ever_proven(given_at: list[int], data: st.DataObject) -> None:
    """For any order of the reports, any doubt about times and any count that is too small."""
    sent = data.draw(st.integers(0, len(given_at)))
    in_flight = data.draw(st.integers(0, sent))
    rows = [
        (
            number < sent,
            Purged(number >= in_flight, now - data.draw(st.integers(0, 3)), now + data.draw(st.integers(0, 3))),
        )
        for number, now in enumerate(given_at)
    ]
    rows = data.draw(st.permutations(rows))
    proven = never_sent([row for _, row in rows], data.draw(st.integers(-1, len(given_at) - sent)))
    assert not any(proof and was_sent for proof, (was_sent, _) in zip(proven, rows, strict=True))
