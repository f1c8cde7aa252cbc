"""OpenTelemetry metrics: the messaging conventions' own, and ours beside them.

Needs only opentelemetry-api. All but durations are read when somebody collects, for all producers at once. Durations
are those of a sample.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from math import inf
from typing import Any, Literal

from opentelemetry.metrics import MeterProvider, Observation, get_meter, get_meter_provider

from safeproducer.hooks import Hook, RecordsLost
from safeproducer.records import ProducerInfo
from safeproducer.runtime import clock, forks, lifetime, randomness
from safeproducer.runtime.log import logger
from safeproducer.runtime.totals import Totals
from safeproducer.telemetry import conventions as names
from safeproducer.telemetry.figures import SECTIONS, SENDS, Attributes, Labels

Kind = Literal["counter", "up-down counter", "gauge", "histogram"]
_SENT = (names.SYSTEM, names.OPERATION_NAME, names.DESTINATION_NAME, names.ERROR_TYPE)
_TOPIC = (names.DESTINATION_NAME,)
_ENDED, _WINDOW, _HOLD = (*_SENT, names.OPERATION_TYPE), (*_TOPIC, names.WINDOW_SOURCE), (*_TOPIC, names.HOLD_REASON)
_BROKER = (names.SERVER_ADDRESS, names.SERVER_PORT)
_COMBINED: dict[str, Callable[[float, float], float]] = {
    names.THROTTLE_REMAINING: max,
    names.BROKER_RTT: max,
    names.DEADLINE_USED: max,
    names.WINDOW: min,
}
"""How the figures of several producers become one; all others are added up."""
_BOUNDARIES = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_SENDS = (*SENDS, (names.OPERATION_TYPE, "send"))
_MOST_DURATIONS = 20_000
"""That wait for a collection."""
_ENOUGH_DURATIONS = 2_000
"""For one collection. To tell them costs more than all else; beyond that, half of them are as good a sample."""
_FRESH = 1.0
"""Seconds for which what was read for one instrument is told by another one, of the same collection."""
Key = tuple[str, Attributes]
_collections: weakref.WeakValueDictionary[int, _Collection] = weakref.WeakValueDictionary()
"""By the identity of the meter provider, which a _Collection keeps; 0 for the global one."""


@dataclass(frozen=True, slots=True)
class Instrument:
    """A row of the reference of metrics: `name`, `kind`, `unit` and what it counts, `description`.

    `attributes`: all that it may have, but for those that `partitions` and `client_ids` of OpenTelemetryMetrics add.
    """

    name: str
    kind: Kind
    unit: str
    attributes: tuple[str, ...]
    description: str


INSTRUMENTS: tuple[Instrument, ...] = tuple(
    Instrument(*row)
    for row in (
        (names.SENT, "counter", "{message}", _SENT, "Records handed to librdkafka that ended; none that was not sent."),
        (names.DURATION, "histogram", "s", _ENDED, "From produce() to the end of a record; of a fair sample."),
        (names.ACCEPTED, "counter", "{record}", _TOPIC, "Records that produce() accepted."),
        (names.ENDED, "counter", "{record}", (*_TOPIC, names.OUTCOME), "Records that ended, by what became of them."),
        (names.UNRESOLVED, "up-down counter", "{record}", _TOPIC, "Accepted records without a delivery report."),
        (names.DISCONNECTED, "up-down counter", "{record}", (), "Those of producers that are connected to no broker."),
        (names.HELD, "up-down counter", "{record}", _HOLD, "Records that wait, by the first cause."),
        (names.HOLD_TIME, "counter", "s", _HOLD, "For how long partitions waited, added up, by the reason."),
        (names.DEADLINE_USED, "gauge", "{deadline}", _TOPIC, "Share of its time that the oldest record has used up."),
        (names.THROTTLE_TIME, "counter", "s", _BROKER, "Throttle times that a broker announced, added up."),
        (names.THROTTLE_REMAINING, "gauge", "s", _BROKER, "Until the throttle time of a broker is over; 0 after it."),
        (names.WINDOW, "gauge", "{batch}", _WINDOW, "Batches of a partition that may be under way; the least of them."),
        (names.LANES, "up-down counter", "{lane}", (), "Batch lanes that there are."),
        (names.BATCHES, "counter", "{batch}", (), "Batches that were handed over to a batch lane."),
        (names.SPLITS, "counter", "{request}", (), "Requests that librdkafka made of such batches beyond one each."),
        (names.PRODUCER_IDS, "counter", "{producer_id}", (names.PRINCIPAL,), "New producer IDs, of all lanes."),
        (names.RENEWALS, "counter", "{renewal}", (names.ERROR_TYPE,), "Native producers that were made anew."),
        (names.LOGINS_REFUSED, "counter", "{login}", (), "Times that a client error told of a login that was refused."),
        (names.TRANSACTIONS, "counter", "{transaction}", (names.OUTCOME,), "Transactions that ended, by how they did."),
        (names.EPOCHS, "counter", "{epoch}", (), "Producer epochs that were given up for a request of unknown end."),
        (names.BUFFER_RECORDS, "gauge", "{record}", (), "Records that take room in the buffers."),
        (names.BUFFER_BYTES, "gauge", "By", (), "Bytes that take room in the buffers."),
        (names.BUFFER_LIMIT, "gauge", "By", (), "Bytes that there is room for."),
        (names.BROKER_RTT, "gauge", "s", _BROKER, "Shortest round trip to a broker lately."),
    )
)
_KINDS = {each.name: each.kind for each in INSTRUMENTS}


class _Collection:
    """All that is told to one meter provider, of all producers with a hook for it. Any thread collects."""

    def __init__(self, provider: MeterProvider | None, labels: Labels, durations: float) -> None:
        self.labels = labels
        self.options = labels.partitions, labels.client_ids, labels.topics, durations
        self.share = self.wanted = durations
        self.totals: Totals[Key] = Totals(self._last)
        self.exits = False
        """Reports that are missing do not come any more."""
        self._reported: set[object] = set()
        self._durations: deque[tuple[float, Attributes]] = deque()
        self._read_at = 0.0
        self._figures: dict[str, dict[Attributes, float]] = {}
        self._served: set[str] = set()
        self._provider = provider
        meter = get_meter("safeproducer", version("safeproducer"), provider, names.SCHEMA_URL)
        self.duration: Any = None
        for each in INSTRUMENTS:
            self._make(meter, each)

    def _make(self, meter: Any, each: Instrument) -> None:
        try:
            if each.kind != "histogram":
                callbacks = [lambda _, name=each.name: self.observe(name)]
                make = getattr(meter, f"create_observable_{each.kind.replace('-', '_').replace(' ', '_')}")
                make(each.name, callbacks, each.unit, each.description)
                return
            advice = {"explicit_bucket_boundaries_advisory": _BOUNDARIES}
            try:
                self.duration = meter.create_histogram(each.name, each.unit, each.description, **advice)
            except TypeError:  # an API before 1.30
                self.duration = meter.create_histogram(each.name, each.unit, each.description)
        except Exception:
            logger.exception("metrics: the instrument %s cannot be made; the others go on", each.name)

    # --- collecting --------------------------------------------------------------------------------------------------

    def observe(self, name: str) -> list[Observation]:
        """The figures of one instrument. Those of one collection are read together."""
        try:
            forks.notice()
            now = clock.real()
            if name in self._served or now > self._read_at + _FRESH:
                self._record()
                self.share = self.wanted
                self._read_at, self._served, self._figures = now, set(), self._read()
            self._served.add(name)
            return [Observation(value, dict(attributes)) for attributes, value in self._told(name)]
        except Exception:
            self._report(name, name)
            return []

    def _told(self, name: str) -> list[tuple[Attributes, float]]:
        found, kind, told = self._figures.get(name, {}), _KINDS[name], self.totals.told
        if kind == "counter":  # while a producer leaves, it may be seen nowhere
            found = {attributes: value for (of, attributes), value in list(told.items()) if of == name} | found
            return [(attributes, self.totals.risen((name, attributes), value)) for attributes, value in found.items()]
        if kind == "up-down counter":  # what is gone is zero
            told.update(((name, attributes), 0) for attributes in found)
            found = {attributes: 0 for of, attributes in list(told) if of == name} | found
        return list(found.items())

    def _read(self) -> dict[str, dict[Attributes, float]]:
        engines, gone = self.totals.known()
        found: dict[str, dict[Attributes, float]] = {name: {} for name in _KINDS}
        for (name, attributes), value in gone.items():
            found[name][attributes] = value
        for engine in engines:
            over = self.exits or not engine.route.usable
            for name, attributes, value in self._figures_of(engine, over):
                row, combined = found[name], _COMBINED.get(name)
                before = row.get(attributes)
                row[attributes] = value if before is None else combined(before, value) if combined else before + value
        return found

    def _last(self, engine: Any) -> dict[Key, float]:
        """The counts of a producer that is gone."""
        found: dict[Key, float] = {}
        for name, attributes, value in self._figures_of(engine, True):
            if _KINDS[name] == "counter":
                found[name, attributes] = found.get((name, attributes), 0) + value
        return found

    def _figures_of(self, engine: Any, over: bool) -> Iterable[tuple[str, Attributes, float]]:
        for section in SECTIONS:
            try:
                yield from list(section(engine, self.labels, over))
            except Exception:
                if engine.route.usable:  # else it was closed meanwhile
                    self._report(section, section.__name__)

    def _report(self, what: object, name: str) -> None:
        if what not in self._reported:
            self._reported.add(what)
            logger.exception("metrics: %s cannot be read; the others go on", name)

    @property
    def listens(self) -> bool:
        """Whether there is an SDK: the API's own providers do nothing."""
        provider = get_meter_provider() if self._provider is None else self._provider
        return not type(provider).__module__.startswith("opentelemetry.metrics")

    # --- durations ---------------------------------------------------------------------------------------------------

    def took(
        self, one_in: int, producer: ProducerInfo, topic: Any, partition: int | None, seconds: float, error: Any
    ) -> None:
        """A record in so many has ended after that time; whether it is of the sample is decided here."""
        if self.duration is None or randomness.share() >= self.share * one_in:
            return
        try:
            place = self.labels.of_client(producer.client_id, topic, partition)
            failed = () if error is None else ((names.ERROR_TYPE, names.error_type(error)),)
            waiting = self._durations
            waiting.append((seconds, (*_SENDS, *place, *failed)))
            if self.wanted < 1 and len(waiting) > _ENOUGH_DURATIONS:
                self.share /= 2
                with suppress(IndexError):  # another thread was quicker
                    for _ in range(len(waiting) // 2):
                        waiting.append(waiting.popleft())
                        waiting.popleft()
            elif len(waiting) > _MOST_DURATIONS:
                self._record(2)
        except Exception:  # it is the application's poll() that calls
            self._report(names.DURATION, names.DURATION)

    def _record(self, most: float = inf) -> None:
        """Tell durations, up to so many. It costs far more than all else of a record, and takes locks of the SDK that
        a signal handler inside poll() would wait for: collections do it."""
        while self._durations and most > 0:
            try:
                seconds, attributes = self._durations.popleft()
            except IndexError:  # another thread was quicker
                return
            self.duration.record(seconds, dict(attributes))
            most -= 1


def _collection(provider: MeterProvider | None, labels: Labels, durations: float) -> _Collection:
    number = 0 if provider is None or provider is get_meter_provider() else id(provider)
    found = _collections.get(number)
    if found is None:
        found = _collections[number] = _Collection(provider, labels, durations)
    elif found.options != (labels.partitions, labels.client_ids, labels.topics, durations):
        text = "metrics: there is a hook for this meter provider already, and its options count: %s; pass that one"
        logger.warning(text, "partitions={}, client_ids={}, topics={}, durations={}".format(*found.options))
    return found


class OpenTelemetryMetrics(Hook):
    """Tells OpenTelemetry what a producer counts, and how long its records take.

    - `meter_provider`: default the global one, also when it is installed after this hook; durations are those of
      producers that are made after it.
    - `partitions`: whether figures of topics have the attribute `messaging.destination.partition.id`. A record that
      was accepted without a partition is accepted without that attribute.
    - `client_ids`: whether figures have the attribute `messaging.client.id`.
    - `durations`: share of the records whose duration is measured, in seconds from produce() to the end of the record;
      1 for all of them, 0 for none. It is a fair sample. A call that produce() refuses has none. A share below 1 is
      halved whenever more than 2000 durations wait, until the next collection.
    - `topics`: how many topics are told by name. Those beyond are `_OTHER`, and a line of the log says so.

    `safeproducer.telemetry.metrics.INSTRUMENTS` has all instruments, with units and attributes. All but durations are
    read at collection: nothing is added to produce(), and `produce_batch()` keeps its native call. There is one sum for
    a process and meter provider. It keeps what producers counted that are closed or gone, and a producer with two hooks
    counts once. The options of the first hook for a meter provider count. A child of a fork begins at zero.

    Raises ValueError if `durations` is not within 0 to 1 or `topics` is below 1, and TypeError if `meter_provider` is
    none. An instrument that cannot be made or read is told once by the `safeproducer` logger, and the others go on.

    Thread-safe; one hook may serve many producers.
    """

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        *,
        partitions: bool = False,
        client_ids: bool = False,
        durations: float = 1 / 64,
        topics: int = 1_000,
    ) -> None:
        if meter_provider is not None and not callable(getattr(meter_provider, "get_meter", None)):
            way_out = "pass a MeterProvider of OpenTelemetry, or None for the global one"
            raise TypeError(f"meter_provider={meter_provider!r} has no get_meter(): {way_out}")
        if not isinstance(durations, int | float) or not 0 <= durations <= 1:
            way_out = "pass a number from 0, for none, to 1, for all; 1/64 is the default"
            raise ValueError(f"durations={durations!r} is no share of the records: {way_out}")
        if not isinstance(topics, int) or topics < 1:
            raise ValueError(f"topics={topics!r} is no number of topics: pass 1 or more; 1000 is the default")
        labels = Labels(bool(partitions), bool(client_ids), topics)
        self._collection = _collection(meter_provider, labels, durations)

    @property
    def _durations(self) -> _Collection | None:
        return self._collection if self._collection.wanted and self._collection.listens else None

    def _producer_began(self, engine: Any) -> None:
        self._collection.totals.join(engine)

    def _producer_ended(self, engine: Any) -> None:
        self._collection.totals.leave(engine)

    def records_lost(self, event: RecordsLost) -> None:
        self._collection.exits = self._collection.exits or event.reason == lifetime.EXIT
