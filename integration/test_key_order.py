"""Each key keeps its order over several lanes, and every record ends as the producer said, whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from unittest import mock

import pytest

from integration.faults.load import Load
from integration.faults.oracle import Verdict, judge
from integration.hardships import Hardships
from integration.kafka.cluster import KafkaCluster
from integration.lost_answers import settled
from integration.skewed import SkewedRecords
from integration.tap import Tap
from integration.test_lanes import Changes, announce
from safeproducer import SafeProducer
from safeproducer.policy.affinity import Affinity

TopicFactory = Callable[..., str]

KEYS = 10_000
HOT = 0.15
PARTITIONS = 3
ONE_WAY = 0.01
PATIENCE = 60.0
SHORT, FULL = 30_000, 1_000_000


@dataclass(frozen=True)
class Story:
    """How a load ended, and what happened meanwhile."""

    verdict: Verdict
    changes: Changes
    met: dict[str, int]
    seconds: float
    retries: int

    def __str__(self) -> str:
        steps = [event.after - event.before for event in self.changes.lanes]
        grown, given_up = sum(step > 0 for step in steps), sum(step < 0 for step in steps)
        most = max((event.after for event in self.changes.lanes), default=1)
        replaced = sum("failed" in event.reason for event in self.changes.lanes)
        lanes = f"up to {most}, grown {grown} times, given up {given_up}, of these {replaced} failed"
        met = ", ".join(f"{count} x {name}" for name, count in self.met.items())
        return (
            f"{self.verdict.accepted:,} records in {self.seconds:.0f} s, {self.verdict}; {met}; lanes: {lanes}; "
            f"{self.retries} batches sent again"
        )


@pytest.fixture(scope="module")
def nodes() -> Iterator[KafkaCluster]:
    """Three nodes behind a tap."""
    with KafkaCluster(3, tapped=True) as cluster:
        yield cluster


def play(
    cluster: KafkaCluster, topic: str, records: SkewedRecords, rate: float, hardships: bool, again: bool = False
) -> Story:
    """Send the records while everything happens that may, or in peace."""
    changes = Changes()
    config = {
        "bootstrap.servers": cluster.bootstrap,
        "safeproducer.mode": "held",
        "safeproducer.ordering": "key",
        "safeproducer.lanes": "auto",
        "batch.num.messages": 50,
        "linger.ms": 5,
        "message.timeout.ms": 3_000,
        "socket.timeout.ms": 1_000,
        "retry.backoff.ms": 20,
        "topic.metadata.refresh.interval.ms": 2_000,
        "log_level": 0,
        "safeproducer.producer.ids.per.hour": 1_000_000,  # so that idle lanes are given up soon
        "error_cb": lambda error: None,
    }
    with (
        Tap(cluster) as tap,
        mock.patch("safeproducer.policy.lanes.LONGEST_IDLE", 0.3),
        SafeProducer(config, hooks=[changes]) as producer,
        ThreadPoolExecutor(1) as thread,
    ):
        tap.delay(ONE_WAY)
        tap.rewrite_configs(announce({topic: 20}))
        load = Load(producer, topic, records, rate)
        troubles = Hardships(cluster, tap, topic, load)
        met = thread.submit(troubles.run, again) if hardships else None
        try:
            if met is None:
                load.fault_over.set()
            load.run(PATIENCE)
        finally:
            load.fault_over.set()
        if met is not None:
            met.result(PATIENCE)
        producer.close(PATIENCE)
        tap.heal()
        retries = sum(batch.attempt > 1 for batch in tap.batches)
        verdict = judge(load.account, settled(cluster, topic))
    return Story(verdict, changes, dict(troubles.met), load.seconds, retries)


def check(story: Story) -> None:
    """Nothing was broken, and what was to happen did happen."""
    print(story)
    assert story.verdict.broken == [], story.verdict.examples
    steps = [event.after - event.before for event in story.changes.lanes]
    assert max(steps) > 0 > min(steps), "lanes were to be made and given up"
    assert any("failed" in event.reason for event in story.changes.lanes), "a lane was to fail and be replaced"
    assert story.retries > 0
    assert min(story.met[name] for name in ("lose_answers", "cut", "move_leader", "fail_a_lane", "black_hole")) > 0


def test_each_key_keeps_its_order(nodes: KafkaCluster, topic: TopicFactory) -> None:
    """Delivered is once in the log and in order, unknown at most once and never behind a successor of its key."""
    name = topic(PARTITIONS, 3, on=nodes)
    check(play(nodes, name, SkewedRecords(SHORT, KEYS, HOT), 2_500, hardships=True))


def test_the_judge_sees_a_key_that_is_released_early(
    nodes: KafkaCluster, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any hardship: a later record of a key overtakes those that still wait for its lane."""

    def released_early(self: Affinity, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._bound.pop(key, None)

    monkeypatch.setattr(Affinity, "release_all", released_early)
    for _ in range(3):  # on a busy machine none may overtake another one
        name = topic(PARTITIONS, 3, on=nodes)
        verdict = play(nodes, name, SkewedRecords(6_000, KEYS, HOT), 3_000, hardships=False).verdict
        if verdict.broken:
            break
    assert verdict.broken == [f"{verdict.reordered} reordered"]


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_each_key_keeps_its_order_for_long(nodes: KafkaCluster, topic: TopicFactory) -> None:
    """A million records, and everything again and again."""
    name = topic(PARTITIONS, 3, on=nodes)
    check(play(nodes, name, SkewedRecords(FULL, KEYS, HOT), 8_000, hardships=True, again=True))
