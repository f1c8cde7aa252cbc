"""Where records and calls of the application go: to a native producer, to the dispatcher, or nowhere any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from safeproducer import clock
from safeproducer.errors import SafeProducerError
from safeproducer.kafka.native import KafkaError
from safeproducer.pipeline.dispatch.dispatcher import Dispatcher
from safeproducer.pipeline.gated_send import GatedSend
from safeproducer.pipeline.process import stack
from safeproducer.pipeline.process.sender import Sender, get_ident
from safeproducer.pipeline.reports.observed import ObservedSend
from safeproducer.pipeline.unusable import Unusable
from safeproducer.policy.never import NEVER

_FATAL = (KafkaError._FATAL, "Local: Fatal error: it was not sent before the producer failed")


class Client:
    """Any thread reads it. close() and a fork retire it; the sender replaces the native producer when its lane ends.

    - `native`: that of the direct lane, or of a batch lane when everything is held back, or an Unusable.
    - `state`: "open", "fatal", "closed" or "forked".
    - `threads`: those inside a call that serves. `barred`: those of them whose call interrupted a native call that is
      in the middle of a callback: it is not called.
    """

    def __init__(self, native: Any, sender: Sender) -> None:
        self.native = native
        self._sender = sender
        self.state = "open"
        self.threads: set[int] = set()
        self.barred: set[int] = set()

    @property
    def usable(self) -> bool:
        """Whether native producers may be called."""
        return self.state in ("open", "fatal")

    @property
    def inside(self) -> bool:
        """Whether the calling code interrupted a call that serves, or is a destructor that runs on the sender."""
        return get_ident() in self.threads or self._sender.is_this_thread()

    @property
    def in_callback(self) -> bool:
        """Whether the calling thread is inside a callback that this library runs; a signal handler is none."""
        return self.inside and stack.in_callback()

    @property
    def behind_callback(self) -> bool:
        """Whether the caller is a signal handler that interrupted a callback of a native call, which has reports."""
        return self.inside and stack.in_native_callback()

    @property
    def busy(self) -> bool:
        """Whether a thread of the application serves."""
        return bool(self.threads - self.barred)

    def fail(self) -> bool:
        """A fatal error was met; whether it is the first one."""
        if self.state != "open":
            return False
        self.state = "fatal"
        return True

    def replace(self, native: Any) -> None:
        """By that of another lane."""
        if self.usable:
            self.native = native

    def retire(
        self, state: str, refusal: Callable[[], SafeProducerError], route: Route, dispatcher: Dispatcher
    ) -> None:
        """Release the native producers; from now on every call raises what `refusal` makes.

        One step: a signal handler that raises finds all of it as it was, or retired.
        """
        unusable = Unusable(refusal)
        threads: set[int] = set()
        barred: set[int] = set()  # a fork inside a callback leaves none in the child
        self.state = state
        dispatcher.intake.retired = refusal
        self.native = route.send = unusable
        self.threads, self.barred = threads, barred


class Route:
    """The direct path or the buffered path. The sender chooses; any thread may `hold()` until it has.

    - `send` takes one record: (topic, value, key, partition, report[, None, timestamp, headers]).
    - `goes_direct`: whether that is the native produce(). `way`: that or Intake.send, also behind `observed`.
    - `observed`: what stands in front of either for hooks that want records; None without such a hook.
    - `gated`: what stands in place of either way until the producer may write; None from then on.
    """

    def __init__(
        self,
        client: Client,
        dispatcher: Dispatcher,
        sender: Sender,
        observed: ObservedSend | None,
        gated: GatedSend | None,
        direct: bool,
    ) -> None:
        self._client = client
        self._dispatcher = dispatcher
        self._sender = sender
        self.observed = observed
        self.gated = gated
        self.goes_direct = self._going = False
        self._chosen: Callable[..., Any] = dispatcher.intake.send
        self.way: Callable[..., Any] = self._chosen if gated is None else gated
        self.send: Callable[..., Any] = self.way if observed is None else observed
        self.go(direct)

    def go(self, direct: bool) -> None:
        """Which way the next record goes. Ctrl-C may end this anywhere; then the next choose() does it again."""
        way = self._client.native.produce if direct else self._dispatcher.intake.send
        leaves_direct_path = self.goes_direct or self._going
        self._going = True
        if leaves_direct_path:
            self._dispatcher.record_buffer.leave_direct_path(NEVER)  # until the last record has gone directly
        self.goes_direct = direct
        self._chosen = way
        if self.gated is None:  # one step with the lines above and below
            self.way = way
            if self.observed is None:
                self.send = way
        if leaves_direct_path:
            self._dispatcher.record_buffer.leave_direct_path(clock.monotonic())
        self._going = False
        if self._client.state == "closed":  # meanwhile
            self.send = self._client.native

    def enter(self) -> Callable[..., Any]:
        """Have the producer's permit asked for, unless it was; the way behind the gate. Raises what Gate.enter() does.

        From the first permit on, `send` is what it would be without a gate.
        """
        if self.gated is not None and self._client.state == "open":
            self.gated.gate.enter()
            if self._client.state == "open":  # one step: the sender may choose another way meanwhile
                self.gated = None
                self.way = self._chosen
                if self.observed is None:
                    self.send = self.way
        return self._chosen if self._client.state == "open" else self.send

    def choose(self, direct: bool) -> None:
        """The sender has looked, and knows of no reason why records should not go this way."""
        if (direct is not self.goes_direct or self._going) and self._client.state == "open":
            self.go(direct)
            if direct and self._dispatcher.intake.rechecks:  # a throttle time was announced meanwhile
                self.go(direct=False)

    def leave(self) -> None:
        """On the sender's thread: nothing goes directly from now on."""
        if self.goes_direct and self._client.state == "open":
            self.go(direct=False)

    def hold(self) -> None:
        """Send nothing directly from now on until the sender has looked, not even what a callback produces next.

        Runs inside a native call, so it makes none.
        """
        self._dispatcher.intake.recheck()
        if self.goes_direct and self._client.state == "open":
            if self._sender.is_this_thread():
                self.go(direct=False)
            else:  # the sender does the rest: two threads would undo each other's steps
                self._going = True
                self.goes_direct = False
                self._chosen = self._dispatcher.intake.send
                if self.gated is None:
                    self.way = self._chosen
                    if self.observed is None:
                        self.send = self.way
        self._sender.wake(0.0)

    def fail(self, again: Callable[[], SafeProducerError]) -> None:
        """After a fatal error: produce() raises what `again()` makes, and what waits fails."""
        if self._client.fail():
            self.send = Unusable(again)
            self._dispatcher.expiry.fail_soon(*_FATAL)
