"""snapshot() and explain(): counts, and the sentence of why records wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from safeproducer.pipeline.causes import Leaders, Located, concerning, stops
from safeproducer.pipeline.engine import Engine
from safeproducer.pipeline.reports.counters import UNASSIGNED, PartitionCounters, TopicCounters
from safeproducer.policy.client_reports import Trouble, begun, throttling
from safeproducer.policy.decision import Hold
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.types import NEVER, TopicPartition
from safeproducer.records import ProducerInfo
from safeproducer.runtime import clock
from safeproducer.snapshot import PartitionSnapshot, Snapshot, WindowSnapshot

_MOST_REASONS = 5
_ENDED = {
    "closed": "This producer is closed; make a new one to produce again.",
    "forked": "This producer was made before a fork and does not work in this process; make a new one here.",
}
_LONG_LINGER = 0.5
_POLL = " Call poll() or flush()."
_FATAL = "It met a fatal error and takes no more records; close it and make a new one. "


_NOWHERE = Located()


def explanation(
    account: Snapshot,
    topic: str | None,
    partition: int | None,
    troubles: Sequence[Trouble],
    leaders: Leaders,
    located: Located = _NOWHERE,
) -> str:
    """Say what the records of `account` (or of one topic or partition of it) wait for, and what to do.

    The `troubles`, newest first, leave out those of brokers that lead none of the partitions; those that are over are
    told as such, behind what the records wait for.
    """
    if account.state in _ENDED:
        return _ENDED[account.state]
    if topic is not None and partition is not None and 0 < (count := located.counts.get(topic, 0)) <= partition:
        return f"There is no partition {partition} of {topic}: it has {count}, 0 to {count - 1}."
    rows = [row for row in account.partitions if topic in (None, row.topic) and partition in (None, row.partition)]
    held, (reports, sent) = sum(row.held for row in rows), located.of(topic, partition)
    waiting = max(sum(row.unresolved for row in rows), held)
    if topic is not None and partition is not None:
        waiting = max(waiting, held + reports + sent)
        rows = [replace(row, unresolved=waiting) for row in rows or [PartitionSnapshot(topic, partition, 0, 0, 0, 0)]]
    subject = _subject(topic, partition)
    fatal = _FATAL if account.state == "fatal" else ""
    further = _further(account, topic, located) if partition is not None else ""
    windows = {(window.topic, window.partition): _window(window) for window in account.windows}
    told, cures = _reasons(located, rows, troubles, leaders, windows)
    cure = "".join(f" {cure}" for cure in cures[:_MOST_REASONS]) + _POLL * bool(reports)
    if not waiting:
        why = "".join(f" {clause[0].upper()}{clause[1:]}." for clause in told) + cure
        return f"{fatal}Nothing waits{subject}: {_told(rows, located.failed)}.{why}{further}{_of_replicas(rows)}"
    told += _counted(waiting if not told else 0, reports, located.linger)
    over = _over([one.clause for one in concerning(troubles, rows, leaders) if one.over][:_MOST_REASONS])
    also = _of_replicas(row for row in rows if not (stops(row) and (row.unresolved or row.held)))
    return f"{fatal}{waiting} record(s) wait{subject}: {'; '.join(told)}.{cure}{over}{further}{also}"


def _reasons(
    located: Located,
    rows: list[PartitionSnapshot],
    troubles: Sequence[Trouble],
    leaders: Leaders,
    windows: Mapping[TopicPartition, str],
) -> tuple[list[str], list[str]]:
    """What rows wait for, those that are held first, and the cures: each once, for all rows that it concerns."""
    held, others, cures = dict[str, set[str]](), dict[str, set[str]](), dict[str, None]()
    for row, _ in located.waiting(rows):
        for cause in located.causes(row, troubles, leaders, windows.get((row.topic, row.partition), "")):
            where = held if row.held and cause.clause else others
            where.setdefault(cause.clause or cause.sentence, set()).add(cause.name)
            cures |= {cause.cure: None} if cause.cure else {}
    told = [*list(held.items())[:_MOST_REASONS], *list(others.items())[:_MOST_REASONS]]
    return [_with(*each) for each in told], list(cures)


def _with(clause: str, names: set[str]) -> str:
    places = ", ".join(sorted(filter(None, names), key=lambda name: name.partition(" for ")[::-1])[:_MOST_REASONS])
    return f"{places} are held back: {clause}" if " for " in places else f"{clause} {places}".rstrip()


def _over(clauses: list[str]) -> str:
    return f" Over by now, and not the cause: {'; '.join(clauses)}." if clauses else ""


def _further(account: Snapshot, topic: str | None, located: Located) -> str:
    """The records of a topic whose partition statistics have not told yet."""
    rows = [row for row in account.partitions if row.topic == topic]
    left = sum(row.unresolved for row in rows) - sum(row.held for row in rows) - sum(located.of(topic, None))
    unplaced = sum(row.unresolved for row in rows if row.partition < 0)
    return (
        f" {min(left, unplaced)} further record(s) of {topic} are not known by partition yet."
        if left > 0 and unplaced
        else ""
    )


def _counted(waiting: int, reports: int, linger: float) -> list[str]:
    """How many records nobody has acknowledged, and how many reports nobody has run."""
    gathers = f", and linger.ms lets a batch gather for {linger:g} s" if linger >= _LONG_LINGER else ""
    unacknowledged = (
        [f"{waiting - reports} record(s) have no acknowledgement yet{gathers}"] if waiting > reports else []
    )
    return unacknowledged + ([f"{reports} report(s) wait for poll()"] if reports else [])


def _of_replicas(rows: Iterable[PartitionSnapshot]) -> str:
    """What replicas do that no record waits for."""
    found = [row.replication for row in rows if row.replication is not None and row.replication.unusual]
    return "".join(
        f" {one.sentence[0].upper()}{one.sentence[1:]}. {one.cure}".rstrip() for one in found[:_MOST_REASONS]
    )


def _window(window: WindowSnapshot | None) -> str:
    return "" if window is None else f" (up to {window.size} batches may be under way, because {window.reason})"


def _subject(topic: str | None, partition: int | None) -> str:
    if topic is None:
        return ""
    return f" for {topic}" if partition is None else f" for {topic} [{partition}]"


def _told(rows: list[PartitionSnapshot], codes: Mapping[str, str]) -> str:
    delivered = sum(row.delivered for row in rows)
    failed = sum(row.failed for row in rows)
    why = sorted({codes[row.topic] for row in rows if row.failed and row.topic in codes})
    return f"{delivered} record(s) delivered, {failed} failed{', lately with ' if why else ''}{', '.join(why)}"


Waits = Mapping[TopicPartition, tuple[int, str, HoldReason]]
"""(topic, partition) -> (how many of its records are held back, why, the code of that)."""
_NONE_WAIT = (0, None, None)


@dataclass(frozen=True, slots=True, repr=False)
class Inspection:
    """Any thread asks."""

    _engine: Engine
    _info: ProducerInfo
    _linger: float

    def snapshot(self) -> Snapshot:
        """The account of the producer at this moment."""
        return self._account(self._silent())

    def look(self) -> tuple[Snapshot, Located, list[Trouble]]:
        """The same, with all that says what records wait for."""
        silent = self._silent()
        account = self._account(silent)
        for row in filter(
            stops, account.partitions
        ):  # the replicas are the cause, for records without a partition, too
            silent.pop((row.topic, row.partition), None)
        return account, self._located(account, silent), list(self._troubles())

    def _account(self, silent: Mapping[TopicPartition, int]) -> Snapshot:
        engine, info, dispatcher = self._engine, self._info, self._engine.dispatcher
        queued = engine.queued
        unresolved, interrupted = engine.counters.outstanding(queued)
        accepted, delivered, failed = engine.counters.totals()
        return Snapshot(
            state=engine.route.state,
            client_id=info.client_id,
            bootstrap_servers=info.bootstrap_servers,
            principal=info.principal,
            transactional_id=info.transactional_id,
            idempotent=info.idempotent,
            known_producer_ids=self._known_ids(),
            accepted=accepted,
            delivered=delivered,
            failed=failed,
            unresolved=unresolved,
            interrupted=interrupted,
            queued=queued,
            not_written=engine.failures.not_written,
            unknown=engine.failures.unknown,
            held=dispatcher.record_buffer.waiting,
            handed_over=dispatcher.lanes.handed_over,
            splits=dispatcher.lanes.splits,
            lanes=len(dispatcher.lanes),
            windows=self._windows(),
            partitions=self._partitions(silent),
            last_error=engine.notifications.last_error,
            throttled_brokers=dict(engine.events.throttled),
            producer_ids=engine.gate.taken,
            renewals=dispatcher.lanes.renewing.count,
        )

    def _partitions(self, silent: Mapping[TopicPartition, int]) -> tuple[PartitionSnapshot, ...]:
        engine, buffer, now = self._engine, self._engine.dispatcher.record_buffer, clock.monotonic()
        known, cluster = engine.questions.replication.known(now), engine.holds.cluster
        whole = {topic: (topic, number) for topic, number in silent}  # of records that name no partition
        found = []
        for each in partition_rows(engine.counters.topics, buffer.waits()):
            tp = each.topic, each.partition
            row = replace(each, replication=known.get(tp))
            if row.unresolved and not row.held:
                node, until, *_ = cluster.leader_state(tp, now)
                place = tp if tp in silent else whole.get(row.topic) if row.partition < 0 else None
                hold = Hold(until, HoldReason.THROTTLED, node) if until is not None else None
                if engine.holds.partitions.missing_clause(row.topic):
                    hold = Hold(None, HoldReason.UNKNOWN_TOPIC)
                elif place is not None:
                    hold = Hold(None, HoldReason.LEADER_SILENT, silent[place])
                if hold is not None:
                    row = replace(row, reason=hold.reason, why=cluster.addressed(hold.sentence(now)))
            found.append(row)
        return tuple(found)

    def _silent(self) -> dict[TopicPartition, int]:
        """As Located.silent. A partition that gathers a batch waits for nobody, nor does one of a throttled broker."""
        now, holds, found = clock.monotonic(), self._engine.holds, {}
        statistics = holds.cluster.statistics.copy().values()
        sent = [told.partitions for told in statistics] if self._linger > _LONG_LINGER else None
        for tp in self._engine.dispatcher.record_buffer.silent(now):
            node = holds.partitions.leader(*tp)
            under_way = sent is None or any(tp in told and told[tp].in_flight for told in sent)
            if tp[1] >= 0 and node is not None and under_way and not holds.throttled_lately(tp, now):
                found[tp] = node
        return found

    def _known_ids(self) -> tuple[int, ...]:
        """Statistics tell those of the direct lane and of the first batch lane, its log that of each other lane."""
        logs = {lane.log.producer_id for lane in self._engine.dispatcher.lanes if lane.log is not None}
        return tuple(sorted(self._engine.failures.identities | {one for one in logs if one is not None}))

    def _windows(self) -> tuple[WindowSnapshot, ...]:
        if self._engine.route.state == "forked":  # a thread that is not here may have held the lock
            return ()
        now, windows = clock.monotonic(), self._engine.questions.windows
        return tuple(
            WindowSnapshot(
                *tp, window.size, window.source.value, None if window.at is None else now - window.at, window.reason
            )
            for tp, window in windows.known(now).items()
        )

    def explain(self, topic: str | None, partition: int | None) -> str:
        """Say what records wait for."""
        holds, expirations = self._engine.holds, self._engine.questions.expirations
        account, located, troubles = self.look()
        told = explanation(account, topic, partition, troubles, holds.partitions.leaders, located)
        if account.state in _ENDED:
            return told
        return holds.cluster.addressed(" ".join([told, *expirations.notes()]))

    def _located(self, account: Snapshot, silent: Mapping[TopicPartition, int]) -> Located:
        engine, topics = self._engine, {row.topic for row in account.partitions}
        counters, cluster = engine.counters, engine.holds.cluster
        sent: Counter[TopicPartition] = Counter()
        for told in cluster.statistics.values():
            sent.update({tp: left for tp, it in told.partitions.items() if (left := it.in_flight + it.queued)})
        counts = {topic: cluster.partitions.count(topic) for topic in topics}
        missing = {topic: clause for topic in topics if (clause := cluster.partitions.missing_clause(topic))}
        reports = counters.report_queue.reports.by_partition(counters.topics.copy())
        now = clock.monotonic()
        held = [row for row in account.partitions if row.reason is HoldReason.LEADER_SILENT]
        leaders = {(row.topic, row.partition): cluster.partitions.leader(row.topic, row.partition) for row in held}
        leaders.update(silent)
        oldest = engine.dispatcher.record_buffer.oldest()
        answers = {tp: cluster.rejection_clause(node, oldest.get(tp, NEVER), now) for tp, node in leaders.items()}
        refused = {tp: clause for tp, clause in answers.items() if clause}
        ages = {tp: now - accepted for tp, accepted in oldest.items()}
        for topic, _ in tuple(ages):  # of a record that names no partition it may not be known yet
            ages[topic, -1] = max(age for (name, _), age in ages.items() if name == topic)
        last, lost = engine.failures.last.copy(), engine.failures.losses.known(now)
        return Located(reports, sent, counts, missing, refused, self._linger, last, silent, lost, ages)

    def _troubles(self) -> Iterator[Trouble]:
        """Each throttle time, cuts, and the newest error of each broker, newest first."""
        now, events, cluster = clock.monotonic(), self._engine.events, self._engine.holds.cluster
        held = cluster.throttle.deadlines(now)
        ended = {broker: until for broker, until in events.throttled_until.copy().items() if broker not in held}
        for broker, until in (held | ended).items():
            yield throttling(broker, until, now)
        connected, delivered = cluster.connected(), self._engine.updates.delivered
        for one in () if connected else cluster.statistics.copy().values():
            yield from begun(one.begun, now - one.at)
        cuts = cluster.cut_clauses(now)
        for node, clause in cuts.items():
            yield Trouble(clause, node, over=False, cure=HoldReason.LEADER_SILENT.cure or "")
        for error in sorted(events.errors.copy().values(), key=lambda error: -error.at):
            recurs = bool(cuts) if error.node is None else error.node in cuts
            over = not recurs and error.is_over(connected, delivered, now)
            about = "the last client error" + ("" if error.node is None else f" of broker {error.node}")
            again = "" if error.times == 1 else f"{error.times} times in {error.at - error.since:.0f} s, the last "
            told = f"{about}{'' if over else ' was'}: {error.sentence} ({again}{now - error.at:.0f} s ago)"
            yield Trouble(told, error.node, over, now - error.since, cure=error.cure)


def partition_rows(
    topics: Mapping[str, TopicCounters], waits: Waits = MappingProxyType({})
) -> tuple[PartitionSnapshot, ...]:
    """One row for each partition with records, and one with partition -1 for those not on a partition yet.

    A record whose partition its caller did not name is accepted on partition -1, and yet may be held back for the
    partition it will go to.
    """
    rows = []
    left = dict(waits)
    for name, topic in sorted(topics.items()):
        waiting = topic.accepted
        never_placed = 0
        for number, row in sorted(topic.partitions.items()):
            waiting -= row.placed.delivered + row.placed.failed
            if number == UNASSIGNED:
                never_placed = row.placed.failed
            elif (found := _row(name, number, row, left)) is not None:
                rows.append(found)
        if waiting > 0 or never_placed:
            unresolved = max(0, waiting)
            held = left.pop((name, UNASSIGNED), _NONE_WAIT)
            rows.append(
                PartitionSnapshot(name, UNASSIGNED, unresolved + never_placed, 0, never_placed, unresolved, *held)
            )
    rows.extend(PartitionSnapshot(name, number, 0, 0, 0, 0, *held) for (name, number), held in left.items())
    return tuple(sorted(rows, key=lambda row: (row.topic, row.partition)))


def _row(
    topic: str, partition: int, row: PartitionCounters, left: dict[TopicPartition, tuple[int, str, HoldReason]]
) -> PartitionSnapshot | None:
    """None when nothing was accepted; what waits of it is taken from `left`."""
    delivered = row.named.delivered + row.placed.delivered
    failed = row.named.failed + row.placed.failed
    accepted = row.accepted + row.placed.delivered + row.placed.failed
    if not accepted:
        return None
    held = left.pop((topic, partition), _NONE_WAIT)
    unresolved = max(0, accepted - delivered - failed)
    return PartitionSnapshot(topic, partition, accepted, delivered, failed, unresolved, *held)
