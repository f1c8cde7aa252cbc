"""Stands between one native producer and whoever owns it: what librdkafka calls stays, the owner changes.

librdkafka takes callbacks at construction and never others. A native producer that outlives its SafeProducer, see
safeproducer.producer.ids.policy=reuse, must not call what belonged to the former one: one assignment ends that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from safeproducer.kafka.native import KafkaError, ThrottleEvent
from safeproducer.pipeline.cluster.events import ClientEvents
from safeproducer.pipeline.cluster.told_statistics import Speaker
from safeproducer.pipeline.process import stack


class Owner(NamedTuple):
    """Who is told. Each runs on the thread that serves the native producer."""

    error: Callable[[KafkaError], object]
    throttle: Callable[[ThrottleEvent], object]
    statistics: Callable[[str], object]
    log: Callable[..., object]


def _nobody(*_: Any) -> None:
    pass


NOBODY = Owner(_nobody, _nobody, _nobody, _nobody)


class Relay:
    """Any thread. It refers to no native producer: that holds it, and a cycle would keep both.

    It stands where a logging.Logger would, too: librdkafka asks for `log()` only.
    """

    __slots__ = ("_keeps", "_owner", "heard")

    def __init__(self, owner: Owner = NOBODY, keeps: bool = False) -> None:
        self._owner = owner
        self._keeps = keeps
        self.heard: str | None = None
        """The last statistics since nobody owned it, if they are to be kept: what a new owner is told begins there."""

    def belong_to(self, owner: Owner) -> None:
        """From now on nobody else is told. One step: there is no moment with two owners."""
        self._owner = owner

    def leave(self, nobody: Owner) -> None:
        """Its owner has left it, and none of its records is under way any more: all is counted in the statistics that
        librdkafka makes from now on. It has told those from before, as they come in the order of reports.
        """
        self.belong_to(nobody)
        if self._keeps:
            self.heard = ""

    def configured(self, config: dict[str, Any]) -> dict[str, Any]:
        """`config` with this as what librdkafka calls."""
        logger = {} if config.get("logger") is None else {"logger": self}
        return {**config, "error_cb": self.error, "throttle_cb": self.throttle, "stats_cb": self.statistics, **logger}

    @stack.called_natively
    def error(self, error: KafkaError) -> None:
        self._owner.error(error)

    @stack.called_natively
    def throttle(self, event: ThrottleEvent) -> None:
        self._owner.throttle(event)

    @stack.called_natively
    def statistics(self, text: str) -> None:
        if self._keeps:
            self.heard = text
        self._owner.statistics(text)

    @stack.called_natively
    def log(self, *line: Any) -> None:
        """As logging.Logger.log()."""
        self._owner.log(*line)


def of_the_first(events: ClientEvents, application: Any, before: str | None = None) -> Owner:
    """Of the native producer that tells of the cluster: the direct lane, or the first one when there is none.

    `application`: its logger. `before`: `Relay.heard` of the former owner.
    """
    statistics = partial(events.on_statistics, Speaker(before))
    return Owner(events.on_error, events.on_throttle, statistics, partial(events.callbacks.log, application))


def of_a_batch_lane(events: ClientEvents, application: Any, before: str | None = None) -> Owner:
    """Of the first batch lane beside a direct one."""
    statistics = partial(events.on_batch_lane_statistics, Speaker(before))
    return Owner(events.on_batch_lane_error, events.on_throttle, statistics, partial(events.callbacks.log, application))


def of_one_more(events: ClientEvents, application: Any, before: str | None = None) -> Owner:
    """Of a further lane, whose statistics concern the application alone."""
    statistics = partial(events.on_further_statistics, Speaker(before))
    return of_a_batch_lane(events, application)._replace(statistics=statistics)
