"""The one service that asks the cluster for leaders, and which lanes are to be told of a new one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.cimpl import KafkaError, KafkaException

from safeproducer.pipeline.cluster.metadata import NO_LANE, FirstQuestion, Metadata
from safeproducer.pipeline.cluster.outdated_metadata import OutdatedMetadata
from safeproducer.policy.cluster_metadata import BUNCH, MANY, PartitionMetadata
from safeproducer.policy.types import DIRECT_LANE

PLACE = ("t", 0)
PARTITION = SimpleNamespace(leader=2, replicas=[2, 3], isrs=[2])
BROKERS = {2: SimpleNamespace(host="kafka-2", port=9092), 3: SimpleNamespace(host="::1", port=9093)}
TOLD = {0: PartitionMetadata(2, None, (2, 3), (2,), {2: "kafka-2:9092", 3: "[::1]:9093"})}


class Client:
    """Answers `list_topics`, or does not while it `hangs`; `before` runs before each answer."""

    def __init__(self) -> None:
        self.asked = 0
        self.topics: list[str] = []
        self.hangs = False
        self.code: int | None = None
        self.connected = True
        self.patience: list[float] = []
        self.before: Callable[[], object] = int

    def list_topics(self, topic: str, timeout: float) -> Any:
        self.asked += 1
        self.topics.append(topic)
        self.patience.append(timeout)
        self.before()
        if not self.connected:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        if self.hangs:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        error = None if self.code is None else KafkaError(self.code)
        found = {topic or "": SimpleNamespace(error=error, partitions={} if error else {0: PARTITION})}
        return SimpleNamespace(topics=found, brokers=BROKERS)


@pytest.fixture
def clients() -> dict[int, Any]:
    return {DIRECT_LANE: Client(), 0: Client(), 1: Client()}


class Service:
    """A Metadata for `clients` that tells an OutdatedMetadata of what was heard."""

    def __init__(self, clients: dict[int, Any]) -> None:
        self.learned: list[tuple[str, Mapping[int, PartitionMetadata]]] = []
        self.behind: dict[int | None, bool] = {}
        self.by: dict[str, int | None] = {}
        self.made = 0
        self.refuses = False
        self.bunches: list[list[str]] = []
        self.untold: set[str] = set()
        self.outdated = OutdatedMetadata()
        first = FirstQuestion(lambda: None, False)
        make: Any = self.make
        self.metadata = Metadata(lambda: clients, self.heard, lambda due: None, first, make)
        self.outdated.connect(lambda: clients, self.metadata.tell)

    def heard(self, topic: str, lane: int | None, asked_at: float, told: Mapping[int, PartitionMetadata]) -> bool:
        self.learned.append((topic, told))
        self.by[topic] = lane
        if lane is not None:
            self.outdated.heard(topic, lane, asked_at)
        return not self.behind.pop(lane, False)

    def make(self) -> Service:
        self.made += 1
        return self

    def replicas(self, topics: list[str], within: float) -> dict[str, Mapping[int, PartitionMetadata]]:
        """As the admin client's, which nobody tells of what is `untold`."""
        if self.refuses:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self.bunches.append(topics)
        return {topic: TOLD for topic in topics if topic not in self.untold}

    def finish(self) -> None:
        self.metadata.join(5)
        assert not self.metadata.alive

    def concerns(self, lane: int) -> bool:
        return self.outdated.concerns(lane, PLACE, 101.0)


def test_every_other_lane_is_asked_once(clients: dict[int, Any]) -> None:
    """The one that found out need not ask, and nobody is in doubt after the answers."""
    service = Service(clients)
    asking = threading.Event()
    for client in clients.values():
        client.before = lambda: asking.wait(5)
    service.outdated.answered_late(PLACE, 0, 0.0, 0.0)
    assert [service.concerns(lane) for lane in clients] == [True, False, True]
    assert not service.outdated.concerns(1, ("t", 1), 101.0)
    asking.set()
    service.finish()
    assert [client.asked for client in clients.values()] == [1, 0, 1]
    assert service.learned == [("t", TOLD)] * 2
    assert not any(map(service.concerns, clients))
    assert not service.outdated.concerns_any(DIRECT_LANE, 101.0)


def test_a_lane_without_an_answer_is_asked_again_and_the_others_do_not_wait(clients: dict[int, Any]) -> None:
    service = Service(clients)
    clients[DIRECT_LANE].hangs = True
    heard = threading.Event()
    clients[1].before = heard.set
    service.outdated.answered_late(PLACE, 0, 0.0, 0.0)
    assert heard.wait(5)
    clients[DIRECT_LANE].before = lambda: setattr(clients[DIRECT_LANE], "hangs", clients[DIRECT_LANE].asked < 4)
    service.finish()
    assert clients[DIRECT_LANE].asked >= 2
    assert clients[1].asked == 1
    assert not service.concerns(DIRECT_LANE)


def test_a_dead_cluster_is_hardly_asked(clients: dict[int, Any]) -> None:
    """librdkafka tries to connect every 50 ms for as long as a question waits for a broker."""
    service, client = Service(clients), clients[DIRECT_LANE]
    client.connected = False
    client.before = lambda: setattr(client, "connected", client.asked > 4)
    service.metadata.want("t")
    service.finish()
    most = client.patience[0]
    assert client.patience == [most, *4 * [pytest.approx(most / 15)]]


def test_the_first_question_goes_first(clients: dict[int, Any]) -> None:
    """It asks nobody before there is a connection; another question would make librdkafka connect."""
    service, first = Service(clients), SimpleNamespace(topic="t", end=int)
    looks: list[int] = []

    def ask(_: object) -> None:
        looks.append(clients[DIRECT_LANE].asked)
        if len(looks) == 3:
            first.topic = None

    first.ask = ask
    service.metadata.first = first
    service.metadata.want("t")
    service.finish()
    assert looks == [0, 0, 0]
    assert clients[DIRECT_LANE].asked == 1


def test_a_change_during_a_question_is_asked_for_again(clients: dict[int, Any]) -> None:
    """An answer that was under way may be of the time before."""
    del clients[1]
    service = Service(clients)
    again = iter([True])
    clients[DIRECT_LANE].before = lambda: (
        next(again, None) and service.outdated.answered_late(PLACE, 0, 1.0, float("inf"))
    )
    service.outdated.answered_late(PLACE, 0, 0.0, 0.0)
    service.finish()
    assert clients[DIRECT_LANE].asked == 2
    assert service.concerns(DIRECT_LANE)


def test_records_that_come_during_a_question_are_told_by_its_answer(clients: dict[int, Any]) -> None:
    """Each pump() wants an unknown topic, and one question is enough."""
    service = Service(clients)
    clients[DIRECT_LANE].before = lambda: service.metadata.want("t")
    service.metadata.want("t")
    service.finish()
    assert [client.asked for client in clients.values()] == [1, 0, 0]


def test_a_lane_whose_answer_is_outdated_is_asked_again(clients: dict[int, Any]) -> None:
    """Brokers learn of added partitions one after the other."""
    service = Service(clients)
    service.behind = {1: True}
    service.metadata.tell("t", (0, 1))
    service.finish()
    assert [client.asked for client in clients.values()] == [0, 1, 2]


def test_a_lane_that_is_gone_is_not_asked(clients: dict[int, Any]) -> None:
    service = Service(clients)
    gone = clients[1]
    clients[DIRECT_LANE].before = lambda: clients.pop(1, None)
    service.outdated.answered_late(PLACE, 0, 0.0, 0.0)
    service.finish()
    assert gone.asked <= 1
    assert service.learned


TOPICS = [f"t{number}" for number in range(BUNCH + MANY)]


def wanted(service: Service, topics: list[str]) -> None:
    """Records wait for all of them when the first one is asked for."""
    begin = threading.Event()
    client = service.metadata._lanes()[DIRECT_LANE]
    client.before = lambda: begin.wait(5)
    for topic in topics:
        service.metadata.want(topic)
    begin.set()
    service.finish()
    client.before = int


def test_many_unknown_topics_are_asked_for_in_bunches(clients: dict[int, Any]) -> None:
    """A lane is asked first: its answer says that there is a connection, and for few topics is all that it takes."""
    service = Service(clients)
    wanted(service, TOPICS[:MANY])
    assert (clients[DIRECT_LANE].asked, service.made) == (MANY, 0)
    wanted(service, TOPICS[MANY:])
    assert clients[DIRECT_LANE].asked <= MANY + 2
    assert service.made == 1
    assert [len(bunch) for bunch in service.bunches] == [len(TOPICS) - clients[DIRECT_LANE].asked]
    assert {topic for topic, _ in service.learned} == set(TOPICS)
    assert list(service.by.values()).count(NO_LANE) == len(service.bunches[0])


def test_a_bunch_has_an_end(clients: dict[int, Any]) -> None:
    """A question for all topics of a large producer would be one large answer."""
    service = Service(clients)
    wanted(service, [*TOPICS, "x", "y", "z"])
    assert max(map(len, service.bunches)) == BUNCH
    assert sum(map(len, service.bunches)) + clients[DIRECT_LANE].asked == len(TOPICS) + 3


@pytest.mark.parametrize("refuses", [True, False])
def test_what_a_bunch_does_not_tell_a_lane_is_asked_for(refuses: bool, clients: dict[int, Any]) -> None:
    """No right to describe it, no such topic, or no answer: librdkafka decides what that means."""
    service = Service(clients)
    service.refuses, service.untold = refuses, {"t7", "t9"}
    wanted(service, TOPICS[:50])
    assert clients[DIRECT_LANE].asked in ((50,) if refuses else (3, 4))
    assert {"t7", "t9"} <= set(clients[DIRECT_LANE].topics)
    assert service.by["t9"] is None
    assert len(service.learned) == 50
    assert (service.made, len(service.bunches)) == (1, not refuses)


def test_what_records_wait_for_goes_before_replicas(clients: dict[int, Any]) -> None:
    """Also what comes while replicas are asked for, and never behind all of them."""
    service = Service(clients)
    begin, client = threading.Event(), clients[DIRECT_LANE]
    client.before = lambda: begin.wait(5)
    for topic in "abc":
        service.metadata.look_at(topic)
    service.metadata.tell("t", [1])
    service.metadata.want("records")
    client.before = lambda: (begin.wait(5), client.asked == 3 and service.metadata.want("more"))
    begin.set()
    service.finish()
    assert client.topics in (["a", "records", "b", "more", "c"], ["records", "a", "b", "more", "c"])
    assert service.by["a"] is None


@pytest.mark.parametrize("gone", [False, True])
def test_a_topic_that_others_are_told_is_gone_is_not_awaited(clients: dict[int, Any], gone: bool) -> None:
    """It was not made a moment ago. A new one may come to be known, and is called missing after a while only."""
    service, client = Service(clients), clients[DIRECT_LANE]
    client.code, told = KafkaError.UNKNOWN_TOPIC_OR_PART, list[int]()
    service.metadata._trouble = lambda *_: told.append(client.asked)
    service.metadata.look_at("t", gone)
    service.finish()
    assert set(service.metadata._missing) == {"t"}
    assert (told == [2]) is gone  # the second question is for the name most like it


def test_a_lane_that_gives_no_answer_is_not_asked_for_each_topic(clients: dict[int, Any]) -> None:
    """Each would be a time-out that the others wait for."""
    service, client = Service(clients), clients[0]
    client.hangs = True
    asked: list[int] = []
    clients[1].before = lambda: asked.append(client.asked)
    for topic in TOPICS[:20]:
        service.metadata._wanted[topic, 0] = 0.0
    service.metadata.tell("other", [1])
    for _ in range(500):
        if asked:
            break
        threading.Event().wait(0.01)
    client.hangs = False
    service.finish()
    assert asked == [1]
    assert set(client.topics) == set(TOPICS[:20])


def test_a_lane_that_waited_for_the_same_leader_tells_nothing_new() -> None:
    """With twenty lanes under way, each would send the others to ask again."""
    asked: list[list[int]] = []
    outdated = OutdatedMetadata()
    outdated.connect(lambda: range(3), lambda topic, lanes: asked.append(sorted(lanes)))
    outdated.answered_late(PLACE, 0, 98.0, 100.0)
    outdated.answered_late(PLACE, 1, 99.0, 100.1)
    assert asked == [[1, 2]]
    assert [outdated.concerns(lane, PLACE, 101.0) for lane in range(3)] == [False, False, True]
    outdated.answered_late(PLACE, 1, 100.2, 102.0)  # sent after that: it hangs again
    assert asked == [[1, 2], [0, 2]]
    assert [outdated.concerns(lane, PLACE, 102.0) for lane in range(3)] == [True, False, True]


def test_no_lane_waits_for_ever() -> None:
    """A lane that can ask nobody sends as before, after a while."""
    outdated = OutdatedMetadata()
    outdated.connect(lambda: range(3), lambda *_: None)
    outdated.answered_late(PLACE, 0, 98.0, 100.0)
    assert outdated.concerns(1, PLACE, 219.0)
    assert not outdated.concerns(1, PLACE, 221.0)
    assert not outdated.concerns_any(2, 221.0)


def test_alone_there_is_nobody_to_tell() -> None:
    outdated = OutdatedMetadata()
    outdated.connect(lambda: {DIRECT_LANE}, lambda *_: None)
    outdated.answered_late(PLACE, DIRECT_LANE, 0.0, 1.0)
    assert not outdated.concerns_any(DIRECT_LANE, 1.0)


def test_no_question_is_for_a_topic_or_a_lane_that_is_no_more() -> None:
    """Each would be asked once a second for ever."""
    asked: list[list[int]] = []
    lanes = {DIRECT_LANE, 0, 1}
    outdated = OutdatedMetadata()
    outdated.connect(lambda: lanes, lambda topic, behind: asked.append(sorted(behind)))
    outdated.counted("t", DIRECT_LANE, 4, 1, 4, 100.0)
    assert asked == [[0, 1]]
    assert outdated.differ("t", 100.9)
    assert not outdated.differ("t", 101.1)
    assert [outdated.concerns(lane, ("t", 1), 200.0) for lane in (DIRECT_LANE, 0, 1)] == [False, True, True]
    assert not outdated.concerns(1, PLACE, 200.0)
    lanes.discard(1)
    outdated.counted("t", 0, 4, 4, 4, 101.2)
    assert not outdated.concerns_any(0, 101.2)
    assert not outdated.miscounts("t", 1)
    outdated.counted("t", DIRECT_LANE, 6, 4, 6, 102.0)
    assert outdated.miscounts("t", 0)
    outdated.forget("t")
    assert not outdated.concerns_any(0, 102.0)
    assert not outdated.differ("t", 102.0)


def test_the_way_to_what_a_lane_does_not_know_is_short() -> None:
    """A thousand partitions of a leader that hung: each look at one of them must not look at all."""
    outdated = OutdatedMetadata()
    outdated.connect(lambda: range(3), lambda *_: None)
    for number in range(1000):
        outdated.answered_late((f"t{number}", 0), 0, 98.0, 100.0)
    looked: list[Any] = []
    concerns = outdated.concerns
    outdated.concerns = lambda *args: looked.append(args) or concerns(*args)  # type: ignore[method-assign, func-returns-value]
    assert outdated.concerns_any(1, 101.0)
    assert not outdated.concerns_any(0, 101.0)
    assert len(looked) == 1
    assert not outdated.concerns_any(1, 221.0)
    assert not outdated.concerns_any(1, 221.0)
    assert len(looked) == 1001
    outdated.answered_late(PLACE, 0, 300.0, 301.0)
    outdated.heard("t", 1, 300.5)
    assert outdated.concerns_any(1, 302.0)
    outdated.heard("t", 1, 301.5)
    assert not outdated.concerns_any(1, 302.0)
    assert outdated.concerns_any(2, 302.0)
