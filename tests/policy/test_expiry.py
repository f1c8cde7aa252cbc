"""For how long leaders remember a producer ID (KIP-854), and the static rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy import expiry
from safeproducer.policy.expiry import (
    BACKSTOP_MARGIN,
    DAY,
    LONGEST_TIMEOUT,
    PRODUCER_ID_CONFIG,
    TRANSACTIONAL_ID_CONFIG,
    Horizon,
    backstop,
    rest,
)

horizons = st.floats(0.001, 10 * DAY)
timeouts = st.integers(1, 1_000_000_000).map(lambda ms: ms / 1000)


def test_the_defaults_of_librdkafka_and_kafka_are_safe() -> None:
    """Five minutes and a minute for a request, beside a day."""
    assert expiry.longest(300, 60) == 430
    assert expiry.unsafe(300, 60, DAY) is None


def test_the_rule_is_strict() -> None:
    """At equality a retry may come in the moment in which the leader forgets."""
    assert expiry.unsafe(300, 60, 440.001) is None
    assert expiry.unsafe(300, 60, 440) is not None


@given(st.floats(0.001, DAY), horizons)
def test_without_a_limit_it_is_never_safe(socket: float, horizon: float) -> None:
    found = expiry.unsafe(None, socket, horizon)
    assert found.longest is None
    assert "for ever" in found.sentence
    assert "Give message.timeout.ms a limit" in found.cure


@given(timeouts, timeouts, horizons)
def test_either_cure_cures(timeout: float, socket: float, horizon: float) -> None:
    """By one millisecond more or less than what it names; and nothing less does."""
    found = expiry.unsafe(timeout, socket, horizon)
    if found is None:
        return
    assert found.least_expiration_ms is not None
    assert expiry.unsafe(timeout, socket, (found.least_expiration_ms + 1) / 1000) is None
    assert found.least_expiration_ms / 1000 > horizon - 0.01
    if found.most_timeout_ms is not None:
        assert expiry.unsafe((found.most_timeout_ms - 1) / 1000, 0, horizon) is None
        assert expiry.unsafe((found.most_timeout_ms + 2) / 1000, 0, horizon) is not None


def test_the_warning_has_all_numbers_and_both_cures() -> None:
    """A broker of ten minutes, records of fifteen."""
    found = expiry.unsafe(900, 60, 600)
    assert found is not None
    for number in ("1030 s", "900 s", "60 s", "10 s", "600 s"):
        assert number in found.sentence
    assert "producer.id.expiration.ms on every broker to more than 1040000" in found.cure
    assert "message.timeout.ms + 2 x socket.timeout.ms is below 580000" in found.cure


def test_a_horizon_too_short_for_any_time_out_has_one_cure() -> None:
    """Ten seconds are spent by the backstop alone."""
    found = expiry.unsafe(300, 60, 10)
    assert found.most_timeout_ms is None
    assert "no message.timeout.ms is short enough" in found.cure


@given(horizons)
def test_the_margin_is_never_the_whole_horizon(seconds: float) -> None:
    assert 0 < expiry.margin(seconds) <= min(10, seconds / 4)
    found = expiry.given(seconds, "safeproducer.expiry.ms")
    assert found.limit == max(2.0, seconds - found.margin)
    if seconds > 3:
        assert found.limit < seconds


def answers(*seconds: float | None) -> list[expiry.Told]:
    """Of brokers 1, 2 ... that remember a producer ID for so long."""
    return [
        expiry.unreadable(node, "CLUSTER_AUTHORIZATION_FAILED")
        if value is None
        else expiry.told(node, {PRODUCER_ID_CONFIG: f"{value * 1000:.0f}"})
        for node, value in enumerate(seconds, 1)
    ]


def test_the_smallest_leader_counts() -> None:
    found = expiry.horizon(answers(300, 20, 7200))
    assert (found.seconds, found.said) == (20, "producer.id.expiration.ms of broker 2 is 20000")
    assert not found.unreadable


def test_a_broker_that_does_not_tell_has_the_default() -> None:
    """It is named; a broker that tells no longer time counts beside it."""
    found = expiry.horizon(answers(2 * DAY, None))
    assert (found.seconds, found.unreadable) == (DAY, {2: "CLUSTER_AUTHORIZATION_FAILED"})
    assert found.said == "a day, Kafka's default, is assumed"
    assert "of broker 1" in expiry.horizon(answers(DAY, None)).said
    found = expiry.horizon(answers(20, None))
    assert (found.seconds, found.said) == (20, "producer.id.expiration.ms of broker 1 is 20000")
    assert found.unreadable
    assert expiry.horizon([]).seconds == DAY
    assert expiry.horizon([], transactional=True).seconds == 7 * DAY


def test_before_kafka_3_4_transactional_ids_tell() -> None:
    """The missing config's forerunner, which is of seven days."""
    old = expiry.told(1, {TRANSACTIONAL_ID_CONFIG: "604800000"})
    assert (old.producer_id, old.config) == (7 * DAY, TRANSACTIONAL_ID_CONFIG)
    assert TRANSACTIONAL_ID_CONFIG in expiry.horizon([old]).said
    new = expiry.told(1, {TRANSACTIONAL_ID_CONFIG: "604800000", PRODUCER_ID_CONFIG: "86400000"})
    assert expiry.horizon([new]).seconds == DAY
    assert expiry.horizon([new], transactional=True).seconds == 7 * DAY


@pytest.mark.parametrize("value", [None, "", "0", "-1", "a day", "1.5"])
def test_a_value_that_is_no_number_is_not_read(value: str | None) -> None:
    """A sensitive entry has no value."""
    found = expiry.told(1, {PRODUCER_ID_CONFIG: value})
    assert found.producer_id is None
    assert PRODUCER_ID_CONFIG in found.reason


@given(st.floats(0, 1000), st.floats(0, 1000), st.floats(2, 1000))
def test_a_retry_ends_before_the_leader_forgets_the_first_attempt(handed: float, waited: float, limit: float) -> None:
    """Counted from the record timestamp; what had waited for most of it gets one short attempt."""
    stamped = handed - waited
    at = expiry.purge_at(handed, stamped, limit)
    assert at >= handed + min(2.0, limit)
    if waited < limit / 2 - 2:
        assert at == stamped + limit
    assert at <= handed + max(2.0, limit)


def test_timestamps_are_too_old_beyond_what_clocks_may_differ() -> None:
    """A day old is not older than a day."""
    assert not expiry.is_too_old(DAY + 1, DAY)
    assert expiry.is_too_old(DAY + 11, DAY)
    assert expiry.is_too_old(DAY, 10)


@pytest.mark.parametrize(("seconds", "least"), [(None, 30.0), (86_400.0, 30.0), (40.0, 15.0), (1.0, 1.0)])
def test_a_rest_is_half_of_what_leaders_remember(seconds: float | None, least: float) -> None:
    """No burst pays for a leader that forgets within a day; who has not told is taken to remember for a minute."""
    known = None if seconds is None else Horizon(seconds, "", {})
    assert rest(known) == least


# --- the backstop behind a deadline ----------------------------------------------------------------------------------

delivery_timeouts = st.floats(0.001, LONGEST_TIMEOUT)


@given(delivery_timeouts, st.floats(0.01, 300))
def test_the_backstop_lies_behind_every_retry_of_a_lost_acknowledgement(delivery: float, socket: float) -> None:
    """By two socket time-outs and a margin, as far as librdkafka allows."""
    found = backstop(delivery, socket)
    assert found == min(delivery + 2 * socket + BACKSTOP_MARGIN, LONGEST_TIMEOUT)
    assert round(found * 1000) <= 2_147_483_647


def test_no_limit_stays_no_limit() -> None:
    assert backstop(0, 60) == 0
    assert backstop(120, 60) == 250.0
