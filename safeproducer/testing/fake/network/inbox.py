"""Requests on their way in: each is worked on when its delay is over, as on a long link."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

__all__ = ["Inbox"]

_MOST_BYTES = 64 * 1024 * 1024
_REQUEST_BYTES = 1000  # of memory, beside the frame itself

T = TypeVar("T")


class Inbox(Generic[T]):
    """Requests in order. Once used, all that follow have to go through it, or they would overtake."""

    def __init__(self, work: Callable[[T], Awaitable[None]]) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[tuple[float, int, T]] = asyncio.Queue()
        self._bytes = 0
        self._room = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    @property
    def used(self) -> bool:
        """Whether anything was ever put in."""
        return self._worker is not None

    async def put(self, request: T, size: int, delay: float) -> None:
        """Queue it; waits while too many bytes are queued. Raises what the work has raised."""
        size += _REQUEST_BYTES
        if self._worker is None:
            self._worker = self._loop.create_task(self._drain())
        while self._bytes and self._bytes + size > _MOST_BYTES and not self._worker.done():
            self._room.clear()
            await self._room.wait()
        if self._worker.done():
            await self._worker
        self._bytes += size
        self._queue.put_nowait((self._loop.time() + delay, size, request))

    async def _drain(self) -> None:
        try:
            while True:
                due, size, request = await self._queue.get()
                try:
                    await asyncio.sleep(max(0.0, due - self._loop.time()))
                    await self._work(request)
                finally:
                    self._bytes -= size
                    self._queue.task_done()
                    self._room.set()
        finally:
            self._room.set()

    async def finish(self) -> None:
        """Work on what is queued: the sender has said all it had to say. Raises what the work raises."""
        if self._worker is not None:
            joined = self._loop.create_task(self._queue.join())
            try:
                await asyncio.wait((joined, self._worker), return_when=asyncio.FIRST_COMPLETED)
                if self._worker.done():
                    await self._worker
            finally:
                joined.cancel()

    async def close(self) -> None:
        """Forget what is queued."""
        if self._worker is not None:
            self._worker.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._worker
