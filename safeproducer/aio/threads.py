"""Calls from other threads get to the event loop, calls that block get to a thread, and a thread serves reports."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any

from safeproducer import errors
from safeproducer.hooks import Hook
from safeproducer.producer import SafeProducer
from safeproducer.runtime.log import logger
from safeproducer.runtime.threads import InterruptSafeEvent
from safeproducer.settings import own_settings

_ON_LOOP = ("error_cb", "throttle_cb", "stats_cb")
_ROUND = 0.14
"""Seconds of one native poll(): the longest that poll() does not cut into many short ones."""
_PAUSE = 0.1
_LONG = 3600.0


class LoopCalls:
    """Any thread. It refers to no producer: native callbacks keep it alive, and would keep the producer.

    `loop` is the event loop that the producer is used on, None before the first use. `lost` is set when it was closed
    before something that was to run on it.
    """

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.lost = InterruptSafeEvent()
        self._tasks: set[asyncio.Future[Any]] = set()

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """The producer is used on this one from now on."""
        self.loop = loop
        self.lost.clear()

    def soon(self, call: Callable[..., Any], *args: Any) -> bool:
        """Have the loop run it; False when there is none that will."""
        loop = self.loop
        try:
            if loop is not None:
                loop.call_soon_threadsafe(call, *args)
                return True
        except RuntimeError:  # it is closed
            if not self.lost.is_set():
                self.lost.set()
                with suppress(Warning):  # on a thread of ours, where nobody can handle it
                    warnings.warn(
                        "the event loop was closed while records were on their way: close() the producer before",
                        ResourceWarning,
                        stacklevel=2,
                    )
        return False

    def run(self, callback: Callable[..., Any], *args: Any) -> None:
        """Call a callback of the configuration, a function or a coroutine function. On the loop."""
        if inspect.isawaitable(result := callback(*args)):
            self._tasks.add(task := asyncio.ensure_future(result))  # the loop alone does not keep it
            task.add_done_callback(self._tasks.discard)

    def waited_for(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """A coroutine function of the configuration whose result another thread needs."""

        def call(*args: Any) -> Any:
            loop = self.loop
            if loop is not None and not loop.is_closed() and asyncio._get_running_loop() is None:
                return asyncio.run_coroutine_threadsafe(callback(*args), loop).result()
            with ThreadPoolExecutor(1) as alone:  # the loop is blocked by what needs this, or there is none
                return alone.submit(asyncio.run, callback(*args)).result()

        return call


class CallThread:
    """Runs calls that block, one after the other, on a thread that is there from the first one on."""

    def __init__(self, calls: LoopCalls, name: str, *, daemon: bool) -> None:
        self._calls = calls
        self._waiting: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._name = name
        self._daemon = daemon

    def run(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        """A future of what it returns. To cancel that is too late once the call has begun."""
        future = asyncio.get_running_loop().create_future()
        if self._thread is None:
            self._thread = threading.Thread(target=_work, args=(self._waiting,), name=self._name, daemon=self._daemon)
            self._thread.start()
        self._waiting.put(partial(self._call, future, partial(call, *args, **kwargs)))
        return future

    def end(self) -> None:
        """The thread ends behind what waits."""
        self._waiting.put(None)

    def _call(self, future: asyncio.Future[Any], call: Callable[[], Any]) -> None:
        if future.cancelled():
            return
        try:
            end = partial(_end, future, call(), None)
        except BaseException as error:
            end = partial(_end, future, None, error)
        self._calls.soon(end)


def _work(waiting: SimpleQueue[Callable[[], None] | None]) -> None:
    while (call := waiting.get()) is not None:
        call()
        del call  # it may be all that keeps the producer alive


def _end(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class ServingThread:
    """Polls for as long as the producer is open and it is not stopped.

    It keeps the producer alive, and not its owner, which stops it when it is dropped. With `only` it serves nothing
    until that is set: without a direct lane all reports are told by Reports.subscribe(), and others run them.
    """

    def __init__(self, producer: SafeProducer, only: InterruptSafeEvent | None = None) -> None:
        self._stopped = False
        self._rest = InterruptSafeEvent()
        self._only = only
        self._thread = threading.Thread(target=self._serve, args=(producer,), name="safeproducer-aio", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Have the serving thread end soon; `join()` waits until it has."""
        self._stopped = True
        self._rest.set()
        if self._only is not None:
            self._only.ring()

    def join(self) -> None:
        """Wait until the serving thread has ended."""
        self._thread.join()

    def _serve(self, producer: SafeProducer) -> None:
        while not self._stopped:
            if self._only is not None and not self._only.is_set():
                self._only.wait(_LONG)
                continue
            try:
                SafeProducer.poll(producer, _ROUND)
            except (errors.ProducerClosedError, errors.ForkedProducerError):
                return
            except errors.FatalError:  # the next record is told, and each that waits has its report
                self._rest.wait(_PAUSE)
            except Exception:
                logger.exception("a delivery callback raised")
                self._rest.wait(_PAUSE)


def adapted(config: Mapping[str, Any], calls: LoopCalls) -> dict[str, Any]:
    """The settings that SafeProducer is given: callbacks of the application run on the event loop."""
    if not isinstance(config, Mapping):
        raise errors.ConfigurationTypeError(
            "config", repr(type(config).__name__), "it is no dict of settings", "Give one"
        )
    given = dict(config)
    if "on_delivery" in given:
        raise errors.ConfigurationError(
            "on_delivery", "...", "not with asyncio", "Await what send() returns, or use hooks"
        )
    for name in _ON_LOOP:
        if callable(given.get(name)):
            given[name] = partial(calls.soon, calls.run, given[name])
    if inspect.iscoroutinefunction(given.get("oauth_cb")):
        given["oauth_cb"] = calls.waited_for(given["oauth_cb"])
    for name, value in given.items():
        if inspect.iscoroutinefunction(value):
            raise errors.ConfigurationTypeError(
                name, "...", "a coroutine function cannot be called there", "Give a function"
            )
    given[own_settings.MAX_BLOCK_MS] = 0
    return given


def checked(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    """The hooks, of which no event is a coroutine function."""
    given = tuple(hooks)
    for hook in given:
        for name in vars(Hook):
            if inspect.iscoroutinefunction(getattr(hook, name, None)):
                raise errors.ConfigurationTypeError(
                    "hooks", type(hook).__qualname__, f"its {name}() is a coroutine function", "Hooks are functions"
                )
    return given


def running_loop() -> asyncio.AbstractEventLoop:
    """The one of this thread. Raises EventLoopError where there is none of asyncio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        trio = sys.modules.get("trio")
        if trio is not None and trio.lowlevel.in_trio_run():
            raise errors.EventLoopError("safeproducer.aio runs on event loops of asyncio, and this is trio's") from None
        raise errors.EventLoopError(
            "no event loop runs in this thread: call it in a coroutine, or use .producer, which any thread may call"
        ) from None
