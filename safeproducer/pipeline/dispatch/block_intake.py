"""Records of one partition that are accepted together, as produce() accepts them one by one on the buffered path.

For the sink of Spark far from the brokers: a record's share of the work is a fraction of Intake.send().
"""

from __future__ import annotations

from itertools import repeat

from safeproducer.pipeline.buffer.partition_buffer import PartitionBuffer
from safeproducer.pipeline.dispatch.intake import Intake
from safeproducer.pipeline.record import OVERHEAD, REPORT, DeliveryCallback, HeldRecord
from safeproducer.runtime import clock


class BlockIntake(Intake):
    """Any thread."""

    def send_block(
        self,
        topic: str,
        partition: int,
        values: list[bytes | None],
        keys: list[bytes | None],
        sizes: list[int],
        report: DeliveryCallback,
    ) -> bool:
        """Take records of one partition in one step; False when they must be taken one by one, and none was.

        `sizes`: bytes of value and key of each. All have one timestamp, that of this call. Raises what produce() raises
        when there is no room for all of them.
        """
        now = clock.monotonic()
        if (buffer := self._buffer_for_block(topic, partition)) is None:
            return False
        size, count = sum(sizes), len(sizes)
        self._record_buffer.refuse_excess(buffer, size, count, max(sizes))
        stamp, number = int(clock.time() * 1000), id(report)
        lengths = [length + OVERHEAD for length in sizes]
        same = repeat(number), repeat(stamp), repeat(None)
        records: list[HeldRecord] = list(zip(values, keys, *same, lengths, repeat(now), strict=False))
        self._extend(buffer, records, report, size + OVERHEAD * count)
        self._extended(buffer, count, now)
        return True

    def _extend(self, buffer: PartitionBuffer, records: list[HeldRecord], report: DeliveryCallback, size: int) -> None:
        waiting, numbers = buffer.records, self._numbers
        reports, uses, number, count = numbers.reports, numbers.uses, records[0][REPORT], len(records)
        # Up to the end of extend() there is no place where a signal handler could come between: see _append().
        uses[number] += count
        reports[number] = report
        buffer.bytes += size
        waiting.extend(records)

    def _buffer_for_block(self, topic: str, partition: int) -> PartitionBuffer | None:
        """Where records of a partition wait together; None when they must be taken one by one."""
        tp = (topic, partition)
        buffer = self._buffers.get(tp) or self._open(tp, partition)
        waits = buffer.held or buffer.records or self.rechecks or self._holds.direct is None
        return (
            buffer if waits and topic not in self._lanes.missing and not self._placement.has_unplaced(topic) else None
        )

    def _extended(self, buffer: PartitionBuffer, count: int, now: float) -> None:
        """As many records wait there since `now`: as behind the append() of one."""
        if self.retired is not None:
            for _ in range(count - 1):
                self._numbers.release(buffer.take_last()[REPORT])
            self._refuse_last(buffer, self.retired)
        self._record_buffer.busy[buffer.tp] = buffer
        self._schedule.begin(now)
        full = len(buffer.records) >= self._batch_records or buffer.bytes >= self._batch_bytes
        if full and ((why := buffer.why) is None or not why.reason.unchanged_by_records):
            self._schedule.hurry()
