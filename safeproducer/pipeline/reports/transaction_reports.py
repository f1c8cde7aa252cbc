"""Reports of records that librdkafka purged because their transaction failed: which of them were never sent.

No request with records of a partition leaves before the partition was added to the transaction. If the coordinator has
forgotten the transactional.id, none is added, librdkafka purges all records, and says "purged in queue", as it says of
records that wait for a retry. So such reports are kept until statistics from after the purge tell whether anything of
their partition was in a request since the transaction began.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from safeproducer.delivery import Delivery
from safeproducer.kafka.native import KafkaError, Message
from safeproducer.kafka.statistics import Statistics
from safeproducer.pipeline.reports.report_queue import ReportQueue, nothing

Explain = Callable[[KafkaError, Message, bool], KafkaError]
"""The error as the application gets it: of a record that certainly was in no request, or may have been in one."""


class TransactionReports:
    """`heard()` on the sender's thread; the rest on the threads that call transactions, one at a time."""

    def __init__(self, explain: Explain) -> None:
        self._explain = explain
        self._queue: ReportQueue | None = None
        self._latest: Statistics | None = None
        self._before: Statistics | None = None

    def connect(self, queue: ReportQueue, delivery: Delivery) -> None:
        """Where reports are kept, unless nobody reads statistics."""
        if delivery.transactional and delivery.mode != "passthrough":
            self._queue = queue

    @property
    def waiting(self) -> bool:
        """Whether reports wait for statistics."""
        return self._queue is not None and bool(self._queue.deferred)

    def begin(self) -> None:
        """What is sent from now on belongs to a new transaction."""
        self._before = self._latest
        self._keep(_purged_in_queue)

    def end(self) -> None:
        """What is purged from now on is reported at once; so is what waits."""
        self._keep(nothing)
        if self._queue is not None:
            self._tell(self._queue, None)

    def _keep(self, which: Callable[[Any], bool]) -> None:
        if self._queue is not None:
            self._queue.keeps = which

    def heard(self, found: Statistics) -> None:
        """Of the native producer."""
        self._latest = found
        if self.waiting and self._queue is not None:
            self._tell(self._queue, found)

    def _tell(self, queue: ReportQueue, found: Statistics | None) -> None:
        """Pass on what these statistics explain; None: what is left, of unknown outcome."""
        for kept in queue.take():
            if found is not None and kept.by >= found.at:
                queue.deferred.append(kept)
            else:
                error = self._explain(kept.error, kept.message, found is not None and self._unsent(kept.message, found))
                queue.reports.add(kept.run, error, kept.message, len(kept.message))

    def _unsent(self, message: Message, found: Statistics) -> bool:
        topic, partition = message.topic(), message.partition()
        if topic is None or partition is None:
            return True
        now = found.partitions.get((topic, partition))
        before = None if self._before is None else self._before.partitions.get((topic, partition))
        return now is not None and now.sent == (0 if before is None else before.sent)


def _purged_in_queue(error: Any) -> bool:
    return bool(error.code() == KafkaError._PURGE_QUEUE)
