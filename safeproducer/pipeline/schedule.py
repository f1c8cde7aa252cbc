"""When there is something to do: any thread asks, one at a time does it."""

from __future__ import annotations

from collections.abc import Callable

from safeproducer.policy.types import NEVER
from safeproducer.settings.delivery import SendConfig


class Alarm:
    """Whoever asks and whoever works write to different places: neither undoes what the other one has just written.

    Times are those of time.monotonic(). Without a lock, as signal handlers ask, too: of two threads that ask at once
    the later time may win, which is as much later as the one thread was than the other.
    """

    __slots__ = ("_asked", "_found", "_hurried")

    def __init__(self) -> None:
        self._asked = self._found = NEVER
        self._hurried = False

    def ask(self, at: float) -> bool:
        """Ask for work at some time; whether that is earlier than what is known."""
        if at < self._asked and at < self._found:
            self._asked = at
            return True
        return False

    def hurry(self) -> None:
        self._hurried = True

    def begin(self) -> None:
        """The work begins: what is asked for from now on is not part of it."""
        self._asked = self._found = NEVER
        self._hurried = False

    def end(self, next_at: float) -> None:
        """The work found that more is to be done then."""
        self._found = next_at

    def rings(self, now: float) -> bool:
        return self._hurried or self._asked <= now or self._found <= now

    @property
    def at(self) -> float:
        """The earliest time asked for; 0 for now."""
        return 0.0 if self._hurried else min(self._asked, self._found)


class Schedule:
    """Any thread asks; the sender begins and ends the alarms.

    - `alarm`: when the dispatcher has something to do again.
    - `deadline`: when a record's time is over, or a lane must be purged: to look costs more than to hand over.
    - `wake(due)` has the sender come by then.
    - `went_directly()` tells who waits for the sender that an answer can come from the direct lane.
    """

    def __init__(self, delivery: SendConfig, wake: Callable[[float], None], went_directly: Callable[[], None]) -> None:
        self.alarm = Alarm()
        self.deadline = Alarm()
        self.wake = wake
        self.went_directly = went_directly
        self._linger = delivery.linger
        self._timeout = delivery.timeout
        self._flush_until = 0.0
        """Until when linger does not count: a time, as a count would be wrong for good after a handler that raises."""

    def begin(self, now: float) -> None:
        """The first of the records that wait for a partition was accepted."""
        self.expect_deadline(now)
        linger_elapsed = now + self.linger(now)
        if self.alarm.ask(linger_elapsed):
            self.wake(linger_elapsed)

    def hurry(self) -> None:
        self.alarm.hurry()
        self.wake(0.0)

    def expect_deadline(self, accepted: float) -> None:
        """A record that was accepted then waits."""
        if self._timeout is not None:
            self.deadline.ask(accepted + self._timeout)

    def flush(self, until: float) -> None:
        """Let linger not count until then."""
        self._flush_until = until

    def linger(self, now: float) -> float:
        """For how long a batch that is not full waits for more records."""
        return 0.0 if now < self._flush_until else self._linger
