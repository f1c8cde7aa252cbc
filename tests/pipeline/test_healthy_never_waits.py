"""A record of a healthy partition waits in this process for no other partition's answer, whatever becomes of that one.

A state machine over 1 to 50 partitions of 1 to 5 brokers. Each partition may be refused by its leader for now, or its
leader be silent, slow or throttled, or there is no such topic; that changes all the time. A record is *judged* if its
partition was well all the while. Beside the producer a plain client gets the same records at the same moments, from
brokers that are the same: a FakeNative, whose connections take five requests at a time, too.

The bound: from produce() to the report a judged record takes at most the round trip of its leader for its own batch,
for each batch of its own partition that was before it, for one that was under way, and without linger for one that left
with its first record; two lingers; and LOOKS. Or, if
that is longer, what it takes the plain client and LOOKS: then its leader's connection was not free.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from math import ceil
from typing import Any, ClassVar
from unittest import mock

import pytest
from confluent_kafka import KafkaException
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from safeproducer import HoldReason
from safeproducer.pipeline.cluster.cluster_view import ClusterView, Leader
from safeproducer.pipeline.dispatch.dispatcher import Dispatcher
from safeproducer.policy.backlog import Backlogs
from safeproducer.policy.probation import WAITS, Probation
from safeproducer.policy.types import TopicPartition
from tests.effort import effort
from tests.pipeline.cluster import Broker, ScriptedCluster
from tests.pipeline.fake_native import FakeNative, NativeMessage, Toppar
from tests.pipeline.rig import Accepted, Rig, RuleError, rigged

LOOKS = 0.2
"""Seconds: looks of the sender, a question to a broker before a topic's first record, the next poll()."""
CHANGES = 0.6
"""Seconds more while a partition changes its lane: statistics of both lanes, each half a second old at most."""
SETTLES = 5.0
"""Seconds after which a partition that was not well counts as well again: half of that is a throttle time's probing."""
TRIGGERS = 0.02
"""Seconds between two flush triggers of a batch lane."""
POLLS, LEAST = 0.02, 0.0005
MISSING = "missing"
NUMBERS = st.integers(0, 49)
NODES = st.integers(0, 4)


def served(rig: Rig, seconds: float, most: float = POLLS) -> None:
    """By an application that polls all the time, while the sender comes when it wants to."""
    sender, end = rig.engine.sender, rig.time.now + seconds
    while (left := end - rig.time.now) > LEAST:
        due = min(sender.turn(), sender.asked)
        rig.poll(min(left, most, max(LEAST, due - rig.time.now)))


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

    config: ClassVar[dict[str, Any]] = {"safeproducer.mode": "auto"}

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
        round_trip=st.sampled_from([0.001, 0.02, 0.1, 0.3]),
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
        now = self.time.now
        self.rig.produce(*tp, key)
        value = next(reversed(self.rig.records))
        self.plain.produce(tp[0], value, key, tp[1], None)
        if self.sick[tp] or now < self.well_from[tp]:
            self.exempt.add(value)
            return
        mine = [record for record in self.rig.open_records if (record.topic, record.partition) == tp]
        if any(b"%d" % record.number in self.exempt for record in mine):
            self.exempt.add(value)
            return
        batches = ceil(len(mine) / self.batch) + (1 if self.linger else 2)
        allowed = batches * self._turn(tp) + 2 * self.linger + LOOKS
        self.allowed[value] = allowed, self._waits(tp)

    def _turn(self, tp: TopicPartition) -> float:
        """Seconds until each partition of its leader had a request, five at a time.

        By a batch lane twice: after a flush trigger that filled the connection the others wait for the next one.
        """
        leaders = self.clusters[0].leaders
        of_it = sum(leader == leaders[tp] for leader in leaders.values())
        return self.round_trip if of_it <= 5 else 2 * ceil(of_it / 5) * max(self.round_trip, TRIGGERS)

    def _waits(self, tp: TopicPartition) -> dict[HoldReason, float]:
        """Seconds for which this partition waited, by reason."""
        times, now = self.rig.engine.updates.holds.times, self.time.now
        return {why: waits * now + seconds for (of, why), (waits, seconds) in times.items() if of == tp}

    @rule(number=NUMBERS, count=st.integers(1, 30), key=st.sampled_from([None, b"x", b"y"]))
    def produce(self, number: int, count: int, key: bytes | None) -> None:
        for _ in range(count):
            self._produce(self.tps[number % len(self.tps)], key)

    @rule(count=st.integers(1, 2))
    def produce_everywhere(self, count: int) -> None:
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
        """Both wait for it, and refuse records after a while."""
        for produce in (partial(self.rig.produce, MISSING, 0), partial(self.plain.produce, MISSING, b"", None, 0)):
            with suppress(KafkaException):
                produce()

    @rule(seconds=st.sampled_from([0.01, 0.1, 0.6, 2.0]))
    def serve(self, seconds: float) -> None:
        """It polls all the time, and the sender comes when it wants to."""
        served(self.rig, seconds)

    @rule(seconds=st.sampled_from([3.0, 12.0]))
    def rest(self, seconds: float) -> None:
        served(self.rig, seconds, 5 * POLLS)

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

    @rule(node=NODES)
    def refuse_most(self, node: int) -> None:
        """All that a broker leads, but for one."""
        for tp in self._led(node)[1:]:
            self.refuse(self.tps.index(tp))

    @rule(number=NUMBERS)
    def accept(self, number: int) -> None:
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
        for tp in self._led(node):
            self._falls(tp, "slow")
        for _, broker in self._brokers(node):
            broker.round_trip = round_trip

    @rule(node=NODES, seconds=st.sampled_from([0.3, 2.0]))
    def throttle(self, node: int, seconds: float) -> None:
        for tp in self._led(node):
            self._falls(tp, "throttled")
        for _, broker in self._brokers(node):
            broker.throttle = seconds

    @rule(node=NODES)
    def cure(self, node: int) -> None:
        for cluster, broker in self._brokers(node):
            broker.throttle, broker.round_trip = 0.0, self.round_trip
            cluster.wake(broker)
        for tp in self._led(node):
            for ill in ("silent", "slow", "throttled"):
                self._recovers(tp, ill)

    @rule(number=NUMBERS, node=NODES)
    def move_leader(self, number: int, node: int) -> None:
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
        waited = {
            why: seconds - before.get(why, 0.0) for why, seconds in waits.items() if seconds > before.get(why, 0.0)
        }
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
        sick = {tp: ills for tp, ills in self.sick.items() if ills}
        return f"Sick: {sick}; waiting: {self.rig.dispatcher.record_buffer.waits()}"

    def _check_reasons(self) -> None:
        """Nor is the leader of a healthy partition called silent."""
        for tp, (_, why, reason) in self.rig.dispatcher.record_buffer.waits().items():
            well = not self.sick.get(tp, True) and self.time.now >= self.well_from[tp]
            if well and reason in (HoldReason.LEADER_SILENT, HoldReason.BACKLOG):
                mine = [b"%d" % one.number for one in self.rig.open_records if (one.topic, one.partition) == tp]
                if not self.exempt.intersection(mine):
                    raise RuleError(f"healthy: {tp} {why}")

    def _end(self) -> None:
        """Cure all: close() would wait five minutes for those that are sick, which took nine tenths of the search."""
        cluster = self.clusters[0]
        cluster.refused.clear()
        for broker in cluster.brokers.values():
            broker.throttle, broker.round_trip = 0.0, min(self.round_trip, POLLS)
        cluster.heal()

    def teardown(self) -> None:
        try:
            if hasattr(self, "rig") and RuleError.first is None:
                self.serve(2.0)
                self.healthy()
                self._end()
        finally:
            self._stack.close()


class KeyedHealthyMachine(HealthyMachine):
    config: ClassVar[dict[str, Any]] = {"safeproducer.mode": "auto", "safeproducer.ordering": "key"}


class HeldHealthyMachine(HealthyMachine):
    config: ClassVar[dict[str, Any]] = {"safeproducer.mode": "held"}


class CrowdedMachine(HealthyMachine):
    """One broker, whose connection partitions wait for longer than an answer usually takes."""

    @initialize(batch=st.sampled_from([1, 10]), linger=st.sampled_from([0, 5]))
    def start(self, batch: int, linger: int) -> None:  # type: ignore[override]
        HealthyMachine.start(self, 1, [10] * 5, [0], 0.3, linger, batch)


class SpreadMachine(HealthyMachine):
    """Few partitions of three brokers: most bugs show within ten histories."""

    @initialize(
        topics=st.lists(st.integers(1, 4), min_size=2, max_size=4),
        round_trip=st.sampled_from([0.02, 0.1]),
        linger=st.sampled_from([0, 5]),
    )
    def start(self, topics: list[int], round_trip: float, linger: int) -> None:  # type: ignore[override]
        HealthyMachine.start(self, 3, topics, [0, 1, 2], round_trip, linger, 3)


@pytest.mark.timeout(0 if "FEED_EXAMPLES" in os.environ else 600)
@pytest.mark.parametrize("machine", [HealthyMachine, KeyedHealthyMachine, HeldHealthyMachine, CrowdedMachine])
def test_healthy_partitions_never_wait(machine: type[HealthyMachine]) -> None:
    asked = os.environ.get("FEED_EXAMPLES")
    run_state_machine_as_test(
        machine, settings=settings(effort(int(asked or "10"), 15), derandomize=asked is None, deadline=None)
    )


real_takes = Probation.takes


def within_one_budget(self: Probation, tp: TopicPartition, size: int, answers: tuple[int, int], now: float) -> int:
    taken = sum(self._most[0] - batch.records for batch in self._begun.values())
    return WAITS if self.open and taken >= self._most[0] else real_takes(self, tp, size, answers, now)


def after_another(self: Probation, tp: TopicPartition, size: int, answers: tuple[int, int], now: float) -> int:
    first = self._unanswered[0] if self.open and self._unanswered else tp
    return real_takes(self, tp, size, answers, now) if first == tp else WAITS


PLANTS: dict[str, tuple[type[HealthyMachine], Any, str, Any]] = {
    "a budget for all": (SpreadMachine, Probation, "takes", within_one_budget),
    "a partition that waits for another": (SpreadMachine, Probation, "takes", after_another),
    "lateness taken for silence": (CrowdedMachine, Backlogs, "silent",
        lambda self, now, patience, _: {
            tp for tp, row in self._by_tp.items() if row.history and now - row.advanced_at >= patience
        }),
    "a throttle time that holds all": (SpreadMachine, ClusterView, "leader_state",
        lambda self, _, now: Leader(None, self.throttle.deadline(None, now), self.throttle.probes(None, now))),
}  # fmt: skip


@pytest.mark.parametrize("bug", PLANTS)
def test_the_machine_finds_a_planted_bug(bug: str) -> None:
    machine, *planted = PLANTS[bug]
    with mock.patch.object(*planted), pytest.raises(RuleError, match="healthy"):
        run_state_machine_as_test(machine, settings=settings(effort(100, 20), deadline=None))


# --- what the machine found -------------------------------------------------------------------------------------------

REFUSED = ("r", 0)
CONFIG: dict[str, Any] = {"message.timeout.ms": 120_000, "socket.timeout.ms": 10_000, "linger.ms": 5}


@contextmanager
def beside_a_refused_one(config: dict[str, Any], round_trip: float = 0.002) -> Iterator[Rig]:
    """The leader of r [0] takes nothing of it, so that a lane is never empty. The topics a and n are well.

    Broker 1 leads the first partition of each, broker 2 the second.
    """
    with rigged(CONFIG | config, dict.fromkeys((1, 2, 3), round_trip), {"a": 3, "n": 3, "r": 5}) as rig:
        rig.cluster.refused.add(REFUSED)
        rig.produce(*REFUSED)
        yield rig
        rig.cluster.refused.clear()
        rig.cluster.brokers[1].throttle = 0.0


def test_a_new_topic_waits_for_no_throttle_time_of_another_broker() -> None:
    """Who leads it is asked for: until that is known it may be the broker that throttles."""
    with beside_a_refused_one({"safeproducer.mode": "auto"}) as rig:
        rig.cluster.brokers[1].throttle = 20.0
        rig.produce("a", 0)
        served(rig, 1.0)
        rig.produce("a", 1)  # the direct lane may have got n, too, as far as its last statistics tell
        rig.produce("n", 1)
        served(rig, 0.1)
        assert rig.open_records[-1].topic != "n"


def test_a_partition_that_the_direct_lane_never_had_changes_at_once() -> None:
    """Its statistics show no such topic, so it has nothing of it; it is never empty, as another one is refused."""
    with beside_a_refused_one({"safeproducer.mode": "auto", "safeproducer.ordering": "key"}, round_trip=0.1) as rig:
        rig.produce("a", 0)
        served(rig, 5.0)
        assert rig.engine.updates.holds.prefers_batches
        rig.produce("n", 1)
        served(rig, 2.0)
        assert rig.open_records[-1].topic != "n"


def test_refused_batches_take_up_no_connection() -> None:
    """They wait for another try inside librdkafka; others of that broker went on waiting for them."""
    config = {"safeproducer.mode": "held", "safeproducer.ordering": "key", "max.in.flight.requests.per.connection": 1}
    with beside_a_refused_one(config) as rig:
        served(rig, 4.0)
        for _ in range(3):
            rig.produce("a", 0)
            served(rig, 0.5)
        assert [record.topic for record in rig.open_records] == ["r"]


def test_a_batch_that_waited_for_its_turn_is_not_owed_an_answer_at_once() -> None:
    """For longer than is usual it was in no request, and its leader answered all the time."""
    round_trips, partitions = {1: 0.3}, {"a": 40}
    with rigged(CONFIG | {"safeproducer.mode": "held", "linger.ms": 50}, round_trips, partitions) as rig:
        for _ in range(60):
            for number in range(40):
                rig.produce("a", number)
            served(rig, 0.1)
            reasons = {reason for _, _, reason in rig.dispatcher.record_buffer.waits().values()}
            assert HoldReason.LEADER_SILENT not in reasons


def waits_beside(config: dict[str, Any], round_trip: float, seconds: float) -> tuple[float, int]:
    """The longest wait of records that are well, one each 50 ms, beside one each second that is refused; how many of
    them wait for a tenth of a second more than the rest."""
    with beside_a_refused_one({"message.timeout.ms": 8000, **config}, round_trip) as rig:
        end = rig.time.now + seconds
        for number in range(int(seconds * 20)):
            rig.produce("a", number % 3)
            if not number % 20:
                rig.produce(*REFUSED)
            served(rig, 0.05)
        found = [record for record in rig.records.values() if record.topic == "a" and record.at < end - 2]
        assert all(record.ended is not None and record.error is None for record in found)
        took = sorted((record.ended or end) - record.at for record in found)
        return took[-1], sum(each > took[len(took) // 2] + 0.1 for each in took)


@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_at_the_deadline_of_others_the_direct_lane_is_closed_for_less_than_a_second(ordering: str) -> None:
    """Once, while it is drained, purged, and its statistics are awaited; then while the partition changes its lane."""
    longest, late = waits_beside({"safeproducer.mode": "auto", "safeproducer.ordering": ordering}, 0.002, 30.0)
    assert longest < 1.0
    assert late < 40


@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_a_partition_that_is_refused_for_long_does_not_close_all_batch_lanes(ordering: str) -> None:
    """After the purge of a lane that has stalled its batches are alone, in one lane after the other: all were closed,
    and what was healthy failed."""
    longest, _ = waits_beside({"safeproducer.mode": "held", "safeproducer.ordering": ordering}, 0.05, 60.0)
    assert longest < 1.0


@pytest.mark.parametrize("ordering", ["partition", "key"])
@pytest.mark.parametrize("linger", [300, 1000])
def test_what_gathers_for_linger_is_not_purged_at_the_deadline_of_others(linger: int, ordering: str) -> None:
    """The lane was purged a quarter of a second after it was closed, and what had not left it failed."""
    config = {"safeproducer.mode": "auto", "safeproducer.ordering": ordering, "linger.ms": linger}
    longest, _ = waits_beside(config, 0.002, 30.0)
    assert longest < 2.0 + linger / 1000


def throttled_once(rig: Rig, seconds: float, within: float) -> None:
    """An answer of broker 1, which comes `within` that time, announces a throttle time; the next ones do not."""
    rig.cluster.brokers[1].throttle = seconds
    rig.produce("a", 0)
    served(rig, within)
    rig.cluster.brokers[1].throttle = 0.0


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("mode", ["auto", "held"])
def test_refused_batches_do_not_probe_for_good(mode: str, count: int) -> None:
    """After a throttle time a broker gets as much as one batch at a time, and one that is refused has no end."""
    config = {"safeproducer.mode": mode}
    with rigged(CONFIG | config, {1: 0.02}, {"a": 1, "r": count}) as rig:
        for number in range(count):
            rig.cluster.refused.add(("r", number))
        rig.produce("a", 0)
        served(rig, 2.0)
        throttled_once(rig, 10.0, 1.0)
        for number in range(count):
            rig.produce("r", number)
        rig.produce("a", 0)
        served(rig, 10.0 + count)
        assert [record.topic for record in rig.open_records] == ["r"] * count
        rig.cluster.refused.clear()


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_partitions_of_a_broker_that_is_probed_take_turns(mode: str) -> None:
    """One that always had more went again and again; the others waited for as long as it had."""
    config = {"safeproducer.mode": mode, "batch.num.messages": 10}
    with rigged(CONFIG | config, {1: 0.02}, {"a": 1, "b": 1}) as rig:
        rig.produce("a", 0)
        rig.produce("b", 0)
        served(rig, 2.0)
        rig.cluster.brokers[1].throttle = 0.5
        for _ in range(40):
            rig.produce_batch("a", 0, 20)
            rig.produce("b", 0)
            served(rig, 0.5)
            assert all(rig.time.now - record.at < 3.0 for record in rig.open_records if record.topic == "b")
        rig.cluster.brokers[1].throttle = 0.0
        served(rig, 5.0)


@pytest.mark.parametrize(("mode", "count"), [("auto", 1), ("auto", 200), ("held", 1), ("held", 200)])
def test_few_records_of_many_partitions_probe_together(mode: str, count: int) -> None:
    """Each cost a round trip of its own, and at each answer all were looked at."""
    looks, gather = 0, Dispatcher.gather

    def counted(*given: Any) -> Any:
        nonlocal looks
        looks += 1
        return gather(*given)

    with rigged(CONFIG | {"safeproducer.mode": mode}, {1: 0.02}, {"a": count}) as rig:
        for number in range(count):
            rig.produce("a", number)
        served(rig, 2.0 + count * 0.02)
        throttled_once(rig, 20.0, 0.1)
        for number in range(count):
            rig.produce("a", number)
        served(rig, 20.0)
        with mock.patch.object(Dispatcher, "gather", counted):
            served(rig, 1.0 + count * 0.01)
        assert not rig.open_records
        assert looks <= 4 * count


@pytest.mark.parametrize("count", [1, 3, 50])
@pytest.mark.parametrize("mode", ["auto", "held"])
def test_refused_partitions_leave_room_for_others_of_their_brokers(mode: str, count: int) -> None:
    """Each broker leads some of them, so that nobody else seemed to be in need, and they took all of the buffer."""
    config = {"safeproducer.mode": mode, "queue.buffering.max.messages": 200}
    with rigged(CONFIG | config, dict.fromkeys((1, 2, 3)[:count], 0.02), {"a": 3, "r": count}) as rig:
        rig.cluster.refused.update(("r", number) for number in range(count))
        for number in range(3):
            rig.produce("a", number)
        for number in range(400):
            taken = rig.produce("r", number % count)
            served(rig, 0.0 if number % max(1, count // 10) else 0.1)
        assert not taken
        assert all(rig.produce("a", number % 3) for number in range(20))
        served(rig, 1.0)
        assert {record.topic for record in rig.open_records} == {"r"}
        rig.cluster.refused.clear()


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_refused_topic_alone_has_all_of_the_buffer(mode: str) -> None:
    """Nobody else is in need."""
    config = {"safeproducer.mode": mode, "queue.buffering.max.messages": 200}
    with rigged(CONFIG | config, {1: 0.02}, {"r": 1}) as rig:
        rig.cluster.refused.add(("r", 0))
        rig.produce("r", 0)
        served(rig, 3.0)
        assert all(rig.produce("r", 0) for _ in range(199))
        rig.cluster.refused.clear()


@pytest.mark.parametrize("partitions", [1, 100])
def test_what_leaders_owe_is_added_up_only_while_the_lane_is_drained(partitions: int) -> None:
    """Once in each turn it would cost as much as there are partitions."""
    with rigged(CONFIG | {"safeproducer.mode": "auto"}, {1: 0.002}, {"a": partitions}) as rig:
        for _ in range(2):
            for number in range(partitions):
                rig.produce("a", number)
            served(rig, 1.0)
        with mock.patch.object(Backlogs, "open", wraps=rig.engine.updates.holds.direct.backlogs.open) as added_up:
            rig.produce("a", 0)
            served(rig, 1.0)
        assert not added_up.called
