"""How many records may wait in a producer: the limits of its buffer, and the share of each partition or broker."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from safeproducer.delivery import Delivery
from safeproducer.errors import QueueFullError
from safeproducer.kafka.native import KafkaError, KafkaException, NativeProducer
from safeproducer.pipeline.holds import Holds
from safeproducer.pipeline.lane_pool import LanePool
from safeproducer.pipeline.partition_buffer import MOST_OVERHEAD, PartitionBuffer
from safeproducer.pipeline.quota_rejections import QuotaRejections
from safeproducer.pipeline.record import OVERHEAD, HeldRecord
from safeproducer.pipeline.report_queue import ReportQueue
from safeproducer.policy.admission import Hold
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.never import NEVER
from safeproducer.policy.share import ALWAYS_FREE, has_share

_TURN = Hold(None, HoldReason.TURN)
_SHARES = 64
"""A share of the buffer is looked at each time another part of so many is filled: it costs more than the record."""


class RecordBuffer:
    """Counts the records of one producer, where they are, when somebody asks. Any thread may.

    - `accumulators`: by partition; owned by the dispatcher.
    - `taken`: records that the sender has taken from a partition buffer and not given to a lane yet.
    - `running`: threads that run a report now.
    """

    def __init__(
        self,
        delivery: Delivery,
        holds: Holds,
        direct: NativeProducer | None,
        lanes: LanePool,
        report_queue: ReportQueue,
        rejections: QuotaRejections,
        buffers: Mapping[tuple[str, int], PartitionBuffer],
    ) -> None:
        self._most = delivery.buffer
        self._holds = holds
        self._direct: Any = direct
        self._lanes = lanes
        self._report_queue = report_queue
        self._rejections = rejections
        self._buffers = buffers
        self.taken: list[HeldRecord] = []
        self.running: set[int] = set()
        self._room = 0
        self._room_bytes = 0.0
        """How much more is accepted, in records and bytes, before the shares of the buffer are looked at again."""

    def look_again(self) -> None:
        """Something changed that shares depend on, or records took a way that is not counted here."""
        self._room = 0

    def refuse_excess(self, buffer: PartitionBuffer, size: int) -> None:
        """Raise what produce() raises when a record of `size` bytes is too large, or there is no room for it."""
        most = self._most
        if size + MOST_OVERHEAD > most.record_bytes:
            raise unable(KafkaError.MSG_SIZE_TOO_LARGE)
        most_bytes = most.bytes
        if self._room > 0 and size <= self._room_bytes:
            self._room -= 1
            self._room_bytes -= size
            return
        limit, total, total_bytes = most.records, self.records, self.bytes(size)
        if (limit is not None and total >= limit) or (most_bytes is not None and total_bytes + size > most_bytes):
            raise QueueFullError(self.full())
        crowded = limit is not None and total >= limit * ALWAYS_FREE
        crowded_bytes = most_bytes is not None and total_bytes >= most_bytes * ALWAYS_FREE
        if crowded or crowded_bytes:
            records, held_bytes, others = self._group(buffer)
            if (crowded and limit is not None and not has_share(records, total, limit, others)) or (
                crowded_bytes and most_bytes is not None and not has_share(held_bytes, total_bytes, most_bytes, others)
            ):
                raise QueueFullError(self.full(buffer))
        self._room = _SHARES if limit is None else min(limit // _SHARES, limit - total) - 1
        self._room_bytes = NEVER
        if most_bytes is not None:
            self._room_bytes = min(most_bytes // _SHARES, most_bytes - total_bytes) - size

    def _group(self, buffer: PartitionBuffer) -> tuple[int, int, bool]:
        """(records, bytes) that wait with this partition for the same broker, and whether anybody else is in need."""
        now = time.monotonic()
        leader_of = self._holds.partitions.leader
        node = leader_of(buffer.topic, buffer.partition)
        blocked = self._holds.blocks(buffer, now)
        records = held_bytes = 0
        for other in tuple(self._buffers.values()):
            if other is buffer or (blocked and leader_of(other.topic, other.partition) == node):
                records += other.waiting
                held_bytes += other.bytes
        buffers = tuple(self._buffers.values())
        if not blocked:
            return records, held_bytes, any(other is not buffer and other.waiting for other in buffers)
        silent = {leader_of(*other.tp) for other in buffers if self._holds.is_silent(other, now)}
        return records, held_bytes, self._holds.cluster.serves_others(node, silent, now)

    def full(self, buffer: PartitionBuffer | None = None) -> str:
        """Why no record is accepted now, for one partition if it has used up its share, and what to do."""
        subject = (
            f"{self.queued} records and events are waiting in this producer (queue.buffering.max.messages, "
            f"queue.buffering.max.kbytes)"
            if buffer is None
            else f"{buffer.topic} [{buffer.partition}] has used up its share of the buffer"
        )
        return (
            f"Local: Queue full: {subject}{self._largest()}. Call poll() to serve delivery reports, then produce the "
            f"record again"
        )

    def _largest(self) -> str:
        busy = [buffer for buffer in tuple(self._buffers.values()) if buffer.waiting]
        if not busy:
            return ""
        most = max(busy, key=lambda buffer: buffer.bytes)
        now = time.monotonic()
        return (
            f"; most of the memory is held by {most.topic} [{most.partition}]: {most.waiting} records of "
            f"{most.bytes} bytes, because it {self.waits_for(most, now).sentence(now)}"
        )

    def waits_for(self, buffer: PartitionBuffer, now: float) -> Hold:
        """What those that wait there wait for, also before the sender has looked at them."""
        hold = buffer.why or buffer.held or self._holds.reason(buffer, now) or _TURN
        return self._holds.told(hold, buffer, now)

    @property
    def queued(self) -> int:
        """What len(producer) says of what is here and in the lanes."""
        return self.records + self._lanes.events

    @property
    def waiting(self) -> int:
        """Records that wait here."""
        # In the order in which records go, or one that goes on meanwhile would be missed.
        return sum([buffer.waiting for buffer in tuple(self._buffers.values())]) + len(self.taken)

    @property
    def waiting_bytes(self) -> int:
        """Of keys, values and headers of the records that wait here."""
        waiting = tuple(self._buffers.values())
        return sum([buffer.bytes - OVERHEAD * buffer.waiting for buffer in waiting])

    @property
    def records(self) -> int:
        """What counts against queue.buffering.max.messages.

        Looked at in the order in which records go, or one that goes on meanwhile would be missed, and flush() end.
        """
        count = self.waiting + self._lanes.records
        if self._direct is not None:
            count += len(self._direct)
        return (
            count
            + self._rejections.count
            + len(self._report_queue.deferred)
            + self._report_queue.reports.count
            + len(self.running)
            or self.waiting  # what a quota refused goes back there
        )

    def bytes(self, usual: int = 0) -> int:
        """What counts against queue.buffering.max.kbytes.

        Of the direct lane as many as its records take usually: `usual` as long as no statistics have told. Records
        whose reports nobody has served count, too: they are in memory.
        """
        count = self.waiting_bytes + self._lanes.bytes + self._report_queue.bytes + self._rejections.bytes
        if (direct := self._holds.direct) is not None:
            count += int(len(self._direct) * (direct.record_bytes or usual))
        return count


def unable(code: int) -> KafkaException:
    """What the native produce() raises."""
    return KafkaException(KafkaError(code, f"Unable to produce message: {KafkaError(code).str()}"))
