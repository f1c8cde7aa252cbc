"""What librdkafka says that is not one record's report: errors, throttle times, the fatal error."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, Protocol

from safeproducer.config import Settings
from safeproducer.hooks import Hooks, LanesChanged, Throttled, WindowChanged
from safeproducer.kafka.advice import advice
from safeproducer.kafka.native import KafkaError, KafkaException, ThrottleEvent
from safeproducer.pipeline import stack
from safeproducer.pipeline.away import Away
from safeproducer.pipeline.callbacks import CallbackErrors
from safeproducer.pipeline.notices import Notices
from safeproducer.pipeline.sender import get_ident
from safeproducer.policy.window import Window
from safeproducer.records import ProducerInfo

logger = logging.getLogger("safeproducer")
_FEW_THREADS = 64


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
        self,
        info: ProducerInfo,
        hooks: Hooks,
        settings: Settings,
        errors: CallbackErrors,
        away: Away,
        news: News,
        notices: Notices,
    ) -> None:
        self.last_error: str | None = None
        self.throttled: dict[int, float] = {}
        self.fatal: KafkaError | None = None
        self._info = info
        self._hooks = hooks
        self._notices = notices
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
        self._most_threads = _FEW_THREADS
        self.unseen: dict[int, int] = {}
        """Statistics events that the application did not ask for and did not see, by the thread that served them: what
        another thread serves, the watchdog above all, is not in the count of this one's poll()."""

    @stack.called_natively
    def on_error(self, error: KafkaError) -> None:
        sentence = self._scrub(advice(error.name(), error.str()))
        self.last_error = sentence
        if error.code() not in self._told:
            self._told.add(error.code())
            self._tell(logger.warning, "%s: %s", self._info.client_id, sentence)
        self._tell(self._hooks.call, "client_error", self._info, error, sentence)
        self._call(self._error_cb, error)

    @stack.called_natively
    def on_throttle(self, event: ThrottleEvent, later: bool = False) -> None:
        # A zero tells only that some connection of this client is no longer throttled, not which (KIP-219 notes).
        if event.throttle_time > 0:
            self.throttled[event.broker_id] = event.throttle_time
            self._news.throttled(event.broker_id, event.broker_name, event.throttle_time)
            self._tell(
                self._hooks.call,
                "throttled",
                Throttled(self._info, event.broker_id, event.broker_name, event.throttle_time),
            )
        self._call(self._throttle_cb, event, later)

    @stack.called_natively
    def on_statistics(self, text: str) -> None:
        """Every tick of the straight lane's statistics."""
        self._news.statistics(text)
        self._ticks += 1
        if self._statistics_cb is not None and self._every and self._ticks % self._every == 0:
            self._call(self._statistics_cb, text)
        else:
            thread = get_ident()
            if thread not in self.unseen and len(self.unseen) >= self._most_threads:
                self._forget_ended_threads()
            self.unseen[thread] = self.unseen.get(thread, 0) + 1

    def _forget_ended_threads(self) -> None:
        alive = sys._current_frames()
        for thread in tuple(self.unseen):
            if thread not in alive:
                self.unseen.pop(thread, None)
        self._most_threads = 2 * len(self.unseen) + _FEW_THREADS

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

    def _tell(self, call: Callable[..., Any], *args: Any) -> None:
        """A log line or a hook: never on the sender's thread."""
        self._notices.tell(call, *args)

    def logger_for(self, application: Any) -> Any:
        """What librdkafka logs to: the application's logger, in its poll()."""
        return _Logger(application, self)

    def log(self, application: Any, line: tuple[Any, ...]) -> None:
        """A line of librdkafka's for the application's logger."""
        if self._notices.needed:
            self._away.reports.add_event(_log, application, line)
        else:
            _log(application, line)

    def on_lane_not_made(self, error: Exception, seconds: float) -> None:
        """One more native producer was needed, and could not be made."""
        cause = error.args[0] if isinstance(error, KafkaException) and error.args else None
        known = cause if isinstance(cause, KafkaError) else KafkaError(KafkaError._FAIL, str(error))
        sentence = self._scrub(
            f"another native producer could not be made ({known.str()}). Records go on by those there are, and it is "
            f"tried again in {seconds:.0f} s. Check that the files which the configuration names are still there and "
            f"readable, and how many open files and threads this process may have"
        )
        self.last_error = sentence
        if seconds <= 1:
            self._tell(logger.warning, "%s: %s", self._info.client_id, sentence)
        self._tell(self._hooks.call, "client_error", self._info, known, sentence)

    def on_turn_failed(self, error: object) -> None:
        """Something that must not fail did. It is tried again; records wait meanwhile."""
        logger.error(
            "%s: the thread that sends failed and goes on: %s. This is a defect of safeproducer: report it, and set "
            "safeproducer.mode=passthrough until it is mended",
            self._info.client_id,
            self._scrub(repr(error)),
            exc_info=error if isinstance(error, BaseException) else None,
        )

    def _call(self, callback: Callable[..., Any] | None, event: Any, later: bool = False) -> None:
        if callback is not None:
            if later or self._notices.needed:
                self._away.reports.add_event(self._run, callback, event)
            else:
                self._run(callback, event)

    @stack.called_natively
    def _run(self, callback: Callable[..., Any], event: Any) -> None:
        try:
            callback(event)
        except BaseException as raised:
            self._errors.note(raised)
            raise

    def on_split(self, count: int) -> None:
        """librdkafka cut batches that were to be one request each."""
        self._tell(
            logger.warning,
            "%s: %d batch(es) left as more than one request each: the hand-over took longer than the guard, or a batch "
            "was larger than librdkafka allows",
            self._info.client_id,
            count,
        )

    def on_window(self, place: tuple[str, int], before: Window, after: Window) -> None:
        """A partition's leader announced another window, or what it announced is not to be relied on any more."""
        self._tell(
            logger.info,
            "%s: %s [%d]: window %d instead of %d, because %s",
            self._info.client_id,
            *place,
            after.size,
            before.size,
            after.reason,
        )
        self._tell(
            self._hooks.call, "window_changed", WindowChanged(self._info, *place, before.size, after.size, after.reason)
        )

    def on_lanes(self, before: int, after: int, reason: str) -> None:
        """The number of lanes changed."""
        self._tell(logger.info, "%s: %d lanes instead of %d: %s", self._info.client_id, after, before, reason)
        self._tell(self._hooks.call, "lanes_changed", LanesChanged(self._info, before, after, reason))

    def on_limited(self, topic: str, partition: int) -> None:
        """Round trips limit a partition, and another ordering would cure it. Called once."""
        self._tell(
            logger.warning,
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
            self._tell(logger.critical, "%s: fatal error %s: %s", self._info.client_id, error.name(), error.str())
            self._tell(self._hooks.call, "fatal_error", self._info, error)


class _Logger:
    """Stands where the application's logging.Logger would."""

    def __init__(self, application: Any, events: ClientEvents) -> None:
        self._application = application
        self._events = events

    def log(self, *line: Any) -> None:
        """As logging.Logger.log()."""
        self._events.log(self._application, line)


def _log(application: Any, line: tuple[Any, ...]) -> None:
    application.log(*line)
