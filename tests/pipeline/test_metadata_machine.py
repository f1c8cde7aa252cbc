"""One truth for all lanes: lanes whose metadata have random ages, and a topic that changes under them."""

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from safeproducer.kafka.statistics import PartitionStatistics, Statistics
from safeproducer.pipeline.cluster import cluster_view
from safeproducer.pipeline.cluster.asker import Asker, Question
from safeproducer.pipeline.cluster.cluster_view import ClusterView
from safeproducer.pipeline.cluster.outdated_metadata import OutdatedMetadata
from safeproducer.pipeline.cluster.windows import WHAT, Windows
from safeproducer.pipeline.dispatch.placement import Placement
from safeproducer.policy import cluster_metadata
from safeproducer.policy.cluster_metadata import SETTLES, PartitionMetadata, supersedes
from safeproducer.policy.throttle import Throttle
from safeproducer.policy.types import DIRECT_LANE, UNPLACED
from safeproducer.policy.window import LEAST, Announcement, Source
from safeproducer.settings import delivery
from safeproducer.settings.own_settings import OwnSettings
from tests.effort import effort

EFFORT = effort(200, 60)
BROKERS = st.integers(1, 4)
KEYS = [b"%d" % number for number in range(12)]
WINDOWS = {1: 30, 2: 30, 3: 12, 4: None}
"""Broker -> how many batches it remembers; None for one that does not know KIP-1269."""


@dataclass(frozen=True)
class Topic:
    """The topic at one moment. `made`: how often it was made anew. Partition -> (leader, epoch)."""

    since: float
    made: int
    leaders: tuple[tuple[int, int], ...]


@dataclass
class Lane:
    """What one native producer knows of the topic, and since when.

    `most`: the most partitions that it has known since the library heard of it last.
    """

    topic: Topic
    at: float
    asks: bool = False
    most: int = 0

    @property
    def shrank(self) -> bool:
        """Whether an answer took partitions from it, and the library has not heard of that yet.

        librdkafka takes such an answer: the broker was behind, or the topic was made anew. Until the lane tells, it
        fails records for the partitions that it lacks, as a producer of librdkafka alone does.
        """
        return len(self.topic.leaders) < self.most


@dataclass
class Seen:
    """Which partition a key had, as (how often the topic was made, number of partitions)."""

    places: list[tuple[int, int]] = field(default_factory=list)


class LanesMachine(RuleBasedStateMachine):
    """The direct lane and the first batch lane tell by statistics, the others answer when they are asked."""

    @initialize(lanes=st.integers(0, 19), leaders=st.lists(BROKERS, min_size=1, max_size=6))
    def start(self, lanes: int, leaders: list[int]) -> None:
        self.now = 1000.0
        self.history = [Topic(self.now, 0, tuple((leader, 0) for leader in leaders))]
        self.lanes = {
            number: Lane(self.history[-1], self.now, False, len(leaders)) for number in range(DIRECT_LANE, lanes)
        }
        self.view = ClusterView(delivery.read({}, OwnSettings(), True, False), Throttle())
        self.view.outdated.connect(lambda: self.lanes, self.asked)
        self.placement = Placement(
            self.view,
            SimpleNamespace(buffers={}),  # type: ignore[arg-type]
            SimpleNamespace(),  # type: ignore[arg-type]
            SimpleNamespace(),  # type: ignore[arg-type]
            SimpleNamespace(),  # type: ignore[arg-type]
        )
        self.asker = Asker(lambda: self, bool, lambda: True)  # type: ignore[arg-type, return-value]
        self.asker.stop()  # no thread asks
        self.windows = Windows(None, 1e9, self.view, self.asker, lambda *_: None)
        self.epochs: dict[tuple[int, int], int] = defaultdict(lambda: -1)
        self.keys: dict[bytes, Seen] = defaultdict(Seen)
        self.told: list[tuple[float, Topic]] = []
        self.late: list[tuple[int, Statistics, Lane]] = []
        for number in self.lanes:
            self.tell(number)

    # --- the cluster -------------------------------------------------------------------------

    def change(self, made: int, leaders: list[tuple[int, int]]) -> None:
        self.history.append(Topic(self.now, made, tuple(leaders)))

    @rule(leaders=st.lists(BROKERS, min_size=1, max_size=4))
    def add_partitions(self, leaders: list[int]) -> None:
        topic = self.history[-1]
        if len(topic.leaders) < 20:
            self.change(topic.made, [*topic.leaders, *((leader, 0) for leader in leaders)])

    @rule(leaders=st.lists(BROKERS, min_size=1, max_size=10))
    def make_topic_anew(self, leaders: list[int]) -> None:
        self.now += 2 * SETTLES  # no broker knows the former one any more
        self.change(self.history[-1].made + 1, [(leader, 0) for leader in leaders])

    @rule(number=st.integers(0, 19), broker=BROKERS)
    def move_leader(self, number: int, broker: int) -> None:
        topic = self.history[-1]
        leaders = list(topic.leaders)
        number %= len(leaders)
        if leaders[number][0] != broker:
            leaders[number] = broker, leaders[number][1] + 1
            self.change(topic.made, leaders)

    @rule(seconds=st.sampled_from([0.01, 0.3, 1.5, 100.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    # --- the lanes ---------------------------------------------------------------------------

    @rule(number=st.integers(0, 20), lag=st.sampled_from([0.0, 0.9]))
    def refresh(self, number: int, lag: float) -> None:
        """A lane asks a broker, which may be a little behind: `topic.metadata.refresh.interval.ms`, or a rejection."""
        lane = self.lane(number)
        self.now += 0.05
        anew = [topic for topic in self.history if topic.made == self.history[-1].made]
        known = [topic for topic in anew if topic.since <= self.now - lag] or anew[:1]
        before = self.lanes[lane]
        self.lanes[lane] = Lane(known[-1], self.now, before.asks, max(before.most, len(known[-1].leaders)))

    @rule(number=st.integers(0, 1), lag=st.sampled_from([0.0, 0.9]))
    def refresh_and_tell(self, number: int, lag: float) -> None:
        self.refresh(number, lag)
        self.tell(number)

    @rule(number=st.integers(0, 20))
    def answer(self, number: int) -> None:
        """To a question that the library asked; it asks again as long as the lane is behind."""
        lane = self.lane(number)
        if self.lanes[lane].asks:
            self.refresh(number, 0.0)
            known = self.lanes[lane]
            self.note(lane, known)
            told = {number: PartitionMetadata(leader) for number, (leader, _) in enumerate(known.topic.leaders)}
            known.asks = not self.view.heard("t", lane, known.at, told)
            self.look()

    @rule()
    def answer_all(self) -> None:
        for number in range(len(self.lanes)):
            self.answer(number)

    @rule(number=st.integers(0, 1), lost=st.booleans(), late=st.booleans())
    def tell(self, number: int, lost: bool = False, late: bool = False) -> None:
        """Statistics, twice a second."""
        lane = self.lane(number)
        if lane > 0 or lost:
            return
        known = self.lanes[lane]
        rows = enumerate(known.topic.leaders)
        found = {("t", part): PartitionStatistics(leader, epoch, 0, 0, 0, 0, 0) for part, (leader, epoch) in rows}
        document = Statistics(self.now, 1, 0, 0, 0, {}, found, {"t": self.now - known.at})
        self.late.append((lane, document, Lane(known.topic, known.at)))
        while self.late and not late:
            lane, document, known = self.late.pop(0)
            self.note(lane, known)
            self.view.update(lane, document)
        self.look()

    # --- the library -------------------------------------------------------------------------

    def lane(self, number: int) -> int:
        return sorted(self.lanes)[number % len(self.lanes)]

    def asked(self, topic: str, lanes: Any) -> None:
        for lane in lanes:
            self.lanes[lane].asks = True

    def note(self, lane: int, known: Lane) -> None:
        self.told.append((known.at, known.topic))
        if known.topic is self.lanes[lane].topic:
            self.lanes[lane].most = len(known.topic.leaders)

    def look(self) -> None:
        self.windows.tell(self.now)

    @rule(number=st.integers(0, 20), key=st.sampled_from(KEYS))
    def produce(self, number: int, key: bytes) -> None:
        """A record that names no partition is placed, and goes by a lane that may take it."""
        chosen = self.placement.choose("t", key, self.now)
        if chosen == UNPLACED:
            return
        lane = self.lane(number)
        if self.view.outdated.concerns(lane, ("t", chosen), self.now):
            return
        count, topic = self.view.partitions.count("t"), self.lanes[lane].topic
        made = max(one.made for _, one in self.told if len(one.leaders) == count)
        knows = chosen < len(topic.leaders) or topic.made > made or self.lanes[lane].shrank
        assert knows, f"lane {lane} fails a record for partition {chosen}"
        places = self.keys[key].places
        if not places or places[-1] != (made, count):
            assert not places or (made, count) > places[-1], f"{key!r} goes back: {[*places, (made, count)]}"
            places.append((made, count))

    @rule(number=st.integers(0, 19))
    def ask_for_window(self, number: int) -> None:
        """The leader that is known now answers."""
        count = self.view.partitions.count("t")
        tp = ("t", number % count)
        leader = self.view.partitions.leader(*tp)
        if leader is None:
            return
        self.windows.budget(tp, self.now)
        self.windows.ask(self, Question(WHAT, leader, "t"))  # type: ignore[arg-type]
        assert self.windows.budget(tp, self.now).size == max(LEAST, WINDOWS[leader] or 0)

    def window(self, node: int, topic: str) -> Announcement:
        return Announcement(WINDOWS[node], Source.LEADER, "it says so")

    @invariant()
    def one_truth(self) -> None:
        """What the youngest metadata says is believed, or what other metadata of about that time says."""
        if not hasattr(self, "told"):
            return
        youngest = max(at for at, _ in self.told)
        recent = [topic for at, topic in self.told if at >= youngest - SETTLES - 1e-6]
        count, made = self.view.partitions.count("t"), {topic.made for topic in recent}
        assert count in {len(topic.leaders) for topic in recent}
        for number in range(count):
            tp = ("t", number)
            leader, epoch, *_ = self.view.partitions.info(tp)
            said = {topic.leaders[number] for topic in recent if number < len(topic.leaders)}
            # An answer to a question tells no epoch: the one that is known may be of the topic before it was made anew.
            if len(made) == 1 and (leader, epoch) in said:
                assert epoch >= self.epochs[*made, number], f"{tp} goes back to epoch {epoch}"
                self.epochs[*made, number] = epoch
            assert not said or leader in {node for node, _ in said}, f"{tp} is led by {leader}, and not one of {said}"
            window = self.windows.known(self.now).get(tp)
            if window is not None and leader is not None:
                assert window.size in (LEAST, max(LEAST, WINDOWS[leader] or 0)), f"{window} is not of {leader}"
            sizes = {self.windows.budget(tp, self.now).size for _ in range(3)}
            assert len(sizes) == 1


def run(machine: type[RuleBasedStateMachine]) -> None:
    run_state_machine_as_test(machine, settings=EFFORT)  # type: ignore[no-untyped-call]


def test_lanes_with_metadata_of_any_age_agree() -> None:
    run(LanesMachine)


BY_RANK = cluster_view, cluster_metadata
"""Numbers of partitions, and leader epochs."""
PLANTED: dict[str, tuple[tuple[object, ...], str, object]] = {
    "youngest not taken": (BY_RANK, "supersedes", lambda *_: True),
    "older metadata taken": (BY_RANK, "supersedes", lambda rank, at, known, then: supersedes(rank, then, known, at)),
    "epochs and counts ignored": (BY_RANK, "supersedes", lambda rank, at, known, then: at > then),
    "a lane is not told": ((OutdatedMetadata,), "counted", lambda *_: None),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_broken_rule_is_found(name: str) -> None:
    places, what, planted = PLANTED[name]
    with ExitStack() as stack:
        for place in places:
            stack.enter_context(mock.patch.object(place, what, planted))
        with pytest.raises(AssertionError):
            run(LanesMachine)
