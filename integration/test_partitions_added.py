"""Topics that grow and leaders that move, on three real nodes at a distance: each lane has metadata of its own."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from integration.kafka.cluster import KafkaCluster
from integration.kafka.poll import until
from integration.tap import ConfigEntry, Tap
from safeproducer import SafeProducer
from safeproducer.policy.partitioner import partitioner
from safeproducer.policy.window import BROKER_CONFIG

TopicFactory = Callable[..., str]

KEYS = 40
GROWTH = 10
PACE = 0.003
"""Seconds between two records."""
WINDOW = 30
PLACE = partitioner("consistent")
MODES: dict[str, tuple[float, dict[str, str]]] = {
    "auto, far": (0.03, {}),
    "held": (0.0, {"safeproducer.mode": "held"}),
    "key": (0.0, {"safeproducer.mode": "held", "safeproducer.ordering": "key", "safeproducer.lanes": "4"}),
}


@pytest.fixture(scope="module")
def nodes() -> Iterator[KafkaCluster]:
    """Three nodes behind a tap."""
    with KafkaCluster(3, tapped=True) as cluster:
        yield cluster


class Load:
    """Records of some keys as fast as they may go; `places`: key -> [(number, partition)]."""

    def __init__(self, bootstrap: str, topic: str, **config: Any) -> None:
        self.topic = topic
        self.failed: Counter[str] = Counter()
        self.delivered = 0
        self.places: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._number = 0
        self.producer = SafeProducer(
            {
                "bootstrap.servers": bootstrap,
                "partitioner": "consistent",
                "safeproducer.producer.ids.policy": "off",
                "queue.buffering.max.messages": 4000,
                **config,
            }
        )

    def run(self, seconds: float, pace: float = 0.0) -> float:
        """Records delivered in a second."""
        begun, before = time.monotonic(), self.delivered
        while (spent := time.monotonic() - begun) < seconds:
            try:
                key = self._number % KEYS
                self.producer.produce(self.topic, b"%d" % self._number, b"%d" % key, on_delivery=self._report)
                self._number += 1
            except BufferError:
                self.producer.poll(0.002)
            self.producer.poll(pace)
        return (self.delivered - before) / spent

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed[error.name()] += 1
            return
        self.delivered += 1
        key, value, partition = message.key(), message.value(), message.partition()
        assert key is not None
        assert value is not None
        assert partition is not None
        self.places[int(key)].append((int(value), partition))

    def counts(self, key: int) -> list[int]:
        """By how many partitions each record of a key was placed, if these only grew."""
        found = [1]
        for _, partition in sorted(self.places[key]):
            count = next((c for c in range(found[-1], GROWTH + 2) if PLACE(b"%d" % key, c) == partition), None)
            assert count is not None, f"key {key} went back to partition {partition}: {sorted(self.places[key])}"
            found.append(count)
        return found


@pytest.mark.parametrize("mode", MODES)
def test_a_topic_that_grows_loses_no_record_and_no_order(nodes: KafkaCluster, topic: TopicFactory, mode: str) -> None:
    """As with confluent_kafka: no record fails, and a key changes its partition once for each addition at most."""
    one_way, config = MODES[mode]
    name = topic(partitions=1, replication=3, on=nodes)
    with Tap(nodes) as tap:
        tap.delay(one_way)
        load = Load(nodes.bootstrap, name, **{"topic.metadata.refresh.interval.ms": 3000}, **config)
        with load.producer as producer:
            load.run(2.0, PACE)
            for count in range(2, GROWTH + 2):
                nodes.admin.create_partitions(name, count)
                if count % 2:
                    producer.list_topics(name, 10)
                load.run(0.4, PACE)
            load.run(3.5, PACE)
            assert producer.flush(30) == 0
    assert not load.failed
    assert sorted(load.places) == list(range(KEYS))
    assert max(load.counts(key)[-1] for key in range(KEYS)) == GROWTH + 1


def test_the_window_is_the_next_leaders_after_each_restart(nodes: KafkaCluster, topic: TopicFactory) -> None:
    """A rolling restart: 5 at a leader change, then what the new leader remembers, by two questions at most."""
    name = topic(partitions=1, replication=3, on=nodes)
    with Tap(nodes) as tap:
        tap.delay(0.04)
        tap.rewrite_configs(lambda kind, _: {BROKER_CONFIG: ConfigEntry(str(WINDOW))} if kind == 4 else {})
        config = {"safeproducer.ordering": "key", "batch.num.messages": 20, "linger.ms": 2}
        # While a replica is out of sync, replication asks as well.
        load = Load(nodes.bootstrap, name, **config, **{"safeproducer.replication": "off"})
        with load.producer as producer:

            def is_wide() -> bool:
                load.run(0.2)
                return [window.size for window in producer.snapshot().windows] == [WINDOW]

            until(is_wide, "the window of the first leader", 30)
            before = load.run(1.0)
            for _ in range(2):
                leader = nodes.admin.leader(name, 0)
                asked = len(tap.requests("DescribeConfigs"))
                nodes.nodes[leader].stop()
                load.run(1.0)
                nodes.nodes[leader].start()
                until(is_wide, "the window of the next leader", 30)
                after, asked = load.run(1.0), len(tap.requests("DescribeConfigs")) - asked
                print(f"{after / before:.2f} of the throughput before the restart, {asked} questions")
                assert asked <= 2
                assert is_wide()
            assert producer.flush(30) == 0
    assert not load.failed
