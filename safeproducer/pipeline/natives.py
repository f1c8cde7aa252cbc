"""Makes the native clients of one SafeProducer: each lane's producer, and the admin client that asks for windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from safeproducer.config import Settings, explain_refusal
from safeproducer.kafka.native import KafkaException, NativeProducer
from safeproducer.pipeline.cluster.events import ClientEvents
from safeproducer.pipeline.cluster.windows import Asks
from safeproducer.pipeline.lanes.lane_log import LaneLog


def first_native(settings: Settings, events: ClientEvents) -> NativeProducer:
    """The direct lane, or the first batch lane when everything is held back; raises ConfigurationError."""
    delivery = settings.delivery
    config = (delivery.batch_lane if delivery.mode == "held" else delivery.lane)(settings.lane)
    try:
        return NativeProducer(_with_callbacks(config, events.of_the_first(), events))
    except (KafkaException, TypeError, ValueError) as error:
        refusal = explain_refusal(error, settings)
        if refusal is None:
            raise
        raise refusal from None


def batch_native(settings: Settings, events: ClientEvents, log: LaneLog | None) -> NativeProducer:
    """A batch lane that tells of the cluster by its statistics; with a log that does not tell, one more."""
    delivery = settings.delivery
    config = delivery.batch_lane(settings.lane) if log is None else delivery.told_lane(settings.lane)
    callbacks = events.of_the_first() if delivery.mode == "held" else events.of_a_batch_lane()
    if log is not None and not log.tells:
        config, callbacks = delivery.more_lanes(settings.lane), events.of_one_more()
    config = _with_callbacks(config, callbacks, events)
    if log is None:
        return NativeProducer(config)
    log.application = config.get("logger")
    return NativeProducer({**config, "logger": log})


def discovery(config: dict[str, Any], sleep: Callable[[float], object]) -> Asks:
    # Not before the first question: the admin client takes longer to import than everything else here.
    from safeproducer.kafka.discovery import Discovery  # noqa: PLC0415

    return Discovery(config, sleep)


def _with_callbacks(config: dict[str, Any], callbacks: dict[str, Any], events: ClientEvents) -> dict[str, Any]:
    application = config.get("logger")
    logger = {} if application is None else {"logger": events.logger_for(application)}
    return {**config, **callbacks, **logger}
