"""The part of a producer's configuration that any other client of the same cluster needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from safeproducer.kafka.properties import canonical

_OF_THIS_LIBRARY = "safeproducer."
_OF_A_PRODUCER = frozenset(
    {
        "allow.auto.create.topics",
        "batch.num.messages",
        "batch.size",
        "compression.codec",
        "compression.level",
        "default.topic.config",
        "delivery.report.only.error",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "max.in.flight.requests.per.connection",
        "message.copy.max.bytes",
        "message.max.bytes",
        "message.send.max.retries",
        "message.timeout.ms",
        "on_delivery",
        "partitioner",
        "produce.offset.report",
        "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "queuing.strategy",
        "receive.message.max.bytes",  # a consumer's must fit its fetch.max.bytes
        "request.required.acks",
        "request.timeout.ms",
        "sticky.partitioning.linger.ms",
        "transaction.timeout.ms",
        "transactional.id",
    }
)
_OF_ONE_CLIENT = frozenset(
    {
        "debug",
        "error_cb",
        "log.queue",
        "logger",
        "statistics.interval.ms",
        "stats_cb",
        "test.mock.num.brokers",  # it would make brokers of its own
        "throttle_cb",
    }
)


def connection_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return all but what only a producer understands, and what one client tells and does for itself.

    The list names what is left out, not what is passed on: a client that lacks a setting that it needs to connect fails
    in silence, and a newer librdkafka has more of those.
    """
    left_out = _OF_A_PRODUCER | _OF_ONE_CLIENT
    return {
        name: value
        for name, value in tuple(config.items())
        if canonical(name) not in left_out and not name.startswith(_OF_THIS_LIBRARY)
    }
