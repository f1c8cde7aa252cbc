"""A record of a healthy partition waits in this process for no other partition's answer, whatever becomes of that one.

A state machine over 1 to 50 partitions of 1 to 5 brokers. Each partition may be refused by its leader for now, or its
leader be silent, slow or throttled, or there is no such topic; that changes all the time. A record is *judged* if its
partition was well all the while. Beside the producer a plain client gets the same records at the same moments, from
brokers that are the same: a FakeNative, whose connections take five requests at a time, too.

The bound: from produce() to the report a judged record takes at most the round trip of its leader for its own batch,
for each batch of its own partition that was before it, and for one that was under way; two lingers; and LOOKS. Or, if
that is longer, what it takes the plain client and LOOKS: then its leader's connection was not free.
"""

from __future__ import annotations

from contextlib import ExitStack
from math import ceil
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from safeproducer import HoldReason
from safeproducer.policy.types import NEVER, TopicPartition
from tests.pipeline.cluster import Broker, ScriptedCluster
from tests.pipeline.fake_native import FakeNative, NativeMessage, Toppar
from tests.pipeline.rig import Accepted, Rig, RuleError, rigged

LOOKS = 0.1
"""Seconds: looks of the sender, a question to a broker before a topic's first record, the next poll()."""
CHANGES = 0.6
"""Seconds more while a partition changes its lane: statistics of both lanes, each half a second old at most."""
SETTLES = 5.0
"""Seconds after which a partition that was not well counts as well again: half of that is a throttle time's probing."""
POLLS, LEAST = 0.02, 0.0005
MISSING = "missing"
NUMBERS = st.integers(0, 49)
NODES = st.integers(0, 4)


class PlainClient(FakeNative):
    """`ended`: when the report of each record was there."""

    def __init__(self, config: dict[str, Any], cluster: ScriptedCluster) -> None:
        quiet: dict[str, Any] = dict.fromkeys(("error_cb", "throttle_cb", "stats_cb"), lambda *_: None)
        super().__init__({**config, **quiet}, cluster, self)
        self.ended: dict[Any, float] = {}

    def handed_over(self, *_: object) -> None:
        """As a Rig is told."""

    throttled = told_of_leader = handed_over

    def _report(self, toppar: Toppar, message: NativeMessage, error: Any) -> None:
        self.ended[message.value] = self.time.now
        self._inside -= 1
        self._inside_bytes -= message.bytes


class HealthyMachine(RuleBasedStateMachine):
    """Subclasses choose the mode."""

    config: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.rig: Rig
        self._stack = ExitStack()
        self.sick: dict[TopicPartition, set[str]] = {}
        """Partition -> what is the matter with it."""
        self.well_from: dict[TopicPartition, float] = {}
        self.exempt: set[bytes] = set()
        self.allowed: dict[bytes, tuple[float, dict[HoldReason, float]]] = {}
        """Record -> seconds that it may take where its leader's connection is free."""

    @initialize(
        brokers=st.integers(1, 5),
        topics=st.lists(st.integers(1, 10), min_size=1, max_size=10),
        leaders=st.lists(NODES, min_size=1, max_size=50),
        round_trip=st.sampled_from([0.001, 0.02, 0.1]),
        linger=st.sampled_from([0, 5, 50]),
        batch=st.sampled_from([1, 3, 10, 1000]),
    )
    def start(
        self, brokers: int, topics: list[int], leaders: list[int], round_trip: float, linger: int, batch: int
    ) -> None:
        config: dict[str, Any] = {
            "message.timeout.ms": 900_000,
            "socket.timeout.ms": 10_000,
            "linger.ms": linger,
            "batch.num.messages": batch,
            **self.config,
        }
        round_trips = dict.fromkeys(range(1, brokers + 1), round_trip)
        sizes: dict[str, int] = {f"t{number}": size for number, size in enumerate(topics)}
        self.round_trip, self.linger, self.batch = round_trip, linger / 1000, batch
        self.rig = self._stack.enter_context(rigged(config, round_trips, sizes))
        self.time = self.rig.time
        beside = ScriptedCluster(self.time, round_trips, sizes)
        self.clusters = self.rig.cluster, beside
        self.tps = sorted(beside.leaders)[:50]
        for number, tp in enumerate(self.tps):
            for cluster in self.clusters:
                cluster.leaders[tp] = 1 + leaders[number % len(leaders)] % brokers
        for cluster in self.clusters:
            cluster.propagation = 30.0
        self.sick = {tp: set() for tp in self.tps}
        self.well_from = dict.fromkeys(self.tps, 0.0)
        self.plain = PlainClient(config, beside)

    # --- the application ---------------------------------------------------------------------

    def _produce(self, tp: TopicPartition, key: bytes | None = None) -> None:
        now, before = self.time.now, len(self.rig.records)
        self.rig.produce(*tp, key)
        value = b"%d" % before
        self.plain.produce(tp[0], value, key, tp[1], None)
        if self.sick.get(tp, True) or now < self.well_from[tp]:
            self.exempt.add(value)
            return
        mine = [record for record in self.rig.open_records if (record.topic, record.partition) == tp]
        if any(b"%d" % record.number in self.exempt for record in mine):
            self.exempt.add(value)
            return
        allowed = (ceil(len(mine) / self.batch) + 1) * self._turn(tp) + 2 * self.linger + LOOKS
        self.allowed[value] = allowed, self._waits(tp)

    def _turn(self, tp: TopicPartition) -> float:
        """Seconds until each partition of its leader had a request, five at a time."""
        leaders = self.clusters[0].leaders
        return ceil(sum(leader == leaders[tp] for leader in leaders.values()) / 5) * self.round_trip

    def _waits(self, tp: TopicPartition) -> dict[HoldReason, float]:
        """Seconds for which this partition waited, by reason."""
        times, now = self.rig.engine.updates.holds.times, self.time.now
        return {why: waits * now + seconds for (of, why), (waits, seconds) in times.items() if of == tp}

    @rule(number=NUMBERS, count=st.integers(1, 30), key=st.sampled_from([None, b"x", b"y"]))
    def produce(self, number: int, count: int, key: bytes | None) -> None:
        """To one partition."""
        for _ in range(count):
            self._produce(self.tps[number % len(self.tps)], key)

    @rule(count=st.integers(1, 2))
    def produce_everywhere(self, count: int) -> None:
        """So many records to each partition."""
        for tp in self.tps * count:
            self._produce(tp)

    @rule(seconds=st.sampled_from([0.5, 2.0, 6.0]), every=st.sampled_from([0.05, 0.3]))
    def go_on(self, seconds: float, every: float) -> None:
        """A record for each partition now and then."""
        end = self.time.now + seconds
        while self.time.now < end:
            self.produce_everywhere(1)
            self.serve(every)

    @rule()
    def produce_to_no_topic(self) -> None:
        """Both wait for it."""
        self._produce((MISSING, 0))

    @rule(seconds=st.sampled_from([0.01, 0.1, 0.6, 2.0]))
    def serve(self, seconds: float) -> None:
        """It polls all the time, and the sender comes when it wants to."""
        self._serve(seconds, POLLS)

    @rule(seconds=st.sampled_from([3.0, 12.0]))
    def rest(self, seconds: float) -> None:
        """And produces nothing."""
        self._serve(seconds, 5 * POLLS)

    def _serve(self, seconds: float, most: float) -> None:
        sender, end = self.rig.engine.sender, self.time.now + seconds
        while (left := end - self.time.now) > LEAST:
            due = min(sender.turn(), sender.asked)
            self.rig.poll(min(left, most, max(LEAST, due - self.time.now)))

    # --- what is the matter with some ----------------------------------------------------------

    def _falls(self, tp: TopicPartition, ill: str) -> None:
        self.sick[tp].add(ill)
        self.exempt.update(b"%d" % one.number for one in self.rig.open_records if (one.topic, one.partition) == tp)

    def _recovers(self, tp: TopicPartition, ill: str) -> None:
        if ill in self.sick[tp]:
            self.sick[tp].discard(ill)
            self.well_from[tp] = self.time.now + SETTLES

    @rule(number=NUMBERS)
    def refuse(self, number: int) -> None:
        """Its leader has too few replicas in sync."""
        tp = self.tps[number % len(self.tps)]
        self._falls(tp, "refused")
        for cluster in self.clusters:
            cluster.refused.add(tp)

    @rule(number=NUMBERS)
    def accept(self, number: int) -> None:
        """As many as are needed."""
        tp = self.tps[number % len(self.tps)]
        self._recovers(tp, "refused")
        for cluster in self.clusters:
            cluster.refused.discard(tp)

    def _brokers(self, node: int) -> list[tuple[ScriptedCluster, Broker]]:
        node = 1 + node % len(self.clusters[0].brokers)
        return [(cluster, cluster.brokers[node]) for cluster in self.clusters]

    def _led(self, node: int) -> list[TopicPartition]:
        node = 1 + node % len(self.clusters[0].brokers)
        return [tp for tp in self.tps if self.clusters[0].leaders[tp] == node]

    @rule(node=NODES)
    def silence(self, node: int) -> None:
        """Its connection stands, and it answers nothing."""
        for tp in self._led(node):
            self._falls(tp, "silent")
        for _, broker in self._brokers(node):
            broker.silent = True

    @rule(node=NODES, round_trip=st.sampled_from([0.5, 1.2, 3.0]))
    def slow(self, node: int, round_trip: float) -> None:
        """It takes its time."""
        for tp in self._led(node):
            self._falls(tp, "slow")
        for _, broker in self._brokers(node):
            broker.round_trip = round_trip

    @rule(node=NODES, seconds=st.sampled_from([0.3, 2.0]))
    def throttle(self, node: int, seconds: float) -> None:
        """For so long with each answer."""
        for tp in self._led(node):
            self._falls(tp, "throttled")
        for _, broker in self._brokers(node):
            broker.throttle = seconds

    @rule(node=NODES)
    def cure(self, node: int) -> None:
        """Of all that."""
        for cluster, broker in self._brokers(node):
            broker.throttle, broker.round_trip = 0.0, self.round_trip
            cluster.wake(broker)
        for tp in self._led(node):
            for ill in ("silent", "slow", "throttled"):
                self._recovers(tp, ill)

    @rule(number=NUMBERS, node=NODES)
    def move_leader(self, number: int, node: int) -> None:
        """From and to whichever broker."""
        tp = self.tps[number % len(self.tps)]
        self._falls(tp, "moved")
        to = 1 + node % len(self.clusters[0].brokers)
        for cluster in self.clusters:
            cluster.move(tp, to)
        broker = self.clusters[0].brokers[to]
        ills = {"silent": broker.silent, "slow": broker.round_trip > self.round_trip, "throttled": broker.throttle > 0}
        self.sick[tp] = {ill for ill, is_so in ills.items() if is_so} | (self.sick[tp] & {"refused"})
        self.well_from[tp] = self.time.now + SETTLES

    # --- the rule -------------------------------------------------------------------------------

    @invariant()
    def healthy(self) -> None:
        """See the module."""
        if not hasattr(self, "rig"):
            return
        self.rig.check_remembered()
        for value, (allowed, before) in tuple(self.allowed.items()):
            record = self.rig.records[value]
            if value in self.exempt:
                del self.allowed[value]
            else:
                self._judge(record, value, allowed, before)
        self._check_reasons()

    def _judge(self, record: Accepted, value: bytes, allowed: float, before: dict[HoldReason, float]) -> None:
        if record.error is not None:
            raise RuleError(f"{record} failed, though its partition is well")
        took = (self.time.now if record.ended is None else record.ended) - record.at
        ended = self.plain.ended.get(value)
        if record.ended is not None:
            del self.allowed[value]
        if took <= allowed:
            return
        waits = self._waits((record.topic, record.partition))
        waited = {why: seconds - before.get(why, 0.0) for why, seconds in waits.items() if seconds > before.get(why, 0.0)}
        allowed += min(CHANGES, waited.get(HoldReason.LANE_CHANGE, 0.0))
        if took <= allowed:
            return
        if ended is None:
            if record.ended is None:
                return
            ended = self.time.now
        if took > (plain := ended - record.at) + LOOKS + self._turn((record.topic, record.partition)):
            raise RuleError(
                f"healthy: {record} of {self.clusters[0].leaders[record.topic, record.partition]} took {took:.3f} s, "
                f"allowed are {allowed:.3f}; a plain client took {plain:.3f}. Waited: {waited}. {self._state()}"
            )

    def _state(self) -> str:
        return f"sick: { {tp: ills for tp, ills in self.sick.items() if ills} }; {self.rig.dispatcher.record_buffer.waits()}"

    def _check_reasons(self) -> None:
        """Nor is the leader of a healthy partition called silent."""
        for tp, (_, why, reason) in self.rig.dispatcher.record_buffer.waits().items():
            well = not self.sick.get(tp, True) and self.time.now >= self.well_from[tp]
            if well and reason in (HoldReason.LEADER_SILENT, HoldReason.BACKLOG):
                mine = [b"%d" % one.number for one in self.rig.open_records if (one.topic, one.partition) == tp]
                if not self.exempt.intersection(mine):
                    raise RuleError(f"healthy: {tp} {why}")

    def teardown(self) -> None:
        try:
            if hasattr(self, "rig") and RuleError.first is None:
                self.serve(2.0)
                self.healthy()
        finally:
            self._stack.close()
