"""The last step of the demonstration: a partition behind a long link, whose leader says how many batches it remembers
(KIP-1269).

It has a producer and a topic of its own, because here only the order of each key is kept.
"""

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safeproducer import SafeProducer
from safeproducer.cli.demo.proof import Proof
from safeproducer.policy.window import MINIMUM, TOPIC_CONFIG

if TYPE_CHECKING:
    from safeproducer.testing import FakeCluster

WINDOW = 20
ROUND_TRIP = 0.04
_SECONDS = 2.5
_KEYS = 500
_SETTINGS = {"safeproducer.ordering": "key", "safeproducer.mode": "held", "batch.num.messages": 20}
_BACKLOG = {"queue.buffering.max.messages": 5_000, "log_level": 0}


@dataclass(frozen=True, slots=True)
class Run:
    """The results of a run: the window and why, lanes, records delivered and failed, seconds, and the log's content."""

    window: int
    reason: str
    lanes: int
    delivered: int
    failed: int
    seconds: float
    log: Sequence[tuple[bytes, int]]
    """(key, number) of each record, in order."""


def send(cluster: "FakeCluster", topic: str, ended: Callable[[], bool]) -> Run:
    """Send as much as goes to the far leader for a while, and read it back."""
    for broker in cluster.brokers:
        cluster.set_kip_1269(broker, True)
    cluster.create_topic(topic, partitions=1, config={TOPIC_CONFIG: str(WINDOW)})
    cluster.delay(ROUND_TRIP)
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
    return Run(
        0 if window is None else window.size,
        "its leader was not asked" if window is None else window.reason,
        snapshot.lanes,
        counts[True],
        counts[False],
        seconds,
        log,
    )


def proof(run: Run) -> Proof:
    """The announced window was found and used, and each key is in the log in order, once. Pure."""
    newest: dict[bytes, int] = defaultdict(lambda: -1)
    disorder = 0
    for key, number in run.log:
        disorder += number <= newest[key]
        newest[key] = max(newest[key], number)
    exact = not disorder and not run.failed and len(run.log) == run.delivered
    speed = run.delivered / run.seconds
    return Proof(
        exact and run.window == WINDOW and MINIMUM < run.lanes <= WINDOW,
        f"{run.reason[:1].upper()}{run.reason[1:]}: {run.lanes} lanes carried {speed:,.0f} records a second over a "
        f"round trip of {ROUND_TRIP * 1000:.0f} ms; {len(run.log):,} read back, "
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
