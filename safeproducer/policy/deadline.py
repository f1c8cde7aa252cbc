"""How late librdkafka's own time-out of records must be.

A record's time T (`message.timeout.ms`, `delivery.timeout.ms`) counts from produce(). This library keeps it; librdkafka
must not, because an expiry inside librdkafka raises the epoch of the whole producer and writes batches of other
partitions twice whose acknowledgements were lost. Each lane therefore gets a *backstop* as its `message.timeout.ms`:
late enough that a lost acknowledgement is noticed (`socket.timeout.ms`), retried and noticed again before it, and a
lane that comes near it is purged. Times are seconds; T = 0 means no limit, as in librdkafka.
"""

from __future__ import annotations

LONGEST_TIMEOUT = 2_147_483.647
"""librdkafka's maximum of `message.timeout.ms`, almost 25 days."""

BACKSTOP_MARGIN = 10.0
"""Seconds to purge a stalled lane in. librdkafka looks for expired records once a second, and the machine may be
busy."""


def backstop(delivery_timeout: float, socket_timeout: float) -> float:
    """The lane's `message.timeout.ms`, in seconds: T + 2 x `socket.timeout.ms` + a margin, 0 when T is 0.

    A T so near to librdkafka's maximum that the backstop does not fit gives that: then librdkafka may expire records
    itself.
    """
    if delivery_timeout == 0:
        return 0.0
    return min(delivery_timeout + 2 * socket_timeout + BACKSTOP_MARGIN, LONGEST_TIMEOUT)
