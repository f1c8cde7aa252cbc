"""Faults on order: late, lost and failed answers."""

from safeproducer.testing.fake.control.runtime import Runtime
from safeproducer.testing.fake.handlers import SERVED
from safeproducer.testing.fake.state.faults import Scope, Side

__all__ = ["FaultControl"]

_NAMING_PARTITIONS = ("Produce", "Fetch", "ListOffsets", "OffsetForLeaderEpoch", "DescribeProducers")


class FaultControl(Runtime):
    """Makes brokers fail on purpose.

    A fault is for all brokers or for one, and where a ``topic`` can be given, for requests that name it or one
    ``partition`` of it; a request counts once, however many partitions it names. Each method raises ValueError for
    what is not there.
    """

    def delay(
        self, seconds: float, *, broker: int | None = None, api: str | None = None, side: Side = "answer"
    ) -> None:
        """Let answers come this much later, or with ``side="request"`` let requests arrive so; always in order.

        With a late answer the work is done at once; a late request is not worked on before. Requests in flight are
        late side by side, not one after the other, as on a long link; but a connection with 16 MB of answers on their
        way, or 64 MB of requests, is not read until there is room. The newest call that covers a request counts; 0
        ends it.
        """
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"seconds: {seconds} is no delay; give 0 or more")
        if side not in ("request", "answer"):
            raise ValueError(f"side: {side!r} is neither 'request' nor 'answer'")
        scope = Scope(None if api is None else _served(api), self._checked(broker))
        self._call(lambda: self._state.faults.set_delay(seconds, scope, side))

    def lose_acks(
        self,
        n: int = 1,
        *,
        broker: int | None = None,
        api: str = "Produce",
        topic: str | None = None,
        partition: int | None = None,
    ) -> None:
        """The next ``n`` answers are dropped and their connections cut: the work is done, the client never hears."""
        scope = self._scope(api, broker, topic, partition)
        self._call(lambda: self._state.faults.lose(_positive(n), scope))

    def fail_next(
        self,
        api: str,
        error_code: int,
        n: int = 1,
        *,
        broker: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
    ) -> None:
        """The next ``n`` requests of this API are answered with an error of the protocol; nothing is done for them.

        With a ``topic`` only its partitions fail, and the rest of the request is done.
        """
        if error_code == 0:
            raise ValueError("error_code: 0 is success")
        scope = self._scope(api, broker, topic, partition)
        self._call(lambda: self._state.faults.fail(error_code, _positive(n), scope))

    def set_throttle(self, milliseconds: int, *, broker: int | None = None, api: str = "Produce") -> None:
        """Answers of this API announce this throttle time (KIP-219), without holding anything back. 0 ends it."""
        if milliseconds < 0:
            raise ValueError(f"milliseconds: {milliseconds} is below 0")
        scope = Scope(_served(api), self._checked(broker))
        self._call(lambda: self._state.faults.set_throttle(milliseconds, scope))

    @property
    def faults_left(self) -> int:
        """How many ordered losses and errors have not happened yet."""
        return self._call(lambda: self._state.faults.left)

    def _scope(self, api: str, broker: int | None, topic: str | None, partition: int | None) -> Scope:
        if topic is None and partition is not None:
            raise ValueError(f"partition: {partition} of which topic? Give topic too")
        if topic is not None:
            if _served(api) not in _NAMING_PARTITIONS:
                raise ValueError(
                    f"topic: faults of {api} are for whole requests; only {_NAMING_PARTITIONS} name topics"
                )
            self._call(lambda: self._partition(topic, partition or 0))
        return Scope(_served(api), self._checked(broker), topic, partition)


def _served(api: str) -> str:
    if api not in SERVED:
        raise ValueError(f"api: {api!r} is not served, only {', '.join(SERVED)}")
    return api


def _positive(n: int) -> int:
    if n < 1:
        raise ValueError(f"n: {n} is below 1")
    return n
