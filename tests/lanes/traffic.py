"""Records that tell apart which key they belong to and in what order they were produced, and what became of each."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import inf
from operator import attrgetter
from typing import Any

from safeproducer import SafeProducer
from safeproducer.testing import FakeCluster

DELIVERED, NOT_WRITTEN, UNKNOWN = "delivered", "not_written", "unknown"


class Traffic:
    """Produces to one topic and keeps the account of it: `ended` is value -> how it ended.

    `keys` are used in turn, from number `first` on; None for records without a key.
    """

    def __init__(self, producer: SafeProducer, topic: str, keys: int | None = 1000, first: int = 0) -> None:
        self.producer = producer
        self.topic = topic
        self.keys = keys
        self.first = first
        self.accepted = 0
        self.ended: dict[bytes, str] = {}
        self.twice: list[bytes] = []

    def send(self, count: int) -> None:
        """That many records more, one key after the other, without waiting for anything."""
        for _ in range(count):
            key = self._key(self.accepted)
            self.producer.produce(self.topic, self.value(self.accepted), key, on_delivery=self._note)
            self.accepted += 1

    def _key(self, number: int) -> bytes | None:
        return None if self.keys is None else b"k%d" % (self.first + number % self.keys)

    def value(self, number: int) -> bytes:
        """Of the record with this number, counted from 0."""
        return b"%s:%d" % (self._key(number) or b"", number)

    def _note(self, error: Any, message: Any) -> None:
        value = message.value()
        if value in self.ended:
            self.twice.append(value)
        self.ended[value] = DELIVERED if error is None else str(error.outcome)

    def until(self, happened: Callable[[], object], timeout: float = 60.0, backlog: int = 0) -> None:
        """Poll, with up to `backlog` records waiting, until it happened; AssertionError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not happened():
            assert time.monotonic() < deadline, f"it did not happen within {timeout} s: {self.producer.explain()}"
            if (missing := backlog - self.waiting) > 0:
                self.send(missing)
            self.producer.poll(0.005)

    def keep(self, seconds: float, backlog: int) -> None:
        """Go on under load for a while."""
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end, seconds + 5, backlog)

    @property
    def waiting(self) -> int:
        """How many records have no report yet."""
        return self.accepted - len(self.ended)

    def finish(self, timeout: float = 30.0) -> Counter[str]:
        """Wait for all reports; how many records ended how."""
        assert self.producer.flush(timeout) == 0, self.producer.explain()
        return Counter(self.ended.values())

    def check(self, cluster: FakeCluster, partitions: int = 1) -> None:
        """Each record ended once; delivered ones are in the log once, unknown ones at most once, others not; keys are
        in order, unknown records included."""
        assert self.twice == []
        assert len(self.ended) == self.accepted
        written: list[bytes] = []
        for partition in range(partitions):
            values = [record.value for record in cluster.log(self.topic, partition) if record.value is not None]
            written += values
            check_order(values)
        copies = Counter(written)
        for value, how in self.ended.items():
            allowed = {DELIVERED: (1,), NOT_WRITTEN: (0,), UNKNOWN: (0, 1)}[how]
            assert copies[value] in allowed, f"{value!r} is {how} and in the log {copies[value]} times"


def check_order(values: list[bytes]) -> None:
    """The records of each key are in the order in which they were produced."""
    last: dict[bytes, int] = defaultdict(lambda: -1)
    for value in values:
        key, number = value.rsplit(b":", 1)
        if key:
            assert int(number) > last[key], f"{value!r} is behind number {last[key]} of its key"
            last[key] = int(number)


@dataclass(frozen=True, slots=True)
class Batch:
    """What the journal shows of one batch, in seconds since the Unix epoch.

    It was unresolved at least from `came`, its first attempt's arrival, to `left`, when the answer was sent that the
    client had to wait for. A client counts it from a little earlier until a little later.
    """

    topic: str
    partition: int
    broker: int
    came: float
    left: float


def batches(cluster: FakeCluster, late: float) -> list[Batch]:
    """All batches that came, oldest first, when each Produce answer is `late` seconds behind its request."""
    found: dict[tuple[object, ...], Batch] = {}
    for entry in cluster.journal("Produce"):
        for batch in entry.batches:
            name = (batch.topic, batch.partition, batch.producer_id, batch.epoch, batch.first_sequence)
            first = found.get(name, Batch(batch.topic, batch.partition, entry.broker, entry.time, 0.0))
            found[name] = replace(first, left=entry.time + late)
    return sorted(found.values(), key=attrgetter("came"))


def depths(batches: Iterable[Batch]) -> list[tuple[float, int]]:
    """For each batch: when it came, and how many were unresolved then, itself included."""
    under_way: list[float] = []
    found = []
    for batch in batches:
        under_way = [left for left in under_way if left > batch.came] + [batch.left]
        found.append((batch.came, len(under_way)))
    return found


def most_unresolved(
    cluster: FakeCluster, topic: str, late: float, since: float = 0.0, until: float = inf, partition: int = 0
) -> int:
    """The most batches of one partition at once, counted when one came between two moments; 0 for none."""
    of_topic = [batch for batch in batches(cluster, late) if (batch.topic, batch.partition) == (topic, partition)]
    return max((depth for came, depth in depths(of_topic) if since <= came < until), default=0)
