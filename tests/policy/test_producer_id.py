"""The churn policy: exact counts over a sliding hour, one finding for each line of code."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy.producer_id import HOUR, ChurnPolicy
from safeproducer.records import CallSite

ME = ("cluster", "User:me")
SITE = CallSite("app.py", 7, "send")
OTHER_SITE = CallSite("job.py", 9, "run")


def test_exactly_the_limit_is_allowed() -> None:
    """100 producers an hour are quiet; the one after is told, with the counts."""
    policy = ChurnPolicy()
    assert [policy.record(ME, SITE, 100, float(second)) for second in range(100)] == [None] * 100
    assert policy.record(ME, SITE, 100, 100.0) == (101, 101)


def test_a_producer_made_an_hour_ago_no_longer_counts() -> None:
    """The window slides: at exactly 3600 s the oldest one is out."""
    policy = ChurnPolicy()
    for second in (0.0, 1.0):
        policy.record(ME, SITE, 2, second)
    assert policy.record(ME, SITE, 2, HOUR) is None
    assert policy.record(ME, SITE, 2, HOUR + 0.5) is not None


def test_each_line_of_code_is_told_once() -> None:
    """A second site that goes on making producers is told too; neither is told twice."""
    policy = ChurnPolicy()
    policy.record(ME, SITE, 1, 0.0)
    told = [policy.record(ME, site, 1, 1.0) for site in (SITE, SITE, OTHER_SITE, OTHER_SITE)]
    assert [finding is not None for finding in told] == [True, False, True, False]


def test_clusters_and_principals_do_not_share_a_limit() -> None:
    """KIP-936 charges a principal on a cluster."""
    policy = ChurnPolicy()
    for identity in (ME, ("cluster", "User:you"), ("other", "User:me")):
        assert policy.record(identity, SITE, 1, 0.0) is None


def test_a_crash_loop_does_not_grow_the_policys_own_memory() -> None:
    """A million producers in an hour are remembered as at most twice the limit."""
    policy = ChurnPolicy()
    for number in range(10_000):
        policy.record(ME, SITE, 10, number / 10_000)
    assert policy.made_last_hour(ME, 1.0) == 20


@given(
    st.lists(st.tuples(st.floats(0, 2000), st.sampled_from([SITE, OTHER_SITE])), max_size=60),
    st.integers(1, 8),
)
def test_findings_equal_a_naive_count(steps: list[tuple[float, CallSite]], limit: int) -> None:
    """Against a model that remembers everything: told at the first producer of a site made beyond the limit."""
    policy = ChurnPolicy()
    now = 0.0
    made: list[tuple[float, CallSite]] = []
    told: set[CallSite] = set()
    for pause, site in steps:
        now += pause
        made.append((now, site))
        recent = [at for at in made if now - at[0] < HOUR]
        expected = len(recent) > limit and site not in told
        finding = policy.record(ME, site, limit, now)
        assert (finding is not None) == expected
        if finding is not None:
            told.add(site)
            if len(recent) <= 2 * limit:
                assert finding[0] == Counter(where for _, where in recent)[site]
