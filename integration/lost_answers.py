"""The scenario in which a time-out makes duplicates: answers are lost, deadlines pass, the link heals, life goes on.

Batches go to several partitions at different times, and each is written while its first answers never arrive. The
confluent_kafka producer gives up the oldest at its deadline, raises the epoch of the whole producer, and then sends the
others again under new sequence numbers: the broker cannot know them and writes them twice.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from integration.faults.account import Account, Told
from integration.faults.oracle import Verdict, judge
from integration.faults.records import Records
from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import read_records
from integration.kafka.poll import until
from integration.tap import Tap

RECORDS_A_BATCH = 10
DEADLINE = 3.0
"""message.timeout.ms of all producers, in seconds."""
AFTERWARDS = DEADLINE + 2.5
"""When the partitions get one more batch: all earlier ones are decided by then, or ought to be."""
PATIENCE = 45.0
CLOSING = 3.0
STEP = 0.005

Maker = Callable[[dict[str, Any]], Any]
"""A producer's class, or what makes one from a configuration."""


@dataclass(frozen=True)
class Plan:
    """What happens, by seconds from the start. `batches` are (when, stream); streams are partitions from 0 on."""

    seed: int
    streams: int
    in_one_call: bool
    """produce_batch() instead of produce()."""
    batches: tuple[tuple[float, int], ...]
    lost: tuple[int, ...]
    """For each stream, how many answers never arrive."""
    socket_timeout: float

    @classmethod
    def of(cls, seed: int, streams: int | None = None, *, in_one_call: bool | None = None) -> Plan:
        """A plan like the measured one: the first batch to stream 0, the others a second or two later."""
        chance = random.Random(seed)
        count = streams or chance.randint(1, 10)
        batches = [(0.0, 0)]
        batches += [(chance.uniform(0.3, 2.4), stream) for stream in range(1, count)]
        if count == 1:
            batches.append((1.5, 0))
        batches += [(AFTERWARDS, stream) for stream in range(count)]
        together = chance.random() < 0.5 if in_one_call is None else in_one_call
        lost = tuple(chance.choice((1, 1, 2)) for _ in range(count))
        return cls(seed, count, together, tuple(sorted(batches)), lost, chance.choice((2.0, 10.0, 60.0)))

    @classmethod
    def measured(cls, streams: int, *, in_one_call: bool) -> Plan:
        """Nothing left to chance: stream 0, then all others 1.5 s later, one answer of each lost, no retry in time."""
        later = range(1, streams) if streams > 1 else (0,)
        batches = [(0.0, 0), *((1.5, stream) for stream in later), *((AFTERWARDS, one) for one in range(streams))]
        return cls(0, streams, in_one_call, tuple(batches), (1,) * streams, 60.0)

    @property
    def records(self) -> Records:
        """Every stream has the same number of records, so that the oracle knows them by their index."""
        rounds = max(sum(stream == one for _, stream in self.batches) for one in range(self.streams))
        return Records(rounds * RECORDS_A_BATCH * self.streams, self.streams, producer=f"s{self.seed}")

    def __str__(self) -> str:
        call = "produce_batch" if self.in_one_call else "produce"
        return f"{'seed ' + str(self.seed) if self.seed else 'as measured'}, {self.streams} partition(s), {call}()"


class Run:
    """One producer that follows a plan on a topic of its own, a step at a time."""

    def __init__(self, plan: Plan, make: Maker, bootstrap: str, topic: str) -> None:
        self.plan = plan
        self.topic = topic
        self.account = Account(plan.records)
        self.done = False
        self._todo = list(plan.batches)
        self._next = [0] * plan.streams
        config = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            # One request for each batch, on a busy machine, too: a broker answers requests in order, so that it cannot
            # lose the answer to the first half of a batch alone.
            "linger.ms": 500,
            "message.timeout.ms": int(DEADLINE * 1e3),
            "socket.timeout.ms": int(plan.socket_timeout * 1e3),
            "log_level": 0,
            "error_cb": _ignore,
        }
        self._producer = make(config)
        self._producer.list_topics(topic, timeout=20)  # so that the first batch leaves at once

    def step(self, now: float) -> None:
        """Do what is due `now` seconds after the start, and serve the reports."""
        while self._todo and self._todo[0][0] <= now:
            self._produce(self._todo.pop(0)[1])
        self._producer.poll(0)
        self.done = not self._todo and not self.account.outstanding

    def waiting(self) -> str:
        """Which producer of which plan has told too little: records by partition, and what it says of them."""
        told, stream = self.account.told, self.account.records.stream
        missing = Counter(stream(index) for index in range(len(told)) if told[index] == Told.ACCEPTED)
        said = self._producer.explain() if hasattr(self._producer, "explain") else f"{len(self._producer)} inside"
        return f"{self._producer!r}, {self.plan}, {self.topic}: no report {dict(missing)}; {said}"

    def close(self) -> None:
        """Whatever is inside the producer ends here."""
        self._producer.close(CLOSING)

    def verdict(self, log: Sequence[Sequence[bytes | None]]) -> Verdict:
        """What the oracle says, given the values of all partitions of the topic."""
        return judge(self.account, log)

    def _produce(self, stream: int) -> None:
        records = self.account.records
        start = self._next[stream]
        self._next[stream] += RECORDS_A_BATCH
        indices = [number * records.streams + stream for number in range(start, start + RECORDS_A_BATCH)]
        for index in indices:
            self.account.accept(index)
        partition = stream
        if self.plan.in_one_call:
            messages = [{"value": records.value(index)} for index in indices]
            taken = self._producer.produce_batch(
                self.topic, messages, partition=partition, on_delivery=self.account.report
            )
            assert taken == len(messages)
        else:
            for index in indices:
                self._producer.produce(
                    self.topic, records.value(index), partition=partition, on_delivery=self.account.report
                )


def play(cast: Sequence[tuple[Plan, Maker]], cluster: KafkaCluster, tap: Tap, name: str) -> list[Verdict]:
    """Follow all plans side by side, each with a producer and a topic of its own; verdicts in the same order.

    A topic for each, because a client's statistics list all partitions of the topics it knows.
    """
    runs: list[Run] = []
    for number, (plan, make) in enumerate(cast):
        topic = f"{name}-{number}"
        cluster.admin.create_topic(topic, plan.streams)
        runs.append(Run(plan, make, cluster.bootstrap, topic))
        for stream, lost in enumerate(plan.lost):
            tap.drop_answers(n=lost, keep_open=True, topic=topic, partition=stream)
    start = time.monotonic()
    while not all(run.done for run in runs):
        now = time.monotonic() - start
        assert now < PATIENCE, "\n".join(run.waiting() for run in runs if not run.done)
        for run in runs:
            run.step(now)
        time.sleep(STEP)
    with ThreadPoolExecutor(len(runs)) as pool:  # one that still waits for an answer takes its time
        list(pool.map(Run.close, runs))
    tap.heal()
    until_settled(cluster, [run.topic for run in runs])
    return [run.verdict(written(cluster, run.topic)) for run in runs]


def settled(cluster: KafkaCluster, topic: str) -> list[list[bytes | None]]:
    """The values of each partition, once nothing more arrives."""
    until_settled(cluster, [topic])
    return written(cluster, topic)


def until_settled(cluster: KafkaCluster, topics: Sequence[str]) -> None:
    """Wait until nothing more arrives."""

    def ends() -> list[list[int]]:
        return [cluster.admin.end_offsets(topic) for topic in topics]

    seen = [ends()]

    def quiet() -> bool:
        seen.append(ends())
        return seen[-1] == seen[-2]

    until(quiet, "the topics grow no more", interval=0.3)


def written(cluster: KafkaCluster, topic: str) -> list[list[bytes | None]]:
    """The values of each partition."""
    return [[record.value for record in partition] for partition in read_records(cluster.direct_bootstrap, topic)]


def _ignore(error: object) -> None:
    """Time-outs are what this is about."""
