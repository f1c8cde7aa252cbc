"""Records that a quota rejected go again, in front of what came later, or are given up; those that were taken out of
their lane unsent are told once statistics prove it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from safeproducer.kafka.native import KafkaError
from safeproducer.pipeline.buffer.in_flight_batch import InFlightBatch
from safeproducer.pipeline.dispatch.record_buffer import RecordBuffer
from safeproducer.pipeline.record import ACCEPTED_AT, REPORT
from safeproducer.pipeline.reports.delivery_errors import Failures
from safeproducer.pipeline.reports.quota_rejections import QuotaRejection, QuotaRejections, RejectedPartition
from safeproducer.pipeline.reports.report_queue import Deferred, ReportQueue
from safeproducer.pipeline.schedule import Schedule
from safeproducer.policy.decision import LOOK_AGAIN
from safeproducer.policy.outcome import Outcome
from safeproducer.policy.types import NEVER, TopicPartition
from safeproducer.settings.delivery import SendConfig

TIMEOUT = "message.timeout.ms"
_STATISTICS_COME = 1.2  # seconds within which a lane's next statistics are served


def is_late(rejected: RejectedPartition) -> bool:
    return any(each.error.code() == KafkaError._PURGE_QUEUE for each in rejected.rejections)


@dataclass(eq=False)
class QuotaRetry:
    """Empties `rejections`. The sender's thread calls.

    `sent_once(tp, lane, since, late)`: whether statistics prove that each record of a partition was in one request, or
    that so many `late` ones, which the lane had, were in none.
    """

    _delivery: SendConfig
    _record_buffer: RecordBuffer
    rejections: QuotaRejections
    _report_queue: ReportQueue
    _failures: Failures
    _schedule: Schedule
    _sent_once: Callable[[TopicPartition, int | None, float, int], bool]

    def note(self, batch: InFlightBatch) -> None:
        """Keep what was rejected of a batch that has all its reports."""
        tp, rejections = batch.tp, batch.reports.rejections
        for rejection in rejections:
            self._record_buffer.numbers.hold_again(rejection.record[REPORT])
            self.rejections.add(tp, rejection)
        if not rejections and not self._delivery.spreads:  # several lanes have no order among them
            self.rejections.overtake(tp)

    def act(self, now: float) -> float:
        """Put back what may go again, once nothing of its partition is under way; when to look again."""
        due = NEVER
        for tp, rejected in self.rejections.tps.copy().items():
            buffer = self._record_buffer.find(tp)
            under_way = buffer.unresolved or not self._record_buffer.has_left_direct(buffer, now)
            proven = not under_way and self._proven(tp, rejected)
            if under_way or not (proven or now >= rejected.at + _STATISTICS_COME):
                due = now + LOOK_AGAIN
                continue
            self.rejections.take(tp)
            self._report_queue.decide()
            if proven and not rejected.overtaken and not is_late(rejected):
                self._put_back(tp, rejected)
            else:
                self._give_up(tp, rejected, proven)
        return due

    def give_up_all(self) -> None:
        """All that waits is to fail."""
        for tp in list(self.rejections.tps):
            self._give_up(tp, self.rejections.take(tp))

    def _proven(self, tp: TopicPartition, rejected: RejectedPartition) -> bool:
        """Whether each rejection answered the only attempt of its record; none of those that are late was sent."""
        late = len(rejected.rejections) if is_late(rejected) else 0
        if not late and all(self._failures.proves_rejection(each.message) for each in rejected.rejections):
            return True
        lanes = {each.lane for each in rejected.rejections}
        return all(self._sent_once(tp, lane, rejected.at, late) for lane in lanes)

    def _put_back(self, tp: TopicPartition, rejected: RejectedPartition) -> None:
        buffer, rejections = self._record_buffer.find(tp), rejected.rejections
        for each in reversed(rejections):
            buffer.put_back(each.record, each.lane)
        self._schedule.expect_deadline(rejections[0].record[ACCEPTED_AT])
        self._record_buffer.busy[tp] = buffer

    def _give_up(self, tp: TopicPartition, rejected: RejectedPartition, proven: bool = False) -> None:
        buffer, numbers, late = self._record_buffer.find(tp), self._record_buffer.numbers, is_late(rejected)
        for each in rejected.rejections:
            number = each.record[REPORT]
            told = self._failures.reported(each.error, each.message) if not late else self._late(each, tp, proven)
            buffer.gives_up(each.record, each.lane, getattr(told, "outcome", None) is not Outcome.NOT_WRITTEN)
            self._report_queue.reports.add(numbers[number], told, each.message)
            numbers.release(number)

    def _late(self, one: QuotaRejection, tp: TopicPartition, never_sent: bool) -> KafkaError:
        """The error of a record that was taken out of its lane."""
        kept = Deferred(None, one.error, one.message, -NEVER, NEVER)
        (_, error, _), *_ = self._failures.expired([kept], {tp: int(never_sent)}, TIMEOUT)
        return error
