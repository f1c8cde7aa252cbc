"""How many producer IDs a query takes in an hour."""

from __future__ import annotations

import pickle

from safeproducer.spark.id_rate import HOUR, IdRate


def test_an_id_that_stays_in_use_counts_only_in_its_first_hour() -> None:
    """The rate is of new IDs, as KIP-936 counts them, however long the old ones go on."""
    rate = IdRate()
    assert rate.count([1, 2], 0) == 2
    assert rate.count([1, 3], HOUR / 2) == 3
    assert rate.count([1], HOUR + 1) == 1  # 3, half an hour ago
    assert rate.count([1], 2 * HOUR) == 0


def test_what_is_remembered_is_bounded_by_the_hour() -> None:
    """A query that takes new IDs for ever does not grow."""
    rate = IdRate()
    for batch in range(1000):
        rate.count([batch], batch * HOUR / 10)
    copy = pickle.loads(pickle.dumps(rate))  # noqa: S301 - our own bytes
    assert len(copy._seen) == 10
