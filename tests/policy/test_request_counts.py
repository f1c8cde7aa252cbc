"""Splits show as requests too many, between two moments at which a lane was empty."""

from __future__ import annotations

import pytest

from safeproducer.policy.lanes import RequestCounts

AT = 100.0


def after(*batches: int, partitions: int = 0) -> RequestCounts:
    """Batches of so many records, all of which were answered before AT."""
    counts = RequestCounts()
    for records in batches:
        counts.handed_over(records)
        counts.resolved(partitions, AT - 1)
    return counts


@pytest.mark.parametrize(
    ("requests", "sent", "splits"),
    [
        (2, 20, 0),
        (3, 20, 1),
        (4, 20, 2),
        (3, 30, 0),  # a retry
        (2, 10, 0),
    ],
)
def test_more_requests_than_batches_are_splits(requests: int, sent: int, splits: int) -> None:
    """Unless records were sent again."""
    counts = after(10, 10)
    assert counts.observe(AT, requests, sent) == splits
    assert counts.splits == splits


def test_counts_that_began_anew_show_nothing() -> None:
    """librdkafka forgets those of a broker that has gone."""
    counts = after(10, 10)
    assert counts.observe(AT, 2, 20) == 0
    counts.handed_over(10)
    counts.resolved(0, AT + 1)
    assert counts.observe(AT + 2, 1, 30) == 0


def test_counts_from_before_the_last_answer_show_nothing() -> None:
    """It may be of records, and not yet of their request."""
    counts = after(10)
    assert counts.observe(AT - 1, 2, 10) == 0
    assert counts.observe(AT, 2, 10) == 1


def test_a_batch_without_a_partition_is_one_for_each_that_was_chosen() -> None:
    counts = after(10, partitions=3)
    assert counts.batches == 3
    assert counts.observe(AT, 3, 10) == 0


def test_a_lane_that_is_not_empty_yet_keeps_its_time() -> None:
    counts = after(10)
    counts.handed_over(10)
    counts.resolved(0, None)
    assert counts.observe(AT, 3, 20) == 1


def test_requests_of_a_former_owner_show_nothing() -> None:
    """The first counts of a native producer that somebody else had are where it begins."""
    counts = RequestCounts(new=False)
    counts.handed_over(10)
    counts.resolved(0, AT - 1)
    assert counts.observe(AT, requests=99, sent=10) == 0
    counts.handed_over(5)
    counts.resolved(0, AT + 1)
    assert counts.observe(AT + 2, requests=102, sent=15) == 2
