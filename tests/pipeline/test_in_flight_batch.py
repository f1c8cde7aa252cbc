"""A batch inside librdkafka: reports and deadlines in any order end each record once, and splits show in counts."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.cimpl import KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.kafka.lane_client import LaneClient
from safeproducer.kafka.statistics import BrokerStatistics, PartitionStatistics, Statistics
from safeproducer.pipeline.buffer.in_flight_batch import BatchReports, BatchSinks, InFlightBatch
from safeproducer.pipeline.buffer.partition_buffer import PartitionBuffer
from safeproducer.pipeline.lanes.batch_lane import BatchLane
from safeproducer.pipeline.record import HeldRecord, ReportNumbers
from safeproducer.pipeline.reports.report_queue import CountedBunch, CountedReport, ReportQueue, Reports
from safeproducer.policy.pacing import AckTime
from safeproducer.producer_ids.lane_permits import GRANTED
from tests.inside import hold
from tests.pipeline.interleaving import between, codes_of


def ignore(*_: Any) -> None:
    pass


NUMBERS = ReportNumbers()


def record(number: int, accepted_at: float) -> HeldRecord:
    return (b"%d" % number, None, hold(NUMBERS, ignore), 1, None, 40, accepted_at)


@dataclass
class Placed:
    """Counts as Resolved does."""

    delivered: int = 0

    def placed(self, partition: int) -> Placed:
        assert partition == 0
        return self


def counted(failed: list[Any], account: Placed) -> CountedReport:
    """Reports of whose records only errors are told, to `failed`."""

    def told(_: Any, error: Any, message: Any) -> None:
        if error is None and message.offset() is not None:  # behind an expired one they are told one by one
            account.delivered += 1
        else:
            failed.append((error, message.value()))

    return CountedReport(told, ..., account, True)


ANSWERS = st.sampled_from(["acknowledged", "without offset", "failed", "expire"])


@given(st.integers(1, 8), st.lists(ANSWERS, max_size=20), st.booleans())
def test_counted_records_end_once(size: int, steps: list[str], polls: bool) -> None:
    """A delivered record adds one to a number; what failed, has no offset or has expired is told by itself."""
    failed: list[Any] = []
    account, reports, delivered = Placed(), Reports(), 0
    records = [record(n, float(n)) for n in range(size)]
    batch = InFlightBatch(("a", 0), records, True, 0.0, BatchSinks(reports, NUMBERS), AckTime())
    bound = batch.bind(counted(failed, account))
    now, reported = 0.0, 0
    expired: list[bytes] = []
    for step in [*steps, *["acknowledged"] * size]:
        if step == "expire":
            now += 1.0
            batch.expire(now, 1.0, lambda taken: expired.append(taken[0] or b""))
        elif reported < size:
            error = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE) if step == "failed" else None
            offset = 1 if step == "acknowledged" else None
            delivered += step == "acknowledged" and reported >= batch.expired
            offsets = {} if offset is None else {"offset": offset}
            bound(error, Message(topic="a", partition=0, value=b"%d" % reported, **offsets))
            reported += 1
        if polls:
            reports.run()
            assert batch.open == size - account.delivered - len(failed) - len(expired)
    reports.run()
    assert account.delivered == delivered
    assert sorted([value for _, value in failed] + expired) == sorted({value for _, value in failed} | set(expired))
    assert account.delivered + len(failed) + len(expired) == size
    assert reports.count == 0


def test_counting_is_one_step() -> None:
    """Two threads, or a signal handler, that run reports at once: each record counts once, none is lost."""
    for place in range(200):
        account, reports = Placed(), Reports()
        reports.add_counted(CountedBunch(counted([], account), 0, 5))
        met: list[int] = []

        def again(reports: Reports = reports, met: list[int] = met) -> None:
            met.append(reports.run())

        with between(codes_of(Reports.run, CountedBunch.count), place, again) as places:
            reports.run()
        assert account.delivered == 5
        assert reports.count == 0
        if places[0] <= place:
            assert place > 5
            return
    pytest.fail("there is no end of places")


@given(st.integers(1, 8), st.lists(st.sampled_from(["report", "expire"]), max_size=20))
def test_each_record_ends_once(size: int, steps: list[str]) -> None:
    """Whatever librdkafka says of an expired record later is swallowed, and the batch is over after the last report."""
    ended: list[bytes] = []
    reports = Reports()
    sinks = BatchSinks(reports, NUMBERS)
    records = [record(n, float(n)) for n in range(size)]
    batch = InFlightBatch(("a", 0), records, True, 0.0, sinks, AckTime())
    bound = batch.bind(lambda _, message: ended.append(message.value()))
    now, reported = 0.0, 0
    for step in [*steps, *["report"] * size]:
        if step == "expire":
            now += 1.0
            batch.expire(now, 1.0, lambda taken: ended.append(taken[0] or b""))
        elif reported < size:
            assert not sinks.completed
            bound(None, Message(topic="a", partition=0, value=b"%d" % reported))
            reported += 1
        reports.run()
        assert batch.open == size - len(ended)
        assert batch.left == size - reported
    assert sorted(ended) == sorted(b"%d" % n for n in range(size))
    assert list(sinks.completed) == [batch]
    assert batch.next_deadline(1.0) is None


def reported_and_expired(switch_in: str, step: int, error: KafkaError | None) -> tuple[list[bytes], int]:
    """Reports of librdkafka for all records but the last, and an expiry of all, one in the middle of the other."""
    ended: list[bytes] = []
    reports = Reports()
    records = [record(n, 0.0) for n in range(4)]
    batch = InFlightBatch(("a", 0), records, True, 0.0, BatchSinks(reports, NUMBERS), AckTime())
    bound = batch.bind(lambda _, message: ended.append(message.value()))

    def report_two() -> None:
        for number in (1, 2):
            bound(error, Message(topic="a", partition=0, value=b"%d" % number, error=error))

    def expire() -> None:
        batch.expire(1.0, 0.5, lambda taken: ended.append(taken[0] or b""))

    bound(None, Message(topic="a", partition=0, value=b"0"))
    outer, inner = (report_two, expire) if switch_in == "report" else (expire, report_two)
    codes = (
        codes_of(bound, InFlightBatch.reported, BatchReports.add, BatchReports.keep, BatchReports.pass_on)
        if switch_in == "report"
        else codes_of(InFlightBatch.expire, BatchReports.expire)
    )
    with between(codes, step, inner) as steps:
        outer()
    if step >= steps[0]:
        inner()
    bound(error, Message(topic="a", partition=0, value=b"3", error=error))
    reports.run()
    return ended, steps[0]


@pytest.mark.parametrize("switch_in", ["report", "expire"])
@pytest.mark.parametrize("error", [None, KafkaError(KafkaError._PURGE_QUEUE)])
def test_each_record_ends_once_wherever_two_threads_meet(switch_in: str, error: KafkaError | None) -> None:
    step, steps = 0, 1
    while step <= steps:
        ended, steps = reported_and_expired(switch_in, step, error)
        assert sorted(ended) == [b"0", b"1", b"2", b"3"], f"step {step}"
        step += 1
    assert steps > 5


class Client:
    def __init__(self) -> None:
        self.bound: list[Any] = []

    def produce(self, *record: Any) -> None:
        self.bound.append(record[4])

    def __len__(self) -> int:
        return len(self.bound)

    def report_all(self) -> None:
        bound, self.bound = self.bound, []
        for report in bound:
            report(None, Message(topic="a", partition=0))


def seen(at: float, requests: int, sent: int) -> Statistics:
    broker = BrokerStatistics("b", "UP", 0, 0, requests, None)
    return Statistics(at, 1, 0, 0, 0, {1: broker}, {("a", 0): PartitionStatistics(1, 0, 0, 0, sent, sent, sent)})


def lane_of(client: Any) -> BatchLane:
    return BatchLane(LaneClient(client), 0, BatchSinks(Reports(), NUMBERS), None, GRANTED)


def hand_over(lane: BatchLane, client: Client, count: int) -> None:
    buffer = PartitionBuffer("a", 0)
    batch = lane.hand_over(buffer, [record(n, 0.0) for n in range(count)], True, 0.0, lambda *_: None)
    assert batch is not None
    client.report_all()
    lane.resolved(lane._sinks.completed.popleft())


FAR_AHEAD = 1e12


def test_statistics_from_within_a_hand_over_show_nothing_when_they_are_read_after_it() -> None:
    """Records are counted when their request is made, the request when it is sent."""
    client = Client()
    lane = lane_of(client)
    lane.hand_over(PartitionBuffer("a", 0), [record(n, 0.0) for n in range(10)], True, 0.0, lambda *_: None)
    within = time.monotonic()
    client.report_all()
    lane.resolved(lane._sinks.completed.popleft())
    assert lane.observe(seen(within, 0, 10)) == 0
    hand_over(lane, client, 10)
    assert lane.observe(seen(FAR_AHEAD, 2, 20)) == 0
    hand_over(lane, client, 10)
    assert lane.observe(seen(FAR_AHEAD, 4, 30)) == 1, "one request more than batches"


def test_failed_reports_of_a_purged_lane_are_kept() -> None:
    """Delivered ones are not, and neither is one whose outcome is known."""
    report_queue = ReportQueue()
    error = KafkaError(KafkaError._PURGE_QUEUE)
    assert not report_queue.takes("run", error, "m")
    report_queue.defer(True)
    assert report_queue.on
    assert not report_queue.takes("run", None, "m")
    assert report_queue.takes("run", error, "m")
    assert [kept[:3] for kept in report_queue.deferred] == [("run", error, "m")]
    report_queue.defer(False)
    assert not report_queue.on


def test_a_report_that_was_kept_is_counted_at_every_moment() -> None:
    """Else flush() would end before it has run, and produce() take more records than the buffer has room for."""
    report_queue, errors = ReportQueue(), [KafkaError(KafkaError._PURGE_QUEUE) for _ in range(5)]
    report_queue.defer(True)
    assert all(report_queue.takes("run", error, "m") for error in errors)
    counts: set[int] = set()

    def count(*_: object) -> Any:
        sys.settrace(None)
        counts.add(report_queue.records)
        sys.settrace(count)
        return count

    sys.settrace(count)
    try:
        report_queue.defer(False)
        report_queue.tell([("run", kept.error, kept.message) for kept in report_queue.deferred])
    finally:
        sys.settrace(None)
    assert (counts, report_queue.reports.count, list(report_queue.deferred)) == ({5}, 5, [])
