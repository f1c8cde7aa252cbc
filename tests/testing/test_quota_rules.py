"""Kafka's quota arithmetic: rates over windows, delays, token buckets, and which limit applies."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.testing.fake.rules.quotas import (
    ClientQuotas,
    QuotaLimits,
    QuotaRefusedError,
    SampledRate,
    TokenBucket,
    round_half_up,
)

START = 1_700_000_000_000
BYTES = "producer_byte_rate"
STEPS = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 5000)), min_size=1, max_size=60)


def test_a_spike_is_throttled_as_kafkas_own_test_says() -> None:
    """10 s of 400 B/s and a spike of 2300 B make 600 B/s over 10.5 s; the quota of 500 B/s is kept 2100 ms later."""
    rate, now = SampledRate(11, 1000), START
    for _ in range(10):
        rate.record(400, now)
        assert rate.delay_ms(500, now) == 0
        now += 1000
    now += 500
    rate.record(2300, now)
    assert rate.per_second(now) == pytest.approx(600)
    assert rate.delay_ms(500, now) == 2100
    assert rate.delay_ms(500, now, most=1000) == 1000


def test_equal_to_the_quota_is_no_violation() -> None:
    """The largest burst that is never throttled is quota x (samples - 1) x window, the border included."""
    rate = SampledRate(11, 1000)
    rate.record(10_000, START)
    assert rate.delay_ms(1000, START) == 0
    rate.record(1, START)
    assert rate.delay_ms(1000, START) == 1


def test_a_window_begins_with_its_first_recording_and_goes_when_its_newest_is_too_old() -> None:
    """Windows are on no grid; one is forgotten `samples` windows after its newest recording, not after its start."""
    rate = SampledRate(2, 1000)
    rate.record(100, START)
    rate.record(100, START + 999)
    assert rate.window_ms(START + 2998) == 2998
    assert rate.per_second(START + 2998) == pytest.approx(200 / 2.998)
    assert rate.per_second(START + 2999) == 0


def test_one_window_more_than_samples_may_count() -> None:
    """The oldest window may have begun before the measured time and still hold a recording within it."""
    rate = SampledRate(2, 1000)
    for later in (0, 999, 1000, 2000):
        rate.record(100, START + later)
    assert (rate.window_ms(START + 2000), rate.per_second(START + 2000)) == (2000, 200)


@given(STEPS)
def test_the_rate_agrees_with_a_list_of_recordings(steps: list[tuple[int, int]]) -> None:
    """Against windows kept in a plain list: same sum, same time it is divided by, whatever the gaps."""
    samples, size, now = 5, 1000, START
    rate, kept = SampledRate(samples, size), list[list[int]]()  # start, newest, total
    for gap, value in steps:
        now += gap
        if not kept or now - kept[-1][0] >= size:
            kept.append([now, now, 0])
        kept[-1][1], kept[-1][2] = now, kept[-1][2] + value
        rate.record(value, now)
        kept = [window for window in kept[-samples - 1 :] if now - window[1] < samples * size]
        elapsed = now - kept[0][0]
        window = max(elapsed, elapsed % size + (samples - 1) * size, 1)
        assert rate.window_ms(now) == window
        assert rate.per_second(now) == pytest.approx(sum(total for _, _, total in kept) / window * 1000)


@given(STEPS, st.integers(1, 5000))
def test_after_the_delay_the_same_sum_would_be_no_violation(steps: list[tuple[int, int]], quota: int) -> None:
    """The delay is the least whole number of ms, within rounding, by which the measured time has to grow."""
    rate, now = SampledRate(11, 1000), START
    for gap, value in steps:
        now += gap
        rate.record(value, now)
    delay = rate.delay_ms(quota, now)
    total = rate.per_second(now) * rate.window_ms(now) / 1000
    assert (delay > 0) >= (total > quota * (rate.window_ms(now) + 0.5) / 1000 + 1e-6)
    if delay:
        assert total / quota * 1000 == pytest.approx(rate.window_ms(now) + delay, abs=0.5001)


def test_a_share_that_is_given_back_was_never_used() -> None:
    """A throttled fetch sends nothing, so its bytes are taken off again."""
    limits = QuotaLimits()
    limits.set(frozenset({("user", "a")}), {"consumer_byte_rate": 100})
    quotas = ClientQuotas(limits, 11, 1000)
    assert quotas.charge("consumer_byte_rate", "a", "c", 2000, START) == 10_000
    quotas.charge("consumer_byte_rate", "a", "c", -2000, START)
    assert quotas.charge("consumer_byte_rate", "a", "c", 1000, START) == 0
    assert quotas.most_at_once("consumer_byte_rate", "a", "c") == 1000
    (usage,) = quotas.usage(START)
    assert (usage.user, usage.client_id, usage.limit, usage.rate) == ("a", "", 100, 100)
    quotas.charge(BYTES, "somebody", "else", 1, START + 3_600_000)
    assert [usage.quota for usage in quotas.usage(START + 3_600_000)] == [BYTES]


def test_a_bucket_follows_its_quota() -> None:
    """A smaller quota cuts the tokens down, a larger one grants nothing at once; time 0 finds it empty."""
    bucket = TokenBucket()
    assert bucket.tokens(100, 1, 0) == 0
    assert bucket.tokens(100, 1, START) == 100
    assert bucket.tokens(10, 1, START) == 10
    assert bucket.tokens(1000, 1, START) == 10


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 5)), max_size=50))
def test_a_bucket_never_lets_more_pass_than_it_gained(requests: list[tuple[int, int]]) -> None:
    """Over any time: what passed is at most the burst, the refill, and the one request that went below 0."""
    bucket, now, passed = TokenBucket(), START, 0
    for gap, size in requests:
        now += gap
        if not bucket.delay_ms(10, 2, now):
            bucket.take(size, 10, 2, now)
            passed += size
    assert passed <= 10 + 2 * (now - START) / 1000 + 5 + 1e-6


ORDER = [
    {"user": "u", "client-id": "c"},
    {"user": "u", "client-id": None},
    {"user": "u"},
    {"user": None, "client-id": "c"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "c"},
    {"client-id": None},
]
SHARED_BY = [("u", "c"), ("u", "c"), ("u", ""), ("u", "c"), ("u", "c"), ("u", ""), ("", "c"), ("", "c")]


@given(st.sets(st.sampled_from(range(8))))
def test_the_most_specific_limit_applies(levels: set[int]) -> None:
    """Kafka's order of eight levels, each with those who share the limit."""
    limits = QuotaLimits()
    for level in levels:
        limits.set(frozenset(ORDER[level].items()), {BYTES: 100 + level})
        limits.set(frozenset({("user", "other"), ("client-id", "c")}), {BYTES: 1})
    found = limits.find(BYTES, "u", "c")
    if not levels:
        assert found.value is None
        return
    assert (found.value, found.shared_by) == (100 + min(levels), SHARED_BY[min(levels)])
    alone = [level for level in (2, 5) if level in levels]
    assert limits.find(BYTES, "u", "").value == (100 + alone[0] if alone else None)


def test_a_quota_can_be_taken_away() -> None:
    """What is taken away from an entity is the next one's again, and an entity without quotas is not listed."""
    limits = QuotaLimits()
    limits.set(frozenset({("user", "u")}), {BYTES: 1, "request_percentage": 2.5})
    limits.set(frozenset({("user", "u")}), {BYTES: None})
    assert limits.find(BYTES, "u", "c").value is None
    assert dict(limits.entities()) == {frozenset({("user", "u")}): {"request_percentage": 2.5}}
    limits.set(frozenset({("user", "u")}), {"request_percentage": None})
    assert dict(limits.entities()) == {}
    assert limits.enabled(BYTES)


@pytest.mark.parametrize(
    ("entity", "changes", "text"),
    [
        ({}, {BYTES: 1}, "needs a user"),
        ({"ip": "127.0.0.1"}, {"connection_creation_rate": 1}, "'ip'"),
        ({"user": ""}, {BYTES: 1}, "empty name"),
        ({"user": "u"}, {"controller_mutation_rate": 1}, "unknown quota controller_mutation_rate"),
        ({"user": "u"}, {BYTES: 0}, "producer_byte_rate: 0 is not greater"),
        ({"user": "u"}, {BYTES: -5.0}, "not greater"),
        ({"user": "u"}, {BYTES: 1.5}, "whole number"),
        ({"user": "u"}, {BYTES: 1e19}, "2\\^63"),
        ({"user": "u"}, {"producer_ids_rate": math.nan}, "limits nothing"),
        ({"user": "u"}, {BYTES: math.inf}, "limits nothing"),
        ({"user": "u", "client-id": "c"}, {"producer_ids_rate": 1}, "users alone"),
        ({"client-id": None}, {"producer_ids_rate": 1}, "users alone"),
    ],
)
def test_a_quota_that_cannot_be_is_refused(
    entity: dict[str, str | None], changes: dict[str, float | None], text: str
) -> None:
    """By name, with its value; nothing is set then, not even the good part of it."""
    limits = QuotaLimits()
    with pytest.raises(QuotaRefusedError, match=text):
        limits.set(frozenset(entity.items()), {"request_percentage": 1.0, **changes})
    assert dict(limits.entities()) == {}


def test_halves_are_rounded_up() -> None:
    """As Java does, not to the even number as Python does."""
    assert [round_half_up(value) for value in (0.5, 1.5, 2.5, -0.5, -1.5)] == [1, 2, 3, 0, -1]
