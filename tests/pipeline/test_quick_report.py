"""Where errors alone are told: the quick report counts and calls what the complete one does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safeproducer.kafka.native import KafkaError
from safeproducer.kafka.without_offset import WITHOUT_OFFSET
from safeproducer.pipeline.reports.delivery_counters import DeliveryCounters

FAILED = KafkaError(KafkaError._MSG_TIMED_OUT)


@dataclass(frozen=True)
class Report:
    """As much of a Message as a report callback asks for."""

    number: int | None
    at: int | None
    value: bytes = b"x"

    def partition(self) -> int | None:
        return self.number

    def offset(self) -> int | None:
        return self.at

    def __len__(self) -> int:
        return len(self.value)


REPORTS = st.lists(
    st.tuples(
        st.sampled_from([None, FAILED]),
        st.builds(Report, st.sampled_from([0, 1, 7]), st.sampled_from([None, 5])),
        st.booleans(),  # whether the sender serves: reports are kept then
    ),
    max_size=20,
)


def played(reports: list[Any], proves: bool, quick: bool) -> tuple[Any, list[Any], int]:
    """(delivered and failed by partition, calls of the callback, reports that are kept)."""
    counters = DeliveryCounters(only_errors=True, offset_proves=proves)
    topic = counters.open("t")
    if not quick:
        topic._quick = None
    calls: list[Any] = []
    report: Any = topic.bind(lambda error, message: calls.append((error.code(), message)))[1]
    for error, message, serves in reports:
        counters.report_queue.end(serves)
        report(error, message)
    counters.report_queue.end(False)
    kept = counters.report_queue.records
    counters.report_queue.run()
    counts = {number: (row.placed.delivered, row.placed.failed) for number, row in topic.partitions.items()}
    return counts, calls, kept


@settings(max_examples=300, deadline=None)
@given(REPORTS, st.booleans())
def test_it_does_what_the_complete_one_does(reports: list[Any], proves: bool) -> None:
    """Whatever comes, in any order."""
    assert played(reports, proves, quick=True) == played(reports, proves, quick=False)


def test_a_record_without_an_offset_is_told() -> None:
    """Also behind others of its partition, which are counted and not told."""
    counts, calls, _ = played([(None, Report(0, at), False) for at in (1, 2, None, 3)], proves=True, quick=True)
    assert counts == {0: (3, 1)}
    assert calls == [(WITHOUT_OFFSET.code(), Report(0, None))]


def test_a_failed_record_without_a_partition_is_told() -> None:
    """It failed before it was given one."""
    counts, calls, _ = played([(FAILED, Report(None, None), False)], proves=True, quick=True)
    assert counts == {-1: (0, 1)}
    assert calls == [(FAILED.code(), Report(None, None))]


@pytest.mark.parametrize("raised", [SystemError("left behind"), KeyboardInterrupt()])
def test_what_the_first_call_raises(raised: BaseException) -> None:
    """The exception that the C client left behind belongs to nobody; a signal handler's goes on."""
    counters = DeliveryCounters(only_errors=True, offset_proves=True)
    topic = counters.open("t")

    class Broken(Report):
        asked = 0

        def partition(self) -> int | None:
            Broken.asked += 1
            if Broken.asked == 1:
                raise raised
            return super().partition()

    report: Any = topic.bind(None)[1]
    if isinstance(raised, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            report(None, Broken(0, 1))
    else:
        report(None, Broken(0, 1))
        assert topic.partitions[0].placed.delivered == 1
