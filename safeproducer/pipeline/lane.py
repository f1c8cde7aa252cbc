"""A lane: one native producer for its whole life, which for an idempotent one is one producer ID.

The lane serves callbacks, turns what the native producer raises into this library's errors, and ends: fatal, closed, or
cut off by a fork.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from threading import get_ident
from typing import Any, NoReturn

from safeproducer.config import Settings, explain_refusal
from safeproducer.errors import CallbackReentryError, FatalError, ProducerClosedError, QueueFullError, SafeProducerError
from safeproducer.hooks import Hooks
from safeproducer.kafka.native import KafkaError, KafkaException, NativeProducer
from safeproducer.pipeline.events import ClientEvents
from safeproducer.pipeline.ledger import Ledger
from safeproducer.pipeline.observed import ObservedSend
from safeproducer.records import ProducerInfo

RECORD_EVENTS = ("record_accepted", "record_refused", "record_resolved")
NO_TIMEOUT = -1.0
_FLUSH_ROUND = 0.15  # below the 0.2 s from which the native call splits the wait itself
_LOST_EXCEPTION = "returned NULL without setting an exception"


class Unusable:
    """Stands where a native producer was once it must not be called any more: whatever is called raises."""

    def __init__(self, refusal: Callable[[], SafeProducerError]) -> None:
        self._refusal = refusal

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self._refusal()

    def __getitem__(self, key: object) -> NoReturn:
        raise self._refusal()

    def __len__(self) -> int:
        return 0


UNINITIALISED = Unusable(
    lambda: ProducerClosedError("this SafeProducer is not initialised: call super().__init__(config) in its subclass")
)


class Lane:
    """Owns a native producer. Thread-safe as far as that is.

    - `send` hands one record over: (topic, value, key, partition, report[, None, timestamp, headers]).
    - `native` is the native producer, or an Unusable.
    - `state` is "open", "fatal", "closed" or "forked".
    """

    def __init__(self, settings: Settings, info: ProducerInfo, hooks: Hooks, ledger: Ledger) -> None:
        self._ledger = ledger
        self._serving: set[int] = set()
        self._warned_reentry = False
        self.events = ClientEvents(info, hooks, settings, ledger.errors)
        self.state = "open"
        native = self._make_native(settings)
        self.observed = self._observe(native, hooks, info)
        self.send: Callable[..., Any] = self.observed or native.produce
        self.native: Any = native

    def _observe(self, native: NativeProducer, hooks: Hooks, info: ProducerInfo) -> ObservedSend | None:
        return ObservedSend(native.produce, hooks, info, self.refusal_of) if hooks.wants(*RECORD_EVENTS) else None

    def _make_native(self, settings: Settings) -> NativeProducer:
        config = {**settings.lane, "error_cb": self.events.on_error, "throttle_cb": self.events.on_throttle}
        try:
            return NativeProducer(config)
        except (KafkaException, TypeError, ValueError) as error:
            refusal = explain_refusal(error, settings)
            if refusal is None:
                raise
            raise refusal from None

    # --- serving ---------------------------------------------------------------------------------------------------

    @property
    def in_callback(self) -> bool:
        """Whether the calling thread is inside a callback that this lane runs."""
        return get_ident() in self._serving

    def poll(self, timeout: float) -> int:
        # What serve() does, inline: many applications poll after each record.
        thread = get_ident()
        serving = self._serving
        if thread in serving:
            return self._inside_callback("poll", 0)
        serving.add(thread)
        try:
            return self.native.poll(timeout)  # type: ignore[no-any-return]
        except:  # noqa: E722 - as in _attempt()
            error = self._noted(sys.exc_info()[1])[0]
        finally:
            serving.discard(thread)
        raise error

    def flush(self, timeout: float) -> int:
        if self.in_callback:
            return self._inside_callback("flush", len(self.native))
        left, raised = self.drain(timeout)
        if raised is not None:
            raise raised
        return left

    def drain(self, timeout: float) -> tuple[int, Exception | None]:
        """(records left, the last exception a callback raised), after a flush of up to `timeout` seconds.

        Stock serves on when a callback raises, and raises at the end. So does this, but in short native calls: inside a
        long one the C client keeps an exception to itself until the end, Ctrl-C included when it lands in a callback.
        """
        deadline = time.monotonic() + timeout if timeout >= 0 else None
        raised: Exception | None = None
        while True:
            remaining = _FLUSH_ROUND if deadline is None else max(0.0, deadline - time.monotonic())
            left, error, from_callback = self._attempt(self.native.flush, min(remaining, _FLUSH_ROUND))
            if error is not None:
                if not isinstance(error, Exception) or not (from_callback or isinstance(error, FatalError)):
                    raise error
                raised = error
                left = len(self.native)
            if not left or remaining == 0.0:
                return left, raised

    def serve(self, call: Callable[..., Any], *args: Any) -> Any:
        """Run a native call that may run callbacks on this thread."""
        self.refuse_in_callback(getattr(call, "__name__", "this method"))
        result, error, _ = self._attempt(call, *args)
        if error is not None:
            raise error
        return result

    def _attempt(self, call: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None, bool]:
        """(result, what to raise, whether a callback raised it)."""
        thread = get_ident()
        self._serving.add(thread)
        try:
            return call(*args), None, False
        except:  # noqa: E722 - a pending fatal error can be a KafkaError, which is no BaseException
            return None, *self._noted(sys.exc_info()[1])
        finally:
            self._serving.discard(thread)

    def refuse_in_callback(self, method: str) -> None:
        """Raise CallbackReentryError when the calling thread is inside a callback."""
        if self.in_callback:
            raise CallbackReentryError(
                f"{method}() was called inside a callback, where it could never finish. Return from the callback and "
                f"call it outside"
            )

    def _inside_callback(self, method: str, answer: int) -> int:
        if not self._warned_reentry:
            self._warned_reentry = True
            warnings.warn(
                f"{method}() was called inside a callback: it serves nothing there and returned {answer}. "
                f"Return from the callback; the poll() or flush() that runs it serves the rest",
                RuntimeWarning,
                stacklevel=4,
            )
        return answer

    # --- errors ----------------------------------------------------------------------------------------------------

    def refusal_of(self, error: Exception) -> Exception:
        """What the application should see when the native hand-over raised `error`."""
        if isinstance(error, BufferError) and not isinstance(error, SafeProducerError):
            return QueueFullError(
                f"Local: Queue full: {len(self.native)} records and events are waiting in this producer "
                f"(queue.buffering.max.messages, queue.buffering.max.kbytes). Call poll() to serve delivery reports, "
                f"then produce the record again"
            )
        return self._fatal_in(error) or error

    def _noted(self, error: Any) -> tuple[BaseException, bool]:
        """(what to raise, whether a callback raised it) for what a serving native call raised."""
        self._ledger.interrupts += 1
        return self._instead_of(error) or error, self._ledger.errors.claim(error)

    def _instead_of(self, error: Any) -> BaseException | None:
        """What to raise instead of what a serving native call raised; None to raise it as it is."""
        if type(error) is SystemError and _LOST_EXCEPTION in str(error):
            # Before Python 3.12 Ctrl-C raises an exception without an instance, and the C client, which keeps only the
            # instance of what a callback raised, forgets it. What other callbacks raise has one by then.
            return KeyboardInterrupt()
        return self._fatal_in(error)

    def _fatal_in(self, error: Any) -> FatalError | None:
        """The FatalError to raise for what a native call raised; notes it. None when it is not fatal."""
        cause = error if isinstance(error, KafkaError) else None
        if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
            cause = error.args[0]
        if isinstance(error, FatalError) or cause is None or not (cause.fatal() or cause.code() == KafkaError._FATAL):
            return None
        self.events.on_fatal(cause)
        if self.state == "open":
            self.state = "fatal"
            self.send = Unusable(self._fatal_again)
        return self._fatal_again()

    def _fatal_again(self) -> FatalError:
        assert self.events.fatal is not None  # noqa: S101 - set before this is called
        return FatalError(self.events.fatal, self._ledger.outstanding(len(self.native))[0])

    def retire(self, state: str, refusal: Callable[[], SafeProducerError]) -> None:
        """Let go of the native producer; from now on every call raises what `refusal` makes."""
        self.state = state
        self.native = self.send = Unusable(refusal)
        self._serving = set()  # a fork inside a callback leaves none in the child
