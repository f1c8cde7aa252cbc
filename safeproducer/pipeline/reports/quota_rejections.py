"""Records that a broker rejected because of a quota (KIP-936): certainly not written, and sent again later.

librdkafka fails them at once. Here they wait until nothing of their partition is under way, so that no later record has
overtaken them, and until it is proven that the rejection answered their only attempt; then they go back to where they
came from, in front of what came later, and wait for their broker like all others.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from safeproducer.errors import DeliveryError
from safeproducer.kafka.native import KafkaError, Message
from safeproducer.pipeline.record import KEY, OVERHEAD, REPORT, SIZE, VALUE, DeliveryCallback, HeldRecord, ReportNumbers
from safeproducer.policy.types import TopicPartition
from safeproducer.runtime import clock


@dataclass(frozen=True, slots=True)
class QuotaRejection:
    """`record` as it is to be sent again, `error` and `message` as librdkafka reported it, `lane` if a batch lane had
    it."""

    record: HeldRecord
    error: KafkaError
    message: Message
    lane: int | None = None


@dataclass(slots=True)
class RejectedPartition:
    """Records of one partition that were rejected, in the order of produce()."""

    rejections: list[QuotaRejection] = field(default_factory=list)
    at: float = 0.0
    overtaken: bool = False  # whether a later record of it was delivered


def is_quota_rejection(error: Any) -> bool:
    """Whether a report says that a quota rejected the record, as librdkafka words it."""
    return (
        error is not None
        and not isinstance(error, DeliveryError)
        and error.code() == KafkaError.THROTTLING_QUOTA_EXCEEDED
    )


class QuotaRejections:
    """Written by the threads that serve, emptied by the sender.

    - `hold`: called at the first rejection, inside a native call: nothing may go directly from then on.
    - `count`: records here, which take room in the buffer.
    - `with_headers`: topics whose records may have any.
    """

    def __init__(self, hold: Callable[[], None], numbers: ReportNumbers) -> None:
        self._numbers = numbers
        self._hold = hold
        self._sent: defaultdict[tuple[str, bytes | None, bytes | None], deque[HeldRecord]] = defaultdict(deque)
        self.tps: dict[TopicPartition, RejectedPartition] = {}
        self.count = 0
        self.with_headers: set[str] = set()

    def remember(self, topic: str, report: DeliveryCallback, record: HeldRecord) -> None:
        """The record goes directly, and the broker may not have admitted this producer's ID yet.

        A report does not hold everything that produce() was given: librdkafka keeps the headers to itself.
        """
        content = topic, record[VALUE], record[KEY]
        reports, uses, number = self._numbers.reports, self._numbers.uses, record[REPORT]
        # As in Intake._append(): up to the end of append() nothing could come between, no handler and no forget().
        uses[number] += 1
        reports[number] = report
        self._sent[content].append(record)

    @property
    def remembered(self) -> int:
        return sum(map(len, self._sent.values()))

    def forget(self) -> None:
        """The broker knows the ID by now."""
        if self._sent:
            sent, self._sent = self._sent, defaultdict(deque)
            for records in sent.values():
                while records:  # takes() may have found them before
                    self._numbers.release(records.popleft()[REPORT])

    def takes(self, run: DeliveryCallback, error: Any, message: Message) -> bool:
        """Whether a report of the direct lane is kept here. A delivered one is not, but tells of the order."""
        topic, partition = message.topic(), message.partition()
        if topic is None or partition is None or (error is not None and not is_quota_rejection(error)):
            return False
        if error is None:
            self.overtake((topic, partition))
            return False
        sent = self._sent.get((topic, message.value(), message.key()))
        if not sent and topic in self.with_headers:
            return False
        record = sent.popleft() if sent else self._reported(run, message)
        self.add((topic, partition), QuotaRejection(record, error, message))
        return True

    def _reported(self, run: DeliveryCallback, message: Message) -> HeldRecord:
        """A record without headers: its report has all of it."""
        value, key, number = message.value(), message.key(), id(run)
        size = len(value or b"") + len(key or b"") + OVERHEAD
        accepted_at = clock.monotonic() - (message.latency() or 0.0)
        record = (value, key, number, message.timestamp()[1], None, size, accepted_at)
        uses, reports = self._numbers.uses, self._numbers.reports
        uses[number] += 1
        reports[number] = run
        return record

    def overtake(self, tp: TopicPartition) -> None:
        """A record of this partition was delivered, which may be later than what was rejected of it."""
        if (rejected := self.tps.get(tp)) is not None:
            rejected.overtaken = True

    def add(self, tp: TopicPartition, rejection: QuotaRejection) -> None:
        rejected = self.tps.setdefault(tp, RejectedPartition())
        rejected.rejections.append(rejection)
        rejected.at = clock.monotonic()
        self.count += 1
        if len(rejected.rejections) == 1:
            self._hold()

    @property
    def bytes(self) -> int:
        rejected = [rejection.record[SIZE] for each in list(self.tps.values()) for rejection in each.rejections.copy()]
        return sum(rejected)

    def of_lane(self, lane: int) -> bool:
        """Whether records of this lane are here: their keys are bound to it."""
        return any(rejection.lane == lane for rejected in list(self.tps.values()) for rejection in rejected.rejections)

    def take(self, tp: TopicPartition) -> RejectedPartition:
        """Take out what was rejected of a partition."""
        rejected = self.tps.pop(tp)
        count = len(rejected.rejections)
        self.count -= count
        return rejected
