"""When a producer looks at replicas, whom it asks, and what it says of them (KIP-73)."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka.cimpl import KafkaError, KafkaException

from safeproducer import ReplicationSnapshot, Snapshot
from safeproducer.kafka.statistics import BrokerStatistics, PartitionStatistics, Statistics, sent_between
from safeproducer.pipeline.cluster import replication
from safeproducer.pipeline.cluster.asker import Asker, Question
from safeproducer.pipeline.cluster.cluster_view import ClusterView
from safeproducer.pipeline.cluster.replication import Replication
from safeproducer.pipeline.inspection import explanation
from safeproducer.policy.cluster_metadata import BUNCH, MANY, PartitionInfo, PartitionMetadata
from safeproducer.policy.diagnosis import Attempts
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.replication import CONFIGS, Side
from safeproducer.policy.throttle import Throttle
from safeproducer.policy.types import NEVER, ReplicationState, TopicPartition
from safeproducer.runtime import clock
from safeproducer.settings.config import parse
from safeproducer.snapshot import PartitionSnapshot
from tests.pipeline.cluster import REFUSE
from tests.pipeline.rig import rigged
from tests.policy.test_replication import SITUATIONS as VERDICTS

TP = ("orders", 0)
MB = 1_000_000
LEADER_LIST, FOLLOWER_LIST = (side("replicas") for side in Side)
RATES = [side("rate") for side in Side]
REFUSED = "TOPIC_AUTHORIZATION_FAILED: no"


class Brokers:
    """Three of them: `copies` by partition: leader, replicas, in-sync replicas. `hung` ones answer nothing."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.copies: dict[TopicPartition, tuple[int, tuple[int, ...], tuple[int, ...]]] = {TP: (1, (1, 2), (1, 2))}
        self.living = {1, 2, 3}
        self.hung: set[int] = set()
        self.rates: dict[int, int] = {}
        self.topics: dict[str, dict[str, str | None]] = defaultdict(lambda: {"min.insync.replicas": "1"})
        self.may_describe = True
        self.metadata: list[tuple[float, str, str]] = []
        self.bunches: list[tuple[float, str, tuple[str, ...]]] = []
        """Each question by an admin client."""
        self.described: list[tuple[float, frozenset[int | str]]] = []
        self.address = ""

    def told(self, topic: str) -> Mapping[int, PartitionMetadata]:
        alive = {node: f"kafka-{node}:9092" for node in self.living}
        return {
            number: PartitionMetadata(leader, None, replicas, in_sync, alive)
            for (name, number), (leader, replicas, in_sync) in self.copies.items()
            if name == topic
        }

    def at(self, address: str) -> Brokers:
        self.address = address
        return self

    def _answer(self) -> None:
        at, self.address = self.address, ""
        if any(at == f"kafka-{node}:9092" for node in self.hung):
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        if self.hung and not at:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # a kept client is bound to the broker that hangs

    def replicas(self, topics: Sequence[str]) -> dict[str, Mapping[int, PartitionMetadata]]:
        self.metadata.extend((self.rig.now, topic, self.address) for topic in topics)
        self.bunches.append((self.rig.now, self.address, tuple(topics)))
        self._answer()
        return {topic: told for topic in topics if (told := self.told(topic))}

    def configs(self, keys: set[int | str]) -> dict[int | str, Any]:
        self.described.append((self.rig.now, frozenset(keys)))
        self._answer()
        if not self.may_describe:
            return dict.fromkeys(keys, REFUSED)
        values = {node: dict.fromkeys(RATES, str(rate)) for node, rate in self.rates.items()}
        lag = {"replica.lag.time.max.ms": "30000"}
        return {key: self.topics[key] if isinstance(key, str) else {**lag, **values.get(key, {})} for key in keys}

    def throttle(self, leaders: str, followers: str, rate: int | None, topic: str = "orders") -> None:
        self.topics[topic].update({LEADER_LIST: leaders, FOLLOWER_LIST: followers})
        self.rates = {} if rate is None else dict.fromkeys((1, 2, 3), rate)


class People:
    def __init__(self) -> None:
        self.changes: list[tuple[TopicPartition, ReplicationSnapshot | None, ReplicationSnapshot]] = []
        self.warnings: list[str] = []
        self.troubles: list[tuple[str, str]] = []

    def replication(self, tp: TopicPartition, before: ReplicationSnapshot | None, after: ReplicationSnapshot) -> None:
        self.changes.append((tp, before, after))

    def warn(self, sentence: str) -> None:
        self.warnings.append(sentence)

    def trouble(self, kind: str, what: str) -> None:
        self.troubles.append((kind, what))


class Rig:
    """Replication in a time of its own; each look may find answers to what was asked before it."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.now = 1000.0
        self.brokers, self.people = Brokers(self), People()
        delivery = parse(({"bootstrap.servers": "x", **config},), {}).delivery
        self.cluster = ClusterView(delivery, Throttle())
        self.topics = ["orders"]
        self.silent: set[TopicPartition] = set()
        self.connection = "UP"
        people: Any = self.people
        self.asker = Asker(lambda: self.brokers, bool, lambda: True, people.trouble)  # type: ignore[arg-type, return-value]
        self.asker.stop()  # no thread asks
        me: Any = self
        self.replication = Replication(delivery, self.cluster, me, self.asker, lambda: self.topics, people)
        self.sent: dict[TopicPartition, float] = {}
        self.totals: dict[TopicPartition, float] = defaultdict(float)

    def look_at(self, topic: str, gone: bool = False) -> None:
        self.brokers.metadata.append((self.now, topic, "lane" + " of a topic that is gone" * gone))
        self.cluster.heard(topic, None, self.now, self.brokers.told(topic))

    def look(self) -> None:
        for tp, rate in self.sent.items():
            self.totals[tp] += rate / 2
        rows = {tp: PartitionStatistics(1, None, 0, 0, 0, 0, 0, int(2 * sent)) for tp, sent in self.totals.items()}
        broker = BrokerStatistics("b", self.connection, 0, 0, 0, None, int(sum(self.totals.values())))
        self.cluster.update(0, Statistics(self.now, None, None, 0, 0, {1: broker}, rows))  # compressed to a half
        self.replication.look(self.now, lambda now: self.silent)
        while (question := self.asker.next(self.now)[0]) is not None:
            self.asker.ask(question)
        self.now += 0.5

    def play(self, seconds: float) -> None:
        for _ in range(int(2 * seconds)):
            self.look()

    def said(self, tp: TopicPartition = TP) -> ReplicationSnapshot:
        return self.replication.known(self.now)[tp]


Rigs = Callable[..., Rig]


@pytest.fixture
def rigs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rigs]:
    made: list[Rig] = []
    # A thread of an earlier test may ask before there is one.
    monkeypatch.setattr(clock, "monotonic", lambda: made[-1].now if made else 0.0)

    def make(**config: Any) -> Rig:
        made.append(Rig(config))
        return made[-1]

    yield make
    assert not [trouble for rig in made for trouble in rig.people.troubles]


@pytest.fixture
def rig(rigs: Rigs) -> Rig:
    return rigs()


# --- what is said -----------------------------------------------------------------------------------------------------


def moves(rig: Rig, rate: int | None, bytes_in: float = 0.0) -> None:
    """Broker 3 is being added; a throttle as Kafka's tool sets it."""
    rig.sent = {TP: bytes_in}
    rig.play(15)
    rig.brokers.copies[TP] = 1, (1, 2, 3), (1, 2)
    if rate is not None:
        rig.brokers.throttle("0:1,0:2", "0:3", rate)


def loses(rig: Rig, minimum: int) -> None:
    rig.play(5)
    rig.brokers.topics["orders"]["min.insync.replicas"] = str(minimum)
    rig.brokers.copies[TP] = 1, (1, 2), (1,)
    rig.brokers.living = {1, 3}


def is_left_over(rig: Rig) -> None:
    """As seen by the hourly question of KIP-854."""
    rig.play(5)
    rig.brokers.throttle("*", "*", MB)
    if rig.brokers.may_describe:
        rig.cluster.read(rig.brokers.configs({1, "orders"}), rig.now)


SITUATIONS: dict[str, Callable[[Rig], None]] = {
    "clean": lambda rig: rig.play(1),
    "move under a throttle": lambda rig: moves(rig, MB, 0.2 * MB),
    "move without a throttle": lambda rig: moves(rig, None),
    "move that never ends": lambda rig: moves(rig, MB, 3 * MB),
    "throttle left over": is_left_over,
    "at the minimum": lambda rig: loses(rig, 1),
    "below the minimum": lambda rig: loses(rig, 2),
    "a broker is gone": lambda rig: loses(rig, 1),
}


@pytest.mark.parametrize("rights", [True, False])
@pytest.mark.parametrize("name", SITUATIONS)
def test_a_situation_is_said(name: str, rights: bool, rigs: Rigs) -> None:
    """Eight situations within 75 s, with DESCRIBE_CONFIGS and with WRITE alone, which shows what metadata does."""
    _, state, moving, words = VERDICTS[name]
    rig = rigs()
    rig.brokers.may_describe = rights
    SITUATIONS[name](rig)
    rig.play(75)
    found = rig.said()
    shown = state if rights or state in {"in_sync", "broker_down"} else "unreadable"
    assert (found.state.value, found.moving) == (shown, moving)
    assert found.left_over is (rights and "left over" in name)
    assert found.delays is (rights and name == "below the minimum")
    assert (words in found.sentence) is (rights or name in {"clean", "a broker is gone"})
    assert ("DESCRIBE_CONFIGS" in found.cure) is (shown == "unreadable")
    assert found.unusual is (found.state is not ReplicationState.IN_SYNC or found.left_over)
    assert [(tp, after.state.value) for tp, _, after in rig.people.changes] == ([(TP, shown)] if found.unusual else [])
    loud = name in {"move that never ends", "below the minimum"}
    assert rig.people.warnings == ([f"{found.sentence}. {found.cure}"] if rights and loud else [])


def test_both_figures_are_in_the_snapshot(rig: Rig) -> None:
    """The rate, and what this producer needs of it; where and for how long."""
    moves(rig, MB, 3 * MB)
    rig.play(75)
    found = rig.said()
    assert (found.side, found.limit, found.broker, found.minimum) == ("leader", MB, 3, 1)
    assert found.needed == pytest.approx(6 * MB)
    assert (found.in_sync, found.replicas) == ((1, 2), (1, 2, 3))
    assert 10 < found.since < 75
    assert 0 <= found.age <= replication.UNUSUAL + 1


def test_a_move_that_ends_leaves_its_throttle_over_until_that_is_removed(rig: Rig) -> None:
    """The story of a move: never ends, in sync with a throttle left, nothing to say."""
    moves(rig, MB, 3 * MB)
    rig.play(75)
    rig.brokers.throttle("0:1,0:2", "0:3", 100 * MB)
    rig.brokers.copies[TP] = 1, (1, 3), (1, 3)
    rig.play(10)
    assert (rig.said().state.value, rig.said().left_over) == ("in_sync", True)
    assert "If no move runs, remove both lists" in rig.said().cure
    rig.brokers.throttle("", "", None)
    rig.play(replication.QUIET + 10)
    assert not rig.said().unusual
    assert [after.state.value for _, _, after in rig.people.changes] == ["never_ends", "in_sync", "in_sync"]
    asked = len(rig.brokers.described)
    rig.play(300)
    assert len(rig.brokers.described) == asked
    assert len(rig.people.warnings) == 1


def test_a_partition_in_sync_is_no_left_over_while_another_of_its_topic_moves(rig: Rig) -> None:
    """The throttle is that of the move."""
    rig.brokers.copies["orders", 1] = 2, (2, 1), (1, 2)
    moves(rig, MB)
    rig.brokers.throttle("0:1,0:2,1:2", "0:3,1:3", MB)
    rig.play(900)
    assert not rig.said(("orders", 1)).unusual
    rig.brokers.copies[TP] = 1, (1, 3), (1, 3)
    rig.play(10)
    assert rig.said(("orders", 1)).left_over
    assert rig.people.warnings == []


def test_a_throttle_that_is_left_over_for_ten_minutes_is_warned_of_once(rig: Rig) -> None:
    is_left_over(rig)
    rig.play(replication.QUIET + 540)
    assert (rig.said().left_over, rig.people.warnings) == (True, [])
    rig.play(3600)
    (warning,) = rig.people.warnings
    assert "a throttle is still set" in warning


def test_each_rolling_restart_comes_to_the_minimum_and_is_not_warned_of(rig: Rig) -> None:
    """Below it each time is; and once in an episode."""
    for minimum, warnings in ((1, 0), (2, 1), (2, 2)):
        loses(rig, minimum)
        rig.play(200)
        rig.brokers.living = {1, 2, 3}
        rig.brokers.copies[TP] = 1, (1, 2), (1, 2)
        rig.play(20)
        assert len(rig.people.warnings) == warnings


def test_a_follower_that_returns_under_a_throttle_is_the_cause_of_silence(rig: Rig) -> None:
    """Named within 8 s of silence, until it was away from the in-sync set for replica.lag.time.max.ms."""
    is_left_over(rig)
    rig.sent = {TP: 3 * MB}
    rig.play(70)
    rig.brokers.hung, rig.silent = {2}, {TP}
    rig.play(3)
    rig.brokers.copies[TP], rig.brokers.living = (1, (1, 2), (1,)), {1, 3}
    rig.play(1)
    rig.silent = set()
    rig.play(4)
    rig.brokers.living, rig.brokers.hung, rig.silent = {1, 2, 3}, set(), {TP}
    rig.sent = {}
    rig.play(8)
    found = rig.said()
    assert (found.state.value, found.delays, found.left_over, found.broker) == ("never_ends", True, True, 2)
    assert "acknowledgements may wait for it" in found.sentence
    assert any("acknowledgements may wait" in warning for warning in rig.people.warnings)
    rig.play(25)
    assert not rig.said().delays


@pytest.mark.parametrize("acks", ["1", "0", "all"])
def test_only_what_waits_for_all_replicas_is_delayed(acks: str, rigs: Rigs) -> None:
    """With acks=1 a set below the minimum refuses nothing."""
    rig = rigs(acks=acks, **{"enable.idempotence": False})
    loses(rig, 2)
    rig.play(75)
    assert rig.said().delays is (acks == "all")
    assert len(rig.people.warnings) == (acks == "all")


def test_nothing_is_asked_and_said_when_it_is_off(rigs: Rigs) -> None:
    rig = rigs(**{"safeproducer.replication": "off"})
    moves(rig, MB, 3 * MB)
    rig.silent = {TP}
    rig.play(100)
    assert (rig.brokers.metadata, rig.brokers.described, rig.replication.known(rig.now)) == ([], [], {})


def test_other_topics_hear_not_a_word(rig: Rig) -> None:
    """One topic moves and is silent."""
    rig.topics.append("other")
    rig.brokers.copies["other", 0] = 1, (1, 2), (1, 2)
    moves(rig, MB, 3 * MB)
    rig.silent = {TP}
    rig.play(100)
    assert {tp for tp, _, _ in rig.people.changes} == {TP}
    assert not rig.said(("other", 0)).unusual
    assert "other" not in {key for _, keys in rig.brokers.described for key in keys}


# --- who is asked, and when -------------------------------------------------------------------------------------------


def test_ten_healthy_minutes_take_eleven_looks_and_no_configs(rig: Rig) -> None:
    rig.topics.append("other")
    rig.brokers.copies["other", 0] = 2, (2, 3), (2, 3)
    rig.play(600)
    for topic in rig.topics:
        assert 9 <= len([at for at, asked, _ in rig.brokers.metadata if asked == topic]) <= 11
    assert rig.brokers.described == []


def test_a_topic_is_looked_at_every_five_seconds_while_a_replica_is_out_of_sync(rig: Rig) -> None:
    """And its configs are read: leader and topic in one request, each living follower once."""
    moves(rig, MB)
    rig.play(60)
    began, rig.brokers.metadata, rig.brokers.described = rig.now, [], []
    rig.play(60)
    assert 10 <= len(rig.brokers.metadata) <= 13
    keys = [keys for _, keys in rig.brokers.described]
    assert set(keys) == {frozenset({1, "orders"}), frozenset({2}), frozenset({3})}
    assert 10 <= keys.count(frozenset({3})) <= 13
    assert began


def test_a_silent_leader_is_asked_each_second_by_a_client_of_its_own(rig: Rig) -> None:
    """A kept one may be bound to the broker that hangs, and so may a lane; else another broker is asked."""
    rig.play(5)
    rig.brokers.metadata = []
    rig.silent, rig.brokers.hung = {TP}, {2}
    rig.play(10)
    assert {address for _, _, address in rig.brokers.metadata} == {"kafka-1:9092"}
    assert 9 <= len(rig.brokers.metadata) <= 11
    rig.brokers.hung, rig.brokers.metadata = {1, 2}, []
    rig.brokers.copies[TP] = 3, (1, 2, 3), (3,)
    rig.play(6)
    assert [address for _, _, address in rig.brokers.metadata[:3]] == [f"kafka-{node}:9092" for node in (1, 2, 3)]
    assert rig.said().in_sync == (3,)


def many(rig: Rig, count: int, leaders: int = 1) -> None:
    """So many topics more, whose leaders take turns."""
    for number in range(count):
        rig.topics.append(f"t{number:04}")
        rig.brokers.copies[f"t{number:04}", 0] = number % leaders + 1, (1, 2, 3), (1, 2, 3)


def test_many_topics_take_a_question_for_five_hundred_each_minute(rig: Rig) -> None:
    """And none of a lane. The snapshot has all of them."""
    many(rig, 1200)
    rig.play(600)
    assert [asked for _, asked, address in rig.brokers.metadata if address == "lane"] == []
    assert 27 <= len(rig.brokers.bunches) <= 33
    assert max(len(topics) for _, _, topics in rig.brokers.bunches) == BUNCH
    for topic in ("t0000", "t1199"):
        assert 9 <= len([at for at, asked, _ in rig.brokers.metadata if asked == topic]) <= 11
    assert len(rig.replication.known(rig.now)) == 1201


def test_topics_that_come_one_after_the_other_are_asked_for_together(rig: Rig) -> None:
    for _ in range(100):
        many(rig, 2)
        rig.topics[-2:] = [f"u{len(rig.topics)}", f"v{len(rig.topics)}"]
        rig.brokers.copies.update({(topic, 0): (1, (1, 2), (1, 2)) for topic in rig.topics[-2:]})
        rig.play(1)
    rig.brokers.bunches, rig.brokers.metadata = [], []
    rig.play(300)
    assert len(rig.brokers.bunches) + len([at for at, _, by in rig.brokers.metadata if by == "lane"]) < 60


def test_few_topics_take_no_admin_client(rig: Rig) -> None:
    """In a crash loop it would be a client more for each process."""
    many(rig, MANY - 1)
    rig.play(30)
    assert (rig.brokers.bunches, len(rig.brokers.metadata)) == ([], MANY)


def test_what_a_bunch_does_not_tell_a_lane_is_asked_for(rig: Rig) -> None:
    """It is not there, or may not be described; and a lane is to hear of added partitions. Or there is no answer."""
    many(rig, 20)
    rig.play(5)
    del rig.brokers.copies["t0007", 0]
    rig.brokers.copies["t0009", 1] = 1, (1,), (1,)
    rig.brokers.metadata = []
    rig.play(60)
    assert sorted(asked for _, asked, address in rig.brokers.metadata if address == "lane") == ["t0007", "t0009"]
    assert rig.cluster.partitions.count("t0009") == 2
    rig.brokers.hung, rig.brokers.metadata = {1}, []
    rig.play(60)
    assert {asked for _, asked, address in rig.brokers.metadata if address == "lane"} == set(rig.topics)


def test_each_silent_leader_is_one_question(rig: Rig) -> None:
    """By one client, which asks for all that waits there."""
    many(rig, 600, leaders=2)
    rig.play(5)
    rig.brokers.bunches = []
    rig.silent = {tp for tp in rig.brokers.copies if tp[0] != "orders"}
    rig.play(10)
    assert 18 <= len(rig.brokers.bunches) <= 22
    for address in ("kafka-1:9092", "kafka-2:9092"):
        topics = [topics for _, by, topics in rig.brokers.bunches if by == address]
        assert {len(asked) for asked in topics} == {300}
        assert 9 <= len(topics) <= 11
    many(rig, 1800)
    rig.silent, rig.brokers.bunches = {(topic, 0) for topic in rig.topics[601:]}, []
    rig.play(6)
    assert set().union(*(topics for _, _, topics in rig.brokers.bunches)) >= set(rig.topics[601:])


def test_a_topic_that_rests_costs_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice a second there is a look; only what was asked for is judged, and only with what its throttles concern."""
    many(rig, 100)
    rig.play(70)
    rig.cluster.read({topic: {"min.insync.replicas": "1"} for topic in rig.topics}, rig.now)
    looked: list[str] = []
    replicated = rig.cluster.partitions.replicated
    monkeypatch.setattr(rig.cluster.partitions, "replicated", lambda topic: looked.append(topic) or replicated(topic))
    rig.play(40)
    assert looked == []
    rig.cluster.partitions.learn_replicas("orders", rig.brokers.told("orders"), rig.now)
    rig.play(1)
    assert looked == ["orders"]
    rig.topics.remove("t0007")
    rig.play(61)
    assert "t0007" not in looked
    assert len(rig.replication.known(rig.now)) == 100
    assert len(looked) <= 103


def test_nobody_is_asked_while_no_broker_is_connected(rig: Rig) -> None:
    """Each client of its own would try to connect 20 times a second."""
    rig.play(5)
    rig.brokers.metadata = []
    rig.silent, rig.connection = {TP}, "DOWN"
    rig.play(10)
    assert not rig.brokers.metadata
    rig.connection = "UP"
    rig.play(1)
    assert rig.brokers.metadata


def test_below_the_minimum_is_known_while_a_follower_hangs(rig: Rig) -> None:
    """Its configs are read by clients of their own, too."""
    rig.play(5)
    loses(rig, 2)
    rig.silent, rig.brokers.hung = {TP}, {2}
    rig.play(10)
    assert (rig.said().delays, rig.said().minimum) == (True, 2)
    assert len(rig.people.warnings) == 1


def test_replicas_are_asked_for_once_a_leader_refuses(rig: Rig) -> None:
    """They may be why: the cause is known before the leader counts as silent."""
    rig.play(5)
    loses(rig, 2)
    rig.cluster.attempts[TP] = Attempts(0, 0, 5, rig.now - 0.5, rig.now, 1)
    rig.play(1.5)
    assert (rig.said().delays, rig.said().minimum) == (True, 2)
    rig.brokers.metadata = []
    rig.play(20)
    assert len(rig.brokers.metadata) < 10, "no more once nothing is sent again"


def test_a_lane_is_asked_for_a_topic_that_another_client_is_told_is_not_there(rig: Rig) -> None:
    """It was deleted, and librdkafka tries the leader that it knew for half a minute: that one was blamed."""
    rig.play(5)
    del rig.brokers.copies[TP]
    rig.cluster.attempts[TP] = Attempts(0, 0, 5, rig.now - 0.5, rig.now, 1)
    rig.brokers.metadata = []
    rig.play(1)
    assert "lane of a topic that is gone" in {address for _, _, address in rig.brokers.metadata}


def test_configs_that_are_wanted_while_others_are_asked_for_are_not_forgotten(rig: Rig) -> None:
    """The question is the same: those of a topic, and of the broker that leads it."""
    asker, asked = rig.asker, list[int]()
    question = Question(replication.CONFIGS, 1, "")

    def ask(*_: object) -> float:
        if not asked:
            asker.want(question, ask, rig.now)  # by the sender, meanwhile
        asked.append(1)
        return NEVER

    asker.want(question, ask, rig.now)
    while (due := asker.next(rig.now)[0]) is not None:
        asker.ask(due)
    assert len(asked) == 2


def test_a_missing_right_is_tried_again_in_an_hour(rig: Rig) -> None:
    rig.brokers.may_describe = False
    moves(rig, MB)
    rig.play(3500)
    assert len(rig.brokers.described) == 3
    rig.brokers.may_describe = True
    rig.play(200)
    assert rig.said().state.value == "throttled"


def test_what_was_read_before_does_not_count_in_an_episode(rig: Rig) -> None:
    """A move begins with a new throttle: it is never said to have none, nor another."""
    moves(rig, None)
    rig.play(60)
    rig.brokers.copies[TP] = 1, (1, 3), (1, 3)
    rig.play(10)
    rig.people.changes.clear()
    rig.brokers.copies[TP] = 1, (1, 3, 2), (1, 3)
    rig.brokers.throttle("0:1,0:3", "0:2", MB)
    rig.play(65)
    assert [after.state.value for _, _, after in rig.people.changes] == ["throttled"]


def test_a_broker_that_tells_nothing_makes_it_unreadable_and_no_right_is_missing(rig: Rig) -> None:
    moves(rig, MB)
    rig.brokers.hung = {3}
    rig.play(75)
    assert (rig.said().state.value, rig.said().cure) == ("unreadable", "")


def test_a_list_that_cannot_be_read_is_unreadable(rig: Rig) -> None:
    moves(rig, MB)
    rig.brokers.throttle("0-1", "0-3", MB)
    rig.play(75)
    assert rig.said().state.value == "unreadable"


def test_bytes_are_those_on_the_wire() -> None:
    """A partition's are counted before compression, a broker's as sent."""

    def seen(at: float, broker: int, *partitions: int) -> Statistics:
        found = {
            ("t", number): PartitionStatistics(1, None, 0, 0, 0, 0, 0, size) for number, size in enumerate(partitions)
        }
        return Statistics(at, None, None, 0, 0, {1: BrokerStatistics("b", "UP", 0, 0, 0, None, broker)}, found)

    before = seen(100.0, 1000, 5000, 0)
    assert sent_between(before, seen(110.0, 2000, 8000, 1000)) == {("t", 0): 75.0, ("t", 1): 25.0}
    assert sent_between(before, seen(110.0, 0, 10, 0)) == {}  # librdkafka counts anew
    assert sent_between(before, seen(110.0, 1000, 5000, 0)) == {}


# --- what explain() says ----------------------------------------------------------------------------------------------


def row(**more: Any) -> PartitionSnapshot:
    fields = {"held": 5, "why": "waits because broker 1, its leader, acknowledges nothing"}
    return PartitionSnapshot("orders", 0, 9, 0, 0, 9, **{**fields, "reason": HoldReason.LEADER_SILENT, **more})


def explained(*rows: PartitionSnapshot) -> str:
    account: Any = Snapshot.__new__(Snapshot)
    for name, value in {"state": "open", "partitions": rows, "windows": ()}.items():
        object.__setattr__(account, name, value)
    return explanation(account, None, None, (), lambda topic, partition: {1})


def test_the_cause_takes_the_place_of_a_silent_leader(rig: Rig) -> None:
    """Sentence and cure; also of records that are not held. Where replicas delay nothing it stands behind."""
    loses(rig, 2)
    rig.play(75)
    below = rig.said()
    said = explained(row(replication=below))
    assert f"held back: {below.sentence}" in said
    assert said.endswith(f" {below.cure}")
    assert "acknowledges nothing" not in said
    assert "Look at that broker" not in said
    sent = explained(row(replication=below, held=0, why=None, reason=None))
    assert f"wait: {below.sentence}. {below.cure}" in sent
    rig.brokers.topics["orders"]["min.insync.replicas"] = "1"
    rig.play(10)
    beside = explained(row(replication=rig.said()))
    assert "acknowledges nothing. Look at that broker" in beside
    assert beside.endswith("writes with acks=all are refused (NOT_ENOUGH_REPLICAS). Bring broker 2 back.")
    done = PartitionSnapshot("orders", 0, 9, 9, 0, 0, replication=rig.said())
    assert "Bring broker 2 back." in explained(done)


# --- with a producer --------------------------------------------------------------------------------------------------

WORDS = ("replica", "in sync", "throttled.rate", "min.insync")


def test_a_producer_looks_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    with rigged({"message.timeout.ms": 30_000}) as rig:
        for _ in range(600):
            rig.produce("a", 0)
            rig.report_queue(0.9)
            rig.poll(0.1)
        assert 9 <= rig.cluster.asked.count("a") <= 11
        assert [asked for asked in rig.cluster.asked if not isinstance(asked, str)] == []
        (found,) = rig.producer.snapshot().partitions
        assert found.replication.state is ReplicationState.IN_SYNC


def test_a_producer_says_why_its_leader_is_silent() -> None:
    """The direct path: a set below the minimum."""
    with rigged({"message.timeout.ms": 60_000, "safeproducer.mode": "held"}) as rig:
        rig.cluster.copies["a", 0] = (1, 2), (1, 2)
        for _ in range(5):
            rig.produce("a", 0)
            rig.report_queue(1.0)
            rig.poll(0.1)
        rig.cluster.brokers[1].silent = True
        rig.cluster.copies["a", 0] = (1, 2), (1,)
        rig.cluster.living.pop(2)
        rig.cluster.described["a"] = {"min.insync.replicas": "2"}
        for _ in range(8):
            rig.produce("a", 0)
            rig.report_queue(1.0)
            rig.poll(0.1)
        said = rig.producer.explain("a")
        assert "writes with acks=all are refused (NOT_ENOUGH_REPLICAS)" in said
        assert "acknowledges nothing" not in said
        assert "Bring broker 2 back." in said
        assert "replica" not in rig.producer.explain("b")


def test_slow_acknowledgements_for_another_reason_are_no_matter_of_replicas(caplog: pytest.LogCaptureFixture) -> None:
    """Healthy replicas, while brokers fall silent, throttle, refuse, change their leaders, and are slow."""
    silent = 0
    for seed in range(int(os.environ.get("REPLICATION_PLAYS", "15"))):
        chance = random.Random(seed)
        mode = chance.choice(["auto", "auto", "held"])
        trips = {node: chance.choice([0.002, 0.02, 0.9, 3.0]) for node in (1, 2, 3)}
        with rigged({"message.timeout.ms": 60_000, "safeproducer.mode": mode}, trips, {"a": 2}) as rig:
            rig.cluster.copies = {("a", number): ((1, 2, 3), (1, 2, 3)) for number in range(2)}
            for _ in range(6):
                for _ in range(chance.randrange(3)):
                    rig.produce("a", chance.randrange(2))
                broker = rig.cluster.brokers[chance.randrange(3) + 1]
                act = chance.randrange(5)
                if act == 0:
                    broker.silent = True
                elif act == 1:
                    rig.cluster.heal()
                elif act == 2:
                    broker.script.append((chance.choice(["ok", REFUSE]), 2.0))
                elif act == 3:
                    rig.cluster.move(("a", chance.randrange(2)), chance.randrange(3) + 1)
                rig.report_queue(chance.choice([0.1, 1.5, 4.0]))
                rig.poll(0.05)
                said = rig.producer.explain()
                assert not [word for word in WORDS if word in said], (seed, said)
            silent += bool(rig.dispatcher.record_buffer.silent(rig.time.now))
            rows = rig.producer.snapshot().partitions
            assert not [one for one in rows if one.replication is not None and one.replication.unusual], seed
    assert silent > 1
    assert not [text for text in caplog.messages if any(word in text for word in WORDS)]


@pytest.mark.parametrize("begin", range(0, 200, 50))
def test_silence_alone_is_no_matter_of_replicas(begin: int, rigs: Rigs) -> None:
    """200 runs: partitions fall silent, brokers hang, leaders change, bytes come and go, others have a throttle."""
    for seed in range(begin, begin + 50):
        chance, rig = random.Random(seed), rigs()
        rig.topics.append("other")
        places = [TP, ("orders", 1), ("other", 0)]
        rig.brokers.copies = dict.fromkeys(places, (1, (1, 2, 3), (1, 2, 3)))
        rig.brokers.throttle("*", "*", MB, "moved")
        for _ in range(5):
            rig.silent = set(chance.sample(places, chance.randrange(4)))
            rig.brokers.hung = set(chance.sample([1, 2, 3], chance.randrange(3)))
            rig.sent = {tp: chance.choice([0, 1e5, 9e6]) for tp in places}
            rig.brokers.copies[chance.choice(places)] = chance.randrange(3) + 1, (1, 2, 3), (3, 1, 2)
            rig.play(chance.choice([2, 10, 20]))
        assert (rig.people.changes, rig.people.warnings, rig.brokers.described) == ([], [], [])
        assert not [said for said in rig.replication.known(rig.now).values() if said.unusual or said.delays]


def test_only_configs_of_replication_are_kept(rig: Rig) -> None:
    rig.cluster.read({1: {"log.dirs": "/x", "replica.lag.time.max.ms": "1"}, "t": REFUSED}, 5.0)
    assert rig.cluster.configs == {1: (5.0, {"replica.lag.time.max.ms": "1"}), "t": (5.0, REFUSED)}
    assert "min.insync.replicas" in CONFIGS


def test_an_older_answer_changes_nothing() -> None:
    """A lane's may come behind that of a client of its own."""
    young = PartitionInfo().with_replicas(PartitionMetadata(1, None, (1, 2), (1,)), 10.0)
    assert young.with_replicas(PartitionMetadata(1, None, (1, 2), (1, 2)), 9.0) is young
    assert young.with_replicas(PartitionMetadata(1), 11.0) is young
