"""A connection keeps requests on their way in and frames on their way out, each until its delay is over."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable

MOST_IN, MOST_OUT = 64 << 20, 16 << 20
"""Bytes of the requests, and of the answers, of one connection: more than a link of seconds holds."""
_STEP_BYTES = 1000  # of memory, beside the bytes themselves
Step = Callable[[], Awaitable[None] | None]


class DelayLine:
    """Steps that never overtake each other. Used on the cluster's thread only.

    ``most``: how many bytes may wait here; ``bytes``: how many do.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[float, int, Step, asyncio.Event | None]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._flows, self._room = asyncio.Event(), asyncio.Event()
        self._flows.set()
        self.bytes = 0

    def put(self, delay: float, step: Step, size: int = 0, held: asyncio.Event | None = None) -> Awaitable[None] | None:
        """Take this step after so many seconds, once ``held`` is set, and after all steps put before it.

        If nothing stands against it, it is taken at once; returns what it gives then. ``size`` is how many bytes it
        has. Raises what a step before it has raised.
        """
        if delay <= 0 and held is None and not self._waiting and self._flows.is_set():
            return step()
        if self._worker is None or self._worker.done():
            if self._worker is not None:
                self._worker.result()
            self._worker = self._loop.create_task(self._take())
        self._waiting.append((self._loop.time() + delay, size + _STEP_BYTES, step, held))
        self.bytes += size + _STEP_BYTES
        return None

    async def _take(self) -> None:
        try:
            while self._waiting:
                due, size, step, held = self._waiting[0]  # it stays there meanwhile: others wait behind it
                if held is not None:
                    await held.wait()
                if (left := due - self._loop.time()) > 0:
                    await asyncio.sleep(left)
                await self._flows.wait()
                if (work := step()) is not None:
                    await work
                self._waiting.popleft()
                self.bytes -= size
                self._room.set()
        finally:
            self._room.set()

    async def room(self, size: int = 0) -> None:
        """Wait while so many bytes more were too many: who puts more in without asking grows without end."""
        while self.bytes and self.bytes + size > self._most and self._worker is not None and not self._worker.done():
            self._room.clear()
            await self._room.wait()

    def hold(self, held: bool) -> None:
        """Take no step, or what is due and all that follows."""
        (self._flows.clear if held else self._flows.set)()

    async def finish(self) -> None:
        """Take all steps that wait: whoever put them has said all there was to say. Raises what one raises."""
        if self._worker is not None:
            await self._worker

    async def close(self) -> None:
        """Forget the steps that wait, and the one that is being taken."""
        worker, self._worker = self._worker, None
        self._waiting.clear()
        self.bytes = 0
        self._room.set()
        if worker is not None:
            worker.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await worker
