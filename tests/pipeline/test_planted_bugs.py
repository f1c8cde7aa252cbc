"""Each rule that the state machine checks is broken here on purpose, and the machine must find it. What it cannot see,
because it has one thread, the test of that part must find."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any
from unittest import mock

import pytest
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from safeproducer.kafka.statistics import Statistics
from safeproducer.pipeline.buffer.in_flight_batch import DeliveredCounter, InFlightBatch
from safeproducer.pipeline.buffer.partition_buffer import PartitionBuffer
from safeproducer.pipeline.cluster.cluster_view import ClusterView, Leader
from safeproducer.pipeline.dispatch import dispatcher, record_buffer
from safeproducer.pipeline.dispatch.expiry import Expiry
from safeproducer.pipeline.dispatch.intake import Intake
from safeproducer.pipeline.dispatch.placement import Placement
from safeproducer.pipeline.dispatch.record_buffer import RecordBuffer
from safeproducer.pipeline.record import REPORT, SIZE, HeldRecord, ReportNumbers
from safeproducer.pipeline.reports import delivery_errors
from safeproducer.pipeline.reports.delivery_errors import Failures
from safeproducer.pipeline.reports.report_queue import CountedBunch, CountedReport, ReportQueue, Reports
from safeproducer.policy.decision import PartitionFacts
from safeproducer.policy.throttle import Throttle
from safeproducer.policy.types import NEVER, TopicPartition
from safeproducer.producer_ids.lane_permits import GRANTED, LanePermits
from tests.effort import effort
from tests.pipeline import test_in_flight_batch, test_partitions, test_placement
from tests.pipeline.machine import (
    CalmHeldMachine,
    CountedMachine,
    ExpiryMachine,
    FeedMachine,
    HeldExpiryMachine,
    HeldMachine,
    RenewedMachine,
)
from tests.pipeline.rig import RuleError

EFFORT = effort(400, 30)

real_decide = dispatcher.decide
real_reported = InFlightBatch.reported
real_takes = ReportQueue.takes
real_run = Reports.run
real_in_process = Failures.in_process
real_update = ClusterView.update
real_extend = Intake._extend
real_bind, real_begin, real_pass_on, real_bunch = (
    DeliveredCounter.bind,
    DeliveredCounter.begin,
    DeliveredCounter.pass_on,
    CountedBunch.__init__,
)


def deaf(facts: PartitionFacts, now: float) -> Any:
    return real_decide(facts._replace(throttled_until=None, probing=False), now)


def forgetful_announce(self: Throttle, broker: int, seconds: float, now: float) -> None:
    deadlines = {**self._known.deadlines, broker: now + min(seconds, 0.3)}
    self._known = replace(self._known, deadlines=deadlines)


def blind_broker(self: ClusterView, tp: TopicPartition, now: float) -> Leader:
    return Leader(None, self.throttle.deadline(None, now), self.throttle.probes(None, now))


def last_first(self: PartitionBuffer, count: int, size: int, lane: int, taken: list[Any]) -> None:
    taken.extend(self.records.pop() for _ in range(min(count, len(self.records))))
    self.bytes -= sum(record[5] for record in taken)


def report_again(self: InFlightBatch, *report: Any) -> None:
    self.expired = 0
    real_reported(self, *report)


def sure_of_everything(self: Failures, *args: Any) -> Any:
    return real_in_process(self, *args[:-1], False)


def unreported(self: Expiry, code: int, reason: str) -> None:
    for buffer in self._record_buffer.all:
        while buffer.records:
            self._record_buffer.numbers.release(buffer.take_out(buffer.records)[REPORT])


def never_blocked(self: RecordBuffer, buffer: PartitionBuffer, size: int, *_: int) -> None:
    pass


def swallowed(self: Reports, most: float = NEVER) -> int:
    while True:
        try:
            return real_run(self, most)
        except Exception as raised:
            swallowed.raised = raised  # type: ignore[attr-defined]


def gives_up(self: Reports, most: float = NEVER) -> int:
    try:
        return real_run(self, most)
    except Exception:
        self.bunches.clear()
        raise


def kept_for_ever(self: ReportQueue, run: Any, error: Any, message: Any) -> bool:
    return (self.purged and error is not None) or real_takes(self, run, error, message)


def counted_as_one(self: Intake, buffer: PartitionBuffer, records: list[HeldRecord], report: Any, size: int) -> bool:
    extended = real_extend(self, buffer, records, report, size)
    self._numbers.uses[records[0][REPORT]] -= len(records) - 1 if extended else 0
    return extended


def not_at_all(*_: object) -> bool:
    return False


def to_the_end(self: PartitionBuffer, other: PartitionBuffer) -> None:
    record = self.take_out(self.records)
    other.bytes += record[SIZE]
    other.records.append(record)


def counting_what_expired(self: DeliveredCounter, batch: Any, report: CountedReport) -> Any:
    reported = real_bind(self, batch, report)

    def counted(error: Any, message: Any) -> None:
        expired, batch.expired = batch.expired, 0
        reported(error, message)
        batch.expired = expired

    return counted


def one_too_few(self: DeliveredCounter, report: CountedReport) -> None:
    real_begin(self, report)
    self.count = 0


def passed_on_twice(self: DeliveredCounter, reports: Reports) -> int:
    if self.report is not None:
        reports.add_counted(CountedBunch(self.report, self._partition, self.count))
    return real_pass_on(self, reports)


def of_the_next_partition(self: CountedBunch, report: CountedReport, partition: int, count: int) -> None:
    real_bunch(self, report, partition + 1, count)


def all_that_were_queued(records: Any, count: int) -> list[bool]:
    return [record.queued for record in records]


def dropped(self: ReportQueue, reports: Any) -> None:
    self.deferred.clear()


PLANTS: dict[str, tuple[str, type[RuleBasedStateMachine], Any, str, Any]] = {
    "hands over to a throttled broker": ("rule 4", CalmHeldMachine, dispatcher, "decide", deaf),
    "lets a deadline move back": ("rule [49]", CalmHeldMachine, Throttle, "announce", forgetful_announce),
    "holds every broker": ("rule 4", CalmHeldMachine, ClusterView, "leader_state", blind_broker),
    "takes the last records first": ("rule 6", CalmHeldMachine, PartitionBuffer, "take", last_first),
    "reports an expired record twice": ("rule 7", HeldMachine, InFlightBatch, "reported", report_again),
    "calls a sent record not written": ("rule 7", HeldMachine, Failures, "in_process", sure_of_everything),
    "lets librdkafka expire": ("rule 7", HeldMachine, Expiry, "purge_lane", lambda *_: NEVER),
    "retries what its leader has forgotten": ("rule 7.* 2 times", ExpiryMachine, Expiry, "limit", None),
    "and by a batch lane": ("rule 7.* 2 times", HeldExpiryMachine, Expiry, "limit", None),
    "purges late": ("rule 7.* 2 times", ExpiryMachine, Expiry, "_age", property(lambda self: 70.0)),
    "forgets what it purges": ("rule [789]", CalmHeldMachine, Expiry, "fail_all", unreported),
    "never tells of what it deferred": ("rule [789]", FeedMachine, ReportQueue, "takes", kept_for_ever),
    "takes records beyond the buffer": ("rule 9", CalmHeldMachine, RecordBuffer, "refuse_excess", never_blocked),
    "keeps the callbacks of ended records": ("rule 9", CalmHeldMachine, ReportNumbers, "release", lambda *_: None),
    "gives one broker the whole buffer": ("rule 9", CalmHeldMachine, record_buffer, "has_share", lambda *_: True),
    "takes a block for one record": ("rule [79]", CalmHeldMachine, Intake, "_extend", counted_as_one),
    "counts delivered records twice": ("rule 7", CountedMachine, DeliveredCounter, "pass_on", passed_on_twice),
    "counts for another partition": ("rule 7", CountedMachine, CountedBunch, "__init__", of_the_next_partition),
    "asks for no permit": ("rule 11", RenewedMachine, LanePermits, "renewal", lambda self, now: (GRANTED, now)),
    "proves too much": ("rule 7", RenewedMachine, delivery_errors, "never_sent", all_that_were_queued),
    "drops the reports of what was purged": ("rule [789]", RenewedMachine, ReportQueue, "tell", dropped),
    "swallows what a callback raises": ("rule 10", CalmHeldMachine, Reports, "run", swallowed),
    "drops the reports behind one that raised": ("rule [4789]", CalmHeldMachine, Reports, "run", gives_up),
}


@pytest.mark.parametrize("bug", PLANTS)
def test_the_machine_finds_a_planted_bug(bug: str) -> None:
    """Or its rules would be worth nothing."""
    rule, machine, owner, name, planted = PLANTS[bug]
    with mock.patch.object(owner, name, planted), pytest.raises(RuleError, match=rule):
        run_state_machine_as_test(machine, settings=EFFORT)


def shrinking(self: ClusterView, lane: int, statistics: Statistics) -> None:
    real_update(self, lane, statistics)
    for topic, number in statistics.partitions:
        self.partitions._counts[topic] = number + 1, statistics.at


def in_two_steps(self: CountedBunch) -> int:
    account, count = self.report.account.placed(self.partition), self.waiting
    account.delivered += count
    len("another thread may come here")
    self.waiting = 0
    return count


def without_a_look_at_offsets(self: CountedReport, *args: Any) -> None:
    real_counted(self, *args)
    self.offset_proves = False


real_counted = CountedReport.__init__
ends_once = test_in_flight_batch.test_counted_records_end_once


def both_kinds_in_order() -> None:
    for each in product(("auto", "held"), test_placement.BATCHES, test_placement.PATTERNS):
        test_placement.test_both_kinds_keep_their_order(*each)


FOUND_ALONE: dict[str, tuple[Callable[[], object], Any, str, Any]] = {
    "counts in two steps": (test_in_flight_batch.test_counting_is_one_step, CountedBunch, "count", in_two_steps),
    "counts what has no offset": (ends_once, CountedReport, "__init__", without_a_look_at_offsets),
    "counts what expired": (ends_once, DeliveredCounter, "bind", counting_what_expired),
    "forgets the first": (ends_once, DeliveredCounter, "begin", one_too_few),
    "lets records without a partition pass others": (both_kinds_in_order, Placement, "follows_others", not_at_all),
    "sends before it places": (both_kinds_in_order, Placement, "in_front", lambda *_: None),
    "places behind what came later": (both_kinds_in_order, PartitionBuffer, "move_first", to_the_end),
    "lets a partition count shrink": (
        test_partitions.test_a_lane_that_has_not_heard_of_a_topic_tells_nothing_of_it,
        ClusterView,
        "update",
        shrinking,
    ),
}


@pytest.mark.parametrize("bug", FOUND_ALONE)
def test_the_test_of_a_part_finds_a_planted_bug(bug: str) -> None:
    find, owner, name, planted = FOUND_ALONE[bug]
    with mock.patch.object(owner, name, planted), pytest.raises((AssertionError, ExceptionGroup)):
        find()
