"""What can happen to a producer, in any order, with the rules of the design checked after each step."""

from contextlib import ExitStack
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from safeproducer.policy.types import NEVER
from tests.pipeline import cluster
from tests.pipeline.rig import Rig, RuleError, rigged

BROKERS = (1, 2, 3)
PARTITIONS = {"a": 3, "b": 2, "c": 1, "d": 1}
TOPICS = st.sampled_from(sorted(PARTITIONS))
PLACES = st.sampled_from([(topic, number) for topic, count in PARTITIONS.items() for number in (-1, *range(count))])
KEYS = st.sampled_from([None, None, b"x", b"y", b"z"])
NODES = st.sampled_from(BROKERS)
FAULTS = st.sampled_from([cluster.LOSE_ANSWER, cluster.LOSE_REQUEST, cluster.REFUSE, cluster.OK])


class FeedMachine(RuleBasedStateMachine):
    """Subclasses choose the mode and which faults there are."""

    mode = "auto"
    faulty = True
    settings: ClassVar[dict[str, Any]] = {}
    remembered = NEVER
    """Seconds for which leaders remember a producer ID."""

    def __init__(self) -> None:
        super().__init__()
        self.rig: Rig
        self._stack = ExitStack()

    @initialize(
        round_trip=st.sampled_from([0.001, 0.02, 0.1]),
        linger=st.sampled_from([0, 5, 50]),
        batch=st.sampled_from([1, 3, 10]),
        limit=st.sampled_from([12, 40, 100_000]),
        timeout=st.sampled_from([3000, 8000]),
    )
    def start(self, round_trip: float, linger: int, batch: int, limit: int, timeout: int) -> None:
        config: dict[str, Any] = {
            "safeproducer.mode": self.mode,
            "message.timeout.ms": timeout,
            "socket.timeout.ms": 1000,
            "linger.ms": linger,
            "batch.num.messages": batch,
            "queue.buffering.max.messages": limit,
        }
        config |= self.settings
        self.rig = self._stack.enter_context(rigged(config, dict.fromkeys(BROKERS, round_trip), PARTITIONS))
        self.rig.cluster.expiration = self.remembered

    # --- the application ---------------------------------------------------------------------

    @rule(tp=PLACES, key=KEYS, count=st.integers(1, 15))
    def produce(self, tp: tuple[str, int], key: bytes | None, count: int) -> None:
        for _ in range(count):
            if not self.rig.produce(*tp, key):
                break

    @rule(topic=TOPICS, key=KEYS, named=st.lists(st.booleans(), min_size=2, max_size=8))
    def produce_both_kinds(self, topic: str, key: bytes | None, named: list[bool]) -> None:
        """Records that name the first partition, and such that may get it."""
        for names in named:
            self.rig.produce(topic, 0 if names else -1, key)

    @rule(tp=PLACES, count=st.integers(1, 15))
    def produce_batch(self, tp: tuple[str, int], count: int) -> None:
        self.rig.produce_batch(*tp, count)

    @rule(tp=PLACES.filter(lambda tp: tp[1] >= 0), key=KEYS, count=st.integers(1, 15))
    def produce_block(self, tp: tuple[str, int], key: bytes | None, count: int) -> None:
        self.rig.produce_block(*tp, key, count)

    @rule(timeout=st.sampled_from([0.0, 0.01, 0.3, 2.0]))
    def poll(self, timeout: float) -> None:
        self.rig.poll(timeout)

    @rule(seconds=st.sampled_from([0.2, 1.0, 4.0]))
    def serve(self, seconds: float) -> None:
        """An application that polls all the time."""
        end = self.rig.time.now + seconds
        while self.rig.time.now < end:
            self.rig.poll(min(0.1, end - self.rig.time.now))

    @rule(timeout=st.sampled_from([0.0, 0.05, 1.0]))
    def flush(self, timeout: float) -> None:
        self.rig.flush(timeout)

    @rule(seconds=st.sampled_from([0.05, 1.0, 5.0, 40.0]))
    def go_away(self, seconds: float) -> None:
        self.rig.report_queue(seconds)

    @rule(seconds=st.sampled_from([0.001, 0.2, 3.0]))
    def stop_the_world(self, seconds: float) -> None:
        self.rig.time.pass_(seconds)

    @rule()
    def let_a_callback_raise(self) -> None:
        self.rig.plant_raise()

    @rule(tp=PLACES)
    def let_a_callback_produce(self, tp: tuple[str, int]) -> None:
        self.rig.producing.append(tp)

    @rule()
    def purge(self) -> None:
        self.rig.purge()

    # --- the cluster ---------------------------------------------------------------------

    @rule(node=NODES, seconds=st.sampled_from([0.3, 2.0, 5.0]))
    def throttle(self, node: int, seconds: float) -> None:
        self.rig.cluster.brokers[node].script.append((cluster.OK, seconds))

    @rule(node=NODES)
    def crowd(self, node: int) -> None:
        """One broker throttles, and everything is for it from then on."""
        rig = self.rig
        rig.cluster.brokers[node].script.append((cluster.OK, 5.0))
        led = [tp for tp, leader in sorted(rig.cluster.leaders.items()) if leader == node]
        for tp in led:
            rig.produce(*tp)
        rig.flush(1.0)
        for tp in led * 20:
            rig.produce(*tp)

    @rule(tp=PLACES.filter(lambda tp: tp[1] >= 0), node=NODES)
    def move_leader(self, tp: tuple[str, int], node: int) -> None:
        self.rig.cluster.move(tp, node)

    @precondition(lambda self: self.faulty)
    @rule(node=NODES, fault=FAULTS)
    def plant_fault(self, node: int, fault: str) -> None:
        self.rig.lossy = self.rig.lossy or fault != cluster.OK
        self.rig.cluster.brokers[node].script.append((fault, 0.0))

    @precondition(lambda self: self.faulty)
    @rule(node=NODES)
    def silence(self, node: int) -> None:
        self.rig.lossy = True
        self.rig.cluster.brokers[node].silent = True

    @precondition(lambda self: self.faulty)
    @rule(node=NODES)
    def lose_a_broker(self, node: int) -> None:
        """For longer than librdkafka's own time-out, with records under way to it and to others."""
        self.silence(node)
        for tp in sorted(self.rig.cluster.leaders):
            self.rig.produce(*tp)
        self.rig.flush(0.3)
        for _ in range(2):
            self.rig.report_queue(8.0)
            for tp in sorted(self.rig.cluster.leaders):
                self.rig.produce(*tp)
            self.rig.poll(0.0)

    @rule(node=NODES, topic=TOPICS, size=st.sampled_from([None, 5, 7, 20]))
    def set_window(self, node: int, topic: str, size: int | None) -> None:
        """A broker is upgraded, downgraded, or its configuration changed."""
        if size is None:
            self.rig.cluster.windows.pop((node, topic), None)
        else:
            self.rig.cluster.windows[node, topic] = size

    @rule()
    def heal(self) -> None:
        self.rig.cluster.heal()

    @rule(flush_timer=st.integers(1, 3))
    def miss_kicks(self, flush_timer: int) -> None:
        for native in self.rig.natives:
            native.miss_kicks(flush_timer)

    # --- the rules ---------------------------------------------------------------------

    @rule()
    def others_go_on(self) -> None:
        """Rule 4: while nothing is lost, what is for brokers that never throttled is delivered soon."""
        rig = self.rig
        if rig.lossy:
            return
        if any(broker.muted_until for broker in rig.cluster.brokers.values()):
            slow = {node for node, broker in rig.cluster.brokers.items() if broker.muted_until or broker.script}
        else:
            slow = {node for node, broker in rig.cluster.brokers.items() if broker.script}
        waiting = [record for record in rig.open_records if record.partition >= 0]
        self.serve(4.0)  # three flush triggers missed, twice
        for record in waiting:
            tp = (record.topic, record.partition)
            leaders = {rig.cluster.leaders[tp], rig.told_leader.get(tp)}
            if not rig.has_ended(record) and not rig.cluster.leader_epochs[tp] and not leaders & {*slow, None}:
                raise RuleError(
                    f"rule 4: {record} waits, though only {slow} throttle: {rig.dispatcher.record_buffer.waits()}"
                )

    @invariant()
    def bound(self) -> None:
        if hasattr(self, "rig"):
            self.rig.check_remembered()
            self.rig.check_bound()
            self.rig.check_account()
            self.rig.check_reasons()

    def teardown(self) -> None:
        try:
            if hasattr(self, "rig") and RuleError.first is None:
                self.rig.close()
        finally:
            self._stack.close()


class HeldMachine(FeedMachine):
    mode = "held"


class CalmMachine(FeedMachine):
    """No request and no answer is lost: throttling, moves, purges and what the application does."""

    faulty = False


class CalmHeldMachine(HeldMachine):
    faulty = False


class KeyedMachine(HeldMachine):
    """Several lanes, and an order for each key."""

    settings: ClassVar[dict[str, Any]] = {"safeproducer.ordering": "key", "topic.metadata.refresh.interval.ms": 4000}


class KeyedAutoMachine(KeyedMachine):
    """The same, held back only where it pays."""

    mode = "auto"


class CalmKeyedMachine(KeyedMachine):
    """As KeyedMachine, and nothing is lost."""

    faulty = False


class CountedMachine(HeldMachine):
    """As the sink of Spark: who is told of errors alone has delivered blocks counted, in one step each."""

    settings: ClassVar[dict[str, Any]] = {"delivery.report.only.error": True}

    @rule(tp=PLACES.filter(lambda tp: tp[1] >= 0), count=st.integers(2, 15), seconds=st.sampled_from([1.0, 12.0]))
    def produce_blocks(self, tp: tuple[str, int], count: int, seconds: float) -> None:
        """To a partition that is known, or none would be taken."""
        self.rig.produce(*tp)
        self.rig.flush(1.0)
        for _ in range(2):
            self.rig.produce_block(*tp, None, count)
        self.rig.report_queue(seconds)


class RenewedMachine(FeedMachine):
    """Native producers meet fatal errors, and others take over."""

    settings: ClassVar[dict[str, Any]] = {
        "safeproducer.fatal": "renew",
        "safeproducer.producer.ids.per.hour": 1000,
        "safeproducer.producer.ids.ledger": "off",
    }

    @rule(which=st.integers(0, 2), count=st.integers(0, 3))
    def fatal(self, which: int, count: int) -> None:
        """With records in flight, and others behind them."""
        alive = [native for native in self.rig.natives if not native.failed]
        for tp in sorted(self.rig.cluster.leaders) * count:
            self.rig.produce(*tp)
        self.rig.poll(0.0)
        if alive:
            alive[-1 - which % len(alive)].fail_fatally(in_flight=False)

    @invariant()
    def permits(self) -> None:
        """Rule 11: each native producer that writes has a permit."""
        if hasattr(self, "rig"):
            wrote = sum(any(native.produce_requests.values()) for native in self.rig.natives)
            if wrote > (used := self.rig.producer.snapshot().producer_ids):
                raise RuleError(f"rule 11: {wrote} native producers wrote, with {used} permits")

    @rule()
    def flows(self) -> None:
        """Rule 12: once all is well, records are delivered again."""
        if not any(native.failed for native in self.rig.natives):
            return
        self.rig.cluster.heal()
        self.serve(4.0)
        before = set(self.rig.records)
        self.rig.produce("a", 0)
        self.serve(9.0)
        for value in set(self.rig.records) - before:
            if not self.rig.has_ended(self.rig.records[value]):
                raise RuleError(f"rule 12: {self.rig.records[value]} waits: {self.rig.producer.explain()}")


class HeldRenewedMachine(RenewedMachine):
    mode = "held"


class KeyedRenewedMachine(RenewedMachine):
    """The same with an order for each key, and what waits behind an unknown record fails."""

    settings: ClassVar[dict[str, Any]] = {
        **RenewedMachine.settings,
        "safeproducer.ordering": "key",
        "safeproducer.fatal.held": "fail",
    }


class ExpiryMachine(FeedMachine):
    """Leaders forget producer IDs after a minute, and records may be under way for longer than that (KIP-854).

    What the guard cannot rule out does not happen: a request that stays in the network for longer than the margin.
    """

    settings: ClassVar[dict[str, Any]] = {"message.timeout.ms": 200_000, "safeproducer.expiry.ms": 60_000}
    remembered = 60.0

    @rule(seconds=st.sampled_from([0.001, 0.2]))
    def stop_the_world(self, seconds: float) -> None:
        self.rig.time.pass_(seconds)

    @rule(node=NODES)
    def silence(self, node: int) -> None:
        """Its network is cut for a while: what is sent there is lost."""
        self.rig.lossy = True
        self.rig.cluster.brokers[node].script.extend([(cluster.LOSE_REQUEST, 0.0)] * 20)

    @rule(node=NODES)
    def lose_a_broker(self, node: int) -> None:
        """A batch is written, its answer is lost, and the network is cut for longer than the leader remembers."""
        self.rig.lossy = True
        led = [tp for tp, leader in sorted(self.rig.cluster.leaders.items()) if leader == node]
        script = self.rig.cluster.brokers[node].script
        for tp in led:
            script.append((cluster.LOSE_ANSWER, 0.0))
            self.rig.produce(*tp)
            self.rig.flush(0.3)
        script.extend([(cluster.LOSE_REQUEST, 0.0)] * 150)
        self.rig.report_queue(65.0)
        script.clear()
        self.serve(3.0)


class HeldExpiryMachine(ExpiryMachine):
    mode = "held"
