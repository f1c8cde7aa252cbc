"""librdkafka's events that are not one record's report: errors, throttle times, statistics, the fatal error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from safeproducer.kafka.advice import joined, told_apart
from safeproducer.kafka.callback_errors import CallbackErrors
from safeproducer.kafka.native import KafkaError, ThrottleEvent
from safeproducer.kafka.statistics import repaired
from safeproducer.pipeline.notifications import Notifications
from safeproducer.pipeline.reports.report_queue import ReportQueue
from safeproducer.policy.diagnosis import ClientError, advertised, broker_in
from safeproducer.runtime import clock, interrupts
from safeproducer.runtime.threads import Notices, get_ident
from safeproducer.settings.config import Settings

_LOGINS = KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED


class Updates(Protocol):
    """The part that decides by what the client tells (`ClientUpdates`)."""

    def client_error(self, told: ClientError, key: tuple[int | None, bool]) -> ClientError: ...
    def throttled(self, broker: int, name: str, seconds: float) -> bool: ...
    def fatal_error(self, error: KafkaError) -> None: ...
    def login_refused(self, sentence: str) -> None: ...
    def statistics(self, text: str, beside: bool) -> None: ...


class EventCallbacks:
    """The application's callbacks and logger, for what is no report: they run in its poll(), never on the sender."""

    def __init__(self, settings: Settings, errors: CallbackErrors, report_queue: ReportQueue, notices: Notices) -> None:
        self.error = settings.error_cb
        self.throttle = settings.throttle_cb
        self.statistics = settings.statistics_cb
        self.errors = errors
        self._reports = report_queue.reports
        self._notices = notices

    @property
    def any(self) -> bool:
        """Whether the application gave a callback."""
        return self.error is not None or self.throttle is not None or self.statistics is not None

    def call(self, callback: Callable[..., Any] | None, event: Any) -> None:
        """Run it now, or in the next poll()."""
        if callback is not None:
            self._now_or_later(self._run, callback, event)

    def log(self, application: Any, *line: Any) -> None:
        """A line of librdkafka's for the application's logger."""
        self._now_or_later(lambda application, line: application.log(*line), application, line)

    def _now_or_later(self, run: Callable[[Any, Any], None], what: Any, event: Any) -> None:
        if self._notices.needed():
            self._reports.add_event(run, what, event)
        else:
            run(what, event)

    @interrupts.called_natively
    def _run(self, callback: Callable[..., Any], event: Any) -> None:
        try:
            callback(event)
        except BaseException as raised:
            raise self.errors.note(raised)  # noqa: B904 - see StandIn


class ClientEvents:
    """Notes what happened to a producer's native producers and passes it on. Called on the thread that serves.

    It holds no reference to a native producer: that holds one to it, and a cycle would keep records in memory after the
    application has released the producer. Log lines, hooks and callbacks of the application run with no lock held.
    """

    def __init__(
        self, settings: Settings, notifications: Notifications, callbacks: EventCallbacks, updates: Updates
    ) -> None:
        self.throttled: dict[int, float] = {}
        self.throttled_until: dict[int, float] = {}
        self.announced: dict[int, tuple[str, float]] = {}  # broker -> (its name, the sum of the throttle times it told)
        self.fatal: KafkaError | None = None
        self.logins_refused = 0
        self.notifications = notifications
        self.callbacks = callbacks
        self.client_id, self._servers = settings.client_id, settings.bootstrap_servers
        self._updates = updates
        self._ticks_per_statistics = settings.delivery.ticks_per_statistics
        self.listens = settings.delivery.listens  # whether there are log lines that the application does not see
        self.unseen: dict[int, int] = {}
        """Statistics and log lines that the application did not ask for and did not see, by the thread that served
        them: what another thread serves, the sender above all, is not in the count of this one's poll(). Threads that
        come later have the numbers of those that ended."""

    @interrupts.called_natively
    def on_error(self, error: KafkaError) -> None:
        self._note(error)
        self.callbacks.call(self.callbacks.error, error)

    def _note(self, error: KafkaError) -> None:
        vague = error.code() == KafkaError._ALL_BROKERS_DOWN
        about = broker_in(error.str(), vague)
        lasts = error.fatal() or error.code() == KafkaError._FATAL
        meaning, cure = map(self.notifications.scrub, told_apart(error.name(), self.callbacks.errors.reason(error)))
        cure = advertised(cure, about[0], self._servers)
        if error.code() in _LOGINS:
            self.logins_refused += 1
            self._updates.login_refused(joined(meaning, cure)[:-1])
        told = ClientError(meaning, *about, lasts, clock.real(), 0, vague=vague, cure=cure)
        told = self._updates.client_error(told, about)
        self.notifications.error(error, joined(meaning, cure), joined(told.sentence, told.cure))

    @interrupts.called_natively
    def on_throttle(self, event: ThrottleEvent) -> None:
        # A zero tells only that some connection of this client is no longer throttled, not which (KIP-219 notes).
        if event.throttle_time > 0:
            broker, name, seconds = event.broker_id, event.broker_name, event.throttle_time
            self.throttled[broker] = seconds
            self.announced[broker] = name, self.announced.get(broker, (name, 0.0))[1] + seconds
            self.throttled_until[broker] = clock.real() + seconds
            self.notifications.throttled(broker, name, seconds, self._updates.throttled(broker, name, seconds))
        self.callbacks.call(self.callbacks.throttle, event)

    @interrupts.called_natively
    def on_statistics(self, beside: bool, ticks: Iterator[int], text: str) -> None:
        """Every tick of the lanes that tell of the cluster. `beside`: of the first batch lane beside a direct one."""
        text = repaired(text, self.client_id)
        self._updates.statistics(text, beside)
        # The ticks of the lane are as often as the application's interval, or more so.
        if due := self._ticks_per_statistics > 0 and next(ticks) % self._ticks_per_statistics == 0:
            self.callbacks.call(self.callbacks.statistics, text)
        if not (due or beside):
            self.hide()

    def hide(self) -> None:
        """An event was served that the application does not see."""
        thread = get_ident()
        self.unseen[thread] = self.unseen.get(thread, 0) + 1

    @interrupts.called_natively
    def on_further_statistics(self, text: str) -> None:
        """Statistics of a further lane, which come at the application's interval."""
        self.callbacks.call(self.callbacks.statistics, repaired(text, self.client_id))

    @interrupts.called_natively
    def on_batch_lane_error(self, error: KafkaError) -> None:
        """The application is not told: the direct lane tells of the same brokers, if it is in use."""
        fatal = error.fatal() or error.code() == KafkaError._FATAL
        (self.on_fatal if fatal else self._note)(error)

    def on_fatal(self, error: KafkaError) -> None:
        """Note a fatal error. produce() only learns that there was one; poll() brings the error itself."""
        before = self.fatal
        if before is None or not before.fatal():
            self.fatal = error
            if error.fatal():
                self._updates.fatal_error(error)
            if before is None or error.fatal():
                self.notifications.fatal(error, first=before is None)
