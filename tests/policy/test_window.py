"""The window of KIP-1269: five until the leader of that partition announced more, and five again after any change."""

from itertools import pairwise
from typing import Any
from unittest import mock

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from safeproducer.pipeline.cluster import cluster_view
from safeproducer.pipeline.cluster.cluster_view import BrokerInfo, ClusterView, change, next_step
from safeproducer.policy.cluster_metadata import PartitionInfo, PartitionMetadata
from safeproducer.policy.throttle import Throttle
from safeproducer.policy.types import TopicPartition
from safeproducer.policy.window import LEAST, MOST, NOT_ASKED, Announcement, Config, Source, Window, announcement, said
from safeproducer.settings import delivery
from safeproducer.settings.own_settings import OwnSettings

A: TopicPartition = ("a", 0)
B: TopicPartition = ("a", 1)
ELSEWHERE: TopicPartition = ("b", 0)
TWENTY = Announcement(20, Source.LEADER, "it says so")
SILENT = Announcement(None, Source.ASSUMED, "it does not tell")


# --- what an answer says -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broker", "topic", "value", "source"),
    [
        pytest.param(None, None, None, Source.ASSUMED, id="an old broker lists neither"),
        pytest.param(None, Config("20", own=True), None, Source.ASSUMED, id="an old broker with a topic that has 20"),
        pytest.param(Config(None, sensitive=True), Config("20", own=True), None, Source.ASSUMED, id="unknown override"),
        pytest.param(Config("20", sensitive=True), None, None, Source.ASSUMED, id="sensitive, though with a value"),
        pytest.param(Config("5"), Config("5"), 5, Source.LEADER, id="all at their defaults"),
        pytest.param(Config("5"), Config("20", own=True), 20, Source.TOPIC, id="the topic's own"),
        pytest.param(Config("20"), Config("5", own=True), 5, Source.TOPIC, id="the topic's own, though less"),
        pytest.param(Config("9"), Config("9"), 9, Source.LEADER, id="inherited"),
        pytest.param(
            Config("9"), Config(None, sensitive=True, own=True), 9, Source.LEADER, id="a topic's unseen value"
        ),
        pytest.param(Config("9"), None, 9, Source.LEADER, id="the topic lists nothing"),
        pytest.param(Config("4"), Config("20", own=True), None, Source.ASSUMED, id="below the minimum"),
        pytest.param(Config("-20"), None, None, Source.ASSUMED, id="negative"),
        pytest.param(Config("20.5"), None, None, Source.ASSUMED, id="no whole number"),
        pytest.param(Config(""), None, None, Source.ASSUMED, id="empty"),
        pytest.param(Config("9"), Config("many", own=True), 9, Source.LEADER, id="a topic's value that is no number"),
    ],
)
def test_the_announcement_of_an_answer(
    broker: Config | None, topic: Config | None, value: int | None, source: Source
) -> None:
    """The leader's own entry decides whether it knows the KIP at all; then the topic's own counts, or its own."""
    said = announcement(3, broker, topic)
    assert (said.value, said.source) == (value, source)
    assert said.reason.startswith("broker 3, its leader, " if source is not Source.TOPIC else "the topic's ")


configs = st.none() | st.builds(
    Config, st.none() | st.text(max_size=4) | st.integers(-9, 99).map(str), st.booleans(), st.booleans()
)


@given(configs, configs)
def test_an_announcement_is_a_number_from_five_on_or_none(broker: Config | None, topic: Config | None) -> None:
    said = announcement(1, broker, topic)
    assert said.reason
    assert said.value is None or said.value >= LEAST
    assert (said.value is None) == (said.source is Source.ASSUMED)


# --- what is believed ----------------------------------------------------------------------------------------------


class Memory:
    """The memory of a cluster; metadata come so late after each other that the last ones count."""

    def __init__(self, max_age: float = 60.0) -> None:
        self.view = ClusterView(delivery.read({}, OwnSettings(mode="held"), True, False), Throttle())
        self.max_age = max_age
        self.at = 0.0
        self.told: dict[TopicPartition, PartitionMetadata] = {}

    def led_by(self, tp: TopicPartition, node: int, epoch: int | None) -> None:
        self.at += 10.0
        self.told[tp] = PartitionMetadata(node, epoch)
        topic = {other[1]: told for other, told in self.told.items() if other[0] == tp[0]}
        unknown = dict.fromkeys(range(max(topic)), PartitionMetadata(-1))
        self.view.partitions.update(tp[0], unknown | topic, self.at)

    def said(self, node: int, announced: Announcement, at: float, asked: int | None = None, topic: str = "a") -> None:
        self.view.said(node, topic, said(announced, next_step() if asked is None else asked, at))

    def broke(self, node: int) -> None:
        change(self.view._brokers, node, BrokerInfo(), lambda info: info._replace(broke=next_step()))

    def window(self, now: float, tp: TopicPartition = A) -> Window:
        return self.view.window(tp, self.max_age, now)[0]


def test_five_until_asked_and_again_when_what_was_said_is_old() -> None:
    """Each with its reason; on the last moment of its age it is still believed."""
    memory = Memory()
    assert memory.window(0) == Window(5, Source.ASSUMED, None, NOT_ASKED)
    memory.led_by(A, 1, 7)
    memory.said(1, TWENTY, at=100)
    assert memory.window(160) == Window(20, Source.LEADER, 100, "it says so")
    assert memory.window(161) == Window(5, Source.ASSUMED, None, "what its leader said is 61 s old")


@pytest.mark.parametrize(
    "later",
    [
        pytest.param((2, 8), id="another broker"),
        pytest.param((1, 8), id="the same one in a later epoch: it was away in between"),
        pytest.param((1, 6), id="the same one in an earlier epoch: the topic is another one"),
        pytest.param((2, None), id="another broker, and the epoch is not known"),
        pytest.param((-1, 8), id="no broker"),
    ],
)
def test_any_change_of_the_leader_takes_it_away(later: tuple[int, int | None]) -> None:
    """From the moment it is known; when the former leader is back, it has to say so again."""
    memory = Memory()
    memory.led_by(A, 1, 7)
    memory.said(1, TWENTY, at=0)
    memory.led_by(A, *later)
    assert memory.window(1).size == 5
    assert "leader changed" in memory.window(1).reason
    memory.led_by(A, 1, 9)
    assert memory.window(1).size == 5
    memory.said(1, TWENTY, at=0)
    assert memory.window(1).size == 20


def test_the_same_leader_told_with_more_or_less_detail_is_no_change() -> None:
    """Metadata may tell no epoch; when one is learned later, it was the same leader all along."""
    memory = Memory()
    memory.led_by(A, 1, None)
    memory.said(1, TWENTY, at=0)
    for epoch in (7, None, 7):
        memory.led_by(A, 1, epoch)
        assert memory.window(1).size == 20
    assert memory.view.partitions.info(A).epoch == 7


def test_a_leader_that_stops_announcing_is_believed() -> None:
    """It was downgraded, or the rights are gone: five at once, not when the age is over."""
    memory = Memory()
    memory.led_by(A, 1, 7)
    memory.said(1, TWENTY, at=0)
    memory.said(1, SILENT, at=1)
    assert memory.window(1) == Window(5, Source.ASSUMED, None, SILENT.reason)


@given(st.integers(-5, 10 * MOST))
def test_a_window_is_never_less_than_five_nor_more_than_may_be_set(value: int) -> None:
    memory = Memory()
    memory.led_by(A, 1, 7)
    memory.said(1, Announcement(value, Source.LEADER, ""), at=0)
    assert memory.window(0).size == min(max(value, LEAST), MOST)


def test_replicas_are_kept_when_a_younger_source_does_not_tell_them() -> None:
    """Metadata tell them, statistics do not."""
    memory = Memory()
    memory.view.partitions.update("a", {0: PartitionMetadata(1, None, (1, 2, 3), (1, 2))}, 1.0)
    memory.view.partitions.update("a", {0: PartitionMetadata(2, 5)}, 9.0)
    info = memory.view.partitions.info(A)
    assert (info.leader, info.epoch, info.replicas, info.in_sync) == (2, 5, (1, 2, 3), (1, 2))
    memory.view.partitions.update("a", {0: PartitionMetadata(2, None, (1, 2, 3), (2,))}, 9.5)
    info = memory.view.partitions.info(A)
    assert (info.epoch, info.in_sync) == (5, (2,))


PLACES = [A, B, ELSEWHERE]
tps = st.sampled_from(PLACES)
nodes = st.integers(1, 2)
topics = st.sampled_from(["a", "b"])
MAX_AGE = 10.0


class WindowMachine(RuleBasedStateMachine):
    """Against a model that keeps a log of all that happened, and reads it backwards for each question."""

    @initialize()
    def start(self) -> None:
        self.memory = Memory(MAX_AGE)
        self.now = 0.0
        self.log: list[tuple[Any, ...]] = []
        self.asked: list[tuple[int, str, int, int, float]] = []

    @rule(tp=tps, node=nodes, epoch=st.integers(0, 2))
    def lead(self, tp: TopicPartition, node: int, epoch: int) -> None:
        self.memory.led_by(tp, node, epoch)
        self.log.append(("led", tp, (node, epoch)))

    @rule(node=nodes)
    def disconnect(self, node: int) -> None:
        self.memory.broke(node)
        self.log.append(("broke", node))

    @rule(node=nodes, topic=topics)
    def ask(self, node: int, topic: str) -> None:
        self.asked.append((node, topic, next_step(), len(self.log), self.now))

    @rule(value=st.none() | st.integers(5, 40))
    def answer(self, value: int | None) -> None:
        if self.asked:
            node, topic, asked, since, at = self.asked.pop(0)
            announced = SILENT if value is None else Announcement(value, Source.LEADER, "")
            self.memory.said(node, announced, at, asked, topic)
            self.log.append(("said", node, topic, value, since, at))

    @rule(seconds=st.floats(0.1, 20))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    def expected(self, tp: TopicPartition) -> int:
        """The last answer of the leader, if all that changed for it was before the question."""
        led = [(index, entry[2]) for index, entry in enumerate(self.log) if entry[:2] == ("led", tp)]
        if not led:
            return LEAST
        node, _ = led[-1][1]
        changes = [later[0] for before, later in pairwise(led) if before[1] != later[1]]
        broke = [index for index, entry in enumerate(self.log) if entry == ("broke", node)]
        said = [entry[3:] for entry in self.log if entry[:3] == ("said", node, tp[0])]
        if not said:
            return LEAST
        value, since, at = said[-1]
        valid = value is not None and max([*changes, *broke], default=-1) < since and self.now - at <= MAX_AGE
        return value if valid else LEAST

    @invariant()
    def agrees(self) -> None:
        for tp in PLACES:
            assert self.memory.window(self.now, tp).size == self.expected(tp)


def test_the_window_is_what_a_naive_model_says() -> None:
    """Three partitions, two leaders, three epochs; no partition's history changes another's window."""
    run_state_machine_as_test(WindowMachine)


TO_FIND = settings(
    max_examples=400, database=None, derandomize=True, report_multiple_bugs=False, phases=[Phase.generate]
)
real_window, real_said, real_policy = ClusterView.window, ClusterView.said, cluster_view.window


@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (PartitionInfo, "led_from", lambda *_: 0),
        (ClusterView, "window", lambda self, tp, *at: real_window(self, (tp[0], 0), *at)),
        (
            ClusterView,
            "said",
            lambda self, node, topic, answer: real_said(self, node, topic, answer._replace(asked=next_step())),
        ),
        (cluster_view, "window", lambda answer, info, broke, *at: real_policy(answer, info, 0, *at)),
    ],
    ids=["a change ignored", "one window for a topic", "an old answer", "a broken connection ignored"],
)
def test_the_model_notices(owner: Any, name: str, bug: object) -> None:
    with mock.patch.object(owner, name, bug), pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(WindowMachine, settings=TO_FIND)
