"""Makes the native clients of one SafeProducer: each lane's producer, and the admin client that asks for windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from safeproducer.config import Settings, explain_refusal
from safeproducer.kafka.native import KafkaException, NativeProducer
from safeproducer.pipeline.cluster.events import ClientEvents
from safeproducer.pipeline.cluster.relay import Owner, Relay, of_a_batch_lane, of_one_more, of_the_first
from safeproducer.pipeline.cluster.windows import Asks
from safeproducer.pipeline.lanes.lane_log import LaneLog


class Natives:
    """`first()` on the thread that constructs, the rest on the sender's.

    `relays`: by the identity of the native producer, for as long as somebody refers to that.
    """

    def __init__(self, settings: Settings, events: ClientEvents) -> None:
        self._settings = settings
        self._events = events
        self.relays: dict[int, Relay] = {}

    def first(self) -> NativeProducer:
        """The direct lane, or the first batch lane when everything is held back; raises ConfigurationError."""
        settings = self._settings
        delivery = settings.delivery
        config = (delivery.batch_lane if delivery.mode == "held" else delivery.lane)(settings.lane)
        try:
            return self._made(config, of_the_first, None)
        except (KafkaException, TypeError, ValueError) as error:
            refusal = explain_refusal(error, settings)
            if refusal is None:
                raise
            raise refusal from None

    def batch_lane(self, log: LaneLog | None) -> NativeProducer:
        """One that tells of the cluster by its statistics; with a log that does not tell, one more."""
        delivery, lane = self._settings.delivery, self._settings.lane
        told = of_the_first if delivery.mode == "held" else of_a_batch_lane
        if log is not None and not log.tells:
            return self._made(delivery.more_lanes(lane), of_one_more, log)
        return self._made(delivery.batch_lane(lane) if log is None else delivery.told_lane(lane), told, log)

    def _made(
        self, config: dict[str, Any], owner: Callable[[ClientEvents, Any], Owner], log: LaneLog | None
    ) -> NativeProducer:
        relay = Relay(owner(self._events, config.get("logger")))
        config = relay.configured(config)
        if log is not None:
            log.application = config.get("logger")
            config["logger"] = log
        native = NativeProducer(config)
        self.relays[id(native)] = relay
        return native


def discovery(config: dict[str, Any], sleep: Callable[[float], object]) -> Asks:
    # Not before the first question: the admin client takes longer to import than everything else here.
    from safeproducer.kafka.discovery import Discovery  # noqa: PLC0415

    return Discovery(config, sleep)
