"""Makes what a producer tells of itself: snapshot() and explain()."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from safeproducer.explanation import explanation
from safeproducer.pipeline.engine import Engine
from safeproducer.pipeline.reports.delivery_counters import UNASSIGNED, PartitionCounters, TopicCounters
from safeproducer.policy.client_reports import Trouble, throttling
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.types import TopicPartition
from safeproducer.records import ProducerInfo
from safeproducer.runtime import clock
from safeproducer.snapshot import PartitionSnapshot, Snapshot, WindowSnapshot

Waits = Mapping[TopicPartition, tuple[int, str, HoldReason]]
"""(topic, partition) -> (how many of its records are held back, why, the code of that)."""
_NONE_WAIT = (0, None, None)


@dataclass(frozen=True, slots=True, repr=False)
class Inspection:
    """Any thread asks."""

    _engine: Engine
    _info: ProducerInfo

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
            partitions=partition_rows(engine.counters.topics, dispatcher.record_buffer.waits()),
            last_error=engine.announcements.last_error,
            throttled_brokers=dict(engine.events.throttled),
            producer_ids=engine.gate.used + dispatcher.lanes.permits().used,
        )

    def _known_ids(self) -> tuple[int, ...]:
        """Statistics tell those of the direct lane and of the first batch lane, its log that of each other lane."""
        logs = {lane.log.producer_id for lane in self._engine.dispatcher.lanes if lane.log is not None}
        return tuple(sorted(self._engine.failures.identities | {one for one in logs if one is not None}))

    def _windows(self) -> tuple[WindowSnapshot, ...]:
        if self._engine.route.state == "forked":  # a thread that is not here may have held the lock
            return ()
        now = clock.monotonic()
        return tuple(
            WindowSnapshot(
                *tp, window.size, window.source.value, None if window.at is None else now - window.at, window.reason
            )
            for tp, window in self._engine.windows.known(now).items()
        )

    def explain(self, topic: str | None, partition: int | None) -> str:
        """Say what records wait for."""
        leaders = self._engine.holds.partitions.leaders
        account = self.snapshot()
        told = explanation(account, topic, partition, self._troubles(), leaders)
        return told if account.state in ("closed", "forked") else " ".join([told, *self._engine.horizons.notes()])

    def _troubles(self) -> Iterator[Trouble]:
        """The newest error of each broker and each throttle time, newest first. A generator: most often nobody asks."""
        now, events, cluster = clock.monotonic(), self._engine.events, self._engine.holds.cluster
        held = cluster.throttle.held(now)
        ended = {broker: until for broker, until in events.throttled_until.copy().items() if broker not in held}
        for broker, until in (held | ended).items():
            yield throttling(broker, until, cluster.probes(broker, now), now)
        connected, delivered = cluster.connected(), self._engine.updates.delivered
        for error in sorted(events.errors.copy().values(), key=lambda error: -error.at):
            over = error.is_over(connected, delivered)
            about = "the last client error" + ("" if error.node is None else f" of broker {error.node}")
            told = f"{error.sentence.rstrip('.')} ({now - error.at:.0f} s ago)"
            yield Trouble(f"{about}{'' if over else ' was'}: {told}", error.node, over)


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
