"""What librdkafka says that is not one record's report: errors, throttle times, the fatal error."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from safeproducer.config import Settings
from safeproducer.hooks import Hooks, LanesChanged, Throttled, WindowChanged
from safeproducer.kafka.advice import advice
from safeproducer.kafka.native import KafkaError, KafkaException, ThrottleEvent
from safeproducer.kafka.statistics import repaired
from safeproducer.pipeline import stack
from safeproducer.pipeline.callbacks import CallbackErrors
from safeproducer.pipeline.notices import Notices
from safeproducer.pipeline.report_queue import ReportQueue
from safeproducer.pipeline.sender import get_ident
from safeproducer.pipeline.told_statistics import Elsewhere, Speaker, ToldStatistics
from safeproducer.policy.trouble import ClientError, broker_in
from safeproducer.policy.window import Window
from safeproducer.records import ProducerInfo

logger = logging.getLogger("safeproducer")
_FEW_THREADS = 64


class Updates(Protocol):
    """Who decides by what the client tells."""

    @property
    def delivered(self) -> int: ...
    def throttled(self, broker: int, name: str, seconds: float) -> bool: ...
    def statistics(self, text: str) -> None: ...
    def batch_statistics(self, text: str) -> None: ...


class ClientEvents:
    """Notes what happened to a producer's native producers and passes it on. Called on the thread that serves.

    It holds no reference to a native producer: that holds one to it, and a cycle would keep records in memory after the
    application has released the producer. Log lines, hooks and callbacks of the application run with no lock of a lane
    held: what is heard behind one waits for `tell()`, or for the application's next poll().
    """

    def __init__(
        self,
        info: ProducerInfo,
        hooks: Hooks,
        settings: Settings,
        errors: CallbackErrors,
        report_queue: ReportQueue,
        updates: Updates,
        notices: Notices,
        elsewhere: Callable[[], Elsewhere],
    ) -> None:
        self.last_error: str | None = None
        self.errors: dict[tuple[int | None, bool], ClientError] = {}
        """The last one of each broker, for explain()."""
        self.throttled: dict[int, float] = {}
        self.throttled_until: dict[int, float] = {}
        self.fatal: KafkaError | None = None
        self._info = info
        self._hooks = hooks
        self._notices = notices
        self._scrub = settings.scrub
        self._error_cb = settings.error_cb
        self._throttle_cb = settings.throttle_cb
        self._errors = errors
        self._told: set[int | str] = set()
        self._report_queue = report_queue
        self._updates = updates
        self._statistics_cb = settings.statistics_cb
        self._meanwhile = (
            "records for its partitions are held back until then"
            if settings.delivery.holds_back
            else "records of a transaction are not held back"
        )
        self._statistics = ToldStatistics(settings.delivery, elsewhere) if settings.delivery.statistics_ms > 0 else None
        self._most_threads = _FEW_THREADS
        self._alone = settings.delivery.mode == "held"
        """The native producer that tells of the cluster is served by the sender."""
        self.unseen: dict[int, int] = {}
        """Statistics events that the application did not ask for and did not see, by the thread that served them: what
        another thread serves, the sender above all, is not in the count of this one's poll()."""

    # --- the callbacks of native producers ---------------------------------------------------------------------------

    def of_the_first(self) -> dict[str, Any]:
        """Of the native producer that tells of the cluster: the direct lane, or the first one when there is none."""
        statistics = partial(self.on_statistics, Speaker())
        return {"error_cb": self.on_error, "throttle_cb": self.on_throttle, "stats_cb": statistics}

    def of_a_batch_lane(self) -> dict[str, Any]:
        """Of the first batch lane beside a directly one."""
        statistics = partial(self.on_batch_lane_statistics, Speaker())
        return {
            "error_cb": self.on_batch_lane_error,
            "throttle_cb": self.on_batch_lane_throttle,
            "stats_cb": statistics,
        }

    def of_one_more(self) -> dict[str, Any]:
        """Of a further lane, whose statistics concern the application alone."""
        return {**self.of_a_batch_lane(), "stats_cb": partial(self.on_further_statistics, Speaker())}

    @stack.called_natively
    def on_error(self, error: KafkaError) -> None:
        sentence = self._scrub(advice(error.name(), error.str()))
        self.last_error = sentence
        about = broker_in(error.str(), error.code() == KafkaError._ALL_BROKERS_DOWN)
        lasts = error.fatal() or error.code() == KafkaError._FATAL
        self.errors[about] = ClientError(sentence, *about, lasts, time.monotonic(), self._updates.delivered)
        if error.code() not in self._told:
            self._told.add(error.code())
            self._tell(logger.warning, "%s: %s", self._info.client_id, sentence)
        self._tell(self._hooks.call, "client_error", self._info, error, sentence)
        self._call(self._error_cb, error)

    @stack.called_natively
    def on_throttle(self, event: ThrottleEvent) -> None:
        # A zero tells only that some connection of this client is no longer throttled, not which (KIP-219 notes).
        if event.throttle_time > 0:
            broker, name, seconds = event.broker_id, event.broker_name, event.throttle_time
            self.throttled[broker] = seconds
            self.throttled_until[broker] = time.monotonic() + seconds
            if self._updates.throttled(broker, name, seconds):
                self._tell(
                    logger.warning,
                    "%s: broker %s (%s) throttles this client for %.3f s because it exceeds a quota; %s",
                    self._info.client_id,
                    broker,
                    name,
                    seconds,
                    self._meanwhile,
                )
            self._tell(self._hooks.call, "throttled", Throttled(self._info, broker, name, seconds))
        self._call(self._throttle_cb, event)

    @stack.called_natively
    def on_statistics(self, speaker: Speaker, text: str) -> None:
        """Every tick of the native producer that tells of the cluster."""
        text = repaired(text, self._info.client_id)
        self._updates.statistics(text)
        told = None if self._statistics is None else self._statistics.tick(speaker, text)
        if told is not None:
            self._call(self._statistics_cb, told)
        if told is None or self._alone:
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

    @stack.called_natively
    def on_batch_lane_throttle(self, event: ThrottleEvent) -> None:
        """From a lane for batches."""
        self.on_throttle(event)

    @stack.called_natively
    def on_batch_lane_statistics(self, speaker: Speaker, text: str) -> None:
        self._updates.batch_statistics(repaired(text, self._info.client_id))
        self.on_further_statistics(speaker, text)

    @stack.called_natively
    def on_further_statistics(self, speaker: Speaker, text: str) -> None:
        if self._statistics is not None:
            self._statistics.hear(speaker, repaired(text, self._info.client_id))

    @stack.called_natively
    def on_batch_lane_error(self, error: KafkaError) -> None:
        """The direct lane tells of the same brokers; only what concerns this lane alone is new."""
        if error.fatal() or error.code() == KafkaError._FATAL:
            self.on_fatal(error)

    # --- passing on --------------------------------------------------------------------------------------------------

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
            self._report_queue.reports.add_event(_log, application, line)
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

    def _call(self, callback: Callable[..., Any] | None, event: Any) -> None:
        if callback is not None:
            if self._notices.needed:
                self._report_queue.reports.add_event(self._run, callback, event)
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

    def on_window(self, tp: tuple[str, int], before: Window, after: Window) -> None:
        """A partition's leader announced another window, or what it announced is not to be relied on any more."""
        self._notices.later(
            logger.info,
            "%s: %s [%d]: window %d instead of %d, because %s",
            self._info.client_id,
            *tp,
            after.size,
            before.size,
            after.reason,
        )
        change = WindowChanged(self._info, *tp, before.size, after.size, after.reason)
        self._notices.later(self._hooks.call, "window_changed", change)

    def on_lanes(self, before: int, after: int, reason: str) -> None:
        """The number of lanes changed."""
        text = "%s: %d lanes instead of %d: %s"
        self._tell(logger.info, text, self._info.client_id, after, before, reason)
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

    def on_trouble(self, kind: str, what: str) -> None:
        """Something beside the way of records does not work and is tried again. The first of each kind is logged."""
        self.last_error = what = self._scrub(what)
        if kind not in self._told:
            self._told.add(kind)
            self._notices.later(logger.warning, "%s: %s", self._info.client_id, what)

    def on_fatal(self, error: KafkaError) -> None:
        """Note a fatal error. produce() only learns that there was one; poll() brings the error itself."""
        first = self.fatal is None
        if self.fatal is None or not self.fatal.fatal():
            self.fatal = error
        if first:
            text = "%s: fatal error %s: %s"
            self._tell(logger.critical, text, self._info.client_id, error.name(), self._scrub(error.str()))
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
