"""The report of a record that went directly, where the application asks for errors alone: it need only be counted.

A callback serves so many records there that it may cost more to make: 80 ns more, for 40 ns less a record.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from safeproducer.kafka.native import KafkaError, Message
from safeproducer.kafka.pending_error import discard_pending
from safeproducer.pipeline.process import stack
from safeproducer.pipeline.process.record import DeliveryCallback
from safeproducer.pipeline.reports.counted_report import Delivered
from safeproducer.pipeline.reports.report_queue import ReportQueue


def quick_reports(
    report: Callable[..., None], placed: Callable[[int], Delivered], report_queue: ReportQueue, offset_proves: bool
) -> Callable[[DeliveryCallback | None], DeliveryCallback]:
    """Makes the report callbacks of a topic. `report(callback, error, message)` does what is not done here; `placed`,
    `offset_proves`: see delivery_counters.py."""
    known: dict[int, Delivered] = {}

    def made(callback: DeliveryCallback | None) -> DeliveryCallback:
        def counted(error: KafkaError | None, message: Message) -> None:
            try:
                number: Any = message.partition()
            except:  # noqa: E722 - see discard_pending
                discard_pending(sys.exc_info())
                number = message.partition()
            if error is None and not report_queue.on and (message.offset() is not None or not offset_proves):
                try:
                    known[number].delivered += 1
                except KeyError:  # the first one of this partition
                    known[number] = placed(number)
                else:
                    return
            report(callback, error, message)

        return counted

    stack.called_natively(made(None))  # by its code, which all of them share
    return made
