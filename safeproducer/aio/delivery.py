"""One record on its way, as an asyncio.Future whose record outlives its cancellation."""

from __future__ import annotations

import asyncio
from typing import Any

from safeproducer.errors import failed
from safeproducer.kafka.native import KafkaError, Message
from safeproducer.pipeline.buffer.partition_buffer import Ticket

_TOLD: Any = object()
"""In place of a Message that nobody needs any more."""


class Pending:
    """Records that were accepted and have not ended, between two flushes."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Delivery(asyncio.Future[Any]):
    """One accepted record: a future of its DeliveredRecord, which raises NotWritten or OutcomeUnknown.

    To cancel it, directly or by cancelling a task that awaits it, takes the record back while it waits in this process.
    A record that was handed over goes on. `outcome` says what became of a cancelled one, too.

    This package makes it, from `settling`, `pending` and `loop`, and calls it with the report: `error` and `message`.
    `abandoned`: it was handed over, and nobody awaits it any more.
    """

    __slots__ = ("_error", "_message", "_settled", "_settling", "abandoned", "pending", "ticket")

    def __init__(self, settling: Any, pending: Pending, loop: asyncio.AbstractEventLoop | None) -> None:
        super().__init__(loop=loop)
        self._settling = settling
        self.pending = pending
        self._error: Any = None
        self._message: Message | None = None
        self._settled: asyncio.Event | None = None
        self.abandoned = False
        self.ticket: Ticket | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """The record's report, on whichever thread serves. For this package."""
        self._error = error
        self._message = message  # last: outcome asks for it first
        self._settling.put(self)

    @property
    def outcome(self) -> str:
        """ "pending", "delivered", "not_written" or "unknown". Any thread, at any time."""
        if self._message is None:
            return "pending"
        return "delivered" if self._error is None else str(self._error.outcome)

    def cancel(self, msg: Any = None) -> bool:
        """End the waiting, and take the record back if it still waits in this process: see `outcome` and settled().

        False when it has ended already. `msg` as of asyncio.Future.
        """
        if not super().cancel(msg):
            return False
        if self._message is None:
            self._settling.cancelled(self)
        return True

    async def withdraw(self) -> bool:
        """Take the record back if it still waits in this process; whether that was done, as soon as it is known.

        If it was, whoever awaits the record gets NotWritten. Else the record goes on as if nothing had happened.
        """
        if self._message is not None or not await self._settling.withdrawn(self):
            return False
        self.add_done_callback(_hear)
        return await self.settled() == "not_written"

    async def settled(self) -> str:
        """The outcome, as soon as it is known. To cancel this cancels nothing else."""
        if self._message is None:
            if self._settled is None:
                self._settled = asyncio.Event()
            await self._settled.wait()
        return self.outcome

    def settle(self) -> bool:
        """On the loop: end the future, unless it was cancelled; whether it was abandoned. For this package."""
        error, message = self._error, self._message
        self.pending.count -= 1
        if not self.done():
            if error is None:
                self.set_result(self._settling.result(message))
            else:
                self.set_exception(failed(error))
        if self._settled is not None:
            self._settled.set()
        if not self.abandoned:
            self._message = _TOLD  # or whoever keeps many futures keeps their payloads, and the collector looks at each
        return self.abandoned

    @property
    def place(self) -> tuple[Any, Any]:
        """Topic and partition, of one that has ended. For this package."""
        message = self._message
        return (None, None) if message is None else (message.topic(), message.partition())


def _hear(delivery: asyncio.Future[Any]) -> None:
    """Nobody needs to be told a second time."""
    if not delivery.cancelled():
        delivery.exception()
