"""The clients that `scale` measures, each in a process of its own, and the clusters that they write to."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.brokers import broker
from benchmarks.client import PRODUCERS, SAFE
from benchmarks.link import link
from safeproducer.testing import DEFAULT, FakeCluster, FakeClusterProcess

ON_KAFKA = ("first", "more", "rested")
PHASES = (*ON_KAFKA, "throttled", "unthrottled", "moved", "away")
RECORDS = 2
"""Of each partition in each phase."""
VALUE = bytes(100)
BATCH_BYTES = 300
"""Of a request with RECORDS to one partition, about."""
REST = 3.0
EVERY = 100
"""Records between two calls of poll(0), which the application makes each TICK while it waits, too."""
TICK = 0.005
BROKERS, CLUSTER_TIMEOUT, ANSWER_TIMEOUT = 3, 60.0, 300.0
LOOKS = ("snapshot", "explain", "health")
Names = Sequence[tuple[str, int]]


@dataclass(frozen=True)
class Case:
    """Round trips are in milliseconds."""

    topics: int
    partitions: int
    rtt: int

    def __str__(self) -> str:
        return f"{self.topics} x {self.partitions}, {self.rtt} ms"

    @property
    def all(self) -> int:
        return self.topics * self.partitions


@dataclass(frozen=True)
class Phase:
    """Seconds, of which `cpu` is of the client's process. `metadata`: requests, None where nobody counts them."""

    wall: float
    cpu: float
    missing: int
    poll_ms: float
    metadata: int | None = None


@dataclass
class Run:
    """One client in one case. `kb` is resident memory of a partition, `idle` a share of a core, `looks` in ms."""

    case: Case
    way: str
    phases: dict[str, Phase] = field(default_factory=dict)
    kb: float = 0.0
    idle: float = 0.0
    looks: dict[str, float] = field(default_factory=dict)
    close: float = 0.0


class Fake:
    """FakeCluster, as new for each client."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def make(self, case: Case, prefix: str) -> str:
        """Make the topics; returns `bootstrap.servers`."""
        self._cluster.reset()
        for number in range(case.topics):
            self._cluster.create_topic(f"{prefix}{number}", case.partitions)
        self._cluster.delay(case.rtt / 1000)
        return self._cluster.bootstrap

    def begin(self, phase: str, names: Names) -> None:
        """What happens to the cluster in front of this phase."""
        self._cluster.set_quota("producer_byte_rate", None, user=DEFAULT)
        if phase == "throttled":  # what a phase writes is the quota of two seconds
            self._cluster.set_quota("producer_byte_rate", len(names) * BATCH_BYTES / BROKERS / 2, user=DEFAULT)
        elif phase == "moved":
            for name, partition in names[::3]:
                self._cluster.move_leader(name, partition)
        elif phase == "away":
            self._cluster.stop(1)

    def metadata(self) -> int | None:
        return len(self._cluster.journal("Metadata"))


class Kafka:
    """One node, on which topics stay."""

    def __init__(self, bootstrap: str, set_rtt: Callable[[float], object]) -> None:
        self._bootstrap = bootstrap
        self._set_rtt = set_rtt

    def make(self, case: Case, prefix: str) -> str:
        self._set_rtt(0)
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        for first in range(0, case.topics, 500):
            numbers = range(first, min(first + 500, case.topics))
            made = admin.create_topics([NewTopic(f"{prefix}{number}", case.partitions, 1) for number in numbers])
            for future in made.values():
                future.result(CLUSTER_TIMEOUT)
        self._set_rtt(case.rtt)
        time.sleep(REST)  # the node is busy with them for a while
        return self._bootstrap

    def begin(self, phase: str, names: Names) -> None: ...

    def metadata(self) -> int | None:
        return None


@contextmanager
def clusters(*, kafka: bool, far: bool) -> Iterator[Fake | Kafka]:
    """A cluster for the time of a `with` block."""
    if not kafka:
        windows = {"quota.window.num": "2"}  # else the burst of the first ten seconds is free
        with FakeClusterProcess(BROKERS, broker_config=windows, timeout=CLUSTER_TIMEOUT) as cluster:
            yield Fake(cluster)
    elif far:
        with link() as way:
            yield Kafka(way.bootstrap, way.set_rtt)
    else:
        with broker(mock=False) as node:
            yield Kafka(node.bootstrap, lambda _: None)


@dataclass(frozen=True)
class Plan:
    """What each client does. Seconds: `limit` of a phase, `settle` behind the last one, `idle` measured then.

    `apart`: for how long the application computes in front of each record.
    """

    phases: Sequence[str]
    limit: float
    settle: float
    idle: float
    apart: float


def run(stage: Fake | Kafka, case: Case, way: str, side: str, settings: Mapping[str, Any], plan: Plan) -> Run:
    """One client. It leaves out what would come behind a phase that does not end in time."""
    prefix = f"scale-{time.monotonic_ns()}-"
    bootstrap = stage.make(case, prefix)
    names = [(f"{prefix}{topic}", number) for topic in range(case.topics) for number in range(case.partitions)]
    config = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0, **settings}
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, side, config, names), daemon=True)
    process.start()
    theirs.close()

    def ask(*order: Any) -> Any:
        ours.send(order)
        if not ours.poll(ANSWER_TIMEOUT + plan.limit):
            raise TimeoutError(f"{case}, {way}: {order[0]} was not answered")
        return ours.recv()

    done = Run(case, way)
    try:
        for phase in plan.phases:
            if phase == "rested":
                ask("rest", REST)
            stage.begin(phase, names)
            before = stage.metadata()
            wrote: Phase = ask("write", plan.limit, plan.apart)
            asked = None if before is None else (stage.metadata() or 0) - before
            done.phases[phase] = replace(wrote, metadata=asked)
            if wrote.wall >= plan.limit:
                break
        done.looks = ask("looks")
        ask("rest", plan.settle)
        done.kb = ask("memory") / 1e3 / case.all
        done.idle = ask("rest", plan.idle)
        done.close = ask("close")
    finally:
        process.kill()
        process.join()
    return done


def _serve(pipe: Connection, side: str, config: dict[str, Any], names: Names) -> None:
    logging.disable()
    client = _Client(side, config, names)
    while True:
        name, *given = pipe.recv()
        pipe.send(getattr(client, name)(*given))


class _Client:
    """In a child: one application with one producer."""

    def __init__(self, side: str, config: dict[str, Any], names: Names) -> None:
        gc.collect()
        self._resident = psutil.Process().memory_info().rss
        self._producer = PRODUCERS[side](config)
        self._side = side
        self._names = names
        self._poll = 0.0

    def write(self, limit: float, apart: float) -> Phase:
        """RECORDS to each partition, over all of them in turn, and wait for the reports."""
        got = [0, 0]

        def on_delivery(error: Any, _: Any) -> None:
            got[error is not None] += 1

        produce, names, self._poll = self._producer.produce, self._names, 0.0
        started, used = time.monotonic(), time.process_time()
        for _ in range(RECORDS):
            for number, (topic, partition) in enumerate(names):
                computed = time.perf_counter() + apart
                while apart and time.perf_counter() < computed:
                    pass
                produce(topic, VALUE, key=b"%d" % number, partition=partition, on_delivery=on_delivery)
                if number % EVERY == 0:
                    self._polled()
        while sum(got) < RECORDS * len(names) and time.monotonic() < started + limit:
            self._polled()
            time.sleep(TICK)
        wall, used = time.monotonic() - started, time.process_time() - used
        return Phase(wall, used, RECORDS * len(names) - got[0], self._poll * 1e3)

    def _polled(self) -> None:
        started = time.perf_counter()
        self._producer.poll(0)
        self._poll = max(self._poll, time.perf_counter() - started)

    def rest(self, seconds: float) -> float:
        """The share of a core that was used meanwhile."""
        started, used = time.monotonic(), time.process_time()
        while time.monotonic() < started + seconds:
            self._producer.poll(0.1)
        return (time.process_time() - used) / (time.monotonic() - started)

    def looks(self) -> dict[str, float]:
        """The worst of three."""
        found = {}
        for name in LOOKS if self._side == SAFE else ():
            took = []
            for _ in range(3):
                started = time.perf_counter()
                getattr(self._producer, name)()
                took.append(time.perf_counter() - started)
            found[name] = max(took) * 1e3
        return found

    def memory(self) -> int:
        gc.collect()
        return psutil.Process().memory_info().rss - self._resident

    def close(self) -> float:
        started = time.monotonic()
        if self._side == SAFE:
            self._producer.close(10)
        else:
            self._producer.flush(10)
            del self._producer
        return time.monotonic() - started
