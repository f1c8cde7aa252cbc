"""Transactions of asyncio: each call of the client runs in a thread, and one that has begun is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from inspect import iscoroutinefunction
from typing import Any, Self

from safeproducer.errors import TransactionError
from safeproducer.producer import SafeProducer
from safeproducer.submitting import abort, begin_transaction, commit, of_one_generation, offsets_in


class Transactional:
    """Methods of AsyncSafeProducer: `timeout` in seconds, `positions` and `group_metadata` as SafeProducer's.

    `producer` is the SafeProducer, for threads.
    """

    producer: SafeProducer
    _in_block = False

    async def _in_thread(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def init_transactions(self, timeout: float = -1) -> None:
        """As SafeProducer.init_transactions(): once, before the first transaction."""
        await self._in_thread(self.producer.init_transactions, timeout)

    async def send_offsets_to_transaction(self, positions: Any, group_metadata: Any, timeout: float = -1) -> None:
        """As SafeProducer.send_offsets_to_transaction(), inside the block of a transaction()."""
        await self._in_thread(self.producer.send_offsets_to_transaction, positions, group_metadata, timeout)

    @asynccontextmanager
    async def transaction(self, timeout: float = -1, *, offsets_of: Any = None) -> AsyncIterator[Self]:
        """Begin a transaction; commit it at the end of the block, abort it on any exception and on cancellation.

        `timeout` and `offsets_of` as of SafeProducer.transaction(); an AIOConsumer is a consumer, too. A commit that
        is cancelled is waited for: `ended` of the CancelledError says whether it succeeded. Raises TransactionAborted
        if it cannot be committed: it is aborted then; TransactionUnknown if the commit has no answer; FatalError if
        another instance took over. Records that are "delivered" are in the log then, and not committed. One block at a
        time; raises TransactionError for another one, without a `transactional.id`, and for `offsets_of` what is no
        consumer in a group.
        """
        before = await _offsets_in(offsets_of)
        if self._in_block:
            raise TransactionError("a transaction is open already: leave its block before another one begins")
        if SafeProducer.snapshot(self.producer).transactional_id is None:
            raise TransactionError("set transactional.id, and call init_transactions() once, for transaction()")
        self._in_block = True
        try:
            try:
                await self._to_its_end(begin_transaction, self.producer, timeout)
            except asyncio.CancelledError as error:
                if error.ended:  # type: ignore[attr-defined]
                    await self._aborted(timeout)
                raise
            try:
                yield self
                offsets = of_one_generation(before, await _offsets_in(offsets_of))
            except BaseException:
                await self._aborted(timeout)
                raise
            await self._to_its_end(commit, self.producer, timeout, offsets)
        finally:
            self._in_block = False

    async def _aborted(self, timeout: float) -> None:
        with suppress(asyncio.CancelledError):  # the exception that ends the block goes on
            await self._to_its_end(abort, self.producer, timeout)

    async def _to_its_end(self, call: Callable[..., Any], *args: Any) -> None:
        """Wait for a call in the thread, whoever cancels meanwhile: then CancelledError tells how it `ended`.

        A begin that is left alone begins all the same, and each later one fails.
        """
        running = asyncio.ensure_future(self._in_thread(call, *args))
        cancelled: asyncio.CancelledError | None = None
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is None:
            running.result()
            return
        cause = running.exception()
        cancelled.ended = cause is None  # type: ignore[attr-defined]
        cancelled.cause = cause  # type: ignore[attr-defined]
        name = f"{call.__name__.removesuffix('_transaction')}_transaction()"
        cancelled.add_note(f"{name} {'succeeded' if cause is None else f'failed: {cause}'}")
        try:
            raise cancelled
        finally:
            del cancelled  # it refers to this frame: a cycle


async def _offsets_in(consumer: Any) -> tuple[Any, Any] | None:
    """As offsets_in(), also of a consumer whose methods are coroutine functions."""
    if not iscoroutinefunction(getattr(consumer, "position", None)):
        return offsets_in(consumer)
    return await consumer.position(await consumer.assignment()), await consumer.consumer_group_metadata()
