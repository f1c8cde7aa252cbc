"""Reports travel from the thread that serves to the event loop, which ends futures: one wake-up for a bunch.

Each record that ends wakes a task, and that may send the next record. So the loop ends few in a step, and lets others
run: a thousand in a step take 13 ms, 64 take 2.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from safeproducer.aio.delivery import Delivery, Pending
from safeproducer.aio.threads import LoopCalls
from safeproducer.errors import FatalError, RecordTypeError
from safeproducer.kafka.native import Message
from safeproducer.pipeline.accepting import accept
from safeproducer.pipeline.buffer.partition_buffer import Ticket
from safeproducer.pipeline.engine import Engine
from safeproducer.records import DeliveredRecord, delivered
from safeproducer.runtime.log import logger

_STEP = 64
_REPORTS = 256
"""Reports of the buffered path that are run in a step: most wake nobody."""


class Settling:
    """`put()` any thread, all else on the loop. `result(message)` makes what a future ends with.

    `after`: a bound method, called behind each bunch, when there may be room; its object is not kept alive. `pending`:
    where the next record counts. `ended`: records whose reports were run, and whose futures wait for the loop.
    """

    def __init__(self, engine: Engine, calls: LoopCalls, after: Callable[[], object]) -> None:
        self.engine = engine
        self._calls = calls
        self.result: Callable[[Message], Any] = delivered
        self.pending = Pending()
        self._after = weakref.WeakMethod(after)
        self.ended: deque[Delivery] = deque()
        self._called = False
        self._bunches: deque[tuple[Pending, asyncio.Future[None]]] = deque()

    def bind(self) -> None:
        """Settle on another loop from now on: the former one was closed, and ends no future any more."""
        self._tell_lost()
        self.pending = Pending()
        self._bunches.clear()
        self._called = False

    # --- records ------------------------------------------------------------------------------------------------------

    def accept(self, topic: str, value: Any, key: Any, partition: int, timestamp: int, headers: Any) -> Delivery:
        """As SafeProducer.produce(), without a wait for room; the record's Delivery."""
        delivery = Delivery(self, self.pending, self._calls.loop)
        try:
            delivery.ticket = accept(self.engine, delivery, topic, value, key, partition, timestamp, headers)
        except TypeError as error:
            if any(map(inspect.isawaitable, (value, key, headers))):
                raise RecordTypeError(f"a record's value, key and headers are to be awaited first: {error}") from None
            raise
        delivery.pending.count += 1
        return delivery

    # --- from the thread that serves ----------------------------------------------------------------------------------

    def put(self, delivery: Delivery) -> None:
        """The report of a record was run: have the loop end its future."""
        self.ended.append(delivery)
        if self._called:
            return
        try:
            self._called = True
            if not self._calls.soon(self._settle):
                self._called = False
                self._tell_lost()
        except BaseException:  # Ctrl-C in a put() on the loop's thread: the next one calls
            self._called = False
            raise

    def _tell_lost(self) -> None:
        """No loop ends these futures any more; their outcomes are true all the same."""
        ended = self.ended
        while ended:
            try:
                delivery = ended.popleft()
            except IndexError:  # another thread was quicker
                return
            if delivery.abandoned:
                self._tell_abandoned(delivery)

    def waker(self) -> Callable[[], object]:
        """A call for the sender: reports wait that no native poll() gives. Native callbacks keep it, so it is weak."""
        itself = weakref.ref(self)

        def wake() -> None:
            if (settling := itself()) is not None:
                settling._calls.soon(settling.run_queued)

        return wake

    # --- on the loop --------------------------------------------------------------------------------------------------

    # The reports run on the loop here, and each calls put(), which would wake the loop once more, through its socket.
    # `_called` says meanwhile that somebody settles already, which the end of this step does. If a step was scheduled
    # before, that one does it: two would end twice as many futures without letting others run.
    def run_queued(self) -> None:
        """Run some reports of the buffered path, and end their futures."""
        scheduled, self._called, more = self._called, True, False  # put() need not wake the loop, which runs this
        try:
            more = self.engine.run_reports(_REPORTS)
        except FatalError:  # the next record is told, and those that wait
            more = True
        except Exception:
            more = True
            logger.exception("a delivery callback raised")
        finally:
            if not scheduled:
                self._settle()
        if more:
            asyncio.get_running_loop().call_soon(self.run_queued)

    def _settle(self) -> None:
        self._called = False
        ended, loop = self.ended, self._calls.loop
        for _ in range(min(_STEP, len(ended))):
            try:
                delivery = ended.popleft()
            except IndexError:
                break
            if delivery.get_loop() is loop:
                if delivery.settle():
                    self._tell_abandoned(delivery)
            elif delivery.abandoned:
                self._tell_abandoned(delivery)
        if ended and not self._called and loop is not None:
            self._called = True
            loop.call_soon(self._settle)
        self._tell_flushed()
        self._fill()

    def _fill(self) -> None:
        if (after := self._after()) is not None:
            after()

    # --- cancellation -------------------------------------------------------------------------------------------------

    def cancelled(self, delivery: Delivery) -> None:
        """Take its record back, if it waits in this process; else it is abandoned."""
        if delivery.ticket is None:
            self._abandon(delivery)
        else:
            self.take_back(delivery.ticket, delivery, partial(self._abandon, delivery))

    def take_back(self, ticket: Ticket, callback: object, otherwise: Callable[[], None]) -> None:
        """Take back the record that waits there; `otherwise` is called on the loop if it does not."""
        self.engine.withdraw_soon(ticket, callback, lambda found: found or self._calls.soon(otherwise))

    def soon(self, call: Callable[[], None]) -> None:
        """Have the loop call it. Any thread."""
        self._calls.soon(call)

    def _abandon(self, delivery: Delivery) -> None:
        if delivery.outcome == "pending":
            delivery.abandoned = True
            self.abandon(1)

    def abandon(self, count: int) -> None:
        self.engine.failures.abandon(count)

    def _tell_abandoned(self, delivery: Delivery) -> None:
        self.abandon(-1)
        self.engine.notifications.abandoned(*delivery.place, delivery.outcome)

    def end_batch(self, pending: Pending, abandoned: Iterable[Any]) -> None:
        """The records of a batch have ended; those ends are of `abandoned` ones."""
        pending.count -= 1
        for end in abandoned:
            self.abandon(-1)
            fate, found = (end, "delivered") if isinstance(end, DeliveredRecord) else (end.args[0], str(end.outcome))
            self.engine.notifications.abandoned(fate.topic, fate.partition, found)
        self._tell_flushed()
        self._fill()

    async def withdrawn(self, delivery: Delivery) -> bool:
        """Take its record back; whether it waited in this process."""
        if delivery.ticket is None:
            return False
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def tell(found: bool) -> None:
            if not answer.done():
                answer.set_result(found)

        self.engine.withdraw_soon(delivery.ticket, delivery, lambda found: self._calls.soon(tell, found))
        return await answer

    # --- flush --------------------------------------------------------------------------------------------------------

    def flushed(self) -> asyncio.Future[None]:
        """A future of the moment when all records that were accepted until now have ended."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._bunches.append((self.pending, future))
        self.pending = Pending()
        self._tell_flushed()
        return future

    def _tell_flushed(self) -> None:
        while self._bunches and not self._bunches[0][0].count:
            _, future = self._bunches.popleft()
            if not future.done():
                future.set_result(None)
