"""librdkafka's built-in mock cluster, for demonstrations without a broker."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from safeproducer.kafka.native import NativeProducer

BROKERS = 3
PARTITIONS = 4
"""How many partitions the mock gives a topic that it creates on first use; it cannot be told otherwise."""

RETAINED_BYTES = 5 * 1024 * 1024
"""The mock drops the oldest batches of a partition beyond this size."""


class EmbeddedCluster:
    """Brokers inside this process, on loopback ports, alive while it is entered.

    They belong to a client of their own, so the producer under demonstration connects as to any cluster and can be
    closed before its log is read back. Raises RuntimeError if the brokers do not answer within 10 seconds.
    """

    def __init__(self, brokers: int = BROKERS) -> None:
        logger = logging.getLogger("safeproducer.embedded")
        logger.propagate = False
        self._holder: NativeProducer | None = NativeProducer(
            {"bootstrap.servers": "mock", "test.mock.num.brokers": brokers}, logger=logger
        )
        members = self._holder.list_topics(timeout=10).brokers.values()
        if len(members) != brokers:
            raise RuntimeError(f"{len(members)} of {brokers} mock brokers answered")
        self.bootstrap = ",".join(f"{member.host}:{member.port}" for member in members)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The brokers live as long as the client that made them.
        self._holder = None
