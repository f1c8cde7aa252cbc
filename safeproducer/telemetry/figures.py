"""The figures of one producer as metrics tell them: read from its engine when somebody collects, never for a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from safeproducer.pipeline.inspection import Inspection
from safeproducer.pipeline.reports.counters import TopicCounters
from safeproducer.runtime import clock
from safeproducer.runtime.log import logger
from safeproducer.telemetry import conventions as names

Attributes = tuple[tuple[str, str | int], ...]
Figure = tuple[str, Attributes, float]  # (name of the instrument, attributes, value)

LOST = "lost"  # the outcome of a record that went away without a delivery report
OUTCOMES = ("delivered", "not_written", "unknown", LOST)
OTHER = "_OTHER"
SENDS: Attributes = ((names.SYSTEM, "kafka"), (names.OPERATION_NAME, "send"))


@dataclass(frozen=True, slots=True)
class Labels:
    """By which attributes figures are told apart. Any thread.

    `topics`: how many of them have a name; others are `_OTHER`, also later on.
    """

    partitions: bool
    client_ids: bool
    topics: int
    _known: dict[str, str] = field(default_factory=dict)

    def of(self, engine: Any, topic: str | None = None, partition: int | None = None) -> Attributes:
        """Labels of a producer, of one of its topics, or of a partition of that."""
        return self.of_client(engine.notifications.info.client_id, topic, partition)

    def of_client(self, client_id: str, topic: str | None = None, partition: int | None = None) -> Attributes:
        found: Attributes = () if topic is None else ((names.DESTINATION_NAME, self._name(topic)),)
        if self.partitions and partition is not None and partition >= 0:
            found += ((names.PARTITION_ID, str(partition)),)
        return (*found, (names.CLIENT_ID, client_id)) if self.client_ids else found

    def _name(self, topic: str) -> str:
        known = self._known
        if (name := known.get(topic)) is not None:
            return name
        if len(known) < self.topics:
            return known.setdefault(topic, topic)
        if OTHER not in known:
            known[OTHER] = OTHER
            text = "metrics: there are more than %d topics, and those from %r on are told as %s; raise topics="
            logger.warning(text, self.topics, topic, OTHER)
        return OTHER


def records(engine: Any, labels: Labels, over: bool) -> Iterator[Figure]:
    """Records by topic. `over`: those without a report get none any more."""
    over = over or engine.route.state == "closed"
    counters, failed = engine.counters, engine.failures.counts.copy()
    ended: Counter[str] = Counter()
    for (topic, partition, error, outcome, unsent), count in failed.items():
        if topic is None:
            continue
        ended[topic] += count
        place = labels.of(engine, topic, partition)
        yield names.ENDED, (*place, (names.OUTCOME, outcome)), count
        if not unsent:
            yield names.SENT, (*SENDS, *place, (names.ERROR_TYPE, error)), count
    written = counters.written() if over else Counter()
    for (topic, partition), count in written.items():
        ended[topic] += count
        yield from _delivered(labels.of(engine, topic, partition), count)
    for topic, account in counters.topics.copy().items():
        accepted, delivered = 0, 0
        for place, each, done, unresolved in _rows(engine, labels, topic, account):
            accepted, delivered = accepted + each, delivered + done
            yield names.ACCEPTED, place, each
            yield names.UNRESOLVED, place, 0 if over else unresolved
            yield from _delivered(place, done)
        lost = accepted - delivered - ended[topic] if over else 0
        for outcome in OUTCOMES:  # zeros, too: a rate needs to see where a count begins
            attributes = (*labels.of(engine, topic), (names.OUTCOME, outcome))
            yield names.ENDED, attributes, max(0, lost) if outcome == LOST else 0


def _delivered(place: Attributes, count: int) -> Iterator[Figure]:
    yield names.ENDED, (*place, (names.OUTCOME, "delivered")), count
    yield names.SENT, (*SENDS, *place), count


def _rows(
    engine: Any, labels: Labels, topic: str, account: TopicCounters
) -> Iterator[tuple[Attributes, int, int, int]]:
    """(attributes, accepted, delivered, unresolved). Reports are read first: accepted is never the smaller one.

    A record without a partition is accepted on its topic, and delivered on a partition.
    """
    rows = account.partitions.copy()
    groups = [(number, [row]) for number, row in rows.items()] if labels.partitions else [(-1, list(rows.values()))]
    placed = sum([row.placed.delivered + row.placed.failed for row in rows.values()])
    for number, some in groups:
        delivered = sum([row.named.delivered + row.placed.delivered for row in some])
        resolved = sum([row.named.delivered + row.named.failed for row in some])
        accepted = sum([row.accepted for row in some])
        yield labels.of(engine, topic, number), accepted, delivered, max(0, accepted - resolved)
    accepted = account.accepted
    yield labels.of(engine, topic), accepted, 0, max(0, accepted - placed)


def holds(engine: Any, labels: Labels, over: bool) -> Iterator[Figure]:
    """Records that wait for what is known, how long partitions have waited, and how much of their time is used up."""
    now, buffers, delivery = clock.monotonic(), engine.dispatcher.record_buffer, engine.updates.delivery
    for tp, code, count in () if over else Inspection(engine, engine.notifications.info, delivery.linger).held():
        yield names.HELD, (*labels.of(engine, *tp), (names.HOLD_REASON, code)), count
    for tp, accepted in buffers.oldest().items() if delivery.timeout and not over else ():
        yield names.DEADLINE_USED, labels.of(engine, *tp), (now - accepted) / delivery.timeout
    for (tp, code), seconds in engine.holds.hold_times(engine.route.retired_at).items():
        yield names.HOLD_TIME, (*labels.of(engine, *tp), (names.HOLD_REASON, str(code))), seconds


def throttles(engine: Any, labels: Labels, over: bool) -> Iterator[Figure]:
    """Throttle times of brokers that throttle, or have."""
    now, cluster, announced = clock.monotonic(), engine.holds.cluster, engine.events.announced.copy()
    held = {} if over else cluster.throttle.deadlines(now)
    brokers = {node: it.name for told in cluster.statistics.values() for node, it in told.brokers.items()}
    brokers.update((node, name) for node, (name, _) in announced.items())
    for node in announced.keys() | (held.keys() & brokers.keys()):
        attributes = (*_address(brokers[node]), *labels.of(engine))
        if node in announced:
            yield names.THROTTLE_TIME, attributes, announced[node][1]
        if not over:
            yield names.THROTTLE_REMAINING, attributes, held.get(node, now) - now


def round_trips(engine: Any, labels: Labels, over: bool) -> Iterator[Figure]:
    """Round trips to each broker, by the last statistics."""
    for told in () if over else engine.holds.cluster.statistics.values():
        for broker in told.brokers.values():
            if broker.rtt_floor is not None:
                yield names.BROKER_RTT, (*_address(broker.name), *labels.of(engine)), broker.rtt_floor


def _address(name: str) -> Attributes:
    """The address of a broker, which librdkafka calls host:port/number."""
    host, _, port = name.partition("/")[0].rpartition(":")
    return (names.SERVER_ADDRESS, host.strip("[]") or name), (names.SERVER_PORT, int(port) if port.isdigit() else 0)


def windows(engine: Any, labels: Labels, over: bool) -> Iterator[Figure]:
    windows = engine.questions.windows
    for tp, window in {} if over else windows.known(clock.monotonic()).items():
        yield names.WINDOW, (*labels.of(engine, *tp), (names.WINDOW_SOURCE, window.source.value)), window.size


def lanes(engine: Any, labels: Labels, over: bool) -> Iterator[Figure]:
    attributes, pool = labels.of(engine), engine.dispatcher.lanes
    if not over:
        yield names.LANES, attributes, len(pool)
    yield names.BATCHES, attributes, pool.handed_over
    yield names.SPLITS, attributes, pool.splits
    principal = engine.notifications.info.principal
    yield names.PRODUCER_IDS, ((names.PRINCIPAL, principal), *attributes), engine.gate.taken
    yield names.LOGINS_REFUSED, attributes, engine.events.logins_refused
    for cause, count in pool.renewing.causes.copy().items():
        yield names.RENEWALS, ((names.ERROR_TYPE, cause), *attributes), count


def transactions(engine: Any, labels: Labels, over: bool) -> Iterator[Figure]:
    """Transactions of a producer, by what became of them; and how often its epoch was renewed."""
    if (log := engine.native_producers.session_log) is not None:
        for outcome in ("committed", "aborted", "unknown"):
            yield names.TRANSACTIONS, ((names.OUTCOME, outcome), *labels.of(engine)), log.counts[outcome]
        yield names.EPOCHS, labels.of(engine), log.counts["renewed"]


def buffers(engine: Any, labels: Labels, over: bool) -> Iterator[Figure]:
    """How much room is used, and by records that no broker can be given."""
    if over:
        return
    attributes, buffer = labels.of(engine), engine.dispatcher.record_buffer
    accepted, delivered, failed = engine.counters.totals()
    unresolved, delivery = max(0, accepted - delivered - failed), engine.updates.delivery
    connected = engine.holds.cluster.connected() or not engine.updates.interval  # no statistics, no knowledge
    yield names.DISCONNECTED, attributes, 0 if connected else unresolved
    # librdkafka counts events, too, which stay there while nobody polls.
    yield names.BUFFER_RECORDS, attributes, min(buffer.records, unresolved)
    yield names.BUFFER_BYTES, attributes, buffer.bytes()
    if (limit := delivery.buffer.bytes) is not None:
        yield names.BUFFER_LIMIT, attributes, limit


Section = Callable[[Any, Labels, bool], Iterator[Figure]]
SECTIONS: tuple[Section, ...] = (records, holds, throttles, round_trips, windows, lanes, transactions, buffers)
