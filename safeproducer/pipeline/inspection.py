"""snapshot() and explain(): counts, and the sentence of why records wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from safeproducer.pipeline.engine import Engine
from safeproducer.pipeline.reports.counters import UNASSIGNED, PartitionCounters, TopicCounters
from safeproducer.policy.client_reports import Trouble, throttling
from safeproducer.policy.decision import Hold
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.types import NEVER, TopicPartition
from safeproducer.records import ProducerInfo
from safeproducer.runtime import clock
from safeproducer.snapshot import PartitionSnapshot, ReplicationSnapshot, Snapshot, WindowSnapshot

_MOST_REASONS = 5
_ENDED = {
    "closed": "This producer is closed; make a new one to produce again.",
    "forked": "This producer was made before a fork and does not work in this process; make a new one here.",
}
_LONG_LINGER = 0.5
_POLL = " Call poll() or flush()."
_SILENT = "broker {} acknowledges nothing of"
_FATAL = "It met a fatal error and takes no more records; close it and make a new one. "


class Located(NamedTuple):
    """Where records are that wait, beside those that are held.

    - `reports`: by partition, those that poll() has to run. `sent`: records that librdkafka has, by the last
      statistics; also of those whose caller named no partition.
    - `counts`: partitions of topics that are known. `absent`: a clause for each topic that is not there.
    - `refused`: a clause for each partition that gets answers and no acknowledgements. `linger`: seconds.
    - `silent`: partition -> its leader, which acknowledges nothing of what librdkafka has.
    - `failed`: the name of the last error, for each topic with records that failed.
    """

    reports: Mapping[TopicPartition, int] = MappingProxyType({})
    sent: Mapping[TopicPartition, int] = MappingProxyType({})
    counts: Mapping[str, int] = MappingProxyType({})
    absent: Mapping[str, str] = MappingProxyType({})
    refused: Mapping[TopicPartition, str] = MappingProxyType({})
    linger: float = 0.0
    failed: Mapping[str, str] = MappingProxyType({})
    silent: Mapping[TopicPartition, int] = MappingProxyType({})

    def of(self, topic: str | None, partition: int | None) -> tuple[int, int]:
        """(reports that wait for poll(), records that librdkafka has)."""
        return _sum(self.reports, topic, partition), _sum(self.sent, topic, partition)

    def clauses(self, rows: list[PartitionSnapshot], waits: Collection[str], told: Collection[str]) -> list[str]:
        """Topics that are not there, brokers that refuse or are silent, of these rows; some partitions are `told`."""
        places, silent = {(row.topic, row.partition) for row in rows}, dict[int, list[str]]()
        for (topic, number), node in sorted(self.silent.items()):
            name = f"{topic} [{number}]"
            if {(topic, number), (topic, -1)} & places and name not in told:
                silent.setdefault(node, []).append(name)
        owed = [f"{_SILENT.format(node)} {', '.join(names[:_MOST_REASONS])}" for node, names in silent.items()]
        refused = dict.fromkeys(filter(None, (self.refused.get((row.topic, row.partition)) for row in rows)))
        return [clause for name, clause in self.absent.items() if name in waits] + owed + list(refused)


def _sum(counts: Mapping[TopicPartition, int], topic: str | None, partition: int | None) -> int:
    found = counts.items()
    return sum(count for (name, number), count in found if topic in (None, name) and partition in (None, number))


_NOWHERE = Located()


def explanation(
    account: Snapshot,
    topic: str | None,
    partition: int | None,
    troubles: Iterable[Trouble],
    leaders: Callable[[str, int], set[int]],
    located: Located = _NOWHERE,
) -> str:
    """Say what the records of `account` (or of one topic or partition of it) wait for, and what to do.

    The `troubles`, newest first, leave out those of brokers that lead none of the partitions; those that are over are
    told as such, behind what the records wait for. `leaders(topic, partition)`: none while it is not known.
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
        rows = rows or [PartitionSnapshot(topic, partition, waiting, 0, 0, waiting)]
    subject = _subject(topic, partition)
    fatal = _FATAL if account.state == "fatal" else ""
    further = _further(account, topic, located) if partition is not None else ""
    if not waiting:
        return f"{fatal}Nothing waits{subject}: {_told(rows, located.failed)}.{further}{_of_replicas(rows)}"
    waits = {row.topic for row in rows if row.unresolved or row.held}
    causes = {_tp(row): row.replication for row in rows if row.topic in waits and stops(row) and row.replication}
    reasons = _held_back(account, [row for row in rows if row.held][:_MOST_REASONS], causes)
    reasons += [causes[_tp(row)].sentence for row in rows if _tp(row) in causes and not row.held][:_MOST_REASONS]
    matters = concerning(troubles, rows, leaders)
    reasons += [trouble.clause for trouble in matters if not trouble.over][:_MOST_REASONS]
    reasons += located.clauses(rows, waits, {*causes, *(_tp(row) for row in rows if row.held)})
    reasons += _counted(waiting if not reasons else 0, reports, located.linger)
    over = _over([trouble.clause for trouble in matters if trouble.over][:_MOST_REASONS])
    cures = _cures(_curable(rows, matters, located), causes, located.silent) + _POLL * bool(reports)
    told = f"{cures}{over}{further}{_of_replicas(row for row in rows if _tp(row) not in causes)}"
    return f"{fatal}{waiting} record(s) wait{subject}: {'; '.join(reasons)}.{told}"


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


def _held_back(
    account: Snapshot, rows: list[PartitionSnapshot], causes: Mapping[str, ReplicationSnapshot]
) -> list[str]:
    windows = {(window.topic, window.partition): window for window in account.windows}
    why = [causes[_tp(row)].sentence if _tp(row) in causes else f"the partition {row.why}" for row in rows]
    return [
        f"{row.held} for {_tp(row)} are held back: {one}{_window(windows.get((row.topic, row.partition)))}"
        for row, one in zip(rows, why, strict=True)
    ]


def _curable(rows: list[PartitionSnapshot], matters: list[Trouble], located: Located) -> list[PartitionSnapshot]:
    """A topic that no broker could tell of may be there."""
    if not any(trouble.node is None and not trouble.over for trouble in matters):
        return rows
    return [row for row in rows if row.reason is not HoldReason.UNKNOWN_TOPIC or row.topic in located.absent]


def _cures(
    rows: list[PartitionSnapshot], causes: Mapping[str, ReplicationSnapshot], silent: Collection[TopicPartition]
) -> str:
    """The cures, once for all partitions that the same one would help."""
    found = [causes[_tp(row)].cure if _tp(row) in causes else row.reason and row.reason.cure for row in rows]
    found += [HoldReason.LEADER_SILENT.cure for row in rows if (row.topic, row.partition) in silent and not causes]
    return "".join(f" {cure}" for cure in list(dict.fromkeys(filter(None, found)))[:_MOST_REASONS])


def stops(row: PartitionSnapshot) -> bool:
    """Whether records wait because of replicas."""
    delays = row.replication is not None and row.replication.delays
    return delays and row.reason in (None, HoldReason.LEADER_SILENT)


def _of_replicas(rows: Iterable[PartitionSnapshot]) -> str:
    """What replicas do that no record waits for."""
    found = [row.replication for row in rows if row.replication is not None and row.replication.unusual]
    return "".join(
        f" {one.sentence[0].upper()}{one.sentence[1:]}. {one.cure}".rstrip() for one in found[:_MOST_REASONS]
    )


def concerning(
    troubles: Iterable[Trouble], rows: list[PartitionSnapshot], leaders: Callable[[str, int], set[int]]
) -> list[Trouble]:
    """Those of brokers that lead none of the partitions left out."""
    led = [leaders(row.topic, row.partition) for row in rows if row.unresolved or row.held]
    nodes = set().union(*led) if all(led) else None
    return [trouble for trouble in troubles if nodes is None or trouble.node is None or trouble.node in nodes]


def _window(window: WindowSnapshot | None) -> str:
    return "" if window is None else f" (up to {window.size} batches may be under way, because {window.reason})"


def _subject(topic: str | None, partition: int | None) -> str:
    if topic is None:
        return ""
    return f" for {topic}" if partition is None else f" for {topic} [{partition}]"


def _tp(row: PartitionSnapshot) -> str:
    return f"{row.topic} [{row.partition}]" if row.partition >= 0 else row.topic


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
            partitions=self._partitions(),
            last_error=engine.notifications.last_error,
            throttled_brokers=dict(engine.events.throttled),
            producer_ids=engine.gate.taken,
            renewals=dispatcher.lanes.renewing.count,
        )

    def _partitions(self) -> tuple[PartitionSnapshot, ...]:
        engine, buffer = self._engine, self._engine.dispatcher.record_buffer
        rows = partition_rows(engine.counters.topics, buffer.waits())
        replication = engine.questions.replication
        known = replication.known(clock.monotonic())
        absent, silent = engine.holds.partitions.absent, self._silent()
        whole = {topic: node for (topic, _), node in silent.items()}  # of records that name no partition
        found = []
        for row in rows:
            node = silent.get((row.topic, row.partition), whole.get(row.topic) if row.partition < 0 else None)
            reason = HoldReason.UNKNOWN_TOPIC if absent(row.topic) else HoldReason.LEADER_SILENT
            told = replace(row, replication=known.get((row.topic, row.partition)))
            if row.unresolved and not row.held and (node is not None or absent(row.topic)):
                why = engine.holds.cluster.addressed(Hold(None, reason, node).sentence(0.0))
                told = replace(told, reason=reason, why=why)
            found.append(told)
        return tuple(found)

    def _silent(self) -> dict[TopicPartition, int]:
        """As Located.silent. A partition that gathers a batch waits for nobody, nor does one of a throttled broker."""
        now, cluster, found = clock.monotonic(), self._engine.holds.cluster, {}
        sent = [told.partitions for told in cluster.statistics.values()] if self._linger > _LONG_LINGER else None
        for tp in self._engine.dispatcher.record_buffer.silent(now):
            node, throttled, probing = cluster.leader_state(tp, now)
            under_way = sent is None or any(tp in told and told[tp].in_flight for told in sent)
            if tp[1] >= 0 and node is not None and throttled is None and not probing and under_way:
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
        leaders = holds.partitions.leaders
        account = self.snapshot()
        told = explanation(account, topic, partition, self.troubles(), leaders, self.located(account))
        if account.state in _ENDED:
            return told
        return holds.cluster.addressed(" ".join([told, *expirations.notes()]))

    def located(self, account: Snapshot) -> Located:
        """Where records are, and what is known of their topics and brokers."""
        engine, topics = self._engine, {row.topic for row in account.partitions}
        counters, cluster = engine.counters, engine.holds.cluster
        sent: Counter[TopicPartition] = Counter()
        for told in cluster.statistics.values():
            sent.update(
                {tp: it.in_flight + it.queued for tp, it in told.partitions.items() if it.in_flight + it.queued}
            )
        counts = {topic: cluster.partitions.count(topic) for topic in topics}
        absent = {topic: clause for topic in topics if (clause := cluster.partitions.absent(topic))}
        reports = counters.report_queue.reports.by_partition(counters.topics.copy())
        now, silent = clock.monotonic(), self._silent()
        held = [row for row in account.partitions if row.reason is HoldReason.LEADER_SILENT]
        leaders = {(row.topic, row.partition): cluster.partitions.leader(row.topic, row.partition) for row in held}
        leaders.update(silent)
        oldest = engine.dispatcher.record_buffer.oldest()
        answers = {tp: cluster.refuses(node, oldest.get(tp, NEVER), now) for tp, node in leaders.items()}
        refused = {tp: clause for tp, clause in answers.items() if clause}
        return Located(reports, sent, counts, absent, refused, self._linger, dict(engine.failures.last), silent)

    def troubles(self) -> Iterator[Trouble]:
        """The newest error of each broker and each throttle time, newest first. A generator: most often nobody asks."""
        now, events, cluster = clock.monotonic(), self._engine.events, self._engine.holds.cluster
        held = cluster.throttle.deadlines(now)
        ended = {broker: until for broker, until in events.throttled_until.copy().items() if broker not in held}
        for broker, until in (held | ended).items():
            yield throttling(broker, until, cluster.probes(broker, now), now)
        connected, delivered = cluster.connected(), self._engine.updates.delivered
        cuts = cluster.cuts(now)
        for node, clause in cuts.items():
            yield Trouble(clause, node, over=False)
        for error in sorted(events.errors.copy().values(), key=lambda error: -error.at):
            recurs = bool(cuts) if error.node is None else error.node in cuts
            over = not recurs and error.is_over(connected, delivered, now)
            about = "the last client error" + ("" if error.node is None else f" of broker {error.node}")
            again = "" if error.times == 1 else f"{error.times} times in {error.at - error.since:.0f} s, the last "
            told = f"{error.sentence.rstrip('.')} ({again}{now - error.at:.0f} s ago)"
            yield Trouble(f"{about}{'' if over else ' was'}: {told}", error.node, over, now - error.since)


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
