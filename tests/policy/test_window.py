"""The window of KIP-1269: five until the leader of that partition announced more, and five again after any change."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from safeproducer.policy import kip_1269
from safeproducer.policy.topic_partition import TopicPartition
from safeproducer.policy.window import (
    LEAST,
    MOST,
    NOT_ASKED,
    Announcement,
    Config,
    Leader,
    Source,
    Window,
    Windows,
    announcement,
)

A: TopicPartition = ("a", 0)
NEW, OTHER = Leader(1, 7), Leader(2, 8)
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
    """Whatever a broker lists."""
    said = announcement(1, broker, topic)
    assert said.reason
    assert said.value is None or said.value >= kip_1269.MINIMUM
    assert (said.value is None) == (said.source is Source.ASSUMED)


# --- what is believed ----------------------------------------------------------------------------------------------


def test_five_until_asked_and_again_when_what_was_said_is_old() -> None:
    """Each with its reason; on the last moment of its age it is still believed."""
    windows = Windows(max_age=60)
    assert windows.window(A, 0) == Window(5, Source.ASSUMED, None, NOT_ASKED)
    windows.led_by(A, NEW)
    windows.announced(A, NEW, TWENTY, at=100)
    assert windows.window(A, 160) == Window(20, Source.LEADER, 100, "it says so")
    assert windows.window(A, 161) == Window(5, Source.ASSUMED, None, "what its leader said is 61 s old")


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(OTHER, id="another broker"),
        pytest.param(Leader(1, 8), id="the same one in a later epoch: it was away in between"),
        pytest.param(Leader(1, 6), id="the same one in an earlier epoch: the topic is another one"),
        pytest.param(Leader(2, None), id="another broker, and the epoch is not known"),
    ],
)
def test_any_change_of_the_leader_takes_it_away(later: Leader) -> None:
    """From the moment it is known, and only once."""
    windows = Windows(max_age=60)
    windows.led_by(A, NEW)
    windows.announced(A, NEW, TWENTY, at=0)
    assert windows.led_by(A, later)
    assert windows.window(A, 1).size == 5
    assert "leader changed" in windows.window(A, 1).reason
    assert not windows.led_by(A, later)


def test_the_same_leader_told_with_more_or_less_detail_is_no_change() -> None:
    """Metadata may tell no epoch; when one is learned later, it was the same leader all along."""
    windows = Windows(max_age=60)
    windows.led_by(A, Leader(1, None))
    windows.announced(A, Leader(1, None), TWENTY, at=0)
    for same in (Leader(1, 7), Leader(1, None), Leader(1, 7)):
        assert not windows.led_by(A, same)
        assert windows.window(A, 1).size == 20
    assert windows.leader(A) == Leader(1, 7)


def test_an_answer_that_comes_after_a_change_is_not_used() -> None:
    """Whether the answer was that of the old leader, or of the same one in an older epoch."""
    windows = Windows(max_age=60)
    windows.led_by(A, NEW)
    for later in (OTHER, Leader(1, 9)):
        asked = windows.leader(A)
        windows.led_by(A, later)
        windows.announced(A, asked, TWENTY, at=0)
        assert windows.window(A, 0).size == 5


def test_a_leader_that_stops_announcing_is_believed() -> None:
    """It was downgraded, or the rights are gone: five at once, not when the age is over."""
    windows = Windows(max_age=60)
    windows.led_by(A, NEW)
    windows.announced(A, NEW, TWENTY, at=0)
    windows.announced(A, NEW, SILENT, at=1)
    assert windows.window(A, 1) == Window(5, Source.ASSUMED, None, SILENT.reason)


@given(st.integers(-5, 10 * MOST))
def test_a_window_is_never_less_than_five_nor_more_than_may_be_set(value: int) -> None:
    """Even if somebody announced that."""
    windows = Windows(max_age=60)
    windows.led_by(A, NEW)
    windows.announced(A, NEW, Announcement(value, Source.LEADER, ""), at=0)
    assert windows.window(A, 0).size == min(max(value, LEAST), MOST)


PLACES = [("a", 0), ("a", 1), ("b", 0)]
tps = st.sampled_from(PLACES)
leaders = st.builds(Leader, st.integers(1, 2), st.integers(0, 2))
MAX_AGE = 10.0


class WindowMachine(RuleBasedStateMachine):
    """Against a model that keeps a log of all that happened, and reads it backwards for each question."""

    @initialize()
    def start(self) -> None:
        self.windows = Windows(MAX_AGE)
        self.now = 0.0
        self.log: list[tuple[TopicPartition, str, Leader | None, int | None, float]] = []

    @rule(tp=tps, leader=leaders)
    def lead(self, tp: TopicPartition, leader: Leader) -> None:
        self.windows.led_by(tp, leader)
        self.log.append((tp, "led", leader, None, self.now))

    @rule(tp=tps)
    def disconnect(self, tp: TopicPartition) -> None:
        self.windows.reset(tp, "its connection broke")
        self.log.append((tp, "reset", None, None, self.now))

    @rule(tp=tps, asked=leaders, value=st.none() | st.integers(5, 40), ago=st.floats(0, 3))
    def announce(self, tp: TopicPartition, asked: Leader, value: int | None, ago: float) -> None:
        at = self.now - ago
        said = SILENT if value is None else Announcement(value, Source.LEADER, "")
        self.windows.announced(tp, asked, said, at)
        if self.leader(tp) == asked:
            self.log.append((tp, "said", asked, value, at))

    @rule(seconds=st.floats(0.1, 20))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    def leader(self, tp: TopicPartition) -> Leader | None:
        return next((leader for of, what, leader, _, _ in reversed(self.log) if (of, what) == (tp, "led")), None)

    def expected(self, tp: TopicPartition) -> int:
        """The last answer of the leader, unless anything but the same leader being told came after it."""
        leader = self.leader(tp)
        for of, what, who, value, at in reversed(self.log):
            if of != tp or (what == "led" and who == leader):
                continue
            if what != "said" or value is None or who != leader:
                return LEAST
            return value if self.now - at <= MAX_AGE else LEAST
        return LEAST

    @invariant()
    def agrees(self) -> None:
        for tp in PLACES:
            assert self.windows.window(tp, self.now).size == self.expected(tp)


def test_the_window_is_what_a_naive_model_says() -> None:
    """Three partitions, two leaders, three epochs; no partition's history changes another's window."""
    run_state_machine_as_test(WindowMachine)


def forgetful(self: Windows, tp: TopicPartition, leader: Leader) -> bool:
    self._leaders[tp] = leader
    return False


def of_the_topic(self: Windows, tp: TopicPartition, now: float) -> Window:
    return real_window(self, (tp[0], 0), now)


def whoever_says_it(self: Windows, tp: TopicPartition, asked: Leader, said: Announcement, at: float) -> None:
    real_announced(self, tp, self.leader(tp), said, at)


TO_FIND = settings(
    max_examples=400,
    deadline=None,
    database=None,
    derandomize=True,
    report_multiple_bugs=False,
    phases=[Phase.generate],
)
real_window, real_announced = Windows.window, Windows.announced


@pytest.mark.parametrize(
    ("method", "bug"),
    [("led_by", forgetful), ("window", of_the_topic), ("announced", whoever_says_it)],
    ids=["no reset", "one window for a topic", "an answer of anybody"],
)
def test_the_model_notices(method: str, bug: object) -> None:
    """Each rule broken on purpose is found."""
    with mock.patch.object(Windows, method, bug), pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(WindowMachine, settings=TO_FIND)
