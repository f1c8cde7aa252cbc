"""Faults on order: late, lost and failed answers."""

from safeproducer.testing.fake.handlers import SERVED
from safeproducer.testing.fake.runtime import Runtime

__all__ = ["FaultControl"]


class FaultControl(Runtime):
    """What a test may let go wrong."""

    def delay(self, seconds: float, *, broker: int | None = None) -> None:
        """Answers come this much later, in order; requests are worked on at once. 0 ends it."""
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"seconds: {seconds} is no delay; give 0 or more")
        self._checked(broker)
        self._call(lambda: self._state.faults.set_delay(seconds, broker))

    def lose_acks(self, n: int = 1, *, broker: int | None = None, api: str = "Produce") -> None:
        """The next ``n`` answers are dropped and their connections cut: the work is done, the client never hears."""
        self._checked(broker)
        self._call(lambda: self._state.faults.lose(_served(api), _positive(n), broker))

    def fail_next(self, api: str, error_code: int, n: int = 1, *, broker: int | None = None) -> None:
        """The next ``n`` requests of this API are answered with an error of the protocol; nothing is done for them."""
        if error_code == 0:
            raise ValueError("error_code: 0 is success")
        self._checked(broker)
        self._call(lambda: self._state.faults.fail(_served(api), error_code, _positive(n), broker))

    def set_throttle(self, milliseconds: int, *, broker: int | None = None, api: str = "Produce") -> None:
        """Answers of this API announce this throttle time (KIP-219). Nothing is held back for it. 0 ends it."""
        if milliseconds < 0:
            raise ValueError(f"milliseconds: {milliseconds} is below 0")
        self._checked(broker)
        self._call(lambda: self._state.faults.set_throttle(milliseconds, _served(api), broker))

    @property
    def faults_left(self) -> int:
        """How many ordered losses and errors have not happened yet."""
        return self._call(lambda: self._state.faults.left)


def _served(api: str) -> str:
    if api not in SERVED:
        raise ValueError(f"api: {api!r} is not served, only {', '.join(SERVED)}")
    return api


def _positive(n: int) -> int:
    if n < 1:
        raise ValueError(f"n: {n} is below 1")
    return n
