"""How long round trips are, and whether buffering pays at such a distance and rate."""

from __future__ import annotations

from safeproducer.kafka.statistics import Statistics
from safeproducer.pipeline.reports.counters import DeliveryCounters
from safeproducer.policy.pacing import HIGH_RATE, is_long
from safeproducer.policy.types import DIRECT_LANE
from safeproducer.settings.delivery import SendConfig

_MEASURE_EVERY = 0.4
_HIGH_RATE_SEEN = 0.1
_SURELY = 2  # so many times the high rate, or a burst of some ten thousand records would be one
_WHATEVER_RATE = float("inf")


class RoundTrip:
    """`long`: as in `is_long()`. `seconds`: the shortest one to the farthest broker, 0 while it is not known.

    The sender's thread changes it, and the first question's as long as nothing is known; any thread may read.
    """

    def __init__(self, delivery: SendConfig, counters: DeliveryCounters) -> None:
        self.long = False
        self.seconds = 0.0
        self._delivery = delivery
        self._counters = counters
        self._requests: dict[int, int] = {}
        self._direct: Statistics | None = None
        self._in_use: Statistics | None = None
        """Of the lane that sent Produce requests last: other requests may be answered sooner than those."""
        self._judged: Statistics | None = None
        self._floors: dict[int, float] = {}
        self._before: dict[int, float] = {}
        """By node, of the statistics judged last and of those before: a busy machine makes any round trip late, and a
        broker is far only if both say so."""
        self._measured: tuple[float, int] = (0.0, 0)
        self._high_rate: tuple[float, int] | None = None  # (since when more than a batch waits, accepted by then)

    @property
    def delivered(self) -> int:
        """How many records of the producer were delivered so far."""
        return self._counters.totals()[1]

    def guess(self, distance: float) -> None:
        """Each answer took that long, or longer: statistics are not there yet."""
        delivery = self._delivery
        if not self.long and delivery.idempotent and not delivery.transactional:
            distance = min(distance, self.seconds or distance)
            if is_long(distance, delivery.linger, _WHATEVER_RATE, was_long=False):
                self.long, self.seconds = True, distance

    def update(self, lane: int, found: Statistics) -> None:
        if lane == DIRECT_LANE:
            self._direct = found
        requests = sum(broker.produce_requests for broker in found.brokers.values())
        if requests != self._requests.get(lane, 0):
            self._requests[lane] = requests
            if self._in_use is None:
                self._floors = {}  # of other requests
            self._in_use = found

    def measure(self, now: float) -> None:
        """Judge the distance to the brokers, from the last statistics of the lane in use."""
        if self._delivery.mode != "auto" or self._direct is None:
            return
        then, before = self._measured
        if now - then >= _MEASURE_EVERY:
            accepted = self._counters.accepted
            self._judge(now, accepted, (accepted - before) / (now - then))

    def has_high_rate(self, waiting: int, now: float) -> bool:
        """Whether the application has begun to produce so fast that its records need not be held back any more.

        Told before statistics come, by how fast records are accepted while more than a batch of them is `waiting`.
        """
        if not self.long or waiting < self._delivery.batch_records:
            self._high_rate = None
            return False
        if self._high_rate is None:
            self._high_rate = (now, self._counters.accepted)
            return False
        then, before = self._high_rate
        if now - then < _HIGH_RATE_SEEN:
            return False
        accepted = self._counters.accepted
        self._high_rate = (now, accepted)
        rate = (accepted - before) / (now - then)
        if rate > _SURELY * HIGH_RATE:
            self._judge(now, accepted, rate)
        return not self.long

    def _judge(self, now: float, accepted: int, rate: float) -> None:
        self._measured = (now, accepted)
        found = self._in_use or self._direct
        brokers = {} if found is None else found.brokers
        floors = {node: it.rtt_floor for node, it in brokers.items() if it.rtt_floor is not None}
        if not floors:
            return
        self.seconds = max(floors.values())
        if found is not self._judged:
            self._judged, self._floors, self._before = found, floors, self._floors
        if self._delivery.idempotent and not self._delivery.transactional:  # others wait for nothing
            sure = max(min(floor, self._before.get(node, 0.0)) for node, floor in floors.items())
            self.long = is_long(self.seconds if self.long else sure, self._delivery.linger, rate, self.long)
