"""The clients' use of their quotas at one broker, and how long they are throttled for it (KIP-13, KIP-124). Pure.

Used bytes count per second, request time in percent of one thread. A delay for bytes is as long as it takes to be back
below the quota; one for request time is one window at most. Usage that nobody added to for an hour is forgotten.
"""

from dataclasses import dataclass

from safeproducer.testing.fake.rules.quota_limits import REQUEST_PERCENTAGE, QuotaLimits
from safeproducer.testing.fake.rules.quota_window import SampledRate

__all__ = ["ClientQuotas", "QuotaUsage"]

_IDLE_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    """One measured rate: bytes per second, or percent of a thread. Empty ``user`` or ``client_id``: any.

    ``limit`` is None for who is measured but not limited. ``throttle_time_ms``: the last delay that was told.
    """

    quota: str
    user: str
    client_id: str
    limit: float | None
    rate: float
    throttle_time_ms: int


@dataclass(slots=True)
class _Meter:
    rate: SampledRate
    used: int
    limit: float | None = None
    told_ms: int = 0


class ClientQuotas:
    """The meters of one broker; ``samples`` and ``window_ms`` are its quota.window configs. It is not thread-safe."""

    def __init__(self, limits: QuotaLimits, samples: int, window_ms: int) -> None:
        self._limits = limits
        self._samples = samples
        self._window_ms = window_ms
        self._meters: dict[tuple[str, str, str], _Meter] = {}
        self._cleaned = 0

    def charge(self, quota: str, user: str, client_id: str | None, value: float, now: int) -> int:
        """Add to what was used; how many ms the client is throttled for it, 0 for not at all.

        A negative value takes off what was charged but not sent.
        """
        limit = self._limits.find(quota, user, client_id)
        meter = self._meter(quota, limit.shared_by, now)
        meter.rate.record(value, now)
        meter.used, meter.limit = now, limit.value
        if limit.value is None:
            return 0
        most = self._window_ms if quota == REQUEST_PERCENTAGE else None
        delay = meter.rate.delay_ms(limit.value, now, most)
        meter.told_ms = delay or meter.told_ms
        return delay

    def most_at_once(self, quota: str, user: str, client_id: str | None) -> float | None:
        """The largest amount that is never throttled after a pause; None without a limit."""
        limit = self._limits.find(quota, user, client_id).value
        return None if limit is None else limit * (self._samples - 1) * self._window_ms / 1000

    def usage(self, now: int) -> list[QuotaUsage]:
        """All meters, in no order."""
        self._clean(now)
        return [
            QuotaUsage(quota, user, client_id, meter.limit, meter.rate.per_second(now), meter.told_ms)
            for (quota, user, client_id), meter in self._meters.items()
        ]

    def _meter(self, quota: str, shared_by: tuple[str, str], now: int) -> _Meter:
        found = self._meters.get((quota, *shared_by))
        if found is None:
            self._clean(now)
            found = self._meters[quota, *shared_by] = _Meter(SampledRate(self._samples, self._window_ms), now)
        return found

    def _clean(self, now: int) -> None:
        if now - self._cleaned >= _IDLE_MS:
            self._cleaned = now
            self._meters = {who: meter for who, meter in self._meters.items() if now - meter.used < _IDLE_MS}
