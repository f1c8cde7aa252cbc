"""Time, and what it limits: quotas of users and clients."""

from enum import Enum
from typing import Final, Literal

from safeproducer.testing.fake.control.runtime import Runtime
from safeproducer.testing.fake.rules.client_quotas import QuotaUsage
from safeproducer.testing.fake.rules.producer_id_quota import ProducerIdUsage
from safeproducer.testing.fake.rules.quota_limits import CLIENT_ID, USER, Entity, describe_entity

__all__ = ["DEFAULT", "QuotaControl", "QuotaName"]

QuotaName = Literal["producer_byte_rate", "consumer_byte_rate", "request_percentage", "producer_ids_rate"]


class _Default(Enum):
    ENTITY = "default"

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final = _Default.ENTITY
"""As ``user`` or ``client_id``: everybody who has no quota of his own; each gets the whole of it."""


def _entity(user: str | _Default | None, client_id: str | _Default | None) -> Entity:
    given = {USER: user, CLIENT_ID: client_id}
    return frozenset((kind, None if name is DEFAULT else name) for kind, name in given.items() if name is not None)


class QuotaControl(Runtime):
    """Moves the clock, and sets quotas."""

    def advance(self, seconds: float) -> float:
        """Move the cluster's clock on; returns its time in seconds since the Unix epoch. Raises ValueError below 0.

        Producer IDs expire and quotas recover by it. Waits stay real: delays, the time a throttled connection is muted,
        long polls. Clients know nothing of it, so new records carry real timestamps.
        """
        return self._call(lambda: self._state.clock.advance(seconds))

    def now(self) -> float:
        """The cluster's time, in seconds since the Unix epoch."""
        return self._call(self._state.clock.now)

    def set_quota(
        self,
        name: QuotaName,
        value: float | None,
        *,
        user: str | _Default | None = None,
        client_id: str | _Default | None = None,
    ) -> None:
        """Set a quota on a user, a client ID, or both; None takes it away. As AlterClientQuotas, in force at once.

        ``producer_byte_rate`` and ``consumer_byte_rate``: bytes per second and broker. ``request_percentage``: 100 is
        one thread of a broker. ``producer_ids_rate`` (KIP-936): new producer IDs per hour and broker, of users only.
        :data:`DEFAULT` stands for all users or clients without their own. Without a log-in a user is "ANONYMOUS".
        Raises ValueError, with the way out, for a quota that Kafka would refuse.
        """
        entity = _entity(user, client_id)
        self._call(lambda: self._state.quotas.set(entity, {name: value}))

    def quotas(self) -> dict[str, dict[str, float]]:
        """The quotas that are set and their values, by entity in words ("user 'alice' and default client-id")."""
        return self._call(lambda: {describe_entity(e): dict(limits) for e, limits in self._state.quotas.entities()})

    def quota_usage(self, broker: int) -> list[QuotaUsage]:
        """The use of byte and request quotas at this broker, lately. Measured once a quota was set."""
        state = self._broker(broker)
        return self._call(lambda: state.quotas.usage(self._state.clock.now_ms()))

    def producer_id_usage(self, broker: int) -> dict[str, ProducerIdUsage]:
        """KIP-936's metrics at this broker, by user: rate, tokens, throttle time; users with a quota only."""
        state = self._broker(broker)
        return self._call(lambda: state.producer_ids.usage(self._state.clock.now_ms()))
