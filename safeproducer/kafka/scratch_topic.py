"""A topic that is made for one purpose and deleted afterwards."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from safeproducer.kafka.connection import connection_settings

_TIMEOUT = 15.0


class ScratchTopic:
    """Creates the topic when entered and deletes it when left, unless `keep` is set.

    `config` is a producer's configuration. The replication factor is the cluster's default. Raises KafkaException
    (TOPIC_AUTHORIZATION_FAILED, INVALID_PARTITIONS, ...) if the topic cannot be made or deleted.
    """

    def __init__(self, config: Mapping[str, Any], name: str, partitions: int, *, keep: bool) -> None:
        logger = logging.getLogger("safeproducer.admin")
        logger.propagate = False
        self._admin = AdminClient(connection_settings(config), logger=logger)
        self.name = name
        self.partitions = partitions
        self.keep = keep

    def __enter__(self) -> Self:
        topic = NewTopic(self.name, num_partitions=self.partitions, replication_factor=-1)
        self._admin.create_topics([topic], operation_timeout=_TIMEOUT)[self.name].result(_TIMEOUT)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.keep:
            self._admin.delete_topics([self.name], operation_timeout=_TIMEOUT)[self.name].result(_TIMEOUT)
