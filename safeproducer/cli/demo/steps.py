"""The demonstration on embedded brokers has five steps, each with what is ordered from the cluster.

The last one is about a partition behind a long link, whose leader says how many batches it remembers (KIP-1269). It has
a producer and a topic of its own, because there only the order of each key is kept.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safeproducer import HoldReason, SafeProducer
from safeproducer.cli.common.connection import extra
from safeproducer.cli.demo import proof
from safeproducer.cli.demo.display import Display, PartitionView
from safeproducer.cli.demo.experiment import Entry, Experiment, StepSender
from safeproducer.cli.demo.proof import Proof, Waiting
from safeproducer.policy.window import MINIMUM, TOPIC_CONFIG

if TYPE_CHECKING:
    from safeproducer.testing import FakeCluster
    from safeproducer.testing.fake.state.cluster_state import JournalEntry

_WINDOW = 20
_ROUND_TRIP = 0.04
_SECONDS = 2.5
_KEYS = 500
_SETTINGS = {"safeproducer.ordering": "key", "safeproducer.mode": "held", "batch.num.messages": 20}
_BACKLOG = {"queue.buffering.max.messages": 5_000, "log_level": 0}


@dataclass(frozen=True, slots=True)
class FarRun:
    """The results of a run: the window and why, lanes, records delivered and failed, seconds, and the log's content."""

    window: int
    reason: str
    lanes: int
    delivered: int
    failed: int
    seconds: float
    log: Sequence[tuple[bytes, int]]
    """(key, number) of each record, in order."""


def send_far(cluster: FakeCluster, topic: str, ended: Callable[[], bool]) -> FarRun:
    """Send as much as goes to the far leader for a while, and read it back."""
    for broker in cluster.brokers:
        cluster.set_kip_1269(broker, True)
    cluster.create_topic(topic, partitions=1, config={TOPIC_CONFIG: str(_WINDOW)})
    cluster.delay(_ROUND_TRIP)
    counts = {True: 0, False: 0}

    def report(error: Any, _: Any) -> None:
        counts[error is None] += 1

    try:
        with SafeProducer({"bootstrap.servers": cluster.bootstrap, **_SETTINGS, **_BACKLOG}) as producer:
            started, numbers = time.monotonic(), itertools.count()
            number = next(numbers)
            while time.monotonic() < started + _SECONDS and not ended():
                try:
                    producer.produce(topic, b"%d" % number, b"%d" % (number % _KEYS), partition=0, on_delivery=report)
                except BufferError:
                    producer.poll(0.01)
                else:
                    number = next(numbers)
            snapshot = producer.snapshot()
            producer.flush(10)
            seconds = time.monotonic() - started
    finally:
        cluster.delay(0)
    log = [(record.key or b"", int(record.value or b"-1")) for record in cluster.log(topic)]
    window = snapshot.windows[0] if snapshot.windows else None
    return FarRun(
        0 if window is None else window.size,
        "its leader was not asked" if window is None else window.reason,
        snapshot.lanes,
        counts[True],
        counts[False],
        seconds,
        log,
    )


def of_far_leader(run: FarRun) -> Proof:
    """The announced window was found and used, and each key is in the log in order, once. Pure."""
    newest: dict[bytes, int] = defaultdict(lambda: -1)
    disorder = 0
    for key, number in run.log:
        disorder += number <= newest[key]
        newest[key] = max(newest[key], number)
    exact = not disorder and not run.failed and len(run.log) == run.delivered
    speed = run.delivered / run.seconds
    return Proof(
        exact and run.window == _WINDOW and MINIMUM < run.lanes <= _WINDOW,
        f"{run.reason[:1].upper()}{run.reason[1:]}: {run.lanes} lanes carried {speed:,.0f} records a second over a "
        f"round trip of {_ROUND_TRIP * 1000:.0f} ms; {len(run.log):,} read back, "
        + ("each key in order." if exact else f"{disorder} out of order, {run.failed} failed."),
        {
            "window": run.window,
            "lanes": run.lanes,
            "records": run.delivered,
            "records_per_second": round(speed),
            "in_log": len(run.log),
            "out_of_order": disorder,
        },
    )


PARTITIONS = 6
RECORDS = 20_000
"""Records of all steps together."""
BROKER_CONFIG = {"quota.window.num": "2"}
"""A rate is measured over the last two seconds instead of eleven, or a burst would be forgiven too long to watch."""

_RATE = 2_000
_BURST_RATE = 3_000
_HOT_IN_TEN = 8
_CALM_RATE = 750
_UNLIMITED = 1e12
_MOVED, _HOT = 0, 2
_ANSWERS = 3
_THROTTLING = (HoldReason.THROTTLED, HoldReason.PROBING)
_SAMPLE_EVERY = 0.1
_LATER = 400
"""The fault of a step comes behind this many of its records: while others are on their way."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step in a word and in a sentence, which records (by number) belong to it, and what proves it."""

    name: str
    title: str
    first: int
    end: int
    proof: Proof


class Steps:
    """Runs the steps one after the other; ``tick`` has to be called while the experiment waits.

    The cluster is a FakeCluster of three brokers with BROKER_CONFIG and the topic, of PARTITIONS partitions. Used by
    one thread.
    """

    def __init__(self, cluster: FakeCluster, producer: SafeProducer, topic: str, client_id: str) -> None:
        self._cluster = cluster
        self._producer = producer
        self._topic = topic
        self._client_id = client_id
        self._leaders = {partition: cluster.leader(topic, partition)[0] for partition in range(PARTITIONS)}
        self._next_sample = 0.0
        self._waiting: list[Waiting] = []
        self._display: Display | None = None
        self._seen = 0
        self.done: list[Step] = []

    def run(self, entries: Iterator[Entry], experiment: Experiment, display: Display, timeout: float) -> None:
        """Run all steps, or until a signal; ``timeout`` is for the acknowledgements at the end of each."""
        self._display = display
        for step_of in (self._flow, self._move, self._throttle, self._lose, self._go_far):
            if experiment.ended:
                break
            step = step_of(StepSender(entries, experiment, timeout))
            self.done.append(step)
            if not experiment.ended:
                display.say(step.proof.sentence, good=step.proof.shown)

    def tick(self) -> None:
        """Look at the producer, a few times a second."""
        now = time.monotonic()
        if now < self._next_sample:
            return
        self._next_sample = now + _SAMPLE_EVERY
        rows = {row.partition: row for row in self._producer.snapshot().partitions if row.topic == self._topic}
        self._waiting.append(
            Waiting(now, {number: row.held for number, row in rows.items() if row.held and row.reason in _THROTTLING})
        )
        if self._display is not None:
            self._display.show(
                [
                    PartitionView(number, leader, row.delivered, row.held, row.why or "")
                    for number, leader in self._leaders.items()
                    if (row := rows.get(number)) is not None
                ]
            )

    # --- steps -------------------------------------------------------------------------------------------------------

    def _flow(self, sender: StepSender) -> Step:
        title = self._begin(f"Records flow: {_RATE:,} a second to {PARTITIONS} partitions on three brokers.")
        self._cluster.set_quota("producer_byte_rate", _UNLIMITED, client_id=self._client_id)  # from now on it measures
        sender.send(4_000, _RATE, _evenly)
        sender.drain()
        return Step("flow", title, sender.first, sender.end, proof.of_flow(self._requests(), self._cluster.brokers))

    def _move(self, sender: StepSender) -> Step:
        old, epoch = self._cluster.leader(self._topic, _MOVED)
        title = self._begin(
            f"A leader moves: partition {_MOVED} goes from broker {old} to broker {_HOT}, in full flow."
        )
        sender.send(_LATER, _RATE, _evenly)
        moved_at = time.time()
        self._leaders[_MOVED] = self._cluster.move_leader(self._topic, _MOVED, to=_HOT)
        sender.send(4_000 - _LATER, _RATE, _evenly)
        sender.drain()
        new, new_epoch = self._cluster.leader(self._topic, _MOVED)
        found = proof.of_move(self._requests(), _MOVED, old, new, moved_at, (epoch, new_epoch))
        return Step("leader moved", title, sender.first, sender.end, found)

    def _throttle(self, sender: StepSender) -> Step:
        led = [number for number, leader in self._leaders.items() if leader == _HOT]
        rest = [number for number in self._leaders if number not in led]
        usage = self._cluster.quota_usage(_HOT)
        used = max((use.rate for use in usage if use.quota == "producer_byte_rate"), default=0.0)
        quota = max(1, math.ceil(used))
        title = self._begin(
            f"A broker throttles: broker {_HOT}, which leads {len(led)} partitions now, is sent a burst, and may take "
            f"{quota / 1000:,.0f} kB/s from this client."
        )
        self._waiting.clear()
        self._cluster.set_quota("producer_byte_rate", quota, client_id=self._client_id)
        sender.send(5_000, _BURST_RATE, lambda n: led[n % len(led)] if n % 10 < _HOT_IN_TEN else rest[n % len(rest)])
        sender.send(1_500, _CALM_RATE, _evenly)
        sender.drain()
        entries = self._requests()
        self._cluster.set_quota("producer_byte_rate", None, client_id=self._client_id)
        found = proof.of_throttle(entries, _HOT, led, self._waiting, sender.reports())
        # The next step begins with a broker that takes records.
        sender.rest(max((entry.time + entry.throttled_ms / 1000 for entry in entries), default=0.0))
        return Step("throttled", title, sender.first, sender.end, found)

    def _lose(self, sender: StepSender) -> Step:
        title = self._begin(f"Acknowledgements get lost: {_ANSWERS} times written, answer dropped, connection cut.")
        sender.send(_LATER, _RATE, _evenly)
        self._cluster.lose_acks(_ANSWERS, topic=self._topic)
        sender.send(5_500 - _LATER, _RATE, _evenly)
        sender.drain()
        return Step("answers lost", title, sender.first, sender.end, proof.of_lost_answers(self._requests(), _ANSWERS))

    def _go_far(self, sender: StepSender) -> Step:
        title = self._begin(
            f"A leader announces its window: {_WINDOW} batches of a producer, over a round trip of "
            f"{_ROUND_TRIP * 1000:.0f} ms, with the order of keys."
        )
        run = send_far(self._cluster, f"{self._topic}-far", lambda: sender.ended)
        return Step("window found", title, sender.first, sender.end, of_far_leader(run))

    def _begin(self, title: str) -> str:
        self._seen = len(self._cluster.journal("Produce"))
        if self._display is not None:
            self._display.say(title, number=len(self.done) + 1)
        return title

    def _requests(self) -> list[JournalEntry]:
        """The Produce requests to the brokers since the step began."""
        return self._cluster.journal("Produce")[self._seen :]


def _evenly(number: int) -> int:
    return number % PARTITIONS


BROKERS = 3


def embedded_cluster() -> AbstractContextManager[FakeCluster]:
    """A FakeCluster, which starts when it is entered; Failure if what it needs is not installed."""
    with extra("the embedded brokers need", ", or name real brokers with --bootstrap-servers"):
        from safeproducer.testing import FakeCluster  # noqa: PLC0415 - kafka-python is an extra
    return FakeCluster(BROKERS, broker_config=BROKER_CONFIG)
