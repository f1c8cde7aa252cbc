"""Kafka's token bucket (KIP-599), which KIP-936 wants for producer IDs too. Pure.

A bucket holds up to ``burst`` tokens and gains ``refill`` per second, counted whenever somebody looks. Under the
strict rule, the only one here, a bucket at 0 or above lets one more request of any size pass and may so go below 0;
below 0 it lets nothing pass, and the delay is the exact time until it is back at 0.

Kafka starts with no tokens at time 0 of the epoch; whoever counts time from 1970, as clusters do, starts with a full
bucket. All times are milliseconds.
"""

from safeproducer.testing.fake.rules.quota_window import round_half_up

__all__ = ["TokenBucket"]


class TokenBucket:
    """The tokens of one quota. It is not thread-safe."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._last = 0

    def tokens(self, burst: float, refill: float, now: int) -> float:
        """How many there are; a smaller ``burst`` than before cuts them down, a larger one gives nothing at once."""
        self._tokens = min(burst, self._tokens + refill * (now - self._last) / 1000)
        self._last = now
        return self._tokens

    def take(self, value: float, burst: float, refill: float, now: int) -> None:
        """Take tokens, whether they are there or not."""
        self._tokens = min(burst, self.tokens(burst, refill, now) - value)

    def delay_ms(self, burst: float, refill: float, now: int) -> int:
        """Milliseconds until nothing is owed any more, 0 if nothing is."""
        tokens = self.tokens(burst, refill, now)
        return round_half_up(-tokens / refill * 1000) if tokens < 0 else 0
