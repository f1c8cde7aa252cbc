"""When a record's time is over, and how late librdkafka's own time-out must be.

A record's time T (`message.timeout.ms`, `delivery.timeout.ms`) counts from produce(). This library keeps it; librdkafka
must not, because an expiry inside librdkafka raises the epoch of the whole producer and writes batches of other
partitions twice whose acknowledgements were lost. So each lane gets a *backstop* as its `message.timeout.ms`: late
enough that a lost acknowledgement is noticed (`socket.timeout.ms`), retried and noticed again before it, and a lane
that comes near it is purged. Times are seconds; T = 0 means no limit, as in librdkafka.
"""

from __future__ import annotations

from math import inf

LONGEST_TIMEOUT = 2_147_483.647
"""librdkafka's maximum of `message.timeout.ms`, almost 25 days."""

BACKSTOP_MARGIN = 10.0
"""Seconds to purge a stuck lane in. librdkafka looks for expired records once a second, and the machine may be busy."""


def backstop(delivery_timeout: float, socket_timeout: float, *, at_most: float = LONGEST_TIMEOUT) -> float:
    """The lane's `message.timeout.ms`, in seconds: T + 2 x `socket.timeout.ms` + a margin, 0 when T is 0.

    `at_most` is for what librdkafka demands of a transactional producer (`transaction.timeout.ms`) or the time for
    which brokers remember an idle producer ID; without a limit of its own, T = 0 becomes that. A T so near to the
    limit that the backstop does not fit gives the limit: then librdkafka may expire records itself.
    """
    limit = min(at_most, LONGEST_TIMEOUT)
    if delivery_timeout == 0:
        return 0.0 if at_most >= LONGEST_TIMEOUT else limit
    return min(delivery_timeout + 2 * socket_timeout + BACKSTOP_MARGIN, limit)


def expires(accepted_at: float, delivery_timeout: float) -> float:
    """When a record that produce() accepted at `accepted_at` fails if it is held, or becomes unknown if it is not.

    That moment itself is too late; without a limit it is infinity.
    """
    return accepted_at + delivery_timeout if delivery_timeout > 0 else inf


def too_late(now: float, deadline: float, ack_time: float | None, throttle_until: float | None) -> bool:
    """Whether a held record may fail now, before its deadline, because it cannot be acknowledged in time any more.

    Only a known throttle of its broker proves that: the record may go at `throttle_until` at the earliest, and takes
    about `ack_time` from then on (None when not known: no time). A guess must not fail a record that would make it.
    """
    if throttle_until is None or throttle_until <= now:
        return False
    return throttle_until + (ack_time or 0.0) >= deadline
