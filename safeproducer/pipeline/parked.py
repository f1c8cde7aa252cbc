"""The native producers of one SafeProducer while nobody owns them, and what goes over to the next owner with them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from safeproducer import clock
from safeproducer.config import Settings
from safeproducer.kafka.native import KafkaError
from safeproducer.pipeline.cluster import horizons
from safeproducer.pipeline.cluster.relay import NOBODY, Relay
from safeproducer.pipeline.cluster.round_trip import Known
from safeproducer.pipeline.lanes.given import Given
from safeproducer.pipeline.lanes.lane_log import LaneLog
from safeproducer.producer_ids.parking import Key, Same, parking

_PLAIN = (str, int, float, bool, type(None))
_LONGEST, _LOOKS = 0.5, 5
"""Seconds to take what is to be told, and calls at least: with a callback that blocks it is of no use to anybody. On a
busy machine one call alone may take so long."""


class ParkedLane(NamedTuple):
    """`log`: of a batch lane that has one."""

    native: Any
    relay: Relay
    log: LaneLog | None


class Former(NamedTuple):
    """The producer that leaves its lanes. It is released as soon as its threads have ended.

    `ended(seconds)` waits until none of them is inside a lane. `passes_on(now)`: what its direct lane was given, once
    nobody changes that any more; None where there is no direct lane.
    """

    ended: Callable[[float], bool]
    passes_on: Callable[[float], Given] | None


@dataclass(eq=False)
class ParkedLanes:
    """One thread at a time. The first lane is the direct one if there is one.

    `known`: of round trips. `given`: what the direct lane has been given, once it is settled. `expiry`: for how long
    brokers remember their producer IDs.
    """

    lanes: list[ParkedLane]
    known: Known
    _former: Former | None
    given: Given | None = None
    expiry: horizons.Known | None = None

    def __post_init__(self) -> None:
        self._failed: list[KafkaError] = []

    def leave(self) -> None:
        """From now on the former owner is told nothing."""
        nobody = NOBODY._replace(error=partial(_note_fatal, self._failed))  # not self: the relay would refer to it
        for lane in self.lanes:
            lane.relay.leave(nobody)

    @property
    def natives(self) -> list[Any]:
        """The native producers."""
        return [lane.native for lane in self.lanes]

    def settled(self, timeout: float) -> bool:
        """Wait until no thread of the former owner is inside; False when one is for longer."""
        former = self._former
        if former is not None and former.ended(timeout):
            self.given = None if former.passes_on is None else former.passes_on(clock.monotonic())
            self._former = None
        return self._former is None

    def serve(self) -> bool:
        """Have them tell nobody what they have to tell; whether they are still of use."""
        give_up_at = clock.monotonic() + _LONGEST
        try:
            for native in self.natives:
                native.poll(0)  # raises if the former owner has closed it: it was one lane too many
                looks = 0
                while len(native):
                    if looks >= _LOOKS and clock.monotonic() > give_up_at:
                        return False
                    native.poll(0)
                    looks += 1
        except:  # noqa: E722 - a fatal error can be raised as a KafkaError, which is no BaseException
            raised: Any = sys.exc_info()[1]
            if isinstance(raised, BaseException) and not isinstance(raised, Exception):  # a signal handler's
                raise
            return False
        return not self._failed

    def close(self) -> None:
        """Close them."""
        for native in self.natives:
            native.close()


def _note_fatal(failed: list[KafkaError], error: KafkaError) -> None:
    if error.fatal() or error.code() == KafkaError._FATAL:
        failed.append(error)


def key_of(settings: Settings) -> Key | None:
    """What is equal for producers that may have each other's native producers; None when none may.

    Without idempotence there is no producer ID to save, and a transaction's belongs to its transactional.id.
    """
    delivery = settings.delivery
    if settings.ids.policy != "reuse" or not delivery.idempotent or delivery.transactional:
        return None
    configs = [(delivery.batch_lane if delivery.mode == "held" else delivery.lane)(settings.lane)]
    if delivery.holds_back:
        configs += [delivery.told_lane(settings.lane), delivery.more_lanes(settings.lane)]
    values = tuple(
        frozenset((name, str(value)) for name, value in config.items() if type(value) in _PLAIN) for config in configs
    )
    objects = frozenset((name, Same(value)) for name, value in settings.lane.items() if type(value) not in _PLAIN)
    own = delivery.own
    return Key((own.mode, own.ordering, own.lanes, values), objects)


def take_over(settings: Settings) -> ParkedLanes | None:
    """What a former producer with an equal configuration has left, None if there is nothing."""
    key = key_of(settings)
    taken = None if key is None else parking.take(key)
    if not isinstance(taken, ParkedLanes):
        return None
    if taken.given is not None:
        taken.given.taken_over(clock.monotonic())
    return taken
