"""A steady load on three brokers of which one is over its quota: what the partitions of the others still get."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from integration.kafka.cluster import KafkaCluster

Maker = Callable[[dict[str, Any]], Any]

VALUE = bytes(10_000)
BUFFER_KBYTES = 4_000
"""A second of the crowded partition's load."""
CROWDED_RATE, OTHER_RATE = 400, 20
"""Records per second for each partition: 4 MB/s, and 0.2 MB/s."""
QUOTA = 1_000_000
"""Bytes per second that each broker takes of the client: the crowded one's partition wants four times that."""
CROWDED = 0
STEP = 0.005


@dataclass(frozen=True)
class Speed:
    """Records per second that were delivered, of those that were due: to the crowded partition, and to the others."""

    crowded: float
    others: float
    refused: int
    """BufferErrors at produce() of records for the other partitions; they are not tried again."""


class Load:
    """One producer with one record stream for each partition; partition 0 has most of it."""

    def __init__(self, make: Maker, cluster: KafkaCluster, name: str, quota: int | None) -> None:
        cluster.admin.create_topic(name, 3 * cluster.size, configs={"min.insync.replicas": "1"})
        leaders = {number: view.leader for number, view in cluster.admin.partitions(name).items()}
        self._rates = {
            number: CROWDED_RATE if number == CROWDED else OTHER_RATE
            for number, leader in leaders.items()
            if number == CROWDED or leader != leaders[CROWDED]
        }
        self._sent = dict.fromkeys(self._rates, 0)
        self._refused = dict.fromkeys(self._rates, 0)
        self._delivered = dict.fromkeys(self._rates, 0)
        self.throttled: set[str] = set()
        if quota is not None:
            cluster.admin.set_quota(client_id=name, producer_byte_rate=quota)
        self._name = name
        self.producer = make(
            {
                "bootstrap.servers": cluster.bootstrap,
                "client.id": name,
                "enable.idempotence": True,
                "linger.ms": 5,
                "queue.buffering.max.kbytes": BUFFER_KBYTES,
                "throttle_cb": self._throttled,
                "log_level": 0,
                "error_cb": lambda error: None,
            }
        )
        self.producer.list_topics(name, timeout=20)

    def step(self, seconds: float) -> None:
        """Produce what is due that long after the start; a record that is refused is gone."""
        for partition, rate in self._rates.items():
            while self._sent[partition] < int(seconds * rate):
                self._sent[partition] += 1
                try:
                    self.producer.produce(self._name, VALUE, partition=partition, on_delivery=self._reported)
                except BufferError:
                    self._refused[partition] += 1
        self.producer.poll(0)

    def speed(self, seconds: float) -> Speed:
        others = [number for number in self._rates if number != CROWDED]
        return Speed(
            self._delivered[CROWDED] / seconds,
            sum(self._delivered[number] for number in others) / seconds,
            sum(self._refused[number] for number in others),
        )

    def _reported(self, error: Any, message: Any) -> None:
        if error is None:
            self._delivered[message.partition()] += 1

    def _throttled(self, event: Any) -> None:
        if event.throttle_time:
            self.throttled.add(event.broker_name)


def run(loads: Mapping[str, Load], seconds: float) -> dict[str, Speed]:
    """Drive all loads at the same time; what is still waiting afterwards is purged."""
    start = time.monotonic()
    while (now := time.monotonic() - start) < seconds:
        for load in loads.values():
            load.step(now)
        time.sleep(STEP)
    speeds = {name: load.speed(seconds) for name, load in loads.items()}
    for load in loads.values():
        load.producer.purge()
        load.producer.close(2)
    return speeds
