"""AsyncSafeProducer: one SafeProducer for the tasks of an event loop."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import safeproducer.pipeline.assembly  # noqa: F401 - an event loop must not wait for it at the first producer
from safeproducer.aio.batch import BatchDelivery, BatchResult, records_of
from safeproducer.aio.delivery import Delivery
from safeproducer.aio.room import Place, Room
from safeproducer.aio.settling import Settling
from safeproducer.aio.threads import CallThread, LoopCalls, ServingThread, adapted, checked, running_loop
from safeproducer.aio.transactions import Transactional
from safeproducer.errors import ConfigurationError, ConfigurationValueError, EventLoopError, ProducerClosedError
from safeproducer.hooks import Hook
from safeproducer.pipeline.accepting import lack_for, tells_each
from safeproducer.policy.types import NEVER, UNPLACED
from safeproducer.producer import SafeProducer, engine_of
from safeproducer.records import DeliveredRecord
from safeproducer.snapshot import CloseReport, Health, Snapshot

_BURST = 200
"""Records that are accepted in a step of the loop before a send() lets others run."""
_FLUSH_ROUND = 0.1
"""Seconds of a flush in the thread for calls that block: the next call waits as long at most."""
_CLOSED = "Producer has been closed: make a new one to produce again"


class AsyncSafeProducer(Transactional):
    """A SafeProducer for asyncio: thousands of tasks may share one.

    `config` and `hooks` are those of SafeProducer, but `on_delivery` is refused, and so is delivery.report.only.error.
    error_cb, throttle_cb and stats_cb are functions or coroutine functions, and run on the event loop; oauth_cb may be
    a coroutine function. `close_timeout`: seconds for close(). A record is a `topic`, `value`, `key`, `partition`,
    `timestamp` and `headers`, as of SafeProducer.produce().

    It may be made anywhere, and belongs to the event loop of its first use; once that is closed, to the next one.
    Another loop or thread gets EventLoopError (a RuntimeError); `producer` is the SafeProducer, for threads.
    `async with` closes it. Raises ConfigurationError, as SafeProducer does.
    """

    def __init__(self, config: Mapping[str, Any], *, hooks: Iterable[Hook] = (), close_timeout: float = 30.0) -> None:
        calls = LoopCalls()
        try:
            made = SafeProducer(adapted(config, calls), hooks=checked(hooks))
        except ConfigurationError as error:
            raise error.with_traceback(None) from None  # as in SafeProducer: frames know secrets
        finally:
            del config
        self._serve(made, calls, close_timeout)

    def _serve(self, producer: SafeProducer, calls: LoopCalls, close_timeout: float) -> None:
        if not isinstance(close_timeout, int | float) or not close_timeout >= 0:
            raise ConfigurationValueError("close_timeout", repr(close_timeout), "it is no time", "Give seconds from 0")
        self.producer = producer
        self._engine = engine_of(producer)
        if not tells_each(self._engine):
            raise ConfigurationValueError(
                "delivery.report.only.error", "true", "delivered records would never be told", "Leave it out"
            )
        self._calls = calls
        self._close_timeout = close_timeout
        self._owns = True
        self._settling = Settling(self._engine, calls, self._fill)
        self._wake = self._settling.waker()
        self._room = Room(self._engine)
        self._room_asked = False
        self._thread: ServingThread | None = None
        self._blocking = CallThread(calls, "safeproducer-aio-calls", daemon=True)
        self._closing: asyncio.Future[CloseReport] | None = None
        self._burst = 0

    @classmethod
    def wrap(cls, producer: SafeProducer) -> Self:
        """Serve a `producer` that somebody else made and closes: close() of this one leaves it open.

        Reports of records that others produce with it run on the event loop, too, or on a thread of this package.
        """
        made = cls.__new__(cls)
        made._serve(producer, LoopCalls(), 30.0)
        made._owns = False
        return made

    # --- the loop -----------------------------------------------------------------------------------------------------

    def _bind(self) -> asyncio.AbstractEventLoop:
        """The running loop, which is this producer's from now on, unless it has another one."""
        if self._engine.route.state == "forked":
            self.producer.poll(0)  # raises ForkedProducerError
        loop, bound = running_loop(), self._calls.loop
        if self._closing is not None:
            raise ProducerClosedError(_CLOSED)
        if bound is not loop:
            if bound is not None and not bound.is_closed():
                raise EventLoopError(
                    f"this producer belongs to {bound!r} and was used on {loop!r}. Make one for each loop, or use "
                    f".producer, which any thread may call"
                )
            self._calls.bind(loop)
            self._settling.bind()
            self._room = Room(self._engine)
            self._room_asked = False
            self._burst = 0
            loop.call_soon(self._settling.run_queued)  # what came while there was none
        if self._thread is None:
            only = self._calls.lost if self._engine.dispatcher.only_batch_lanes else None
            self._engine.subscribe(self._wake)
            self._thread = ServingThread(self.producer, only)
        return loop

    def _bound(self) -> asyncio.AbstractEventLoop:
        loop = self._calls.loop
        if loop is None or self._closing is not None or asyncio._get_running_loop() is not loop:
            return self._bind()
        return loop

    async def _in_thread(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._bound()
        return await self._blocking.run(call, *args, **kwargs)

    # --- records ------------------------------------------------------------------------------------------------------

    def submit_nowait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: Any = None,
    ) -> Delivery:
        """Accept a record now, or raise QueueFullError (a BufferError); its Delivery."""
        self._bound()
        return self._settling.accept(topic, value, key, partition, timestamp, headers)

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: Any = None,
    ) -> Delivery:
        """Wait until there is room, in the order of calls for a partition; the record is accepted then: its Delivery.

        Raises what SafeProducer.produce() raises, but for QueueFullError. Cancelled before that, the record is not
        accepted; in the same step of the loop it is taken back where that can be, and `error.delivery` tells.
        """
        self._burst += 1
        if self._burst == 1 or self._burst >= _BURST:
            await self._let_others_run()
        self._bound()
        if not self._room.lines and self._engine.route.observed is None:
            try:  # as _accept(), without another coroutine
                return self._settling.accept(topic, value, key, partition, timestamp, headers)
            except BufferError:
                pass
        record = topic, value, key, partition, timestamp, headers
        return await self._accept(self._settling.accept, record)  # type: ignore[no-any-return]

    async def _accept(self, accept: Callable[..., Any], record: tuple[Any, ...]) -> Any:
        """Now if there is room and nobody waits, else in line."""
        place: Place | None = None
        if self._room.lines or self._engine.route.observed is not None:
            place = self._place(record)
        if place is None or not (place in self._room.lines or lack_for(self._engine, *place, *record[1:3])):
            with suppress(BufferError):
                return accept(*record)
        return await self._wait(place or self._place(record), accept, record)

    async def _let_others_run(self) -> None:
        if self._burst < _BURST:
            self._bound().call_soon(self._end_burst)
        else:
            await asyncio.sleep(0)

    def _end_burst(self) -> None:
        self._burst = 0

    # A task that only sends would keep the loop until the buffer is full: reports would wait, and timers. So the first
    # send in a step lets others run, and then each _BURST-th. A coroutine within this one, and the line for room, cost
    # more than the record: the sends between accept it right here, unless somebody waits for room or a hook is told.
    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: Any = None,
    ) -> DeliveredRecord:
        """Wait until there is room, as send() does, and until the record is delivered. Raises NotWritten, or
        OutcomeUnknown, where it is not.

        Cancelled, it takes the record back where that can be; `delivery` of the CancelledError tells what becomes of
        it, and is missing where the record was not accepted.
        """
        self._burst += 1
        if 1 < self._burst <= _BURST and not self._room.lines and self._engine.route.observed is None:
            self._bound()
            try:  # as send(), without another coroutine
                delivery = self._settling.accept(topic, value, key, partition, timestamp, headers)
            except BufferError:
                delivery = await self.send(topic, value, key, partition, timestamp, headers)
        else:
            self._burst -= 1
            delivery = await self.send(topic, value, key, partition, timestamp, headers)
        try:
            return await delivery  # type: ignore[no-any-return]
        except asyncio.CancelledError as error:
            _note(error, delivery)
            raise

    async def send_batch(self, topic: str, messages: list[dict[str, Any]], partition: int = -1) -> BatchResult:
        """Send many records of a `topic`, and wait for all; the end of each, in order.

        `messages` and `partition` as of SafeProducer.produce_batch(), but without callbacks. RecordTypeError,
        OverflowError or ValueError for one that is malformed comes before any is accepted. It waits for room as send()
        does. Cancelled, the rest is not accepted, and records that still wait are taken back: `delivery` of the
        CancelledError tells of each, a BatchDelivery.
        """
        records = records_of(messages, partition)
        self._bound()
        batch = BatchDelivery(len(records), self._settling)
        try:
            for value, key, *rest in records:
                self._burst += 1
                if self._burst == 1 or self._burst >= _BURST:
                    await self._let_others_run()
                    self._bound()
                if self._room.lines or self._engine.route.observed is not None:
                    await self._accept(batch.accept, (topic, value, key, *rest))
                else:
                    try:
                        batch.accept(topic, value, key, *rest)
                    except BufferError:
                        await self._accept(batch.accept, (topic, value, key, *rest))
            batch.complete()
            await batch.settled()
        except BaseException as error:
            batch.cancel()
            error.delivery = batch  # type: ignore[attr-defined]
            raise
        return BatchResult(batch.ends)

    # --- room ---------------------------------------------------------------------------------------------------------

    def _place(self, record: tuple[Any, ...]) -> Place:
        topic, _, key, partition, *_ = record
        return topic, self._engine.place_of(topic, key) if partition == UNPLACED else partition

    async def _wait(self, place: Place, accept: Callable[..., Any], record: tuple[Any, ...]) -> Any:
        """Wait for room behind the others; what `accept()` returns for the record, which has its partition then."""
        topic, value, key, _, *rest = record
        accepted = self._room.join(place, accept, (topic, value, key, place[1], *rest))
        if not self._room_asked:  # else whoever came before has looked
            self._fill()
        try:
            return await accepted
        except asyncio.CancelledError as error:
            ended = accepted.done() and not accepted.cancelled() and accepted.exception() is None
            if ended and isinstance(delivery := accepted.result(), Delivery):
                _note(error, delivery)
            raise

    def _fill(self) -> None:
        if not self._room.lines:
            return
        if self._room.fill():
            asyncio.get_running_loop().call_soon(self._fill)
        if self._room.lines and not self._room_asked:  # others make room, too: records that threads produce, and events
            self._room_asked = True
            calls, itself = self._calls, weakref.WeakMethod(self._room_found)
            self._engine.when_room(lambda: (found := itself()) is not None and calls.soon(found))

    def _room_found(self) -> None:
        self._room_asked = False
        self._fill()

    # --- the rest -----------------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Wait until each record that was accepted by this object until now has ended. Linger does not count meanwhile.

        Raises FatalError if that ends them and nobody was told.
        """
        self._bound()
        flushed = self._settling.flushed()
        while not flushed.done():
            round_ = self._blocking.run(SafeProducer.flush, self.producer, _FLUSH_ROUND)
            await asyncio.wait((flushed, round_), return_when=asyncio.FIRST_COMPLETED)
            if round_.done():
                round_.result()

    async def list_topics(self, *args: Any, **kwargs: Any) -> Any:
        """List topics as SafeProducer.list_topics() does, on a thread beside the loop."""
        return await self._in_thread(self.producer.list_topics, *args, **kwargs)

    async def cluster_id(self, *args: Any, **kwargs: Any) -> Any:
        """The id of the cluster, as SafeProducer.cluster_id() asks for it, on a thread beside the loop."""
        return await self._in_thread(self.producer.cluster_id, *args, **kwargs)

    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """As SafeProducer.set_sasl_credentials(): `username` and `password` from the next connection on."""
        await self._in_thread(self.producer.set_sasl_credentials, username, password)

    def snapshot(self) -> Snapshot:
        """As SafeProducer.snapshot(). Any thread, as the next two."""
        return SafeProducer.snapshot(self.producer)

    def explain(self, topic: str | None = None, partition: int | None = None) -> str:
        """Say what records wait for, as SafeProducer.explain() does."""
        return SafeProducer.explain(self.producer, topic, partition)

    def health(self, *, unresolved_for: float = 30.0) -> Health:
        """As SafeProducer.health(), with its `unresolved_for`."""
        return SafeProducer.health(self.producer, unresolved_for=unresolved_for)

    def __len__(self) -> int:
        return self._engine.unresolved()  # len() of SafeProducer counts a report that the serving thread is in, too

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        if not hasattr(self, "producer"):  # its constructor has raised
            return f"<{type(self).__name__} not initialised>"
        return SafeProducer.__repr__(self.producer).replace("SafeProducer", type(self).__name__, 1)

    # --- the end ------------------------------------------------------------------------------------------------------

    async def close(self, timeout: float | None = None) -> CloseReport:
        """As SafeProducer.close(), in a thread: each record has its outcome when it returns.

        `timeout` in seconds, `close_timeout` if it is None. Who waits for room gets ProducerClosedError at once.
        Cancelled, the close goes on by itself; the next call waits for the same one.
        """
        if self._closing is None:
            self._bind()
            seconds = self._close_timeout if timeout is None else timeout
            thread = CallThread(self._calls, "safeproducer-aio-close", daemon=False)
            self._closing = thread.run(self._close, seconds)
            thread.end()
            self._room.refuse_all(lambda: ProducerClosedError(_CLOSED))
        try:
            report = await asyncio.shield(self._closing)
        finally:
            if self._closing.done():
                self._end_threads()
        while self._settling.ended:
            await asyncio.sleep(0)
        return report

    def _close(self, seconds: float) -> CloseReport:
        if self._owns:
            report = SafeProducer.close(self.producer, None if seconds == NEVER else seconds)
            if self._thread is not None:
                self._thread.stop()
                self._thread.join()
            return report
        SafeProducer.flush(self.producer, seconds)
        account = SafeProducer.snapshot(self.producer)
        return CloseReport(account.accepted, account.delivered, account.failed, account.unresolved, 0.0)

    def _end_threads(self) -> None:
        self._blocking.end()
        if self._thread is not None:
            self._engine.unsubscribe(self._wake)
            self._thread.stop()

    async def __aenter__(self) -> Self:
        self._bind()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if "_burst" in vars(self):  # else the constructor refused
            self._end_threads()


def _note(error: asyncio.CancelledError, delivery: Delivery) -> None:
    """Take the record back if it is still under way, and have the exception tell."""
    if not delivery.cancel() and not delivery.cancelled():
        delivery.exception()  # it has ended; what it raises is told by `outcome`
    error.delivery = delivery  # type: ignore[attr-defined]
    error.add_note("the record was accepted: error.delivery tells what becomes of it")
