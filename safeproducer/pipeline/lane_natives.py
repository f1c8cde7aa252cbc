"""Makes the native producers of one SafeProducer's lanes, or takes them over from another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from safeproducer.config import Settings, explain_refusal
from safeproducer.kafka.native import KafkaException, NativeProducer
from safeproducer.pipeline.cluster.events import ClientEvents
from safeproducer.pipeline.cluster.horizons import Known
from safeproducer.pipeline.cluster.relay import Owner, Relay, of_a_batch_lane, of_one_more, of_the_first
from safeproducer.pipeline.lanes.lane_log import LaneLog
from safeproducer.pipeline.parked import ParkedLane, ParkedLanes, key_of
from safeproducer.producer_ids.parking import parking


class Natives:
    """`first()` and `further()` on the thread that constructs, `batch_lane()` on the sender's.

    `relays`: by the identity of the native producer, for as long as somebody refers to that. `taken`: what a former
    producer with an equal configuration has left.
    """

    def __init__(self, settings: Settings, events: ClientEvents, taken: ParkedLanes | None) -> None:
        self._settings = settings
        self._events = events
        self._key = key_of(settings)
        self.taken = taken
        self.relays: dict[int, Relay] = {}

    def first(self) -> NativeProducer:
        """The direct lane, or the first batch lane when everything is held back; raises ConfigurationError."""
        settings = self._settings
        delivery = settings.delivery
        if self.taken is not None:
            return self._adopted(self.taken.lanes[0], of_the_first)
        config = (delivery.batch_lane if delivery.mode == "held" else delivery.lane)(settings.lane)
        try:
            return self._made(config, of_the_first, None)
        except (KafkaException, TypeError, ValueError) as error:
            refusal = explain_refusal(error, settings)
            if refusal is None:
                raise
        raise refusal  # without that context, whose frames know secrets

    def further(self) -> Iterator[tuple[NativeProducer, LaneLog | None]]:
        """The batch lanes beside the first one that were taken over."""
        for lane in [] if self.taken is None else self.taken.lanes[1:]:
            yield self._adopted(lane, self._owner(lane.log)), lane.log

    def batch_lane(self, log: LaneLog | None) -> NativeProducer:
        """One that tells of the cluster by its statistics; with a log that does not tell, one more."""
        delivery, lane = self._settings.delivery, self._settings.lane
        config = delivery.batch_lane(lane) if log is None else delivery.told_lane(lane)
        if log is not None and not log.tells:
            config = delivery.more_lanes(lane)
        return self._made(config, self._owner(log), log)

    def took(self, native: object) -> bool:
        """Whether another producer had it before, and wrote with it."""
        return self.taken is not None and any(native is other for other in self.taken.natives)

    @property
    def expiry(self) -> Known | None:
        """What a former owner knew of how long brokers remember a producer ID."""
        return None if self.taken is None else self.taken.expiry

    def renew(self, changes: dict[str, str]) -> None:
        """Other credentials from now on."""
        self._settings.renew(changes)
        parking.release(self._settings.cluster)

    def park(self, left: ParkedLanes) -> bool:
        """Keep them for another producer; False when they are to be closed."""
        settings, key = self._settings, self._key
        left.leave()
        return key is not None and parking.park(key, settings.cluster, left, settings.ids.reuse)

    @property
    def reusable(self) -> bool:
        """Whether native producers may go over to another producer: not once credentials were changed."""
        return self._key is not None and self._key == key_of(self._settings)

    def _owner(self, log: LaneLog | None) -> Callable[..., Owner]:
        if log is not None and not log.tells:
            return of_one_more
        return of_the_first if self._settings.delivery.mode == "held" else of_a_batch_lane

    def _adopted(self, lane: ParkedLane, owner: Callable[..., Owner]) -> NativeProducer:
        lane.relay.belong_to(owner(self._events, self._settings.lane.get("logger"), lane.relay.heard))
        self.relays[id(lane.native)] = lane.relay
        native: NativeProducer = lane.native
        return native

    def _made(self, config: dict[str, Any], owner: Callable[..., Owner], log: LaneLog | None) -> NativeProducer:
        keeps = self._key is not None and self._settings.statistics_cb is not None
        relay = Relay(owner(self._events, config.get("logger")), keeps)
        config = relay.configured(config)
        if log is not None:
            log.application = config.get("logger")
            config["logger"] = log
        native = NativeProducer(config)
        self.relays[id(native)] = relay
        return native
