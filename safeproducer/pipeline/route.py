"""Where records and calls of the application go: to a native producer, to the intake, or nowhere any more."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from safeproducer.errors import SafeProducerError, Unusable
from safeproducer.kafka.native import KafkaError
from safeproducer.pipeline.dispatch.dispatcher import Dispatcher
from safeproducer.pipeline.reports.hooked_send import ObservedSend
from safeproducer.pipeline.sender import Sender
from safeproducer.policy.types import NEVER
from safeproducer.producer_ids.gate import Gate
from safeproducer.runtime import clock, interrupts
from safeproducer.runtime.threads import get_ident

_FATAL = (KafkaError._FATAL, "Local: Fatal error: it was not sent before the producer failed")


class Route:
    """The direct path or the buffered path, and the native producer that is called. Any thread reads it.

    The sender chooses; any thread may `hold()` until it has. close() and a fork retire it.

    - `native`: that of the direct lane, or of a batch lane when everything is held back, or an Unusable. The sender
      replaces it when its lane ends.
    - `state`: "open", "fatal", "closed" or "forked".
    - `threads`: those inside a call that serves. `barred`: those of them whose call interrupted a native call that is
      in the middle of a callback: it is not called.
    - `send` takes one record: (topic, value, key, partition, report[, None, timestamp, headers]).
    - `goes_direct`: whether that is the native produce().
    - `retired_at`: when that was, on clock.monotonic().
    - `observed`: what stands in front of it for hooks that want records; None without such a hook.
    - `gate`: who is asked for the permit until the producer may write; None from then on. A permit is asked for at the
      first record, whichever way it goes (KIP-936).
    """

    def __init__(
        self,
        native: Any,
        dispatcher: Dispatcher,
        sender: Sender,
        observed: ObservedSend | None,
        gate: Gate | None,
        direct: bool,
    ) -> None:
        self.native = native
        self.state = "open"
        self.retired_at = NEVER
        self.threads: set[int] = set()
        self.barred: set[int] = set()
        self._dispatcher = dispatcher
        self.sender = sender
        self.observed = observed
        self.gate = gate
        self.goes_direct = self._going = False
        self._chosen: Callable[..., Any] = dispatcher.intake.send
        way = self._chosen if gate is None else _gated(weakref.ref(self), self._chosen)
        self.send: Callable[..., Any] = way if observed is None else observed
        if observed is not None:
            observed.go_on_to(way)
        self.go(direct)

    # --- the native producer -----------------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Whether native producers may be called."""
        return self.state in ("open", "fatal")

    @property
    def inside(self) -> bool:
        """Whether the calling code interrupted a call that serves, or is a destructor that runs on the sender."""
        return get_ident() in self.threads or self.sender.is_this_thread()

    @property
    def in_callback(self) -> bool:
        """Whether the calling thread is inside a callback that this library runs; a signal handler is none."""
        return self.inside and interrupts.in_callback()

    @property
    def behind_callback(self) -> bool:
        """Whether the caller is a signal handler that interrupted a callback of a native call, which has reports."""
        return self.inside and interrupts.in_native_callback()

    @property
    def busy(self) -> bool:
        """Whether a thread of the application serves."""
        return bool(self.threads - self.barred)

    def replace(self, native: Any) -> None:
        """Call the native producer of another lane from now on."""
        if self.usable:
            self.native = native

    def retire(self, state: str, refusal: Callable[[], SafeProducerError]) -> None:
        """Release the native producers: calls raise `refusal()` from now on. Signal handlers find all or none of it."""
        unusable, intake = Unusable(refusal), self._dispatcher.intake
        threads: set[int] = set()
        barred: set[int] = set()  # a fork inside a callback leaves none in the child
        self.retired_at = clock.monotonic()
        self.state = state
        intake.retired = refusal
        self.native = self.send = unusable
        self.threads, self.barred = threads, barred

    def fail(self, again: Callable[[], SafeProducerError]) -> None:
        """After a fatal error: produce() raises what `again()` makes, and what waits fails."""
        if self.state == "open":
            self.state = "fatal"
            self.send = Unusable(again)
            self._dispatcher.expiry.fail_soon(*_FATAL)

    # --- the path ----------------------------------------------------------------------------------------------------

    def go(self, direct: bool) -> None:
        """Which way the next record goes. Ctrl-C may end this anywhere; then the next choose() does it again."""
        way = self.native.produce if direct else self._dispatcher.intake.send
        leaves_direct_path = self.goes_direct or self._going
        self._going = True
        if leaves_direct_path:
            self._dispatcher.record_buffer.may_go_directly(NEVER)  # until the last record has gone directly
        self.goes_direct = direct
        self._chosen = way
        if self.gate is None:  # one step with the line above
            if self.observed is None:
                self.send = way
            else:
                self._observe(way)
        self._dispatcher.intake.opens(direct)
        if leaves_direct_path or direct:
            self._dispatcher.record_buffer.may_go_directly(NEVER if direct else clock.monotonic())
        self._going = False
        if self.state == "closed":  # meanwhile
            self.send = self.native

    def enter(self) -> Callable[..., Any]:
        """Have the producer's permit asked for, unless it was; the way behind the gate. Raises what Gate.enter() does.

        From the first permit on, `send` is what it would be without a gate.
        """
        if self.gate is not None and self.state == "open":
            self.gate.enter()
            if self.state == "open":  # one step: the sender may choose another way meanwhile
                self.gate = None
                if self.observed is None:
                    self.send = self._chosen
                else:
                    self._observe(self._chosen)
        return self._chosen if self.state == "open" else self.send

    def _observe(self, way: Callable[..., Any]) -> None:
        """Have records for hooks go this way, unless another one has been chosen meanwhile."""
        observed: Any = self.observed
        if self._chosen is way and self.state == "open":  # one step with the next line
            self.send = observed
            observed.go_on_to(way)

    def choose(self, direct: bool) -> None:
        """The sender has looked, and knows of no reason why records should not go this way."""
        if (direct is not self.goes_direct or self._going) and self.state == "open":
            if direct:
                self._dispatcher.intake.opens(True)
                direct = self._dispatcher.empty  # a record may have come since the sender looked
            self.go(direct)
            if direct and self._dispatcher.intake.suspended:  # a throttle time was announced meanwhile
                self.go(direct=False)

    def leave(self) -> None:
        """On the sender's thread: nothing goes directly from now on."""
        if self.goes_direct and self.state == "open":
            self.go(direct=False)

    def hold(self) -> None:
        """Send nothing directly, even what a callback produces next, until the sender has looked. No native call."""
        self._dispatcher.intake.suspend()
        if self.goes_direct and self.state == "open":
            if self.sender.is_this_thread():
                self.go(direct=False)
            else:  # the sender does the rest: two threads would undo each other's steps
                self._going = True
                self.goes_direct = False
                self._chosen = self._dispatcher.intake.send
                if self.gate is None:
                    if self.observed is None:
                        self.send = self._chosen
                    else:
                        self._observe(self._chosen)
                self._dispatcher.intake.opens(False)
        self.sender.wake(0.0)


def _gated(route: weakref.ref[Route], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """A stand-in for either way until the producer may write. It refuses by raising: nothing was accepted.

    `otherwise`: the way in a destructor that the collector runs, which clears such references before.
    """

    def send(*record: Any) -> Any:
        found = route()
        return (otherwise if found is None else found.enter())(*record)

    return send
