"""What librdkafka says that is not one record's report: errors, throttle times, the fatal error."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Any, Protocol

from safeproducer.config import Settings
from safeproducer.hooks import Hooks, LanesChanged, Throttled, WindowChanged
from safeproducer.kafka.advice import advice
from safeproducer.kafka.native import KafkaError, ThrottleEvent
from safeproducer.pipeline.away import Away
from safeproducer.pipeline.callbacks import CallbackErrors
from safeproducer.pipeline.told_statistics import Elsewhere, Speaker, ToldStatistics
from safeproducer.policy.window import Window
from safeproducer.records import ProducerInfo

logger = logging.getLogger("safeproducer")


class News(Protocol):
    """Who decides by what the client tells."""

    changed: bool

    def throttled(self, broker: int, name: str, seconds: float) -> bool: ...
    def statistics(self, text: str) -> None: ...
    def fed_statistics(self, text: str) -> None: ...


class ClientEvents:
    """Notes what happened to a producer's native producers and passes it on. Called on the thread that serves.

    It holds no reference to a native producer: that holds one to it, and a cycle would keep records in memory after the
    application has let go of the producer. Log lines, hooks and callbacks of the application run with no lock of a lane
    held: what is heard behind one waits for `tell()`, or for the application's next poll().
    """

    def __init__(
        self,
        info: ProducerInfo,
        hooks: Hooks,
        settings: Settings,
        errors: CallbackErrors,
        away: Away,
        news: News,
        elsewhere: Callable[[], Elsewhere],
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
        self._told: set[int | str] = set()
        self._away = away
        self._news = news
        self._statistics_cb = settings.statistics_cb
        self._statistics = ToldStatistics(settings.delivery, elsewhere) if settings.delivery.statistics_ms > 0 else None
        self._all_locked = settings.delivery.mode == "held"
        """The native producer that tells of the cluster is in a fed lane, which is served behind a lock."""
        self._untold: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._uncalled: deque[tuple[Callable[..., Any], Any]] = deque()
        self.unseen: dict[int, int] = {}
        """Statistics events that the application did not ask for and did not see, by the thread that served them: what
        another thread serves, the watchdog above all, is not in the count of this one's poll()."""

    # --- the callbacks of native producers ---------------------------------------------------------------------------

    def of_the_first(self) -> dict[str, Any]:
        """Of the native producer that tells of the cluster: the straight lane, or the first one when there is none."""
        statistics = partial(self.on_statistics, Speaker())
        return {"error_cb": self.on_error, "throttle_cb": self.on_throttle, "stats_cb": statistics}

    def of_a_fed(self) -> dict[str, Any]:
        """Of the first fed lane beside a straight one."""
        statistics = partial(self.on_fed_statistics, Speaker())
        return {"error_cb": self.on_fed_error, "throttle_cb": self.on_fed_throttle, "stats_cb": statistics}

    def of_one_more(self) -> dict[str, Any]:
        """Of a further lane, whose statistics concern the application alone."""
        return {**self.of_a_fed(), "stats_cb": partial(self.on_further_statistics, Speaker())}

    def on_error(self, error: KafkaError) -> None:
        sentence = self._scrub(advice(error.name(), error.str()))
        self.last_error = sentence
        if error.code() not in self._told:
            self._told.add(error.code())
            self._say(logger.warning, "%s: %s", self._info.client_id, sentence)
        self._say(self._hooks.call, "client_error", self._info, error, sentence)
        self._call(self._error_cb, error)

    def on_throttle(self, event: ThrottleEvent, locked: bool = False) -> None:
        # A zero tells only that some connection of this client is no longer throttled, not which (KIP-219 notes).
        if event.throttle_time > 0:
            broker, name, seconds = event.broker_id, event.broker_name, event.throttle_time
            self.throttled[broker] = seconds
            if self._news.throttled(broker, name, seconds):
                self._say(
                    logger.warning,
                    "%s: broker %s (%s) throttles this client for %.3f s because it exceeds a quota; records for its "
                    "partitions are held back until then",
                    self._info.client_id,
                    broker,
                    name,
                    seconds,
                    locked=locked,
                )
            self._say(self._hooks.call, "throttled", Throttled(self._info, broker, name, seconds), locked=locked)
        self._call(self._throttle_cb, event, locked)

    def on_statistics(self, speaker: Speaker, text: str) -> None:
        """Every tick of the native producer that tells of the cluster."""
        self._news.statistics(text)
        told = None if self._statistics is None else self._statistics.tick(speaker, text)
        if told is not None:
            self._call(self._statistics_cb, told)
        if told is None or self._all_locked:
            thread = get_ident()
            self.unseen[thread] = self.unseen.get(thread, 0) + 1

    def on_fed_throttle(self, event: ThrottleEvent) -> None:
        """As on_throttle(), from a lane that is served behind a lock."""
        self.on_throttle(event, locked=True)

    def on_fed_statistics(self, speaker: Speaker, text: str) -> None:
        self._news.fed_statistics(text)
        self.on_further_statistics(speaker, text)

    def on_further_statistics(self, speaker: Speaker, text: str) -> None:
        if self._statistics is not None:
            self._statistics.hear(speaker, text)

    def on_fed_error(self, error: KafkaError) -> None:
        """The straight lane tells of the same brokers; only what concerns this lane alone is new."""
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._say(self.on_fatal, error, locked=True)

    # --- passing on --------------------------------------------------------------------------------------------------

    @property
    def wanted(self) -> bool:
        """Whether the application gave a callback for events."""
        return self._error_cb is not None or self._throttle_cb is not None or self._statistics_cb is not None

    def _say(self, call: Callable[..., Any], *args: Any, locked: bool = False) -> None:
        """Write a log line, or call a hook: now, or when no lock is held."""
        if locked or self._all_locked or self._away.here:
            self._untold.append((call, args))
            self._news.changed = True
        else:
            call(*args)

    def tell(self) -> None:
        """Write the log lines and call the hooks that waited. The caller holds no lock."""
        while self._untold:
            try:
                call, args = self._untold.popleft()
            except IndexError:  # another thread was quicker
                return
            call(*args)

    def _call(self, callback: Callable[..., Any] | None, event: Any, locked: bool = False) -> None:
        if callback is None:
            return
        if locked or self._away.here:
            self._away.reports.add(self._run, callback, event)
        elif self._all_locked:
            self._uncalled.append((callback, event))
            self._news.changed = True
        else:
            self._run(callback, event)

    def call_back(self) -> None:
        """Run the application's callbacks that waited for its thread to hold no lock, until one raises."""
        while self._uncalled:
            try:
                callback, event = self._uncalled.popleft()
            except IndexError:  # another thread was quicker
                return
            self._run(callback, event)

    def _run(self, callback: Callable[..., Any], event: Any) -> None:
        try:
            callback(event)
        except BaseException as raised:
            self._errors.note(raised)
            raise

    def on_split(self, count: int) -> None:
        """librdkafka cut batches that were to be one request each."""
        self._say(
            logger.warning,
            "%s: %d batch(es) left as more than one request each: the hand-over took longer than the guard, or a batch "
            "was larger than librdkafka allows",
            self._info.client_id,
            count,
            locked=True,
        )

    def on_window(self, place: tuple[str, int], before: Window, after: Window) -> None:
        """A partition's leader announced another window, or what it announced is not to be relied on any more."""
        self._say(
            logger.info,
            "%s: %s [%d]: window %d instead of %d, because %s",
            self._info.client_id,
            *place,
            after.size,
            before.size,
            after.reason,
            locked=True,
        )
        change = WindowChanged(self._info, *place, before.size, after.size, after.reason)
        self._say(self._hooks.call, "window_changed", change, locked=True)

    def on_lanes(self, before: int, after: int, reason: str) -> None:
        """The number of lanes changed."""
        text = "%s: %d lanes instead of %d: %s"
        self._say(logger.info, text, self._info.client_id, after, before, reason, locked=True)
        self._say(self._hooks.call, "lanes_changed", LanesChanged(self._info, before, after, reason), locked=True)

    def on_limited(self, topic: str, partition: int) -> None:
        """Round trips limit a partition, and another ordering would cure it. Called once."""
        self._say(
            logger.warning,
            "%s: %s [%d] is limited by the round trip to its leader: one batch of it is under way at a time, which "
            "keeps the order of the whole partition. If the order of each key is enough, set "
            "safeproducer.ordering=key: then as many batches are under way as the leader remembers",
            self._info.client_id,
            topic,
            partition,
            locked=True,
        )

    def on_trouble(self, kind: str, what: str) -> None:
        """Something beside the way of records does not work and is tried again. The first of each kind is logged."""
        self.last_error = what = self._scrub(what)
        if kind not in self._told:
            self._told.add(kind)
            self._say(logger.warning, "%s: %s", self._info.client_id, what, locked=True)

    def on_fatal(self, error: KafkaError) -> None:
        """Note a fatal error. produce() only learns that there was one; poll() brings the error itself."""
        first = self.fatal is None
        if self.fatal is None or not self.fatal.fatal():
            self.fatal = error
        if first:
            logger.critical("%s: fatal error %s: %s", self._info.client_id, error.name(), error.str())
            self._hooks.call("fatal_error", self._info, error)
