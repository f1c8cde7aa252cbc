"""The faults that a test set, asked once for each request."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple

Side = Literal["request", "answer"]
"""Where a delay lies: before the broker works on a request, or after."""

Kind = Literal["error", "loss", "hold"]
Named = tuple[str, int]
"""A partition that a request names: its topic and index."""


class Scope(NamedTuple):
    """The requests of a fault; None is any. With a topic it is for requests that name it, or one partition of it."""

    api: str | None = None
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None

    def covers(self, api: str, broker: int) -> bool:
        """Whether requests of this API at this broker are meant, as far as that alone can tell."""
        return self.api in (None, api) and self.broker in (None, broker)

    def names(self, topic: str, partition: int) -> bool:
        return self.topic in (None, topic) and self.partition in (None, partition)

    def includes(self, other: "Scope") -> bool:
        """Whether all that the other one is for is meant."""
        return all(mine in (None, its) for mine, its in zip(self, other, strict=True))


@dataclass(slots=True, eq=False)
class _Counted:
    """A fault with an end: for the next ``left`` requests it covers."""

    scope: Scope
    left: int
    value: int = 0


def _with(faults: list[_Counted], new: _Counted) -> list[_Counted]:
    """The faults and a new one; one of 0 ends those that it includes."""
    if new.left < 0:
        raise ValueError(f"n: {new.left} is below 0")
    if new.left:
        return [*faults, new]
    return [fault for fault in faults if fault.value != new.value or not new.scope.includes(fault.scope)]


def _taken(faults: list[_Counted], api: str, broker: int, named: Collection[Named] = ()) -> _Counted | None:
    """The first of these that a request meets, which names these partitions; it has one less left."""
    for fault in faults:
        meets = fault.scope.topic is None or any(fault.scope.names(*partition) for partition in named)
        if fault.left and meets and fault.scope.covers(api, broker):
            fault.left -= 1
            return fault
    return None


class Standing:
    """Values in force until they are changed: the newest one that covers a request counts."""

    def __init__(self) -> None:
        self._orders: list[tuple[Scope, float]] = []

    def set(self, scope: Scope, value: float) -> None:
        self._orders = [(scope, value), *(order for order in self._orders if not scope.includes(order[0]))]

    def of(self, api: str, broker: int) -> float:
        for scope, value in self._orders:
            if scope.covers(api, broker):
                return value
        return 0


class Faults:
    """All faults now in force. It is not thread-safe."""

    def __init__(self) -> None:
        self.delays: dict[Side, Standing] = {"request": Standing(), "answer": Standing()}
        """Seconds by which a request or its answer is late."""
        self.throttles = Standing()
        """The throttle time in ms that an answer announces."""
        self._counted: dict[Kind, list[_Counted]] = {"error": [], "loss": [], "hold": []}
        self.held: list[asyncio.Event] = []
        """An event for each request that is held back, which waits for it."""

    def order(self, kind: Kind, n: int, scope: Scope, error_code: int = 0) -> None:
        """Have it happen to the next ``n`` requests."""
        self._counted[kind] = _with(self._counted[kind], _Counted(scope, n, error_code))

    def take_hold(self, api: str, broker: int) -> asyncio.Event | None:
        """The event for which this request has to wait, if it is held back."""
        if _taken(self._counted["hold"], api, broker) is None:
            return None
        self.held.append(held := asyncio.Event())
        return held

    def release(self) -> int:
        """End the wait of all that is held back, and hold nothing more; returns how many requests that were."""
        count = len(self.held)
        for held in self.held:
            held.set()
        self.held, self._counted["hold"] = [], []
        return count

    def take_error(self, api: str, broker: int) -> int:
        """The error this request has to fail with as a whole, 0 for none."""
        fault = _taken(self._counted["error"], api, broker)
        return 0 if fault is None else fault.value

    def take_partition_error(self, api: str, broker: int, named: Named, taken: set[object]) -> int:
        """The error this partition has to fail with, 0 for none. ``taken`` is the request's own and starts empty.

        A request that names several partitions of a scope, or one again and again, counts once.
        """
        for fault in self._counted["error"]:
            if fault.scope.topic is None or not (fault.scope.covers(api, broker) and fault.scope.names(*named)):
                continue
            if fault in taken or fault.left:
                fault.left -= fault not in taken
                taken.add(fault)
                return fault.value
        return 0

    def take_loss(self, api: str, broker: int, named: Collection[Named]) -> bool:
        """Whether the answer to this request, which names these partitions, gets lost."""
        return _taken(self._counted["loss"], api, broker, named) is not None

    @property
    def left(self) -> int:
        """How many ordered errors, losses and holds have not happened yet."""
        return sum(fault.left for faults in self._counted.values() for fault in faults)
