"""What the cluster does wrong on purpose, asked once for each request."""

from dataclasses import dataclass

__all__ = ["Faults"]


@dataclass(slots=True)
class _Counted:
    """A fault with an end: for the next ``left`` requests of an API, at one broker or at any."""

    api: str
    broker: int | None
    left: int
    value: int

    def covers(self, api: str, broker: int) -> bool:
        return self.left > 0 and self.api == api and self.broker in (None, broker)


class Faults:
    """All faults now in force. Not thread-safe."""

    def __init__(self) -> None:
        self._delays: dict[int | None, float] = {}
        self._throttles: dict[tuple[str, int | None], int] = {}
        self._errors: list[_Counted] = []
        self._losses: list[_Counted] = []

    def set_delay(self, seconds: float, broker: int | None) -> None:
        self._delays[broker] = seconds

    def set_throttle(self, milliseconds: int, api: str, broker: int | None) -> None:
        self._throttles[api, broker] = milliseconds

    def fail(self, api: str, error_code: int, n: int, broker: int | None) -> None:
        self._errors.append(_Counted(api, broker, n, error_code))

    def lose(self, api: str, n: int, broker: int | None) -> None:
        self._losses.append(_Counted(api, broker, n, 0))

    def delay(self, broker: int) -> float:
        """Seconds by which an answer of this broker is late."""
        return self._delays.get(broker, self._delays.get(None, 0.0))

    def throttle(self, api: str, broker: int) -> int:
        """The throttle time in ms that this answer announces."""
        return self._throttles.get((api, broker), self._throttles.get((api, None), 0))

    def take_error(self, api: str, broker: int) -> int:
        """The error this request has to fail with, 0 for none."""
        return self._take(self._errors, api, broker) or 0

    def take_loss(self, api: str, broker: int) -> bool:
        """Whether the answer to this request gets lost."""
        return self._take(self._losses, api, broker) is not None

    @property
    def left(self) -> int:
        """How many ordered errors and losses have not happened yet."""
        return sum(fault.left for fault in (*self._errors, *self._losses))

    @staticmethod
    def _take(faults: list[_Counted], api: str, broker: int) -> int | None:
        for fault in faults:
            if fault.covers(api, broker):
                fault.left -= 1
                return fault.value
        return None
