"""A connection keeps requests on their way in and frames on their way out, each until its delay is over."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

_MOST_BYTES = 64 * 1024 * 1024
_REQUEST_BYTES = 1000  # of memory, beside the frame itself

T = TypeVar("T")


class Inbox(Generic[T]):
    """Requests in order. Once used, all that follow have to go through it, or they would overtake."""

    def __init__(self, work: Callable[[T], Awaitable[None]]) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[tuple[float, int, T, asyncio.Event | None]] = asyncio.Queue()
        self._bytes = 0
        self._room = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    @property
    def used(self) -> bool:
        return self._worker is not None

    async def put(self, request: T, size: int, delay: float, held: asyncio.Event | None = None) -> None:
        """Queue it, until `held` is set if it is given; waits while too many bytes are queued. Raises what the work has
        raised."""
        size += _REQUEST_BYTES
        if self._worker is None:
            self._worker = self._loop.create_task(self._drain())
        while self._bytes and self._bytes + size > _MOST_BYTES and not self._worker.done():
            self._room.clear()
            await self._room.wait()
        if self._worker.done():
            await self._worker
        self._bytes += size
        self._queue.put_nowait((self._loop.time() + delay, size, request, held))

    async def _drain(self) -> None:
        try:
            while True:
                due, size, request, held = await self._queue.get()
                try:
                    if held is not None:
                        await held.wait()
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
        """Forget the requests that are queued, and the one that is being worked on."""
        if self._worker is not None:
            self._worker.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._worker


MOST_BYTES = 16 * 1024 * 1024
"""Bytes of one connection; more than the answers that a link of seconds holds."""
_STEP_BYTES = 1000  # of memory, beside the answer itself


class Outbox:
    """Steps that never overtake each other. Used on the cluster's thread only."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[float, int, Callable[[], object]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._held = False
        self._room = asyncio.Event()
        self._room.set()
        self.bytes = 0
        """How many bytes wait here to be sent."""

    def put(self, delay: float, step: Callable[[], object], size: int = 0) -> None:
        """Do it after so many seconds, and after all steps put before it; at once if nothing stands against it.

        ``size`` is how many bytes it sends.
        """
        if not self._waiting and not self._held and delay <= 0:
            step()
            return
        due = self._loop.time() + delay
        if self._waiting:
            due = max(due, self._waiting[-1][0])
        self._waiting.append((due, size + _STEP_BYTES, step))
        self.bytes += size + _STEP_BYTES
        self._wait()

    async def room(self) -> None:
        """Wait while more than :data:`MOST_BYTES` are here: who puts more in without asking grows without end."""
        while self.bytes > MOST_BYTES:
            self._room.clear()
            await self._room.wait()

    def hold(self, held: bool) -> None:
        """Let nothing out, or what is due and all that follows."""
        self._held = held
        self._run()

    def close(self) -> None:
        self._waiting.clear()
        self.bytes = 0
        self._room.set()
        self._run()

    def _run(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and not self._held and self._waiting[0][0] <= self._loop.time():
            _, size, step = self._waiting.popleft()
            self.bytes -= size
            self._room.set()
            step()
        self._wait()

    def _wait(self) -> None:
        if self._timer is None and self._waiting and not self._held:
            self._timer = self._loop.call_at(self._waiting[0][0], self._run)
