"""How late librdkafka's own time-out of records must be.

A record's time T (`message.timeout.ms`, `delivery.timeout.ms`) counts from produce(). This library keeps it; librdkafka
must not, because an expiry inside librdkafka raises the epoch of the whole producer and writes batches of other
partitions twice whose acknowledgements were lost. So each lane gets a *backstop* as its `message.timeout.ms`: late
enough that a lost acknowledgement is noticed (`socket.timeout.ms`), retried and noticed again before it, and a lane
that comes near it is purged. Times are seconds; T = 0 means no limit, as in librdkafka.
"""

from __future__ import annotations

LONGEST_TIMEOUT = 2_147_483.647
"""librdkafka's maximum of `message.timeout.ms`, almost 25 days."""

BACKSTOP_MARGIN = 10.0
"""Seconds to purge a stalled lane in. librdkafka looks for expired records once a second, and the machine may be
busy."""


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
