"""Senders that wait for room in the buffer: one line for each partition, each in the order of arrival.

The first in a line has its record accepted by whoever finds room. So nobody overtakes it while its task cannot run yet.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from safeproducer.errors import QueueFullError
from safeproducer.pipeline.accepting import is_empty, lack_for
from safeproducer.pipeline.engine import Engine
from safeproducer.policy.types import Lack

Place = tuple[Any, int]
_STEP = 256
"""Records that are accepted before the loop runs other things."""
_LINES = 8
"""Lines in vain, after which the others wait for the next bunch: to look at all would cost as much as there are."""


class _Waiter(NamedTuple):
    """One sender: the future of what `accept(*record)` returns, to be called in its `context`."""

    future: asyncio.Future[Any]
    accept: Callable[..., Any]
    record: tuple[Any, ...]
    context: contextvars.Context


class Room:
    """On the loop. `engine` has the buffer, and knows which room there is none of without a try."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.lines: OrderedDict[Place, deque[_Waiter]] = OrderedDict()

    def join(self, place: Place, accept: Callable[..., Any], record: tuple[Any, ...]) -> asyncio.Future[Any]:
        """Wait behind the others; a future of what `accept(*record)` will return."""
        future = asyncio.get_running_loop().create_future()
        self.lines.setdefault(place, deque()).append(_Waiter(future, accept, record, contextvars.copy_context()))
        return future

    def fill(self) -> bool:
        """Accept what there is room for; whether there may be more."""
        left, lines = _STEP, _LINES
        while self.lines:
            place, queue = next(iter(self.lines.items()))
            lack, left = self._fill_from(place, queue, left)
            if not queue:
                del self.lines[place]
            elif left <= 0:
                return True
            elif lack is Lack.OF_ALL:
                return False
            else:
                self.lines.move_to_end(place)  # the others come first next time
                if (lines := lines - 1) <= 0:
                    return False
        return False

    def _fill_from(self, place: Place, queue: deque[_Waiter], left: int) -> tuple[Lack, int]:
        while queue and left > 0:
            future, accept, record, context = queue[0]
            if not future.done():
                if (lack := lack_for(self._engine, *place, *record[1:3])) and not is_empty(self._engine):
                    return lack, left
                try:
                    future.set_result(context.run(accept, *record))
                except QueueFullError as error:
                    # Another thread was quicker, or the sender has just made room; else nothing will make more.
                    if not is_empty(self._engine):
                        return Lack.OF_PARTITION, left
                    future.set_exception(error)
                except Exception as error:
                    future.set_exception(error)
                left -= 1
            queue.popleft()
        return Lack.NONE, left

    def refuse_all(self, error: Callable[[], Exception]) -> None:
        """Nobody gets in any more."""
        waiting, self.lines = self.lines, OrderedDict()
        for queue in waiting.values():
            for waiter in queue:
                if not waiter.future.done():
                    waiter.future.set_exception(error())

    @property
    def count(self) -> int:
        """How many records wait for room in the buffer."""
        return sum(not waiter.future.done() for queue in self.lines.values() for waiter in queue)
