"""The frames that a connection has still to send: in order, each when its delay is over."""

import asyncio
from collections import deque
from collections.abc import Callable

__all__ = ["MOST_BYTES", "Outbox"]

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
        """Bytes that wait here."""

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
        """Forget what has not been done."""
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
