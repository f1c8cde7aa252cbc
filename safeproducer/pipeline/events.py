"""What librdkafka says that is not one record's report: errors, throttle times, the fatal error."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import get_ident
from typing import Any, Protocol

from safeproducer.config import Settings
from safeproducer.hooks import Hooks, LanesChanged, Throttled, WindowChanged
from safeproducer.kafka.advice import advice
from safeproducer.kafka.native import KafkaError, ThrottleEvent
from safeproducer.pipeline.away import Away
from safeproducer.pipeline.callbacks import CallbackErrors
from safeproducer.policy.window import Window
from safeproducer.records import ProducerInfo

logger = logging.getLogger("safeproducer")


class News(Protocol):
    """Who decides by what the client tells."""

    def throttled(self, broker: int, name: str, seconds: float) -> None: ...
    def statistics(self, text: str) -> None: ...
    def fed_statistics(self, text: str) -> None: ...


class ClientEvents:
    """Notes what happened to one native producer and passes it on. Called on the thread that polls.

    It holds no reference to the native producer: the native producer holds one to it, and a cycle would keep records
    in memory after the application has let go of the producer.
    """

    def __init__(
        self, info: ProducerInfo, hooks: Hooks, settings: Settings, errors: CallbackErrors, away: Away, news: News
    ) -> None:
        self.last_error: str | None = None
        self.throttled: dict[int, float] = {}
        self.fatal: KafkaError | None = None
        self._info = info
        self._hooks = hooks
        self._scrub = settings.scrub
        self._error_cb = settings.error_cb
        self._throttle_cb = settings.throttle_cb
        self._errors = errors
        self._told: set[int] = set()
        self._away = away
        self._news = news
        self._statistics_cb = settings.statistics_cb
        self._every = settings.delivery.ticks_per_statistics
        self._ticks = 0
        self.unseen: dict[int, int] = {}
        """Statistics events that the application did not ask for and did not see, by the thread that served them: what
        another thread serves, the watchdog above all, is not in the count of this one's poll()."""

    def on_error(self, error: KafkaError) -> None:
        sentence = self._scrub(advice(error.name(), error.str()))
        self.last_error = sentence
        if error.code() not in self._told:
            self._told.add(error.code())
            logger.warning("%s: %s", self._info.client_id, sentence)
        self._hooks.call("client_error", self._info, error, sentence)
        self._call(self._error_cb, error)

    def on_throttle(self, event: ThrottleEvent, later: bool = False) -> None:
        # A zero tells only that some connection of this client is no longer throttled, not which (KIP-219 notes).
        if event.throttle_time > 0:
            self.throttled[event.broker_id] = event.throttle_time
            self._news.throttled(event.broker_id, event.broker_name, event.throttle_time)
            self._hooks.call(
                "throttled", Throttled(self._info, event.broker_id, event.broker_name, event.throttle_time)
            )
        self._call(self._throttle_cb, event, later)

    def on_statistics(self, text: str) -> None:
        """Every tick of the straight lane's statistics."""
        self._news.statistics(text)
        self._ticks += 1
        if self._statistics_cb is not None and self._every and self._ticks % self._every == 0:
            self._call(self._statistics_cb, text)
        else:
            thread = get_ident()
            self.unseen[thread] = self.unseen.get(thread, 0) + 1

    def on_fed_throttle(self, event: ThrottleEvent) -> None:
        """As on_throttle(), from a lane that is served at any time: the application's callback waits for its poll()."""
        self.on_throttle(event, later=True)

    def on_fed_statistics(self, text: str) -> None:
        self._news.fed_statistics(text)

    def on_fed_error(self, error: KafkaError) -> None:
        """The straight lane tells of the same brokers; only what concerns this lane alone is new."""
        if error.fatal() or error.code() == KafkaError._FATAL:
            self.on_fatal(error)

    @property
    def wanted(self) -> bool:
        """Whether the application gave a callback for events."""
        return self._error_cb is not None or self._throttle_cb is not None or self._statistics_cb is not None

    def _call(self, callback: Callable[..., Any] | None, event: Any, later: bool = False) -> None:
        if callback is not None:
            if later or self._away.here:
                self._away.reports.add(self._run, callback, event)
            else:
                self._run(callback, event)

    def _run(self, callback: Callable[..., Any], event: Any) -> None:
        try:
            callback(event)
        except BaseException as raised:
            self._errors.note(raised)
            raise

    def on_split(self, count: int) -> None:
        """librdkafka cut batches that were to be one request each."""
        logger.warning(
            "%s: %d batch(es) left as more than one request each: the hand-over took longer than the guard, or a batch "
            "was larger than librdkafka allows",
            self._info.client_id,
            count,
        )

    def on_window(self, place: tuple[str, int], before: Window, after: Window) -> None:
        """A partition's leader announced another window, or what it announced is not to be relied on any more."""
        logger.info(
            "%s: %s [%d]: window %d instead of %d, because %s",
            self._info.client_id,
            *place,
            after.size,
            before.size,
            after.reason,
        )
        self._hooks.call("window_changed", WindowChanged(self._info, *place, before.size, after.size, after.reason))

    def on_lanes(self, before: int, after: int, reason: str) -> None:
        """The number of lanes changed."""
        logger.info("%s: %d lanes instead of %d: %s", self._info.client_id, after, before, reason)
        self._hooks.call("lanes_changed", LanesChanged(self._info, before, after, reason))

    def on_limited(self, topic: str, partition: int) -> None:
        """Round trips limit a partition, and another ordering would cure it. Called once."""
        logger.warning(
            "%s: %s [%d] is limited by the round trip to its leader: one batch of it is under way at a time, which "
            "keeps the order of the whole partition. If the order of each key is enough, set "
            "safeproducer.ordering=key: then as many batches are under way as the leader remembers",
            self._info.client_id,
            topic,
            partition,
        )

    def on_fatal(self, error: KafkaError) -> None:
        """Note a fatal error. produce() only learns that there was one; poll() brings the error itself."""
        first = self.fatal is None
        if self.fatal is None or not self.fatal.fatal():
            self.fatal = error
        if first:
            logger.critical("%s: fatal error %s: %s", self._info.client_id, error.name(), self._scrub(error.str()))
            self._hooks.call("fatal_error", self._info, error)
