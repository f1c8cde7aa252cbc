"""Outcomes: not written only when it is proven."""

from __future__ import annotations

import pytest
from confluent_kafka.cimpl import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy.outcome import REJECTIONS, SHORTEST_BACKOFF, Outcome, outcome_of

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
    """Whatever the code says."""
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
    """However soon the report came."""
    assert outcome_of(code, elapsed=0.0, retry_backoff=100.0) is Outcome.UNKNOWN


@given(codes.filter(lambda code: code not in REJECTIONS), times, st.floats(0.001, 300))
def test_codes_that_are_not_listed_are_unknown(code: str, elapsed: float | None, backoff: float) -> None:
    """A code that a later version brings is unknown, too."""
    assert outcome_of(code, elapsed=elapsed, retry_backoff=backoff) is Outcome.UNKNOWN
