"""Delivered records of a batch that need only be counted: see reports/counted_report.py."""

from __future__ import annotations

import sys
from typing import Any

from safeproducer.kafka.native import KafkaError, Message
from safeproducer.kafka.pending_error import discard_pending
from safeproducer.pipeline.record import DeliveryCallback
from safeproducer.pipeline.reports.counted_report import CountedBunch, CountedReport
from safeproducer.pipeline.reports.reports import Reports


class Counting:
    """Those of one callback, in a batch of this partition."""

    __slots__ = ("_partition", "count", "report")

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self.count = 0
        self.report: CountedReport | None = None

    def begin(self, report: CountedReport) -> None:
        """The first one of this callback."""
        self.report = report
        self.count = 1

    def pass_on(self, reports: Reports) -> int:
        """Queue what was counted; how many."""
        # One step under the interpreter lock: BatchReports.expire() comes from another thread.
        count, report, self.count, self.report = self.count, self.report, 0, None
        if report is not None:
            reports.add_counted(CountedBunch(report, self._partition, count))
        return count

    def bind(self, batch: Any, report: CountedReport) -> DeliveryCallback:
        """As InFlightBatch.bind()."""
        reports, proves = batch.reports, report.offset_proves

        def reported(error: KafkaError | None, message: Message) -> None:
            try:
                offset = message.offset()
            except:  # noqa: E722 - see discard_pending
                discard_pending(sys.exc_info())
                offset = message.offset()
            batch.left = left = batch.left - 1  # as in bind()
            expired = batch.expired
            if error is not None or expired or (offset is None and proves):
                reports.pass_on()
                batch.reported(len(batch.records) - left - 1, expired, report, error, message)
            elif self.report is report:
                self.count += 1
            else:
                reports.count(report)
            if not left:
                reports.pass_on()
                reports.sinks.completed.append(batch)

        return reported
