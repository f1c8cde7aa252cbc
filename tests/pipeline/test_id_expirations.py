"""Which brokers are asked for how long they remember a producer ID, and when (KIP-854)."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.cimpl import KafkaError, KafkaException

from safeproducer.pipeline.cluster import id_expirations
from safeproducer.pipeline.cluster.asker import Asker
from safeproducer.pipeline.cluster.cluster_view import ClusterView
from safeproducer.pipeline.cluster.id_expirations import IdExpirations, Known
from safeproducer.policy.cluster_metadata import PartitionMetadata
from safeproducer.policy.expiry import DAY, PRODUCER_ID_CONFIG, TRANSACTIONAL_ID_CONFIG
from safeproducer.policy.throttle import Throttle
from safeproducer.runtime import clock
from safeproducer.settings.config import parse

HOUR = 3600.0


class Brokers:
    """Each says what it is told to say; None: it may not be asked; what raises, raises."""

    def __init__(self) -> None:
        self.says: dict[int, Any] = {1: 600.0, 2: 20.0}
        self.asked: list[int] = []
        self.asked_with: list[list[int | str]] = []
        self.leads: dict[str, set[int]] = {}
        self.asked_for: list[str] = []
        self.bunches: list[int] = []
        self.log_append_time: set[str] = set()

    def replicas(self, topics: list[str]) -> dict[str, dict[int, PartitionMetadata]]:
        self.asked_for.extend(topics)
        self.bunches.append(len(topics))
        return {name: dict(enumerate(map(PartitionMetadata, self.leads.get(name, ())))) for name in topics}

    def configs(self, keys: list[int | str]) -> dict[int | str, Any]:
        node, *topics = keys
        assert isinstance(node, int)
        self.asked.append(node)
        self.asked_with.append(topics)
        found = self.says[node]
        if isinstance(found, Exception):
            raise found
        values: Any = {PRODUCER_ID_CONFIG: f"{(found or 0) * 1000:.0f}", TRANSACTIONAL_ID_CONFIG: "5000"}
        refused = "CLUSTER_AUTHORIZATION_FAILED: no"
        return {node: refused if found is None else values, **{key: {"min.insync.replicas": "2"} for key in topics}}

    def takes_create_time(self, topic: str) -> bool:
        return topic not in self.log_append_time


class People:
    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}

    def once(self, kind: str, sentence: str) -> None:
        self.kinds.setdefault(kind, sentence)

    trouble = once


class Rig:
    """Horizons in a time of its own; what is due is asked after each look."""

    def __init__(self, known: Known | None = None, now: float = 1000.0, **config: Any) -> None:
        self.now = now
        self.brokers, self.people = Brokers(), People()
        delivery = parse(({"bootstrap.servers": "x", **config},), {}).delivery
        people: Any = self.people
        self.topics: list[str] = []
        self.cluster = ClusterView(delivery, Throttle())
        self.asker = Asker(lambda: self.brokers, bool, lambda: True, people.trouble)  # type: ignore[arg-type, return-value]
        self.asker.stop()  # no thread asks
        self.expirations = IdExpirations(
            delivery, self.cluster, self.asker, lambda: self.topics, people, known or Known(now)
        )
        self.led_by(1)

    def led_by(self, *nodes: int) -> None:
        """These brokers lead the partitions of the topics in use, as statistics tell it; none: they tell nothing."""
        self.cluster.partitions.update("led", {}, self.now)
        told = {number: PartitionMetadata(node) for number, node in enumerate(nodes or (-1,))}
        self.cluster.partitions.update("led", told, self.now + 5 * len(self.cluster.partitions.nodes()))

    def look(self, after: float = 1.0) -> None:
        self.now += after
        self.expirations.look(self.now)
        while (question := self.asker.next(self.now)[0]) is not None:
            self.asker.ask(question)
        for _ in range(2):  # who leads is known by then
            self.now += 0.5
            self.expirations.look(self.now)
            while (question := self.asker.next(self.now)[0]) is not None:
                self.asker.ask(question)

    @property
    def seconds(self) -> float | None:
        found = self.expirations.current
        return None if found is None else found.seconds


@pytest.fixture
def rigs(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Rig]:
    made: list[Rig] = []
    monkeypatch.setattr(clock, "monotonic", lambda: getattr(made[-1], "now", 1000.0) if made else 1000.0)

    def make(known: Known | None = None, now: float = 1000.0, **config: Any) -> Rig:
        made.append(rig := Rig(known, now, **config))
        return rig

    return make


Rigs = Callable[..., Rig]


@pytest.fixture
def rig(rigs: Rigs) -> Rig:
    return rigs()


def test_no_broker_is_asked_in_the_first_minute(rig: Rig) -> None:
    rig.look(55)
    assert (rig.brokers.asked, rig.seconds) == ([], None)
    rig.look(5)
    assert (rig.brokers.asked, rig.seconds) == ([1], 600)


def test_new_leaders_are_asked_at_once_and_all_of_them_hourly(rig: Rig) -> None:
    """Nothing of a broker counts that leads nothing any more."""
    rig.look(61)
    rig.led_by(1, 2)
    rig.look()
    assert (rig.brokers.asked, rig.seconds) == ([1, 2], 20)
    rig.led_by(1)
    rig.look()
    assert rig.seconds == 600
    rig.look(HOUR / 2)
    assert rig.brokers.asked == [1, 2]
    rig.brokers.says[1] = 30.0
    rig.look(HOUR / 2 + 2)
    assert (rig.brokers.asked, rig.seconds) == ([1, 2, 1], 30)


def test_topics_in_use_are_read_with_the_broker_that_leads_them(rigs: Rigs) -> None:
    """Each topic once, wherever its partitions are (KIP-73); with safeproducer.replication=off none."""
    for setting, topics in (("auto", ["led"]), ("off", [])):
        rig = rigs(**{"safeproducer.replication": setting})
        rig.topics = ["led", "unheard"]
        rig.led_by(1, 2)
        rig.look(61)
        assert (rig.brokers.asked, rig.brokers.asked_with) == ([1, 2], [topics, []])
        assert [found for _, found in rig.cluster.configs.values()] == [
            *([{}, {"min.insync.replicas": "2"}, {}] if topics else [{}, {}])
        ]


def test_each_value_that_is_not_safe_is_told_once(rigs: Rigs) -> None:
    """A lowered one again."""
    rig = rigs(**{"message.timeout.ms": 300_000})
    rig.look(61)
    assert not rig.people.kinds
    rig.led_by(2)
    rig.look()
    rig.look(HOUR + 1)
    (sentence,) = rig.people.kinds.values()
    assert f"{PRODUCER_ID_CONFIG} of broker 2 is 20000" in sentence
    assert "safeproducer.expiry=guard" in sentence
    rig.brokers.says[2] = 15.0
    rig.look(HOUR + 1)
    assert len(rig.people.kinds) == 2


def test_a_user_who_may_not_read_configs_is_told_by_explain(rig: Rig) -> None:
    """A day is assumed; asked again in an hour."""
    rig.brokers.says[1] = None
    rig.look(61)
    current = rig.expirations.current
    assert (current.seconds, current.said) == (DAY, "a day, Kafka's default, is assumed")
    (note,) = rig.expirations.notes()
    for part in ("broker(s) 1", "CLUSTER_AUTHORIZATION_FAILED", "a day", "safeproducer.expiry.ms"):
        assert part in note
    rig.look(HOUR / 2)
    assert rig.brokers.asked == [1]
    assert not rig.people.kinds


def test_a_broker_that_is_away_is_asked_again_and_again(rig: Rig) -> None:
    """After pauses of up to a minute; a day is assumed until then."""
    rig.brokers.says[1] = KafkaException(KafkaError(KafkaError._TRANSPORT))
    rig.look(61)
    assert rig.seconds == DAY
    for _ in range(240):
        rig.look(0)
    assert 7 <= len(rig.brokers.asked) <= 11
    rig.brokers.says[1] = 20.0
    for _ in range(61):
        rig.look(0)
    assert rig.seconds == 20
    assert not [note for note in rig.expirations.notes() if "could not be read" in note]
    asked = len(rig.brokers.asked)
    rig.look(HOUR / 2)
    assert len(rig.brokers.asked) == asked


def test_a_client_that_raises_harms_no_turn(rig: Rig) -> None:
    """It is told, and tried again."""
    rig.brokers.says[1] = ValueError("no such mechanism")
    rig.look(61)
    (told,) = rig.people.kinds.values()
    assert "no such mechanism" in told
    rig.brokers.says[1] = 20.0
    rig.look(60)
    assert rig.seconds == 20


def test_a_given_horizon_asks_nobody(rigs: Rigs) -> None:
    """For those who may not read broker configs."""
    rig = rigs(**{"safeproducer.expiry.ms": 20_000})
    rig.look(HOUR)
    assert (rig.brokers.asked, rig.seconds) == ([], 20)
    assert "safeproducer.expiry.ms is 20000" in next(iter(rig.people.kinds.values()))


@pytest.mark.parametrize("config", [{"safeproducer.expiry": "off"}, {"enable.idempotence": False}])
def test_a_producer_that_does_not_care_asks_no_broker(rigs: Rigs, config: dict[str, Any]) -> None:
    rig = rigs(**config)
    rig.expirations.timestamps.note("t", 1)
    rig.look(HOUR)
    assert (rig.brokers.asked, rig.seconds) == ([], None)


def test_a_transactional_producer_has_the_horizon_of_its_transactional_id(rigs: Rigs) -> None:
    """And no static rule: a leader forgets no ID with an open transaction."""
    rig = rigs(**{"transactional.id": "x"})
    rig.look(61)
    assert rig.seconds == 5
    assert not rig.people.kinds


def stamp(age: float) -> int:
    return int((clock.time() - age) * 1000)


def test_old_timestamps_are_told_once_for_each_topic(rig: Rig) -> None:
    """Also those from before the horizon was known; not where the broker's time counts, and not what is recent."""
    rig.brokers.says[1] = 20.0
    rig.brokers.log_append_time = {"log"}
    for topic, age in (("a", DAY), ("a", 60), ("b", 60), ("log", DAY), ("recent", 24), ("future", -60)):
        rig.expirations.timestamps.note(topic, stamp(age))
    assert not rig.people.kinds
    for _ in range(3):
        rig.look(61)
        rig.expirations.timestamps.note("a", stamp(2 * DAY))
    kinds = [kind for kind in rig.people.kinds if kind.startswith("timestamps")]
    assert sorted(kinds) == ["timestamps a", "timestamps b"]
    assert rig.expirations.timestamps.too_old(20.0) == {}, "nor is anybody asked again"
    assert [rig.expirations.timestamps.keeps(topic) for topic in ("a", "log")] == [True, False]
    assert "86400 s ago" in rig.people.kinds["timestamps a"]
    assert "LogAppendTime" in rig.people.kinds["timestamps a"]


@pytest.mark.parametrize(("topic", "timestamp"), [("t", None), ("t", "1"), ("t", 0), ("t", -5), (None, 1), ([], 1)])
def test_a_wrong_timestamp_is_the_native_calls_to_refuse(rigs: Rigs, topic: Any, timestamp: Any) -> None:
    timestamps = rigs().expirations.timestamps
    timestamps.note(topic, timestamp)
    assert timestamps.too_old(0.001) == {}


def test_leaders_are_asked_for_where_no_statistics_tell_them(rigs: Rigs) -> None:
    """After a minute, then every five minutes, and of a new topic at once; a new leader is asked for its value then."""
    rig = rigs(**{"safeproducer.mode": "passthrough"})
    rig.led_by()
    rig.topics, rig.brokers.leads = ["a"], {"a": {1}, "b": {1, 2}}
    rig.look(id_expirations.NOT_BEFORE - 5)
    assert (rig.brokers.asked_for, rig.seconds) == ([], None)
    rig.look(5)
    assert (rig.brokers.asked_for, rig.brokers.asked, rig.seconds) == (["a"], [1], 600)
    rig.look(60)
    assert len(rig.brokers.asked) == 1
    rig.topics.append("b")
    rig.look()
    assert (rig.brokers.asked_for, rig.brokers.asked, rig.seconds) == (["a", "b"], [1, 2], 20)
    assert "safeproducer.mode=passthrough" in rig.people.kinds["expiry 20.0"]
    rig.brokers.leads["a"], rig.brokers.says[3] = {3}, 10.0
    rig.look(id_expirations.LEADERS_REFRESH - 70)
    assert (len(rig.brokers.asked_for), rig.seconds) == (2, 20)
    rig.look(70)
    assert (rig.brokers.asked_for, rig.brokers.asked, rig.seconds) == (["a", "b", "a", "b"], [1, 2, 3], 10)
    for _ in range(3):
        rig.look(id_expirations.LEADERS_REFRESH + 2)
    assert (len(rig.brokers.asked_for), rig.brokers.asked) == (10, [1, 2, 3]), "a broker's value is asked for hourly"
    rig.look(HOUR)
    assert rig.brokers.asked[3:] == [1, 2, 3]


def test_many_topics_are_asked_for_in_bunches(rigs: Rigs) -> None:
    """Who leads them, five hundred in a question; and their configs, of which each has dozens, a hundred at once."""
    rig = rigs(**{"safeproducer.mode": "passthrough"})
    rig.led_by()
    rig.topics = [f"t{number}" for number in range(1200)]
    rig.brokers.leads = {topic: {1} for topic in rig.topics}
    rig.look(id_expirations.NOT_BEFORE)
    rig.look(10)
    assert (rig.brokers.bunches, len(set(rig.brokers.asked_for))) == ([500, 500, 200], 1200)
    rig = rigs()
    rig.topics = [f"t{number}" for number in range(250)]
    rig.cluster.partitions.update("t", {0: PartitionMetadata(1)}, 1.0)
    for topic in rig.topics:
        rig.cluster.partitions.update(topic, {0: PartitionMetadata(1)}, 1.0)
    for _ in range(2):
        rig.brokers.asked_with = []
        rig.look(HOUR)
        rig.look(1)
        asked = [topics for topics in rig.brokers.asked_with if topics]
        assert [len(topics) for topics in asked] == [100, 100, 50]
        assert len({topic for topics in asked for topic in topics}) == 250


def test_a_cluster_that_cannot_be_asked_who_leads_is_asked_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.led_by()
    rig.topics = ["a"]
    with monkeypatch.context() as patch:
        patch.setattr(Brokers, "replicas", lambda *_: 1 / 0)
        rig.look(id_expirations.NOT_BEFORE)
        assert "ZeroDivisionError" in next(iter(rig.people.kinds.values()))
    rig.brokers.leads = {"a": {1}}
    rig.look(60)
    assert rig.seconds == 600


def test_the_knowledge_of_a_former_owner_goes_over(rigs: Rigs) -> None:
    """The minute is that of the native producer, and each warning comes once."""
    owners = [rigs()]
    for _ in range(3):
        last = owners[-1]
        last.led_by()
        last.topics, last.brokers.leads = ["a"], {"a": {2}}
        last.look(30)
        owners.append(rigs(known=last.expirations.known, now=last.now))
    owners[-1].topics = ["a"]
    owners[-1].led_by()
    owners[-1].look()
    assert [len(rig.brokers.asked) for rig in owners] == [0, 1, 0, 0], "a crash loop asks no broker, others once"
    assert [rig.seconds for rig in owners] == [None, 20, 20, 20]
    assert [len(rig.people.kinds) for rig in owners] == [0, 1, 0, 0]


def test_whom_a_former_owner_has_asked_is_not_asked_at_once_again(rigs: Rigs, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended before the answer came."""
    first = rigs()
    known: list[float] = []
    monkeypatch.setattr(
        Brokers, "configs", lambda *_: known.append(first.expirations.known.due[1]) or (_ for _ in ()).throw(ValueError)
    )
    first.look(id_expirations.NOT_BEFORE)
    assert known[0] > first.now + 30
