"""Makes the native producers of one SafeProducer's lanes, or takes them over from another one.

librdkafka takes callbacks at construction and never others. A native producer that outlives its SafeProducer (see
`reuse`) must not call what belonged to the former one. Therefore a Relay stands between both: what librdkafka calls
stays, and one assignment changes the owner.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple, cast

from safeproducer.kafka.native import KafkaError, KafkaException, NativeProducer, ThrottleEvent
from safeproducer.kafka.properties import whole
from safeproducer.pipeline.cluster.client_events import ClientEvents
from safeproducer.pipeline.lanes.batch_lane import LaneLog
from safeproducer.policy.renewals import Session
from safeproducer.runtime import clock, forks, interrupts
from safeproducer.settings.config import Settings, explain_refusal

_LISTEN_TO = "broker"  # librdkafka's debug context for connections: four lines a transaction, and none for a record
_INFO = 6
_LEAST = {0: 50, 1: 50, 2: 50, 3: logging.ERROR, 4: logging.WARNING, 7: logging.DEBUG}
"""By `log_level`, the level of logging from which on confluent_kafka passes lines."""
_SYSLOG = {50: 0, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 5, logging.DEBUG: 7}
_FIRST, _BATCH_LANE, _FURTHER = range(3)
"""A native producer that tells of the cluster: the direct lane, or the first one when there is none. The first batch
lane beside a direct one. A further lane, whose statistics concern the application alone."""


class Owner(NamedTuple):
    """The owner is told. Each runs on the thread that serves the native producer."""

    error: Callable[[KafkaError], object]
    throttle: Callable[[ThrottleEvent], object]
    statistics: Callable[[str], object]
    log: Callable[..., object]
    token: Callable[[Callable[[str], Any], str], Any]


def _nobody(*_: Any) -> None:
    pass


NOBODY = Owner(_nobody, _nobody, _nobody, _nobody, lambda oauth_cb, config: oauth_cb(config))


class Relay:
    """Any thread. It refers to no native producer: that holds it, and a cycle would keep both.

    It stands where a logging.Logger would, too: librdkafka asks for `log()` only.
    """

    __slots__ = ("_owner",)

    def __init__(self, owner: Owner = NOBODY) -> None:
        self._owner = owner

    def belong_to(self, owner: Owner) -> None:
        """From now on nobody else is told. One step: there is no moment with two owners."""
        self._owner = owner

    def configured(self, config: dict[str, Any]) -> dict[str, Any]:
        """`config` with this as what librdkafka calls."""
        tells = {"error_cb": "error", "throttle_cb": "throttle", "stats_cb": "statistics"}
        own: dict[str, Any] = {name: partial(self.tell, event) for name, event in tells.items()}
        if config.get("logger") is not None:
            own["logger"] = self
        if callable(oauth_cb := config.get("oauth_cb")):
            own["oauth_cb"] = partial(self.tell, "token", oauth_cb)
        return config | own

    @interrupts.called_natively
    def tell(self, event: str, *what: Any) -> Any:
        """Call what the present owner has for this event; return what that does."""
        return getattr(self._owner, event)(*what)

    @interrupts.called_natively
    def log(self, *line: Any) -> None:
        self._owner.log(*line)


class SessionLog:
    """The log of a transactional producer. It tells of a lost request before that is sent again, unlike statistics.

    `lost`: how often a connection ended, or a request got no answer in time. `session`: the present epoch. The
    application gets the lines that it would have without this, on stderr if it gave no logger.
    """

    def __init__(self, hide: Callable[[], object]) -> None:
        self.lost = 0
        self.session = Session()
        self.counts = Counter[str]()  # transactions by outcome, and new epochs
        self._statistics: str | None = None
        self._hide = hide
        self._least: int = logging.INFO
        self._tell: Callable[..., object] = _to_stderr

    def listen(self, told: Owner, config: dict[str, Any]) -> tuple[Owner, dict[str, Any]]:
        """The owner and the configuration of a native producer with this log."""
        debug, level = config.get("debug"), whole(config.get("log_level"))
        self._least = logging.DEBUG if debug else _LEAST.get(_INFO if level is None else level, logging.INFO)
        self._tell = _to_stderr if (logger := config.get("logger")) is None else told.log
        texts = ",".join(str(text) for text in (debug, _LISTEN_TO) if text)
        told = told._replace(log=self.log, statistics=partial(self._hear, told.statistics))
        return told, config | {"debug": texts, "logger": logger or self}

    def take_statistics(self) -> str | None:
        """The statistics that came since the last call, if any."""
        text, self._statistics = self._statistics, None
        return text

    def _hear(self, tell: Callable[[str], object], text: str) -> None:
        self._statistics = text
        tell(text)

    def log(self, level: int, form: str, *line: Any) -> None:
        """Learn of lost connections and requests from librdkafka's line; pass on what the application would have."""
        facility, _, text = line if len(line) == 3 else ("", "", "")
        ended = facility == "STATE" and text.endswith((" UP -> DOWN", " REAUTH -> DOWN")) and "/bootstrap" not in text
        self.lost += ended or (facility == "REQTMOUT" and " in flight " in text)
        if level >= self._least:
            self._tell(level, form, *line)
        else:
            self._hide()


def _to_stderr(level: int, form: str, *line: Any) -> None:
    """Write a log line to stderr, in the form that librdkafka gives it."""
    facility, name, text = line
    sys.stderr.write(f"%{_SYSLOG.get(level, 5)}|{clock.time():.3f}|{facility}|{name}| {text}\n")


class NativeProducers:
    """`first()` and `further()` on the thread that constructs, `batch_lane()` on the sender's.

    `parked`: what a former producer of an equal configuration left, each with its log. `reusable`: a next one may.
    """

    def __init__(self, settings: Settings, events: ClientEvents, parked: Sequence[tuple[Any, LaneLog | None]]) -> None:
        self.settings = settings
        self.reusable = settings.reuses
        self._events = events
        self._parked = parked
        self.session_log = SessionLog(events.hide) if settings.delivery.listens else None
        self.former: list[Any] = []  # failed ones of the direct lane, until no thread can be inside any more

    def first(self) -> NativeProducer:
        """The direct lane, or the first batch lane when everything is held back; raises ConfigurationError."""
        settings, callbacks = self.settings, self._events.callbacks.errors
        if self._parked:
            return self._adopted(self._parked[0][0], _FIRST)
        delivery = settings.delivery
        configured = delivery.batch_lane_config if delivery.only_batch_lanes else delivery.direct_lane_config
        try:
            return self._made(configured(settings.lane), None, _FIRST)
        except (KafkaException, TypeError, ValueError) as error:
            refusal = explain_refusal(error, settings, callbacks.no_token)
            if refusal is None:
                raise
        raise refusal from callbacks.token  # without that context, whose frames know secrets

    def another(self) -> NativeProducer:
        """A native producer in place of the direct lane's, which failed."""
        settings = self.settings
        return self._made(settings.delivery.direct_lane_config(settings.lane), None, _FIRST)

    def leave(self, native: Any, heard: Callable[[str], object]) -> None:
        """The direct lane's native producer failed, and another one was made: it tells statistics alone."""
        self.former.append(native)
        native.relay.belong_to(NOBODY._replace(statistics=heard))

    def forget(self, native: Any) -> None:
        """Drop a former one: no thread can be inside any more."""
        self.former = [other for other in self.former if other is not native]

    def further(self) -> Iterator[tuple[NativeProducer, LaneLog | None]]:
        """The batch lanes beside the first one that were taken over."""
        for native, log in self._parked[1:]:
            yield self._adopted(native, self._role(log)), log

    def batch_lane(self, log: LaneLog | None) -> NativeProducer:
        """A batch lane that tells of the cluster by its statistics; with a log that does not tell, one more."""
        delivery, lane = self.settings.delivery, self.settings.lane
        config = delivery.batch_lane_config(lane) if log is None else delivery.told_lane_config(lane, log.tells)
        return self._made(config, log, self._role(log))

    def took(self, native: object) -> bool:
        """Whether another producer had it before, and wrote with it."""
        return any(native is parked for parked, _ in self._parked)

    def set_credentials(self, changes: dict[str, str]) -> None:
        """Other credentials from now on."""
        self.reusable = False
        self.settings.set_credentials(changes)

    def _owner(self, role: int) -> Owner:
        events, callbacks = self._events, self._events.callbacks
        tells = partial(events.on_statistics, role == _BATCH_LANE, count(1))
        statistics = events.on_further_statistics if role == _FURTHER else tells
        error = events.on_error if role == _FIRST else events.on_batch_lane_error
        log = partial(callbacks.log, self.settings.lane.get("logger"))
        return Owner(error, events.on_throttle, statistics, log, callbacks.errors.ask_token)

    def _role(self, log: LaneLog | None) -> int:
        if log is not None and not log.tells:
            return _FURTHER
        return _FIRST if self.settings.delivery.only_batch_lanes else _BATCH_LANE

    def _adopted(self, native: Any, role: int) -> NativeProducer:
        native.relay.belong_to(self._owner(role))
        return cast("NativeProducer", native)

    def _made(self, config: dict[str, Any], log: LaneLog | None, role: int) -> NativeProducer:
        told = self._owner(role)
        if self.session_log is not None:
            told, config = self.session_log.listen(told, config)
        relay = Relay(told)
        config = relay.configured(config)
        native = forks.spare_in_children(NativeProducer(config if log is None else log.listening(config)))
        native.relay = relay
        return native
