"""After a rest a leader may have forgotten the producer ID: one record of each partition goes first (KIP-854)."""

from __future__ import annotations

from safeproducer.policy.pacing import _LONGEST_ALONE, FirstRecords

A, B = ("a", 0), ("b", 0)


def test_after_a_rest_the_next_record_of_a_partition_waits_for_an_answer() -> None:
    """Whatever other partitions have had."""
    first = FirstRecords([A, B])
    assert first.waits
    assert [first.takes(tp, 7, 1.0) for tp in (A, A, B)] == [True, False, True]
    assert not first.waits
    reports = {A: 8, B: 7}
    assert not first.look(reports.__getitem__, lambda *_: False, 1.01)
    assert first.takes(A, 8, 1.01)
    assert not first.takes(B, 7, 1.01)
    reports[B] = 8
    assert first.look(reports.__getitem__, lambda *_: False, 1.02)
    assert not first.open


def test_an_empty_lane_has_had_its_answers() -> None:
    """The application may not have fetched the reports."""
    first = FirstRecords([A, B])
    first.takes(A, 7, 1.0)
    first.look(lambda _: 7, lambda _, since: since < 1.0, 1.1)
    assert not first.takes(A, 7, 1.1)
    first.look(lambda _: 7, lambda _, since: since < 1.1, 1.2)
    assert first.takes(A, 7, 1.2)


def test_a_partition_that_gets_no_record_is_not_waited_for_long() -> None:
    """Meanwhile no record goes directly without a look at it here."""
    first = FirstRecords([A, B])
    first.takes(A, 7, 1.0)
    assert not first.look(lambda _: 8, lambda *_: False, _LONGEST_ALONE)
    assert first.look(lambda _: 8, lambda *_: False, _LONGEST_ALONE + 1.0)


def test_a_first_record_that_was_not_sent_does_not_count() -> None:
    first = FirstRecords([A])
    assert first.takes(A, 7, 1.0)
    first.give_back(A)
    assert first.takes(A, 7, 1.0)
    assert not FirstRecords().open
