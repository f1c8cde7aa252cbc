"""When there is something to do: any thread asks, one at a time does it."""

from __future__ import annotations

from safeproducer.policy.never import NEVER


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
        """For some time; whether that is earlier than what is known."""
        if at < self._asked and at < self._found:
            self._asked = at
            return True
        return False

    def hurry(self) -> None:
        """For now."""
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
        """The earliest; 0 for now."""
        return 0.0 if self._hurried else min(self._asked, self._found)
