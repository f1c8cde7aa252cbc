"""One direction of a link: frames leave in order, each when its latency is over."""

import asyncio
from collections.abc import Callable

HELD_BYTES = 64 * 1024 * 1024
"""A paused or slow direction takes no more than this from its sender."""

Release = Callable[[], None]


class Outbox:
    """Holds frames until they are due and the gate is open. Latency is added, throughput is not capped by it."""

    def __init__(self, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        self._writer = writer
        self._gate = gate
        self._queue: asyncio.Queue[tuple[float, bytes, Release | None] | None] = asyncio.Queue()
        self._room = asyncio.Event()
        self._room.set()
        self._held = 0
        self._waiting = 0
        self._line_free_at = 0.0
        self._loop = asyncio.get_running_loop()

    async def put(self, data: bytes, delay: float, rate: float | None, release: Release | None) -> None:
        """Send `data` after `delay` seconds, not faster than `rate` bytes a second; then call `release`."""
        if not delay and rate is None and not self._waiting and self._gate.is_set():
            # The release comes first: once the bytes are written, the other side may already act on them.
            if release is not None:
                release()
            self._writer.write(data)
            await self._writer.drain()
            return
        now = self._loop.time()
        if rate is not None:
            self._line_free_at = now = max(now, self._line_free_at) + len(data) / rate
        self._waiting += 1
        self._held += len(data)
        self._queue.put_nowait((now + delay, data, release))
        if self._held > HELD_BYTES:
            self._room.clear()
            await self._room.wait()

    def finish(self, delay: float) -> None:
        """Nothing more will come: `deliver` returns when what is held has left, and not before `delay` seconds."""
        self._queue.put_nowait((self._loop.time() + delay, b"", None))
        self._queue.put_nowait(None)

    async def deliver(self) -> None:
        """Send what was put until `finish`; cancelling it drops the rest."""
        while (parcel := await self._queue.get()) is not None:
            due, data, release = parcel
            if (wait := due - self._loop.time()) > 0:
                await asyncio.sleep(wait)
            await self._gate.wait()
            if release is not None:
                release()
            self._writer.write(data)
            await self._writer.drain()
            self._waiting -= 1
            self._held -= len(data)
            if self._held <= HELD_BYTES:
                self._room.set()
