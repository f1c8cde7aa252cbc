"""Several lanes on real brokers at a distance: the window holds on the wire, and keys keep their order."""

import time
from collections.abc import Callable, Iterator, Mapping
from types import MethodType
from typing import Any

import pytest

from integration.kafka.cluster import KafkaCluster
from integration.tap import ConfigEntry, Tap
from integration.tap.faults import DYNAMIC_TOPIC_CONFIG
from integration.unresolved import answered, history, most
from safeproducer import SafeProducer
from safeproducer.hooks import Hook, LanesChanged, WindowChanged
from safeproducer.policy.window import BROKER_CONFIG, TOPIC_CONFIG
from tests.inside import engine_of, of_whoever_said_most

TopicFactory = Callable[..., str]

TOPIC = 2
ONE_WAY = 0.02
AHEAD = 600
"""Records without a report that an application always has: more than all batches hold."""
BATCH = 10
KEYS = 5_000
STEP = 0.005
NOTHING: Mapping[str, object] = {}


class Changes(Hook):
    """What a producer told of its windows and lanes."""

    def __init__(self) -> None:
        self.windows: list[WindowChanged] = []
        self.lanes: list[LanesChanged] = []

    def window_changed(self, event: WindowChanged) -> None:
        self.windows.append(event)

    def lanes_changed(self, event: LanesChanged) -> None:
        self.lanes.append(event)


class CountedChanges(Changes):
    """And how many records of a topic had left the producer when its window last became so many batches."""

    def __init__(self, handed_over: Callable[[str], int]) -> None:
        super().__init__()
        self.handed_over: dict[tuple[str, int], int] = {}
        self._count = handed_over

    def window_changed(self, event: WindowChanged) -> None:
        super().window_changed(event)
        self.handed_over[event.topic, event.after] = self._count(event.topic)


class Application:
    """Always has more for partition 0 of its topics."""

    def __init__(self, bootstrap: str, *topics: str, config: Mapping[str, object] = NOTHING) -> None:
        self.changes = CountedChanges(self.handed_over)
        self.failed: list[object] = []
        self._waiting = dict.fromkeys(topics, 0)
        self._number = 0
        self.producer = SafeProducer(
            {
                "bootstrap.servers": bootstrap,
                "safeproducer.ordering": "key",
                "safeproducer.mode": "held",
                "batch.num.messages": BATCH,
                "linger.ms": 5,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
                **config,
            },
            hooks=[self.changes],
        )

    def step(self) -> None:
        for topic in self._waiting:
            while self._waiting[topic] < AHEAD:
                self._number += 1
                self.producer.produce(topic, b"x", b"%d" % (self._number % KEYS), 0, on_delivery=self._reported)
                self._waiting[topic] += 1
        self.producer.poll(STEP)

    def size(self, topic: str) -> int:
        """How many batches of it may be unresolved, as the producer says."""
        return next((one.size for one in self.producer.snapshot().windows if one.topic == topic), 0)

    def handed_over(self, topic: str) -> int:
        """How many of its records have left for a lane."""
        return sum(row.accepted - row.held for row in self.producer.snapshot().partitions if row.topic == topic)

    def _reported(self, error: object, message: Any) -> None:
        self._waiting[message.topic()] -= 1
        if error is not None:
            self.failed.append(error)


def run(*applications: Application, until: Callable[[], bool] | None = None, seconds: float = 60.0) -> None:
    """Let applications produce side by side for some seconds, or until something holds, which it must by then."""
    deadline = time.monotonic() + seconds
    while until is None or not until():
        if time.monotonic() > deadline:
            assert until is None, f"not within {seconds} s: {[one.producer.snapshot() for one in applications]}"
            return
        for application in applications:
            application.step()


def announce(windows: dict[str, int]) -> Callable[[int, str], dict[str, ConfigEntry]]:
    """What a broker that knows KIP-1269 says of topics with a value of their own."""

    def configs(kind: int, name: str) -> dict[str, ConfigEntry]:
        if kind != TOPIC:
            return {BROKER_CONFIG: ConfigEntry("5")}
        own = windows.get(name)
        return {TOPIC_CONFIG: ConfigEntry("5") if own is None else ConfigEntry(str(own), DYNAMIC_TOPIC_CONFIG)}

    return configs


@pytest.fixture(scope="module")
def nodes() -> Iterator[KafkaCluster]:
    """Three nodes behind a tap."""
    with KafkaCluster(3, tapped=True) as cluster:
        yield cluster


@pytest.fixture
def far(nodes: KafkaCluster) -> Iterator[Tap]:
    """A tap that makes them distant."""
    with Tap(nodes) as tap:
        tap.delay(ONE_WAY)
        yield tap
        assert tap.undecoded == []


def led_by(node: int, cluster: KafkaCluster, topic: str) -> str:
    cluster.admin.move_leader(topic, 0, node)
    return topic


def test_the_window_of_the_topic_holds_on_the_wire(nodes: KafkaCluster, far: Tap, topic: TopicFactory) -> None:
    """With 20 announced for one topic it has up to 20 batches unresolved over all lanes, another topic of the same
    broker up to 5; lowered to 8, it has no more than 8 as soon as the surplus is acknowledged, and goes on."""
    wide, narrow = (led_by(1, nodes, topic(replication=3, on=nodes)) for _ in range(2))
    far.rewrite_configs(announce({wide: 20}), broker=1)
    application = Application(nodes.bootstrap, wide, narrow)
    with application.producer as producer:
        run(application, until=lambda: most(history(far, wide)) >= 20)
        run(application, seconds=1.0)
        assert producer.snapshot().lanes == 20
        far.rewrite_configs(announce({wide: 8}), broker=1)
        run(application, until=lambda: (wide, 8) in application.changes.handed_over)
        run(application, until=lambda: is_settled(far, wide, application.changes.handed_over[wide, 8]))
        delivered = producer.snapshot().delivered
        run(application, seconds=1.0)
        assert producer.snapshot().delivered > delivered + BATCH * 8
    assert application.failed == []
    wider, narrower = history(far, wide), history(far, narrow)
    assert (most(wider), most(narrower)) == (20, 5)
    assert settled(far, wide, application.changes.handed_over[wide, 8]) == 8


def test_only_the_leader_is_believed(nodes: KafkaCluster, far: Tap, topic: TopicFactory) -> None:
    """What other brokers announce is not used; a new leader's 20 is; and when leadership moves on to one that does not
    answer, it is 5 from the moment the change is known. Without the reset it would not be."""
    sound, planted = (led_by(1, nodes, topic(replication=3, on=nodes)) for _ in range(2))
    far.rewrite_configs(announce({sound: 20, planted: 20}), broker=2)
    long = {"topic.metadata.refresh.interval.ms": 40_000}
    applications = [Application(nodes.bootstrap, name, config=long) for name in (sound, planted)]
    without_reset = engine_of(applications[1].producer).holds.cluster
    without_reset.window = MethodType(of_whoever_said_most, without_reset)

    def sizes() -> list[int]:
        return [one.size(name) for one, name in zip(applications, (sound, planted), strict=True)]

    with applications[0].producer as producer, applications[1].producer:
        run(*applications, until=lambda: min(most(history(far, name)) for name in (sound, planted)) == 5)
        run(*applications, seconds=0.5)
        assert sizes() == [5, 5]
        assert "does not announce a window" in producer.snapshot().windows[0].reason
        assert most(history(far, sound)) == 5
        assert {seen.broker for seen in far.requests("DescribeConfigs")} == {1}

        for name in (sound, planted):
            led_by(2, nodes, name)
        run(*applications, until=lambda: sizes() == [20, 20])
        run(*applications, until=lambda: min(most(history(far, name)) for name in (sound, planted)) == 20)

        far.drop_answers("DescribeConfigs", n=100, keep_open=True, broker=3)
        for name in (sound, planted):
            led_by(3, nodes, name)
        run(*applications, until=lambda: sizes()[0] == 5 and (sound, 5) in applications[0].changes.handed_over)
        before = [applications[0].changes.handed_over[sound, 5], applications[1].handed_over(planted)]
        run(*applications, until=lambda: all(map(is_settled, [far, far], (sound, planted), before)))
        run(*applications, seconds=2.0)
        assert sizes() == [5, 20]
        far.heal()
    assert settled(far, sound, before[0]) == 5
    assert settled(far, planted, before[1]) > 5


def is_settled(tap: Tap, topic: str, handed_over: int) -> bool:
    """Whether so many of its records, and a batch more, have their answers.

    What had left the producer when it heard of a smaller window is not called back, and may be at the tap only later.
    The batch more is one that another thread was handing over at that moment.
    """
    return answered(tap, topic, handed_over + BATCH) < float("inf")


def settled(tap: Tap, topic: str, handed_over: int) -> int:
    """The most unresolved batches from then on."""
    return most(history(tap, topic), answered(tap, topic, handed_over + BATCH))
