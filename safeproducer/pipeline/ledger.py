"""Who accepted what, and what became of it: the per-record account of one producer.

Counters are plain integers changed by in-place addition. Under the interpreter lock that is one step: CPython looks
for signals and thread switches only at calls, at jumps backwards and at function entry, never between the load and
the store of `x.n += 1`. A test hammers it from many threads.

A partition is known at produce() only when the caller gives it; otherwise librdkafka chooses, and the report tells.
So a record without a partition is accepted on its topic and resolved on a partition.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from safeproducer.kafka.native import KafkaError, Message
from safeproducer.pipeline.callbacks import CallbackErrors
from safeproducer.snapshot import PartitionSnapshot

DeliveryCallback = Callable[[KafkaError | None, Message], Any]
Bound = tuple[object, DeliveryCallback | None]

NOT_BOUND: Bound = (object(), None)
UNASSIGNED = -1


class PartitionAccount:
    """Records sent to one partition: `accepted`, `delivered`, `failed` where the caller named it, `placed` and
    `placed_failed` where librdkafka chose it."""

    __slots__ = ("accepted", "bound", "delivered", "errors", "failed", "only_errors", "placed", "placed_failed")

    def __init__(self, only_errors: bool, errors: CallbackErrors) -> None:
        self.errors = errors
        self.accepted = 0
        self.delivered = 0
        self.failed = 0
        self.placed = 0
        self.placed_failed = 0
        self.only_errors = only_errors
        self.bound = NOT_BOUND

    def bind(self, callback: DeliveryCallback | None) -> Bound:
        """Compose the report callback for `callback` once; callers reuse it while the callback stays the same."""
        only_errors = self.only_errors
        errors = self.errors

        def report(error: KafkaError | None, message: Message) -> None:
            try:
                message.partition()
            except:  # noqa: E722 - see discard_pending
                discard_pending(sys.exc_info())
            if error is None:
                self.delivered += 1
                if only_errors:
                    return
            else:
                self.failed += 1
            if callback is not None:
                try:
                    callback(error, message)
                except BaseException as raised:
                    errors.note(raised)
                    raise

        self.bound = bound = (callback, report)
        return bound


class Partitions(dict[int, PartitionAccount]):
    """Partition accounts of a topic, opened on first use."""

    def __init__(self, only_errors: bool, errors: CallbackErrors) -> None:
        super().__init__()
        self._only_errors = only_errors
        self._errors = errors

    def __missing__(self, partition: int) -> PartitionAccount:
        # setdefault: two threads may find the same partition missing at once, and both must count on one account.
        return self.setdefault(partition, PartitionAccount(self._only_errors, self._errors))


class TopicAccount:
    """Records of one topic whose partition librdkafka chooses, and the accounts of its partitions."""

    __slots__ = ("accepted", "bound", "errors", "only_errors", "partitions")

    def __init__(self, only_errors: bool, errors: CallbackErrors) -> None:
        self.errors = errors
        self.accepted = 0
        self.only_errors = only_errors
        self.partitions = Partitions(only_errors, errors)
        self.bound = NOT_BOUND

    def explicit(self, partition: int) -> PartitionAccount:
        try:
            return self.partitions[partition]
        except TypeError:  # unhashable: the native call refuses it with stock's own error
            return PartitionAccount(self.only_errors, self.errors)

    def bind(self, callback: DeliveryCallback | None) -> Bound:
        """As PartitionAccount.bind(), counting on the partition the report names."""
        partitions = self.partitions
        only_errors = self.only_errors
        errors = self.errors

        def report(error: KafkaError | None, message: Message) -> None:
            try:
                partition: Any = message.partition()
            except:  # noqa: E722 - see discard_pending
                discard_pending(sys.exc_info())
                partition = message.partition()
            if error is None:
                partitions[partition].placed += 1
                if only_errors:
                    return
            else:
                partitions[UNASSIGNED if partition is None else partition].placed_failed += 1
            if callback is not None:
                try:
                    callback(error, message)
                except BaseException as raised:
                    errors.note(raised)
                    raise

        self.bound = bound = (callback, report)
        return bound


def discard_pending(raised: tuple[Any, Any, Any]) -> None:
    """Swallow a fatal error that the C client left pending; re-raise anything else.

    When librdkafka reports a fatal error while flush() serves delivery reports, the C client sets a Python exception
    and goes on calling callbacks; the first C call inside one then fails for no fault of its own, and a callback that
    does not catch that loses its record's report. The exception can even be a KafkaError, which is no BaseException.
    The producer learns of the fatal error from the flush itself.
    """
    kind, error, _ = raised
    if not (issubclass(kind, (SystemError, KafkaError))):
        raise error


class Ledger:
    """The accounts of one producer, by topic. Shared by every thread that produces or polls."""

    def __init__(self, only_errors: bool) -> None:
        self.topics: dict[str, TopicAccount] = {}
        self.interrupts = 0
        self.errors = CallbackErrors()
        self._only_errors = only_errors

    def open(self, topic: Any) -> TopicAccount:
        """The account of a topic seen for the first time."""
        if not isinstance(topic, str):  # refused by the native call with stock's own error; nothing to remember
            return TopicAccount(self._only_errors, self.errors)
        return self.topics.setdefault(topic, TopicAccount(self._only_errors, self.errors))

    def totals(self) -> tuple[int, int, int]:
        """(accepted, delivered, failed). Reports are read first, so that accepted is never the smaller one."""
        delivered = failed = accepted = 0
        for topic in list(self.topics.values()):
            for row in list(topic.partitions.values()):
                delivered += row.delivered + row.placed
                failed += row.failed + row.placed_failed
        for topic in list(self.topics.values()):
            accepted += topic.accepted + sum(row.accepted for row in list(topic.partitions.values()))
        return accepted, delivered, failed

    def outstanding(self, queued: int) -> tuple[int, int]:
        """(unresolved, interrupted), given how much librdkafka still holds.

        A signal can stop a report after librdkafka gave it away and before it was counted; only then do the counters
        claim more than librdkafka holds.
        """
        accepted, delivered, failed = self.totals()
        missing = accepted - delivered - failed
        interrupted = min(self.interrupts, max(0, missing - queued))
        return missing - interrupted, interrupted

    def partitions(self) -> tuple[PartitionSnapshot, ...]:
        """One row for each partition with records, and one with partition -1 for those not on a partition yet."""
        rows = []
        for name, topic in sorted(self.topics.items()):
            waiting = topic.accepted
            never_placed = 0
            for number, row in sorted(topic.partitions.items()):
                waiting -= row.placed + row.placed_failed
                if number == UNASSIGNED:
                    never_placed = row.placed_failed
                    continue
                delivered, failed = row.delivered + row.placed, row.failed + row.placed_failed
                accepted = row.accepted + row.placed + row.placed_failed
                if accepted:
                    rows.append(
                        PartitionSnapshot(
                            name, number, accepted, delivered, failed, max(0, accepted - delivered - failed)
                        )
                    )
            if waiting > 0 or never_placed:
                unresolved = max(0, waiting)
                rows.append(PartitionSnapshot(name, UNASSIGNED, unresolved + never_placed, 0, never_placed, unresolved))
        return tuple(sorted(rows, key=lambda row: (row.topic, row.partition)))
