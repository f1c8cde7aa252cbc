"""Handing over with record hooks: the slower way that exists only when a hook asks for records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from safeproducer.hooks import Hooks
from safeproducer.kafka.native import KafkaError, Message
from safeproducer.pipeline.ledger import DeliveryCallback
from safeproducer.records import Record


class ObservedSend:
    """Takes the place of the native produce(): makes a Record, tells the hooks, and hands over.

    `open` holds the records without a report, so that a hook can be told which ones were lost.
    """

    def __init__(self, send: Callable[..., None], hooks: Hooks) -> None:
        self._send = send
        self._hooks = hooks
        self.open: set[Record] = set()

    def __call__(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        report: DeliveryCallback,
        _: None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        hooks, open_records = self._hooks, self.open
        try:
            copied = Record.copied_headers(headers)
        except TypeError:  # not a form of headers: the native call says so as stock does
            copied = []
        record = Record(topic, value, key, partition, timestamp, copied)
        hooks.call("record_accepted", record)

        def resolve(error: KafkaError | None, message: Message) -> None:
            open_records.discard(record)
            hooks.call("record_resolved", record, error, message)
            report(error, message)

        open_records.add(record)
        sent_headers = record.headers if record.headers_changed else headers
        try:
            self._send(topic, value, key, partition, resolve, None, timestamp, sent_headers)
        except Exception as refusal:
            open_records.discard(record)
            hooks.call("record_refused", record, refusal)
            raise
