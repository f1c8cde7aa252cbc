"""A SafeProducer on a FakeNative and a ScriptedCluster in virtual time, with a model that judges what it does."""

from __future__ import annotations

import itertools
import random
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from confluent_kafka.cimpl import KafkaError, Message

from safeproducer import DeliveryError, HoldReason, QueueFullError, SafeProducer, Snapshot
from safeproducer.pipeline import assembly
from safeproducer.pipeline.bulk import Block, produce_block
from safeproducer.pipeline.cluster import replication, windows
from safeproducer.pipeline.cluster.asker import Asker, Question
from safeproducer.pipeline.lanes import native_producers
from safeproducer.pipeline.polling import Serving
from safeproducer.pipeline.sender import Sender
from safeproducer.policy.outcome import Outcome
from safeproducer.policy.window import LEAST
from safeproducer.runtime import clock, randomness
from tests.inside import engine_of
from tests.pipeline.cluster import ScriptedCluster, TopicPartition
from tests.pipeline.fake_native import FakeNative
from tests.pipeline.virtual import VirtualTime

CLOSE_PATIENCE = 300.0
_FLUSH_ROUND = Serving.flush_round
THROTTLING = (HoldReason.THROTTLED, HoldReason.PROBING)
_ids = itertools.count()
POLLS, POLLS_IN_A_ROW, LATE = 0.021, 10, 0.1
"""Seconds, looks, seconds. A minute in which the sender polls takes 600 turns in place of 6 000."""


class HandSender:
    """Works in the calling thread whenever that waits, and when the rig says so."""

    time: VirtualTime

    def __init__(self) -> None:
        self.asked = float("inf")
        self.told_waiting = 0
        self._sends: Any = lambda: None

    alive = False
    works, asks = Sender.works, Sender.asks

    def work_for(self, engine: Any) -> None:
        self._engine = engine
        self._sends = lambda: engine

    def is_this_thread(self) -> bool:
        return False

    def wake(self, due: float) -> None:
        self.asked = min(self.asked, due)

    def tell_waiting(self) -> None:
        self.told_waiting += 1

    def turn(self) -> float:
        self.asked = float("inf")
        due: float = self._engine.turn(self.time.monotonic())
        return due

    def let_work(self) -> None:
        if self.asked <= self.time.now:
            self.turn()

    def wait(self, timeout: float) -> None:
        end = self.time.now + timeout
        while True:
            due = min(self.turn(), self.asked, self.time.now + 0.25)
            if self._engine.dispatcher.reports or self.time.now >= end or not self._engine.route.usable:
                return
            self.rest(min(end, due))

    def rest(self, until: float) -> None:
        """Until then, or until an answer or somebody who wakes it."""
        if (near := self._engine.near(self.time.now)) is not None and until > self.time.now:
            near[0].wait(min(near[1], until - self.time.now))
            return
        while self.time.now < until and self.time.step(until):
            until = min(until, self.asked)

    def run(self, call: Callable[[], object]) -> None:
        call()

    def stop(self) -> None:
        pass

    def join(self, timeout: float) -> bool:
        return True


@dataclass
class Accepted:
    """A record that produce() took."""

    number: int
    topic: str
    partition: int
    key: bytes | None
    at: float
    reports: list[KafkaError | None] = field(default_factory=list)
    placed: int | None = None
    acknowledged: int | None = None
    """In which partition, as its native producer told the library."""
    ended: float | None = None
    """When its report was run."""

    @property
    def error(self) -> KafkaError | None:
        """What its report said."""
        return self.reports[0] if self.reports else None


class RuleError(AssertionError):
    """A rule that must always hold did not. Remembered, because a callback may be where it is found."""

    first: RuleError | None = None

    def __init__(self, text: str) -> None:
        super().__init__(text)
        RuleError.first = RuleError.first or self


class Rig:
    """Drive `producer`; each judgement raises RuleError. `told`: what the library was told, leaders and deadlines."""

    def __init__(self, cluster: ScriptedCluster, config: dict[str, Any]) -> None:
        self.cluster = cluster
        self.time = cluster.time
        self.natives: list[FakeNative] = []
        self.records: dict[bytes, Accepted] = {}
        self._open: dict[bytes, Accepted] = {}
        """Those of them that have not ended."""
        self.refused = 0
        self.told_leader: dict[TopicPartition, int] = {}
        self.told_epoch: dict[TopicPartition, int] = {}
        self.told_deadline: dict[int, float] = {}
        self.told_window: dict[TopicPartition, tuple[int, int]] = {}
        self.ordering = config.get("safeproducer.ordering", "partition")
        self.renews = config.get("safeproducer.fatal") == "renew"
        self.raising: list[BaseException] = []
        self.raised = 0
        self.producing: list[tuple[str, int]] = []
        self.limit = config.get("queue.buffering.max.messages", 100_000)
        self.only_errors = bool(config.get("delivery.report.only.error"))
        """Then a delivered record has no report: it is one that was acknowledged, and has none."""
        self.timeout = config["message.timeout.ms"] / 1000
        self.lossy = False
        """Whether a request or an answer was lost, so that a broker may be held for dead."""
        self.closed = False
        self._numbers = itertools.count()
        self.producer = SafeProducer({"bootstrap.servers": f"virtual-{next(_ids)}:9092", **config})
        self.engine: Any = engine_of(self.producer)
        self.dispatcher: Any = self.engine.dispatcher
        self.engine.events.notifications.turn_failed = _raise

    # --- seen by the fake client ---------------------------------------------------------------------

    def native(self, config: dict[str, Any]) -> FakeNative:
        made = FakeNative(config, self.cluster, self)
        self.natives.append(made)
        return made

    def handed_over(self, native: FakeNative, topic: str, partition: int, value: Any) -> None:
        """Rule 4: not to a broker whose deadline is known and not past; and none of its deadlines ever moves back."""
        node = self.told_leader.get((topic, partition))
        until = max(self.told_deadline.values(), default=0.0) if node is None else self.told_deadline.get(node, 0.0)
        if until > self.time.now:
            raise RuleError(
                f"rule 4: {value!r} to {topic} [{partition}] of {node}, {until - self.time.now:.3f} s early"
            )
        self._check_budget(native, (topic, partition))
        record = self.records.get(value)
        if record is not None and self.has_ended(record):
            raise RuleError(f"rule 7: {value!r} is handed over after its report")

    def _check_budget(self, native: FakeNative, tp: TopicPartition) -> None:
        """Rules 1 to 3: no batch more than the leader is known to remember, over all lanes, and 5 when it is not."""
        if not native.fed or not native.begins(tp):
            return
        under_way = sum(other.batches(tp) for other in self.natives if other.fed)
        node, size = self.told_window.get(tp, (None, LEAST))
        allowed = size if node is not None and node == self.told_leader.get(tp) else LEAST
        if under_way >= allowed:
            raise RuleError(f"rule 2: {under_way} batches of {tp} under way, {allowed} allowed by {node}")

    def told_of_window(self, node: int, topic: str, size: int | None) -> None:
        """What a leader announced, to the library at the same moment."""
        for tp, leader in self.told_leader.items():
            if tp[0] == topic and leader == node:
                self.told_window[tp] = (node, size or LEAST)

    def acknowledged(self, value: Any, partition: int) -> None:
        """The library is told now."""
        if (record := self.records.get(value)) is not None:
            record.acknowledged = partition
            if self.only_errors:
                self._open.pop(value, None)

    def throttled(self, node: int, until: float) -> None:
        self.told_deadline[node] = max(until, self.told_deadline.get(node, 0.0))

    def told_of_leader(self, tp: TopicPartition, leader: int, epoch: int) -> None:
        """By whichever native producer: the highest epoch is the youngest, as no topic is made anew here."""
        if epoch < self.told_epoch.get(tp, -1):
            return
        self.told_epoch[tp] = epoch
        if leader >= 0:
            if self.told_leader.get(tp) != leader:
                self.told_window.pop(tp, None)  # rule 3
            self.told_leader[tp] = leader
        else:
            self.told_leader.pop(tp, None)

    # --- what an application does ---------------------------------------------------------------------

    def produce(self, topic: str, partition: int = -1, key: bytes | None = None) -> bool:
        """Whether it was accepted."""
        number = next(self._numbers)
        value = b"%d" % number
        record = Accepted(number, topic, partition, key, self.time.now)
        self._accept({value: record})
        try:
            self.producer.produce(topic, value, key, partition, on_delivery=self._report)
        except Exception as error:
            self._forget([value])
            if not isinstance(error, QueueFullError):
                raise
            return False
        self.check_share(topic, partition)
        return True

    def accept(self, count: int) -> None:
        """Produce so many records, which must be accepted."""
        for _ in range(count):
            assert self.produce("a", 0)

    def silence(self) -> None:
        """Deliver a record and hear of it, by statistics, too; broker 1, the leader, answers no more from then on."""
        self.accept(1)
        self.flush(2)
        self.report_queue(2)
        self.cluster.brokers[1].silent = True

    def produce_batch(self, topic: str, partition: int, count: int) -> int:
        """How many were accepted."""
        accepted = [Accepted(next(self._numbers), topic, partition, None, self.time.now) for _ in range(count)]
        messages: list[dict[str, Any]] = [{"value": b"%d" % record.number} for record in accepted]
        self._accept({message["value"]: record for message, record in zip(messages, accepted, strict=True)})
        taken = self.producer.produce_batch(topic, messages, partition, on_delivery=self._report)
        self._forget([message["value"] for message in messages[taken:]])
        if taken:
            self.check_share(topic, partition)
        return taken

    def produce_block(self, topic: str, partition: int, key: bytes | None, count: int) -> bool:
        """Whether all of them were accepted; none is where they have to go one by one."""
        engine, intake = self.engine, self.dispatcher.intake
        if engine.route.send != intake.send or partition >= engine.updates.holds.partitions.count(topic):
            return False
        accepted = [Accepted(next(self._numbers), topic, partition, key, self.time.now) for _ in range(count)]
        values = [b"%d" % record.number for record in accepted]
        self._accept(dict(zip(values, accepted, strict=True)))
        sizes = [len(value) + len(key or b"") for value in values]
        block = Block(topic, partition, list(values), [key] * count, sizes)
        taken = (
            produce_block(engine_of(self.producer), block, self._report)
            if self.only_errors
            else self._send_block(block)
        )
        if taken:
            self.check_share(topic, partition)
        else:
            self._forget(values)
        return taken

    def _accept(self, records: dict[bytes, Accepted]) -> None:
        self.records |= records
        self._open |= records

    def _forget(self, refused: list[bytes]) -> None:
        self.refused += len(refused)
        for value in refused:
            del self.records[value]
            self._open.pop(value, None)

    def _send_block(self, block: Block) -> bool:
        """As produce_block(), which takes none where each record has a report."""
        account = self.engine.counters.open(block.topic)
        account.accepted += len(block.sizes)
        try:
            taken: bool = self.dispatcher.intake.send_block(*block, account.bind(self._report)[1])
        except QueueFullError:
            taken = False
        if not taken:
            account.accepted -= len(block.sizes)
        return taken

    def _report(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        record = self.records.get(value)
        if record is None:
            raise RuleError(f"rule 7: a report of {value!r}, which was not accepted")
        record.reports.append(error)
        self._open.pop(value, None)
        record.ended = self.time.now
        record.placed = message.partition()
        if len(record.reports) > 1:
            raise RuleError(f"rule 7: {value!r} was reported twice: {record.reports}")
        if self.only_errors and error is None:
            raise RuleError(f"rule 7: {value!r} was reported, though it is delivered")
        if error is not None and not isinstance(error, DeliveryError):
            raise RuleError(f"rule 7: {value!r} failed without an outcome: {error}")
        if self.producing:
            self.produce(*self.producing.pop())
        if self.raising:
            self.raised += 1
            raise self.raising.pop()

    def expecting_raise(self, call: Callable[[], Any]) -> Any:
        """Rule 10: what a callback raised leaves the call it ran in, and nothing else does."""
        before = self.raised
        try:
            answer = call()
        except _PlantedError:
            if self.raised == before:
                raise RuleError("rule 10: an exception came twice") from None
            return None
        if self.raised != before:
            raise RuleError("rule 10: the exception of a callback was swallowed")
        return answer

    def poll(self, timeout: float) -> None:
        self.expecting_raise(lambda: self.producer.poll(timeout))
        self.engine.sender.let_work()  # the thread that it stands for comes at once

    def flush(self, timeout: float) -> None:
        self.expecting_raise(lambda: self.producer.flush(timeout))

    def flush_round(self, serving: Serving, timeout: float) -> None:
        """A flush() serves the direct lane for so long, and the thread works beside it."""
        _FLUSH_ROUND(serving, timeout)
        self.engine.sender.turn()

    def purge(self) -> None:
        self.producer.purge()

    def report_queue(self, seconds: float) -> None:
        """The application does something else; the sender comes when it wants to, and late where it only polls."""
        sender, end, looks = self.engine.sender, self.time.now + seconds, 0
        while self.time.now < end:
            due = min(sender.turn(), sender.asked)
            looks = looks + 1 if due - self.time.now < POLLS else 0
            if looks > POLLS_IN_A_ROW:
                self.time.pass_(min(LATE, end - self.time.now))
            else:
                sender.rest(min(end, due, self.time.now + 0.25))

    def plant_raise(self) -> None:
        self.raising.append(_PlantedError("planted"))

    # --- judgement ---------------------------------------------------------------------

    @property
    def open_records(self) -> list[Accepted]:
        return list(self._open.values())

    def has_ended(self, record: Accepted) -> bool:
        """Whether it has its report, or needs none."""
        return bool(record.reports) or (self.only_errors and record.acknowledged is not None)

    def check_remembered(self) -> None:
        if RuleError.first is not None:
            raise RuleError.first

    def check_bound(self) -> None:
        """Rule 9: records count until their callback ran; those that ended unknown do not count any more."""
        count = self.producer.snapshot().unresolved if self.only_errors else len(self.open_records)
        if self.limit and count > self.limit:
            raise RuleError(f"rule 9: {count} records without a report, {self.limit} allowed")
        record_buffer, rejections = self.dispatcher.record_buffer, self.dispatcher.quota_retry.rejections
        in_lanes = sum(uses for each in self.dispatcher.lanes for batch in each.batches for _, uses in batch.runs)
        records = record_buffer.waiting + in_lanes + rejections.count + rejections.remembered
        if (uses := sum(record_buffer.numbers.uses.values())) != records:
            raise RuleError(f"rule 9: callbacks are kept for {uses} records, and there are {records}")

    def check_share(self, topic: str, partition: int) -> None:
        """Rule 9: a throttled broker's records take half of the buffer at most while another broker is well."""
        node, now = self.told_leader.get((topic, partition)), self.time.now
        # The leader that a moved partition had before seems silent to who was not told yet.
        moved = {leader for tp, leader in self.told_leader.items() if self.cluster.leader_epochs[tp]}
        well = set(self.told_leader.values()) - set(self.told_deadline) - moved
        if node is None or self.told_deadline.get(node, 0.0) <= now or not well or self.lossy:
            return
        if self.engine.updates._arrived:  # the sender is about to read who leads now
            return
        held = sum(
            count
            for tp, (count, *_) in self.dispatcher.record_buffer.waits().items()
            if self.told_leader.get(tp) == node
        )
        if held > self.limit / 2 + 1:
            raise RuleError(f"rule 9: {held} of {self.limit} records wait for {node}, though {well} are well")

    def check_account(self) -> None:
        """Rule 7, as the library tells it: accepted = delivered + failed + unresolved."""
        snapshot = self.producer.snapshot()
        reports = [record.reports[0] for record in self.records.values() if record.reports]
        delivered = self._delivered(snapshot) if self.only_errors else sum(error is None for error in reports)
        failed = Counter(error.outcome for error in reports if error is not None)
        unresolved = len(self.records) - delivered - failed.total()
        expected = (len(self.records), delivered, failed.total(), unresolved)
        found = (snapshot.accepted, snapshot.delivered, snapshot.failed, snapshot.unresolved)
        if found != expected or unresolved < 0:
            raise RuleError(f"rule 7: {snapshot}, but {expected}")
        if snapshot.not_written < failed[Outcome.NOT_WRITTEN] or snapshot.unknown < failed[Outcome.UNKNOWN]:
            raise RuleError(f"rule 7: {snapshot.not_written}, {snapshot.unknown}, but {failed}")

    def _delivered(self, snapshot: Snapshot) -> int:
        """As it says, where nobody else is told: at most what the library knows of, and in the end all of that."""
        known = Counter((one.topic, one.acknowledged) for one in self.records.values() if not one.reports)
        for row in snapshot.partitions:
            acknowledged = known[row.topic, row.partition]
            if row.delivered > acknowledged or (self.closed and row.delivered < acknowledged):
                raise RuleError(f"rule 7: {row}, but {known}")
        return snapshot.delivered

    def check_reasons(self) -> None:
        """Rule 4: no partition waits because of another broker's throttle time."""
        now = self.time.now
        asked = self.engine.sender.asked <= now or self.dispatcher.schedule.alarm.rings(now)
        if asked or self.engine.updates._arrived:  # the sender is about to look again
            return
        ever = set(self.told_deadline)
        for (topic, partition), (_, why, reason) in self.dispatcher.record_buffer.waits().items():
            node = self.told_leader.get((topic, partition))
            if reason in THROTTLING and node is not None and node not in ever:
                raise RuleError(
                    f"rule 4: {topic} [{partition}] of {node} {why!r} at {now}, though only {ever} throttle"
                )

    def close(self, timeout: float | None = CLOSE_PATIENCE) -> None:
        """Rules 6, 7 and 8, once everything has ended; a rule that was broken before is enough."""
        self.check_remembered()
        self.raising.clear()
        self.producing.clear()
        self.closed = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # of lost records, which are counted below
            self.producer.close(timeout)
        self.check_remembered()
        self.cluster.heal()
        self.time.pass_(600.0)  # what is still on its way arrives
        self.check_ends()
        self.check_order()

    def check_ends(self) -> None:
        written = Counter(value for values in self.cluster.log.values() for value in values)
        if self.only_errors:
            self.check_account()
            if unresolved := self.producer.snapshot().unresolved:
                raise RuleError(f"rule 8: {unresolved} records are not counted")
        for value, record in self.records.items():
            if not self.has_ended(record):
                raise RuleError(f"rule 8: {value!r} has no report: {record}")
            error, count = record.error, written[value]
            allowed = (1,) if error is None else (0,) if error.outcome is Outcome.NOT_WRITTEN else (0, 1)
            if count not in allowed:
                ended = "delivered" if error is None else f"{error.outcome} ({error.name()}, {error.str()})"
                raise RuleError(f"rule 7: {value!r} is {ended} and {count} times in the log: {record}")
        unknown = set(written) - set(self.records)
        if unknown:
            raise RuleError(f"rule 7: refused, and yet in the log: {unknown}")
        if any(native.expired_inside for native in self.natives):
            raise RuleError("rule 7: librdkafka expired records, which starts a new epoch for every partition")

    def check_order(self) -> None:
        """Rule 6: delivered records of a partition are in the order they were accepted in.

        One of unknown outcome may be there late, but not behind one that was accepted after it and delivered; unless
        its native producer failed.
        """
        for tp, values in self.cluster.log.items():
            newest: dict[object, int] = defaultdict(lambda: -1)
            for value in values:
                record = self.records[value]
                ordered = self.ordering == "partition" or (self.ordering == "key" and record.key is not None)
                group = record.key if self.ordering == "key" else None
                if record.error is not None and self.renews:
                    continue
                if ordered and newest[group] > record.number:
                    raise RuleError(f"rule 6: in {tp} {newest[group]} comes before {record.number}: {values}")
                if record.error is None:
                    newest[group] = record.number


def _raise(error: BaseException) -> None:
    """What the sender survives in an application is a failure here."""
    raise error


class _PlantedError(Exception):
    """Raised by a callback."""


class HandMetadata:
    """Answers like Metadata, without its thread: `answers_after` seconds later."""

    answers_after = 0.02

    first = SimpleNamespace(open=False, unreached=False, again=lambda: None)

    def __init__(self, lanes: Any, heard: Any, wake: Any, *_: Any) -> None:
        self._lanes = lanes
        self._heard = heard
        self._wake = wake
        self._asked: set[tuple[str, int | None]] = set()

    def want(self, topic: str) -> None:
        if lanes := self._lanes():
            self._ask(topic, None, next(iter(lanes.values())))

    look_at = want

    def tell(self, topic: str, lanes: Iterable[int]) -> None:
        for number in lanes:
            self._asked.discard((topic, number))
            self._ask(topic, number, self._lanes()[number])

    def _ask(self, topic: str, lane: int | None, client: Any) -> None:
        native: FakeNative = getattr(client, "native", client)
        if (topic, lane) not in self._asked:
            self._asked.add((topic, lane))
            asked_at = native.time.now
            native.time.after(self.answers_after, lambda: self._answer(topic, lane, native, asked_at))

    def _answer(self, topic: str, lane: int | None, native: FakeNative, asked_at: float) -> None:
        self._asked.discard((topic, lane))
        if lane is not None:
            native.hears_of(topic)
        found = native.cluster.topic(topic)
        for number, leader in found.items():
            native.observer.told_of_leader((topic, number), leader, native.cluster.leader_epochs[topic, number])
        self._heard(topic, lane, asked_at, native.cluster.replicas([topic])[topic])
        self._wake(0.0)

    def look(self, topic: str | None, now: float) -> float:
        return float("inf")

    def stop(self) -> None:
        pass

    def join(self, timeout: float) -> bool:
        return True


ANSWERED = (windows.WHAT, replication.REPLICAS, replication.CONFIGS)


class HandAsker(Asker):
    """Asks without a thread; `answers_after` seconds later the answer is what the cluster says."""

    answers_after = 0.02

    def bind(self, cluster: ScriptedCluster, rig: Callable[[], Rig]) -> HandAsker:
        self._cluster = cluster
        self._rig = rig
        self._asking: set[Question] = set()
        return self

    def start(self) -> None:
        for question in self._wanted:
            due = self._due(question, self._wanted[question][2]) <= self._cluster.time.now
            if due and question.what in ANSWERED and question not in self._asking:
                self._asking.add(question)
                self._cluster.time.after(self.answers_after, partial(self._answer, question))

    def _answer(self, question: Question) -> None:
        self._asking.discard(question)
        node, topic = question.node, question.topic
        if question.what == windows.WHAT:
            assert node is not None
            self._rig().told_of_window(node, topic, self._cluster.windows.get((node, topic)))
        self.ask(question)


@contextmanager
def rigged(
    config: dict[str, Any], round_trips: dict[int, float] | None = None, partitions: dict[str, int] | None = None
) -> Iterator[Rig]:
    """A Rig; its clock and its clients stand in for the real ones until the end of the block, where it is closed."""
    time = VirtualTime()
    cluster = ScriptedCluster(time, round_trips or {1: 0.002, 2: 0.002, 3: 0.002}, partitions or {"a": 3, "b": 2})
    rig: Rig
    RuleError.first = None

    def native(config: dict[str, Any]) -> FakeNative:
        return rig.native(config)

    def flush_round(serving: Serving, timeout: float) -> None:
        rig.flush_round(serving, timeout)

    with ExitStack() as stack:
        # Of the module: Hypothesis gives it a seed for each example.
        stack.enter_context(mock.patch.multiple(randomness, share=random.random, one_of=random.choice))
        stack.enter_context(mock.patch.multiple(clock, monotonic=time.monotonic, time=time.time))
        stack.enter_context(mock.patch.object(native_producers, "NativeProducer", native))
        stack.enter_context(mock.patch.object(assembly, "Sender", HandSender))
        stack.enter_context(mock.patch.object(HandSender, "time", time, create=True))
        stack.enter_context(mock.patch.object(assembly, "Metadata", HandMetadata))
        stack.enter_context(
            mock.patch.object(
                assembly, "Asker", lambda _, *rest: HandAsker(lambda: cluster, *rest).bind(cluster, lambda: rig)
            )
        )
        stack.enter_context(mock.patch.object(Serving, "flush_round", flush_round))
        rig = Rig.__new__(Rig)
        rig.__init__(cluster, config)  # type: ignore[misc]
        try:
            yield rig
            if not rig.closed:
                rig.close()
        finally:
            rig.engine.route.state = "closed"
