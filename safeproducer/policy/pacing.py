"""A partition's pace: how much goes directly at first, how long acknowledgements take, and which round trip is long."""

from __future__ import annotations

from safeproducer.policy.types import NEVER, TopicPartition

LONGEST_PACE = 10.0
"""Seconds after which a lane that is still not ready is not waited for any more."""
_LONGEST_ALONE = 10.0
"""Seconds for which the first batch of a partition is waited for."""


class SlowStart:
    """While `open`, about one batch may go to find out how brokers are. Any thread takes, one looks for the answer.
    `last`: when a record went last.

    It may announce a throttle time, and what was sent behind that batch would wait unread until it times out.

    A partition's records go for a `linger` after its first one: that is one batch. A leader that does not know the
    producer, or has forgotten it in a `rest` (KIP-854), takes any batch. If it rejects the first for now, and takes the
    next, the first is missing.
    """

    def __init__(self, records: int, size: int, linger: float, wanted: bool, resolved: int, rest: bool = False) -> None:
        self.open = wanted
        self.last = NEVER
        self._rest = rest
        self._linger = linger
        self._first: dict[TopicPartition, tuple[int, float]] = {}
        """How many records of the partition were delivered before, and when its first batch is complete."""
        self._resolved = resolved
        """Records that were resolved before."""
        self._records, self._bytes = records, size
        self._sent = 0

    @property
    def waits(self) -> bool:
        """Whether nothing has come since the rest."""
        return self.open and self._rest and not self._sent

    def takes(self, tp: TopicPartition, size: int, delivered: int, now: float) -> bool:
        """Whether a record more may go, as so many of the partition are `delivered`."""
        before, ended = first = self._first.setdefault(tp, begun := (delivered, now + self._linger))
        waits = first is not begun and delivered == before and ended <= now < ended + _LONGEST_ALONE
        if self.closes() or (self.open and waits):
            return False
        self._records -= 1
        self._bytes -= size
        if self._sent and self.closes():  # the first goes whatever its size: nothing else would end the wait
            return False
        self._sent, self.last = self._sent + 1, now
        return True

    def give_back(self, size: int) -> None:
        """A record was not sent after all, so no answer to it will end the wait."""
        self._sent -= 1
        self._records += 1
        self._bytes += size

    def closes(self) -> bool:
        """Whether all records wait for the answer."""
        return self.open and self._sent > 0 and (self._records < 0 or self._bytes < 0)

    def none_waits(self, resolved: int) -> bool:
        """Whether all that went is answered, as so many are `resolved`; if so, each partition begins a first batch."""
        if all_are := resolved - self._resolved >= self._sent:
            self._first.clear()
        return all_are

    def answered(self, resolved: int, in_lane: int, measuring: bool, over: bool = False) -> bool:
        """Whether all that was sent has been answered: so many records are `resolved`.

        The first answer alone says little: that of a small batch comes before a large one's, and without its throttle.
        It goes on while round trips are measured, or all that comes would go directly just before they prove long.
        It is `over` when those that owe an answer are silent and another broker is there, which must not wait for them;
        or statistics show that they all came, though a handler or callback keeps their reports back.
        """
        ended = self.none_waits(resolved) or not in_lane
        self.open = self.open and not (over or (resolved > self._resolved and not measuring and ended))
        return not self.open


class PacedStart:
    """While `open`, a batch of each partition goes at a time, once all that went is answered. Any thread takes.

    It is open with a long round trip until a batch lane is ready: more would keep the partition from leaving for that.
    """

    def __init__(self, records: int, size: int, linger: float) -> None:
        self.open = False
        self._most, self._linger = (records, size), linger
        self._since: float | None = None
        self._opened_at = 0.0
        self._room: dict[TopicPartition, tuple[int, int]] | None = None
        """(records, bytes) that may still go of each partition, a batch if it is not there; None while nothing may."""

    def takes(self, tp: TopicPartition, size: int) -> bool:
        """Whether a record more may go, as the last one of its batch perhaps."""
        if (room := self._room) is None:
            return False
        records, left = room.get(tp, self._most)
        fits = records > 0 and (left >= size or records == self._most[0])
        room[tp] = (records - 1, left - size) if fits else (0, 0)
        return fits

    def closes(self, tp: TopicPartition) -> bool:
        """Whether records of this partition wait for an answer."""
        room = self._room
        return self.open and (room is None or room.get(tp, (1, 1)) <= (0, 0))

    def look(self, wanted: bool, in_slow_start: bool, in_lane: int, now: float) -> bool:
        """Note that the lane has so many records and events; whether that changes what may go."""
        self._since = (now if self._since is None else self._since) if wanted else None
        lasts = self._since is not None and now <= self._since + LONGEST_PACE
        before, self.open = self.open, lasts and not in_slow_start
        if self.open and in_lane:
            if not before or self._opened_at + self._linger <= now:
                self._room = None  # what comes now goes with the next batch
        elif self.open:
            before = before and self._room == {}
            self._room, self._opened_at = {}, now
        return self.open is not before


LONG_ROUND_TRIP = 0.04
"""Seconds from which a batch may follow one that needs flush triggers: no answer to it comes while those of the one
before it are served."""
STEADY = 0.2
"""Where it differs by more than this share of it, it is no distance, but a machine that is too busy to send."""

LATE = 1.5
"""Seconds after which the leader of an unanswered batch is in doubt."""
REST = 0.5
"""Seconds after an answer from which the next batch is alone: its leader may have forgotten the producer ID."""
LATE_TIMES = 5
"""An answer that took so many times as long as usual was not on its way all that time."""


class AckTime:
    """The sender's thread calls. `seconds` from sending a batch to its last report, smoothed; None before the first."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._jitter = self._last = self._at = 0.0

    def rested(self, at: float) -> bool:
        """Whether a batch that was handed over then was the first one after a rest."""
        return at > self._at + REST

    def observe(self, seconds: float, now: float) -> None:
        """A batch took so long, until now."""
        self._at = now
        if self.seconds is not None:
            self._jitter = (self._jitter + abs(seconds - self._last)) / 2
        self._last = seconds
        self.seconds = seconds if self.seconds is None else 0.8 * self.seconds + 0.2 * seconds

    @property
    def distance(self) -> float | None:
        """`seconds`, if it is long and about the same from one batch to the next; else None."""
        seconds = self.seconds
        if seconds is None or seconds < LONG_ROUND_TRIP or self._jitter > STEADY * seconds:
            return None
        return seconds


SHORTEST = 0.003
"""Below this round trip librdkafka's waiting costs less than holding back."""
LINGERS = 2.0
"""librdkafka busy-waits from when a batch's linger is over until the one in flight is acknowledged. Up to two
lingers of round trip that is so short that holding costs more (measured: a round trip of 5 ms at a linger of 5 ms)."""
HIGH_RATE = 50_000.0
"""Records per second from which an application is busy producing: each costs more in Python held back than directly,
and librdkafka's batches fill in no time. However many are outstanding: at a round trip of 20 ms a saturated producer
that was held back again when batches piled up had 0.79 to 0.81 of confluent_kafka's throughput, and 0.82 to 0.99
without."""
HIGH_RATE_WITHIN = 4.0
"""Times that bound: beyond it a high rate is no reason, as librdkafka would busy-wait for most of each round trip."""
_BACK = 0.7


def is_long(round_trip: float, linger: float, rate: float, was_long: bool) -> bool:
    """Whether a round trip is so much longer than linger that a batch waits long for the one before it.

    `round_trip`: the shortest one lately to the farthest broker, in seconds; `rate`: records per second accepted. With
    `was_long` the bounds are wider, so that it does not flap.
    """
    bound = max(LINGERS * linger, SHORTEST)
    if round_trip <= (bound * _BACK if was_long else bound):
        return False
    return round_trip > HIGH_RATE_WITHIN * bound or rate <= (HIGH_RATE if was_long else HIGH_RATE / 2)
