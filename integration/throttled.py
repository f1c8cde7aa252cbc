"""Producers under a byte quota: what they sent, how often, and until when."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from integration.kafka.cluster import KafkaCluster
from integration.tap import Tap

STEP = 0.005

Maker = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class Quota:
    """`rate` bytes/s for a client that wants to send batches of `size` bytes, each to a partition of its own.

    `batch_size` is the producer's batch.size: what fills a batch belongs to the scale of a scenario.
    """

    batches: int
    rate: int
    size: int
    batch_size: int
    socket_timeout: float
    patience: float
    """Seconds within which everything is to be delivered."""


@dataclass(frozen=True)
class Outcome:
    """One client's run: Produce requests at the tap, retries among them, connections used, seconds to the last ack."""

    requests: int
    retries: int
    connections: int
    delivered: int
    errors: tuple[str, ...]
    seconds: float
    speed: float
    """Bytes per second until the last ack."""
    throttled: tuple[float, ...]
    """The throttle times in seconds that the broker asked for."""


class Client:
    """One producer with a client id, and a quota, of its own."""

    def __init__(self, make: Maker, quota: Quota, name: str, cluster: KafkaCluster) -> None:
        self.name = name
        self.reported = 0
        self.last = 0.0
        self.errors: list[str] = []
        self.throttled: list[float] = []
        self._quota = quota
        cluster.admin.create_topic(name, quota.batches)
        cluster.admin.set_quota(client_id=name, producer_byte_rate=quota.rate)
        self.producer = make(
            {
                "bootstrap.servers": cluster.bootstrap,
                "client.id": name,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.size": quota.batch_size,
                "socket.timeout.ms": int(quota.socket_timeout * 1e3),
                "log_level": 0,
                "error_cb": lambda error: None,
                "throttle_cb": lambda event: self.throttled.append(event.throttle_time),
            }
        )
        self.producer.list_topics(name, timeout=20)

    def produce(self, partitions: range) -> None:
        """A batch to each of these partitions at once."""
        make = random.Random(f"{self.name} {partitions}").randbytes
        for partition in partitions:
            self.producer.produce(self.name, make(self._quota.size), partition=partition, on_delivery=self._reported)

    def outcome(self, tap: Tap, started: float) -> Outcome:
        seen = [batch for batch in tap.batches if batch.topic == self.name]
        seconds = self.last - started
        return Outcome(
            requests=len(seen),
            retries=sum(batch.attempt > 1 for batch in seen),
            connections=len({batch.connection for batch in seen}),
            delivered=self.reported - len(self.errors),
            errors=tuple(self.errors),
            seconds=seconds,
            speed=self._quota.batches * self._quota.size / seconds,
            throttled=tuple(self.throttled),
        )

    def _reported(self, error: Any, message: Any) -> None:
        self.reported += 1
        self.last = time.monotonic()
        if error is not None:
            self.errors.append(error.name())


def deliver(makers: Sequence[Maker], quota: Quota, name: str, cluster: KafkaCluster, tap: Tap) -> list[Outcome]:
    """Let every maker's producer deliver under a quota of its own, all at the same time.

    The first batch goes alone: its answer announces a throttle time. Before one is known, first batches of partitions
    do not wait for each other.
    """
    clients = [Client(make, quota, f"{name}-{number}", cluster) for number, make in enumerate(makers)]
    started = time.monotonic()
    for done, batches in ((0, 1), (1, quota.batches)):
        for client in clients:
            client.produce(range(done, batches))
        while any(client.reported < batches for client in clients):
            assert time.monotonic() - started < quota.patience, [(one.name, one.reported) for one in clients]
            for client in clients:
                client.producer.poll(0)
            time.sleep(STEP)
    for client in clients:
        client.producer.close()
        cluster.admin.set_quota(client_id=client.name, producer_byte_rate=None)
    return [client.outcome(tap, started) for client in clients]
