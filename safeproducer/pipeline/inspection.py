"""snapshot() and explain(): counts, and the sentence of why records wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from heapq import nsmallest
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING

from safeproducer.kafka.advice import advice
from safeproducer.pipeline.reports.counters import UNASSIGNED, TopicCounters
from safeproducer.policy import diagnosis
from safeproducer.policy.decision import Hold
from safeproducer.policy.diagnosis import Cause, Leaders, Located, concerning, stops
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.pacing import LATE
from safeproducer.policy.types import TopicPartition
from safeproducer.records import ProducerInfo
from safeproducer.runtime import clock
from safeproducer.snapshot import PartitionSnapshot, ReplicationSnapshot, Snapshot, TransactionsSnapshot, WindowSnapshot

if TYPE_CHECKING:  # metrics look at this where nobody makes an engine, as in the processes in which Spark plans
    from safeproducer.pipeline.engine import Engine

_MOST_REASONS = 5
_ENDED = {
    "closed": "This producer is closed; make a new one to produce again.",
    "forked": "This producer was made before a fork and does not work in this process; make a new one here.",
}
_LONG_LINGER = 0.5
_HANGS = 0.9  # seconds in statistics, which come each half second; a whole one then
LOST = "expired", "refused"  # codes of what became of records that wait no more
_FATAL = "It met a fatal error and takes no more records; close it and make a new one. "
_NOWHERE = Located()
_NONE_WAIT = (0, None, None)
Waits = Mapping[TopicPartition, tuple[int, str, HoldReason]]
"""(topic, partition) -> (how many of its records are held back, why, the code of that)."""
Inside = Callable[[TopicPartition, int], tuple[str, HoldReason] | tuple[None, None]]
"""Why so many records of a partition wait that are not held back, and the code of that."""


def explanation(
    account: Snapshot,
    topic: str | None,
    partition: int | None,
    troubles: Sequence[Cause],
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
    polls, waiting = 0 if located.blocked is not None else reports, max(sum(row.unresolved for row in rows), held)
    if topic is not None and partition is not None:
        waiting = max(waiting, held + reports + sent)
        rows = [replace(row, unresolved=waiting) for row in rows or [PartitionSnapshot(topic, partition, 0, 0, 0, 0)]]
    subject = "" if topic is None else f" for {topic}{'' if partition is None else f' [{partition}]'}"
    further, fatal = "" if partition is None else _further(account, topic, located), _FATAL * (account.state == "fatal")
    told, cures = _reasons(located, rows, troubles, leaders, account)
    unpolled = [not_polled(polls, served=located.served)] if polls else []
    cure = "".join(f" {cure}" for cure in [*cures[:_MOST_REASONS], *(one.cure for one in unpolled)] if cure)
    if not waiting:
        why = "".join(f" {clause[0].upper()}{clause[1:]}." for clause in told) + cure
        return f"{fatal}Nothing waits{subject}: {_told(rows, located.failed)}.{why}{further}{_of_replicas(rows)}"
    if not told and (left := waiting - reports) > 0:
        told.append(waits(left, located.linger))
    told += [one.sentence for one in unpolled]
    wait = concerning(troubles, [row for row in rows if row.unresolved or row.held], leaders)
    past = "; ".join([one.sentence for one in wait if one.over][:_MOST_REASONS])
    over = f" Over by now, and not the cause: {past}." * bool(past)
    ended = f" ({_told(rows, located.failed)})" * any(row.failed for row in rows)
    also = _of_replicas(row for row in rows if not (stops(row) and (row.unresolved or row.held)))
    return f"{fatal}{waiting} record(s) wait{subject}{ended}: {'; '.join(told)}.{cure}{over}{further}{also}"


def _reasons(
    located: Located, rows: list[PartitionSnapshot], troubles: Sequence[Cause], leaders: Leaders, account: Snapshot
) -> tuple[list[str], list[str]]:
    """Rows wait for this, what explains the rest first, and the cures: each once, for all rows that it concerns."""
    text = " (up to {0.size} batches may be under way, because {0.reason})"
    windows = {(window.topic, window.partition): text.format(window) for window in account.windows}
    told, cures = dict[str, tuple[int, set[str]]](), dict[str, int]()
    for cause in whole(located, troubles):
        told[cause.sentence], cures[cause.cure or ""] = (cause.rank, set()), cause.rank
    for _, _, causes in located.causes(rows, troubles, leaders, windows):
        for cause in causes:
            told.setdefault(cause.clause or cause.sentence, (cause.rank, set()))[1].add(cause.name)
            if cause.cure:
                cures.setdefault(cause.cure, cause.rank)
    shown = sorted(told.items(), key=lambda each: each[1][0])[: 2 * _MOST_REASONS]
    return [_with(clause, names) for clause, (_, names) in shown], sorted(cures, key=cures.__getitem__)


def whole(located: Located, troubles: Iterable[Cause]) -> list[Cause]:
    """Causes that concern no records of a partition: the callback, and the call of a transaction."""
    calls = [one for one in troubles if one.what.kind == "call"]
    return calls if located.blocked is None else [located.blocked[0], *calls]


def _with(clause: str, names: set[str]) -> str:
    first = nsmallest(_MOST_REASONS, filter(None, names), key=lambda name: name.partition(" for ")[::-1])
    places = ", ".join(first)
    return f"{places} are held back: {clause}" if " for " in places else f"{clause} {places}".rstrip()


def _further(account: Snapshot, topic: str | None, located: Located) -> str:
    """The records of a topic whose partition statistics have not told yet."""
    rows = [row for row in account.partitions if row.topic == topic]
    left = sum(row.unresolved for row in rows) - sum(row.held for row in rows) - sum(located.of(topic, None))
    unplaced = sum(row.unresolved for row in rows if row.partition < 0)
    told = f" {min(left, unplaced)} further record(s) of {topic} are not known by partition yet."
    return told if left > 0 and unplaced else ""


def waits(count: int, linger: float = 0.0, of: str = "") -> str:
    gathers = f", and linger.ms lets a batch gather for {linger:g} s" if linger >= _LONG_LINGER else ""
    return f"{count} record(s){of} have no acknowledgement yet{gathers}"


def not_polled(reports: int, since: float | None = None, served: bool = False) -> Cause:
    where, cure = ("wait behind one that runs", None) if served else ("wait for poll()", "Call poll() or flush().")
    return Cause("not_polled", f"{reports} report(s) {where}", cure, since)


def _of_replicas(rows: Iterable[PartitionSnapshot]) -> str:
    """Replicas do this, and no record waits for it."""
    found = [row.replication for row in rows if row.replication is not None and row.replication.unusual]
    told = [f" {one.sentence[0].upper()}{one.sentence[1:]}. {one.cure}" for one in found[:_MOST_REASONS]]
    return "".join(map(str.rstrip, told))


def _told(rows: list[PartitionSnapshot], codes: Mapping[str, str]) -> str:
    delivered = sum(row.delivered for row in rows)
    failed = sum(row.failed for row in rows)
    why = sorted({codes[row.topic] for row in rows if row.failed and row.topic in codes})
    return f"{delivered} record(s) delivered, {failed} failed{', lately with ' if why else ''}{', '.join(why)}"


@dataclass(frozen=True, slots=True, repr=False)
class Inspection:
    """The producer's account of its records: what they wait for, and what failed. Any thread asks."""

    _engine: Engine
    _info: ProducerInfo
    _linger: float

    def snapshot(self) -> Snapshot:
        """The account of the producer at this moment."""
        return self._account(self._silent(), clock.monotonic())

    # One fault shows in several places: replicas out of sync make a leader silent, and a silent leader's requests stay
    # open. Told as three faults, the wrong one would be mended: a cause nearer to the partition keeps the further ones
    # out.
    def look(self, least: float = 0.0, asked: str | None = None) -> tuple[Snapshot, Located, list[Cause]]:
        """The account, with all that says what records wait for, also of a topic that is `asked` for. Left out are
        partitions whose records all name them and have waited for less than `least` seconds."""
        engine, now, silent = self._engine, clock.monotonic(), self._silent()
        counters, cluster, partitions = engine.counters, engine.holds.cluster, engine.holds.partitions
        losses = engine.failures.losses
        lost, oldest = losses.known(now), engine.dispatcher.record_buffer.oldest()
        ages = {tp: now - accepted for tp, accepted in oldest.items()}
        account = self._account(silent, None, {tp for tp, age in ages.items() if age < least and tp not in lost})
        for row in filter(stops, account.partitions):
            silent.pop((row.topic, row.partition), None)  # the replicas are the cause, also of records that name none
        sent, hangs, throttled = Counter[TopicPartition](), dict[int, float](), cluster.throttle.deadlines(now - LATE)
        for told in cluster.statistics.values():
            sent.update({tp: left for tp, it in told.partitions.items() if (left := it.in_flight + it.queued)})
            open_for = {node: told.at - it.open_since for node, it in told.brokers.items() if node not in throttled}
            hangs |= {node: age for node, age in open_for.items() if age >= _HANGS and now < told.at + LATE}
        topics = {row.topic for row in account.partitions} | {topic for topic in (asked,) if topic is not None}
        counts = {topic: partitions.count(topic) for topic in topics if partitions.known(topic)}
        missing = {topic: clause for topic in topics if (clause := partitions.missing_clause(topic))}
        reports = counters.report_queue.reports.by_partition(counters.topics.copy())
        owed = {*cluster.attempts.copy(), *silent, *(sent if cluster.slow(now) or hangs else ())}
        sick = {tp: tuple(cluster.sick(tp, now, losses.refused(tp))) for tp in owed}
        sick |= {tp: (diagnosis.silent(tp, node),) for tp, node in silent.items() if not sick[tp]}
        for tp in sent if hangs else ():
            node = partitions.leader(*tp)
            if node is not None and node in hangs and not sick[tp]:
                sick[tp] = (diagnosis.slow(node, hangs[node], hangs[node], f"{tp[0]} [{tp[1]}]", False),)
        for (topic, _), age in sorted(ages.items(), key=itemgetter(1)):  # of those that name none it may not be known
            ages[topic, UNASSIGNED] = age
        for tp, age in ages.items():
            if hangs and age >= LATE and not (partitions.known(tp[0]) or tp[0] in missing):
                sick[tp] = (diagnosis.untold(tp[0], *max(hangs.items(), key=itemgetter(1))),)
        last, blocked, served = engine.failures.last.copy(), engine.serving.blocked(now), engine.route.busy
        located = Located(reports, sent, counts, missing, sick, self._linger, last, lost, ages, blocked, served)
        troubles, waited, why = list(self._troubles()), max(ages.values(), default=0.0), HoldReason.NO_BROKER
        known = account.delivered or any(not one.over for one in troubles)
        if waited >= diagnosis.SLOW and not known and engine.reached_nobody:
            troubles.insert(0, Cause(why, "no broker has answered yet", why.cure, waited))
        return account, located, troubles

    def held(self) -> Iterator[tuple[TopicPartition, str, int]]:
        """(partition, the code of its first cause, how many records wait), where a cause is known."""
        holds, (account, located, troubles) = self._engine.holds, self.look()
        code, behind = not_polled(0).code, Counter(located.reports)
        if located.blocked is not None:  # the thread in the callback may have taken their reports
            code = located.blocked[0].code
            behind = Counter({(row.topic, row.partition): row.unresolved for row in account.partitions})
        for row, count, causes in located.causes(account.partitions, troubles, holds.partitions.leaders, {}):
            if located.blocked is not None:
                behind[row.topic, row.partition] -= count
            if causes and causes[0].code not in LOST:
                yield (row.topic, row.partition), str(causes[0].code), count
        yield from ((tp, code, count) for tp, count in (+behind).items())

    def _account(
        self, silent: Mapping[TopicPartition, int], now: float | None, young: Collection[TopicPartition] = ()
    ) -> Snapshot:
        """`now`: for which the ages of replicas are told, None for nobody. Without `young` partitions, as look()."""
        engine, info, buffer = self._engine, self._info, self._engine.dispatcher.record_buffer
        lanes, failures, queued = engine.dispatcher.lanes, engine.failures, engine.queued
        unresolved, interrupted = engine.counters.outstanding(queued)
        inside, replicas = self._inside(silent), engine.questions.replication.known(now)
        # Statistics tell those of the direct lane and of the first batch lane, its log that of each other lane.
        ids = failures.identities | {lane.log.producer_id for lane in lanes if lane.log is not None}
        return Snapshot(
            engine.route.state,
            *(info.client_id, info.bootstrap_servers, info.principal, info.transactional_id, info.idempotent),
            tuple(sorted(one for one in ids if one is not None)),
            self._transactions(),
            *engine.counters.totals(),
            *(unresolved, interrupted, queued, failures.not_written, failures.unknown, buffer.waiting),
            *(lanes.handed_over, lanes.splits, len(lanes)),
            self._windows(),
            partition_rows(engine.counters.topics, buffer.waits(), inside, replicas, young),
            last_error=engine.notifications.last_error,
            throttled_brokers=dict(engine.events.throttled),
            producer_ids=engine.gate.taken,
            renewals=lanes.renewing.count,
            withdrawn=failures.cancelled[0],
            abandoned=failures.cancelled[1],
        )

    def _transactions(self) -> TransactionsSnapshot | None:
        log = self._engine.native_producers.session_log
        names = "committed", "aborted", "unknown", "renewed"
        return None if log is None else TransactionsSnapshot(*(log.counts[name] for name in names))

    def _inside(self, silent: Mapping[TopicPartition, int]) -> Inside:
        """Why records wait that librdkafka has. Each sentence is made once."""
        now, cluster, queue = clock.monotonic(), self._engine.holds.cluster, self._engine.dispatcher.reports
        reports = Counter[object]()
        throttles, missing = bool(cluster.throttle.deadlines(now)), cluster.partitions.missing_clause
        why = HoldReason.NO_BROKER if cluster.away else HoldReason.LEADER_SILENT
        whole = {topic: node for (topic, _), node in silent.items()}  # of records that name no partition
        for of, count in queue.waiting_of.copy().items():
            if of is not None:
                reports.update({of[:2]: count, (of[0], UNASSIGNED): count})
        sentence = cache(lambda hold: cluster.addressed(hold.sentence(now)))

        def inside(tp: TopicPartition, unresolved: int) -> tuple[str, HoldReason] | tuple[None, None]:
            if reports[tp] >= unresolved:  # nothing of it waits for a broker
                return None, None
            node = silent.get(tp) if tp[1] >= 0 else whole.get(tp[0])
            hold = None if node is None else Hold(None, why, node)
            if missing(tp[0]):
                hold = Hold(None, HoldReason.UNKNOWN_TOPIC)
            elif throttles and node is None and (state := cluster.leader_state(tp, now)).throttled_until is not None:
                hold = Hold(state.throttled_until, HoldReason.THROTTLED, state.node)
            return (None, None) if hold is None else (sentence(hold), hold.reason)

        return inside

    def _silent(self) -> dict[TopicPartition, int]:
        """Silent leaders, by partition. One that gathers a batch waits for nobody, nor one of a throttled broker."""
        now, holds, found = clock.monotonic(), self._engine.holds, {}
        if holds.cluster.coordinating(now) is not None:
            return {}  # nobody has asked a leader
        statistics = holds.cluster.statistics.copy().values()
        sent = [told.partitions for told in statistics] if self._linger > _LONG_LINGER else None
        throttled, slow = bool(holds.cluster.throttle.deadlines(now - LATE)), holds.cluster.slow(now)
        for tp in self._engine.dispatcher.record_buffer.silent(now):
            node = holds.partitions.leader(*tp)
            owes = node not in slow and (sent is None or any(tp in it and it[tp].in_flight for it in sent))
            if tp[1] >= 0 and node is not None and owes and not (throttled and holds.throttled_lately(tp, now)):
                found[tp] = node
        return found

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
        account, located, troubles = self.look(asked=topic)
        told = explanation(account, topic, partition, troubles, holds.partitions.leaders, located)
        if account.state in _ENDED:
            return told
        if account.state == "fatal" and (fatal := self._engine.failures.refusals.fatal) is not None:
            told = f"{advice(fatal.name(), fatal.str())} {told}"
        return holds.cluster.addressed(" ".join([told, *expirations.notes()]))

    def _troubles(self) -> Iterator[Cause]:
        """Each throttle time, cuts, and the newest error of each broker, newest first."""
        now, events, cluster = clock.monotonic(), self._engine.events, self._engine.holds.cluster
        held, stuck = cluster.throttle.deadlines(now), cluster.coordinating(now)
        yield from () if stuck is None else (stuck,)
        ended = {broker: until for broker, until in events.throttled_until.copy().items() if broker not in held}
        for broker, until in (held | ended).items():
            yield diagnosis.throttling(broker, until, now)
        for one in () if cluster.connected() else cluster.statistics.copy().values():
            yield from diagnosis.begun(one.begun, now - one.at)
        yield from self._engine.holds.of_brokers(now)


def partition_rows(
    topics: Mapping[str, TopicCounters],
    waits: Waits = MappingProxyType({}),
    inside: Inside = lambda tp, unresolved: (None, None),
    replicas: Mapping[TopicPartition, ReplicationSnapshot] = MappingProxyType({}),
    young: Collection[TopicPartition] = (),
) -> tuple[PartitionSnapshot, ...]:
    """A row for each partition with records, and one with partition -1 for those not on a partition yet.

    A record whose partition its caller did not name is accepted on partition -1, and yet may be held back for the
    partition it will go to.
    """
    rows, left = [], dict(waits)

    def add(tp: TopicPartition, accepted: int, delivered: int, failed: int) -> None:
        held, why, reason = left.pop(tp, _NONE_WAIT)
        if (unresolved := max(0, accepted - delivered - failed)) and not held:
            why, reason = inside(tp, unresolved)
        rows.append(
            PartitionSnapshot(*tp, accepted, delivered, failed, unresolved, held, why, reason, replicas.get(tp))
        )

    for name, topic in sorted(topics.items()):
        waiting, never_placed = topic.accepted, 0
        for number, row in sorted(topic.partitions.items()):
            if (name, number) in young and not topic.accepted:
                continue
            named, placed = row.named, row.placed
            waiting -= placed.delivered + placed.failed
            # First, so that accepted is never the smaller one.
            delivered, failed = named.delivered + placed.delivered, named.failed + placed.failed
            if number == UNASSIGNED:
                never_placed = placed.failed
            elif accepted := row.accepted + placed.delivered + placed.failed:
                add((name, number), accepted, delivered, failed)
        if waiting > 0 or never_placed:
            add((name, UNASSIGNED), max(0, waiting) + never_placed, 0, never_placed)
    for tp in tuple(left):
        add(tp, 0, 0, 0)
    return tuple(sorted(rows, key=attrgetter("topic", "partition")))
