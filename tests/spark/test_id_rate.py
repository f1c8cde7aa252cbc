"""How many producer IDs a query takes in an hour."""

from __future__ import annotations

import pickle

from safeproducer.spark.report import HOUR, IdRate, Used

FIRST, SECOND = ("host", 1), ("host", 2)


def test_an_id_that_stays_in_use_counts_only_in_its_first_hour() -> None:
    """The rate is of new IDs, as KIP-936 counts them, however long the old ones go on."""
    rate = IdRate()
    assert rate.count({FIRST: Used(1, True), SECOND: Used(1, True)}, 0) == 2
    assert rate.count({FIRST: Used(3, False)}, HOUR / 2) == 4  # two lanes more
    assert rate.count({FIRST: Used(3, False)}, HOUR + 1) == 2
    assert rate.count({FIRST: Used(3, False)}, HOUR * 1.6) == 0


def test_a_producer_made_anew_in_the_same_worker_has_new_ids() -> None:
    """After an error the producer of a worker is dropped, and the next one starts to count at one."""
    rate = IdRate()
    rate.count({FIRST: Used(3, True)}, 0)
    assert rate.count({FIRST: Used(1, True)}, 1) == 4


def test_the_memory_of_a_rate_is_bounded_by_the_hour() -> None:
    """A query that takes new IDs for ever does not grow."""
    rate = IdRate()
    for batch in range(1000):
        assert rate.count({("host", batch): Used(1, True)}, batch * HOUR / 10) <= 10
    copy = pickle.loads(pickle.dumps(rate))  # noqa: S301 - our own bytes
    assert (len(copy._used), len(copy._taken)) == (10, 10)
