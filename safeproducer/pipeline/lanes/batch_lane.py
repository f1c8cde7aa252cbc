"""A batch lane: a native producer that gets whole batches, each of which becomes one ProduceRequest.

Its linger is a guard that never runs out in practice: a batch of exactly `batch.num.messages` records leaves by its
count, any other by a flush trigger, a flush() of one millisecond. A shorter linger would send what is there in the
middle of handing over, and would make librdkafka busy-wait while a batch waits behind the one in flight.

The log of an additional lane tells when it has its producer ID. A batch that is handed over before waits for
librdkafka's next look, half a second later (measured: 507 ms against 2 ms). Statistics would tell at a higher cost.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

from safeproducer.errors import NOT_ACCEPTED
from safeproducer.kafka.lane_client import LaneClient, cause_of
from safeproducer.kafka.native import KafkaError
from safeproducer.kafka.statistics import Statistics
from safeproducer.pipeline.buffer.in_flight_batch import BatchSinks, InFlightBatch
from safeproducer.pipeline.buffer.partition_buffer import PartitionBuffer
from safeproducer.pipeline.lanes.lane import USED_UP, Lane, LaneFailure
from safeproducer.pipeline.record import HeldRecord
from safeproducer.policy.lanes import RequestCounts
from safeproducer.policy.types import NEVER, TopicPartition
from safeproducer.producer_ids.lane_permits import LanePermit
from safeproducer.runtime import clock

_ACQUIRED = "Acquired "
_ID = re.compile(r"Acquired PID\{Id:(\d+)")
_EARLIEST = 0.95  # of the usual time, when the answer is looked for first
Refuse = Callable[[PartitionBuffer, HeldRecord, KafkaError], None]


class LaneLog:
    """Stands where a logging.Logger would. The first lane tells of the same brokers, so nothing is passed on but what
    the application asked for by a logger of its own. `tells`: it is of the first batch lane, which has statistics."""

    def __init__(self, tells: bool = False) -> None:
        self.acquired = False
        self.producer_id: int | None = None
        self.tells = tells
        self.application: logging.Logger | None = None

    def listening(self, config: dict[str, Any]) -> dict[str, Any]:
        """The configuration of a native producer with this log."""
        self.application = config.get("logger")
        return config | {"logger": self}

    def log(self, level: int, form: str, *args: object) -> None:
        """Learn the producer ID from librdkafka's line, else pass the line on to the application's logger."""
        if not self.acquired and any(isinstance(text, str) and _ACQUIRED in text for text in args):
            self.acquired = True
            found = _ID.search(" ".join(map(str, args)))
            self.producer_id = int(found[1]) if found else None
        elif self.application is not None and level > logging.DEBUG:
            self.application.log(level, form, *args)


class BatchLane(Lane):
    """The sender's thread calls; any thread may ask what is inside.

    `bytes` are those of keys, values and headers inside. `log` tells whether it has its producer ID; None where nobody
    needs to know. `new`: it had no other owner.
    """

    def __init__(
        self,
        client: LaneClient,
        number: int,
        sinks: BatchSinks,
        log: LaneLog | None,
        permit: LanePermit,
        new: bool = True,
    ) -> None:
        super().__init__(number)
        self.client = client
        self.log = log
        self.permit = permit
        self.refused: list[HeldRecord] = []  # records that it did not take because it has failed
        self.used_at = clock.monotonic()
        self._sinks = sinks
        self.counts = RequestCounts(new)
        self.batches: list[InFlightBatch] = []  # those that are not resolved yet, as they were handed over
        self.due = self.soon = NEVER
        """When the answer to the first of them comes, and when it may come at the earliest, by what others took."""
        self.bytes = 0

    @property
    def ready(self) -> bool:
        """Whether it has its producer ID, so that its first batch leaves at once, and takes batches."""
        if self.draining or self.client.failed or self.permit.denied:
            return False
        return self.log is None or self.log.acquired

    @property
    def is_sound(self) -> bool:
        """Whether it is sound and empty. A batch with all its reports is inside until the sender's look."""
        return super().is_sound and not (self.client.failed or self.inside)

    def fail(self, error: KafkaError) -> None:
        """The lane takes no more batches; the records that it has end as they would."""
        self.client.retire(error)

    def newly_failed(self) -> LaneFailure | None:
        """The failure of the lane when it is asked for the first time, else None."""
        if self.failure is not None or self.client.failed is None:
            return None
        self.failure = LaneFailure(self.client.failed)
        return self.failure

    def hand_over(
        self,
        buffer: PartitionBuffer,
        records: list[HeldRecord],
        full: bool,
        now: float,
        refuse: Refuse,
        counted: Callable[[], object] = int,
        broker: int | None = None,
    ) -> InFlightBatch | None:
        """Give `records` to librdkafka as one batch; None when it took none of them.

        `counted()` is called as soon as this lane counts them: at no moment does nobody, or flush() would end.
        """
        batch = InFlightBatch(buffer.tp, records, full, now, self._sinks, buffer.ack, self.number, broker)
        # Noted before the first record goes in: a report may arrive before the last one is in.
        buffer.unresolved.append(batch)
        self.batches.append(batch)
        counted()
        self._expect()
        for record, cause in self._produce(batch):
            refuse(buffer, record, cause)
        if not records:
            self._sinks.completed.append(batch)
            return None
        self.gaps.sent(buffer.tp)
        self.bytes += batch.bytes
        self.counts.handed_over(len(records))
        self.used_at = clock.monotonic()
        return batch

    def _produce(self, batch: InFlightBatch) -> list[tuple[HeldRecord, KafkaError]]:
        """Records that librdkafka did not take, and why."""
        # librdkafka may refuse a record in the middle, or fail for good. Reports are matched with records by their
        # order: one refused leaves the batch at once, and behind a fatal error all the rest do, to wait again
        # (`self.refused`).
        produce, (topic, partition), records = self.client.native.produce, batch.tp, batch.records
        refused: list[tuple[HeldRecord, KafkaError]] = []
        previous = bound = None
        began, count = 0, len(records)
        for index, record in enumerate(tuple(records)):
            value, key, number, timestamp, headers, _, _ = record
            if number != previous:
                if previous is not None:
                    batch.runs.append((previous, index - began))
                previous, began = number, index
                bound = batch.bind(self._sinks.numbers[number])
            try:
                produce(topic, value, key, partition, bound, None, timestamp, headers)
            except NOT_ACCEPTED as raised:
                cause, taken = cause_of(raised), index - len(refused)
                if self.client.fails_by(cause):
                    self.refused = records[taken:]
                    for _ in self.refused:
                        batch.refused(taken)
                    count = index
                    break
                batch.refused(taken)
                refused.append((record, cause))
        if previous is not None and count > began:
            batch.runs.append((previous, count - began))
        return refused

    def takes(self, tp: TopicPartition, now: float) -> bool:
        """Whether a batch of this partition may go by this lane, as far as gaps are concerned."""
        return self.gaps.takes(tp, not self.batches, now)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Purge the native producer: sequence numbers of its partitions may have a gap from then on."""
        self.gaps.purged([batch.tp for batch in self.batches if batch.left], clock.monotonic())
        self.client.native.purge(in_queue, in_flight, blocking)

    def take_out(self) -> None:
        """Purge it of what waits in a queue, and keep the reports: it may be that none was sent."""
        for batch in self.batches:
            batch.reports.late = True
        self.purge(in_flight=False)

    def resolved(self, batch: InFlightBatch) -> None:
        """A batch has all its reports."""
        if self.gaps:
            topic, partition = batch.tp
            if not batch.reports.unknown_outcome:
                self.gaps.acknowledged((topic, partition))
            elif partition < 0:  # librdkafka had chosen one for each record by then
                chosen = [(topic, number) for number in batch.reports.partitions if number is not None]
                self.gaps.purged(chosen, self.gaps.purged_at)
        self.gaps.answered(batch.tp)
        self.batches.remove(batch)
        self.counts.resolved(len(batch.reports.partitions), None if self.batches else clock.monotonic())
        self._expect()
        self.bytes -= batch.bytes
        if self.failure is not None:
            self.failure.count(batch.reports.failed)
        if self.epochs.fenced(batch.reports.fenced):
            self.fail(USED_UP)

    def _expect(self) -> None:
        self.due = self.soon = NEVER
        for first in self.batches[:1]:
            ack_time = first.ack.seconds or 0.0
            self.due = first.sent_at + ack_time
            self.soon = first.sent_at + _EARLIEST * ack_time

    @property
    def inside(self) -> int:
        """How many records of this lane librdkafka has not reported yet."""
        # A copy, made in one step under the interpreter lock: any thread may ask.
        return sum([batch.left for batch in self.batches.copy()])

    def observe(self, statistics: Statistics) -> int:
        """How many splits statistics show."""
        if self.log is not None and statistics.producer_id != self.log.producer_id:
            return 0  # of the lane that it came in place of
        self.look_at_epoch(statistics.producer_epoch)
        if self.batches:
            return 0  # counted while something was under way
        requests = sum(broker.produce_requests for broker in statistics.brokers.values())
        sent = sum(entry.sent for (_, partition), entry in statistics.partitions.items() if partition >= 0)
        return self.counts.observe(statistics.at, requests, sent)
