"""Native calls that may run callbacks, and what the application sees of what they raise."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from safeproducer.errors import RENEWED, CallbackReentryError, FatalError, QueueFullError, SafeProducerError
from safeproducer.kafka.arguments import WAYS_OUT, unable
from safeproducer.kafka.callback_errors import aside
from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.pipeline.cluster.client_events import ClientEvents
from safeproducer.pipeline.dispatch.dispatcher import Dispatcher
from safeproducer.pipeline.reports.counters import DeliveryCounters
from safeproducer.pipeline.route import Route
from safeproducer.runtime import interrupts
from safeproducer.runtime.threads import get_ident

_FEW_EVENTS = 4
_LOST_EXIT = "exception <class 'int'> is not a BaseException subclass"
_LOST_EXCEPTION = "returned NULL without setting an exception"


@dataclass(eq=False, repr=False)
class Calls:
    """On the threads of the application. While one is under way, its thread is among `Route.threads`.

    It finds out that the producer is fatal, and knows whether a call has raised that.
    """

    _route: Route
    _dispatcher: Dispatcher
    counters: DeliveryCounters
    events: ClientEvents
    fatal_told: bool = False
    _warned: bool = False

    def attempt(self, call: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None, bool]:
        """(result, what to raise, whether a callback raised it)."""
        thread, route = get_ident(), self._route
        threads, barred_threads = route.threads, route.barred
        fresh = thread not in threads
        barred = not fresh and thread not in barred_threads and interrupts.in_native_callback()
        try:
            threads.add(thread)
            if barred:
                barred_threads.add(thread)
                self._route.sender.wake(0.0)  # the sender serves in place of this thread
            return call(*args), None, False
        except:  # noqa: E722 - a pending fatal error can be a KafkaError, which is no BaseException
            raised, from_callback = self.noted(sys.exc_info()[1])
            return (0, None, False) if raised is RENEWED else (None, raised, from_callback)
        finally:
            if barred:
                barred_threads.discard(thread)
            if fresh:
                threads.discard(thread)

    def serve(self, call: Callable[..., Any], *args: Any) -> Any:
        """Run a native call that may run callbacks on this thread."""
        self.refuse_in_callback(getattr(call, "__name__", "this method"))
        return self.run(call, *args)

    def run(self, call: Callable[..., Any], *args: Any) -> Any:
        """Return its result; raise what attempt() gives."""
        result, error, _ = self.attempt(call, *args)
        try:
            if error is not None:
                self.told(error)
                raise error
            return result
        finally:
            del error  # it refers to this frame

    def ask(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a native call that may come from inside another one, in a callback or a signal handler."""
        return aside(call, *args, **kwargs) if self._route.inside else call(*args, **kwargs)

    def refuse_in_callback(self, method: str) -> None:
        """Raise CallbackReentryError when the calling thread is inside a callback."""
        if self._route.in_callback:
            raise CallbackReentryError(
                f"{method}() was called inside a callback, where it could never finish. Return from the callback and "
                f"call it outside"
            )

    def answer_in_callback(self, method: str, answer: int) -> int:
        """Warn of the first poll() or flush() in a callback; return its `answer`."""
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{method}() was called inside a callback: it serves nothing there and returned {answer}. "
                f"Return from the callback; the poll() or flush() that runs it serves the rest",
                RuntimeWarning,
                stacklevel=5,
            )
        return answer

    # --- what they raise ----------------------------------------------------------------------------------------------

    def refusal_of(self, error: Exception) -> Exception:
        """The exception for the application when the native produce() raised `error`."""
        if isinstance(error, BufferError) and not isinstance(error, SafeProducerError):
            return QueueFullError(self._dispatcher.record_buffer.full())
        cause = error.args[0] if isinstance(error, KafkaException) and error.args else None
        if isinstance(cause, KafkaError) and cause.code() in WAYS_OUT:
            return unable(cause.code())
        return self.fatal_in(error) or error

    def noted(self, error: Any) -> tuple[BaseException, bool]:
        """(what to raise, whether a callback raised it) for what a serving native call raised."""
        self.counters.interrupts += 1
        raised, from_callback = self.counters.errors.claimed(error)
        found = self.instead_of(raised)
        if found is RENEWED:
            self.counters.not_interrupted()
        return found, from_callback

    def instead_of(self, error: Any) -> BaseException:
        """The exception to raise for that of a serving native call."""
        if type(error) is SystemError:
            # Before Python 3.12 a signal handler's exception may have no instance yet, and the C client keeps only
            # that: of Ctrl-C's nothing is left, of sys.exit(0) the number's type. Which number it was is not known.
            if _LOST_EXCEPTION in str(error):
                return KeyboardInterrupt()
            if _LOST_EXIT in str(error):
                return SystemExit(0)
        found: BaseException = self.fatal_in(error) or error
        return found

    def fatal_in(self, error: Any) -> Exception | None:
        """The FatalError to raise for what a native call raised, or RENEWED; notes it. None when it is not fatal."""
        cause = error if isinstance(error, KafkaError) else None
        if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
            cause = error.args[0]
        if isinstance(error, FatalError) or cause is None or not (cause.fatal() or cause.code() == KafkaError._FATAL):
            return None
        if self._route.state == "open" and self._dispatcher.begin_renewal(cause):
            if cause.fatal():  # else it will be served, and this call only knows that there is one
                self.counters.report_queue.defer(True)
            self._route.hold()
            return RENEWED
        self.events.on_fatal(cause)
        self._route.fail(self.fatal_again)
        return self.fatal_again()

    def fatal_again(self) -> FatalError:
        assert self.events.fatal is not None  # noqa: S101 - set before this is called
        return FatalError(self.events.fatal, self.unresolved())

    def tell_fatal(self, error: FatalError, _: None) -> None:
        """An event for poll(): raise it, if none was raised."""
        if not self.fatal_told:
            self.fatal_told = True
            raise error

    def told(self, error: BaseException) -> None:
        """A call of the application is about to raise this."""
        self.fatal_told = self.fatal_told or isinstance(error, FatalError)

    # --- how much is left ---------------------------------------------------------------------------------------------

    @property
    def queued(self) -> int:
        """Records and events that wait here or in librdkafka."""
        if not self._route.usable:
            return 0
        count = self._dispatcher.record_buffer.queued
        if count and self.events.listens:
            return min(count, self.counters.outstanding(count)[0])
        if 0 < count <= _FEW_EVENTS and not self._route.threads and not self.events.callbacks.any:
            # Records, or statistics that the application did not ask for? In a callback its own record counts, too.
            if self._dispatcher.only_batch_lanes and not self._dispatcher.record_buffer.records:
                return 0  # as the delivery counters would say, after adding up all partitions
            return count if self.counters.outstanding(count)[0] else 0
        return count

    def unresolved(self) -> int:
        return self.counters.outstanding(self.queued)[0]
