"""The records of one send_batch(): they have one future together, and wake the loop once, when all have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, overload

from safeproducer.aio.settling import Settling
from safeproducer.errors import DeliveryError, DeliveryFailed, FatalError, RecordTypeError, failed
from safeproducer.kafka.native import KafkaError, KafkaException, Message
from safeproducer.pipeline.accepting import accept
from safeproducer.pipeline.buffer.partition_buffer import Ticket
from safeproducer.pipeline.bulk import checked
from safeproducer.policy.outcome import Outcome
from safeproducer.records import DeliveredRecord, delivered


class BatchResult(Sequence[DeliveredRecord | DeliveryFailed]):
    """The end of each message of a batch, in their order: a DeliveredRecord, or a NotWritten or OutcomeUnknown.

    It is made of these `outcomes`.
    """

    def __init__(self, outcomes: Sequence[DeliveredRecord | DeliveryFailed]) -> None:
        self._outcomes = outcomes

    @overload
    def __getitem__(self, index: int) -> DeliveredRecord | DeliveryFailed: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[DeliveredRecord | DeliveryFailed]: ...
    def __getitem__(self, index: Any) -> Any:
        return self._outcomes[index]

    def __len__(self) -> int:
        return len(self._outcomes)

    @property
    def delivered(self) -> list[DeliveredRecord]:
        """The records of this batch that were delivered."""
        return [each for each in self._outcomes if isinstance(each, DeliveredRecord)]

    @property
    def failed(self) -> list[DeliveryFailed]:
        """The failures of those that were not."""
        return [each for each in self._outcomes if isinstance(each, DeliveryFailed)]

    def raise_for_failures(self) -> None:
        """Raise an ExceptionGroup of the failures, if there are any."""
        if failures := self.failed:
            raise ExceptionGroup(f"{len(failures)} of {len(self)} records were not delivered", failures)


class BatchDelivery:
    """The records of a send_batch() that was cancelled: `delivery` of its CancelledError.

    This package makes it for `count` records, from `settling`.
    """

    def __init__(self, count: int, settling: Settling) -> None:
        self.ends: list[Any] = [None] * count
        self._settling = settling
        self._waiting: list[tuple[int, Ticket, Any]] = []
        self._accepted = self._open = 0
        self._complete = False
        self._abandoned: list[int] = []
        self._ended = asyncio.Event()
        self._pending = settling.pending
        self._pending.count += 1

    def accept(self, topic: str, *record: Any) -> None:
        """Accept the next `record` for `topic`, or have it that it was refused. For this package, as complete()."""
        index = self._accepted
        report = partial(self._report, index)
        self._open += 1
        self._accepted += 1
        try:
            if (ticket := accept(self._settling.engine, report, topic, *record)) is not None:
                self._waiting.append((index, ticket, report))
        except BaseException as error:
            self._open -= 1
            if not isinstance(error, KafkaException) or isinstance(error, FatalError):
                self._accepted -= 1
                raise
            self.ends[index] = failed(DeliveryError(error.args[0], Outcome.NOT_WRITTEN, topic, attempts=0))

    def _report(self, index: int, error: KafkaError | None, message: Message) -> None:
        """The report of a record, on whichever thread serves."""
        self.ends[index] = delivered(message) if error is None else failed(error)
        self._open -= 1  # one step, see counters.py: two threads may serve
        if self._complete and not self._open:
            self._settling.soon(self._end)

    def complete(self) -> None:
        """The batch accepts no more records, and ends with the last of those that it has."""
        self._complete = True
        if not self._open:
            self._end()

    def _end(self) -> None:
        if not self._ended.is_set():
            self._ended.set()
            self._settling.end_batch(self._pending, [self.ends[index] for index in self._abandoned])

    def cancel(self) -> None:
        """Take back what still waits in this process; what was handed over goes on."""
        self.complete()
        held = {index for index, _, _ in self._waiting}
        for index, ticket, report in self._waiting:
            if self.ends[index] is None:
                self._settling.take_back(ticket, report, partial(self._abandon, index))
        for index in range(self._accepted):
            if index not in held:
                self._abandon(index)

    def _abandon(self, index: int) -> None:
        if self.ends[index] is None:
            self._abandoned.append(index)
            self._settling.abandon(1)

    @property
    def outcomes(self) -> list[str]:
        """One for each message, in order, as of a Delivery; "not_written" of those that were not accepted."""
        return [_outcome(end, index < self._accepted) for index, end in enumerate(self.ends)]

    async def settled(self) -> list[str]:
        """The outcomes, as soon as all are known. To cancel this cancels nothing else."""
        await self._ended.wait()
        return self.outcomes


def _outcome(end: Any, accepted: bool) -> str:
    if end is None:
        return "pending" if accepted else "not_written"
    return "delivered" if isinstance(end, DeliveredRecord) else str(end.outcome)


def records_of(messages: Any, partition: int) -> list[tuple[Any, ...]]:
    """(value, key, partition, timestamp, headers) of each message, as of produce_batch(). Raises RecordTypeError."""
    if not isinstance(messages, list):
        raise RecordTypeError(f"messages must be a list of dicts, not {type(messages).__name__}")
    try:
        return [checked(index, message, partition, None)[:-1] for index, message in enumerate(messages)]
    except TypeError as error:
        raise RecordTypeError(str(error)) from None
