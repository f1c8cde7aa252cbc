"""Counts the false alarms of a healthy stretch: bursts, rests, moved leaders, slow callbacks, many topics, load.

Nothing is wrong here, so each look at the producer must say so: `health()` is ok without reasons, no partition waits
for a trouble, nothing is logged as a warning, no record fails. FakeCluster lives in a process of its own.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import random
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.interleaved import show
from benchmarks.table import Bar, conclude
from safeproducer import HoldReason, SafeProducer
from safeproducer.testing import FakeCluster, FakeClusterProcess

TROUBLES = {HoldReason.LEADER_SILENT, HoldReason.UNKNOWN_TOPIC, HoldReason.NO_BROKER}
LOOK_EVERY = 0.2
UNRESOLVED_FOR = 10.0
"""Seconds after which a record that waits is a trouble for health(), here: a busy machine takes seconds."""
LASTS = 2.0
"""Seconds after which a partition that waits for a trouble counts: a topic is unknown until a broker has answered."""
SLOW_CALLBACK = 0.3
MOST_TOPICS = 300


@dataclass(frozen=True)
class Stretch:
    """How it went. `alarms`: what was told, and in how many looks."""

    mode: str
    minutes: float
    busy: int
    accepted: int
    delivered: int
    failed: int
    looks: int
    phases: dict[str, int]
    alarms: dict[str, int]


class Alarms(logging.Handler):
    """What the producer told that it should not have told: to the log, and to who looks."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: Counter[str] = Counter()
        self.looks = 0
        self._since: dict[tuple[str, int, HoldReason | None], float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.told[f"log: {record.getMessage()}"] += 1

    def look(self, producer: SafeProducer) -> None:
        """Ask as a probe, a person and a dashboard would."""
        self.looks += 1
        health = producer.health(unresolved_for=UNRESOLVED_FOR)
        if not health.ok:
            self.told[f"health: {'; '.join(reason.sentence for reason in health.reasons)}"] += 1
        now = time.monotonic()
        rows = [row for row in producer.snapshot().partitions if row.reason in TROUBLES]
        self._since = {row: self._since.get(row, now) for row in ((at.topic, at.partition, at.reason) for at in rows)}
        for (topic, partition, reason), since in self._since.items():
            if now - since >= LASTS:
                self.told[f"{reason}: {producer.explain(topic, partition)}"] += 1


def main() -> None:
    options = arguments()
    stop = multiprocessing.Event()
    busy = [multiprocessing.Process(target=_busy, args=(stop,), daemon=True) for _ in range(options.busy)]
    for one in busy:
        one.start()
    try:
        found = [stretch(mode, options.minutes, options.busy, options.seed) for mode in options.mode]
    finally:
        stop.set()
        for one in busy:
            one.join()
    bars = [Bar(f"false alarms, {one.mode}", float(sum(one.alarms.values())), 0.0, at_least=False) for one in found]
    conclude(
        {"stretches": list(map(asdict, found))}, "\n\n".join(map(described, found)), bars, options.json, options.check
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench healthy", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5, help="how long, for each mode (5)")
    parser.add_argument("--busy", type=int, default=0, help="processes that keep the machine busy meanwhile (0)")
    parser.add_argument("--mode", nargs="+", choices=("auto", "held"), default=("auto", "held"))
    parser.add_argument("--seed", type=int, default=1, help="what happens, and when (1)")
    parser.add_argument("--check", action="store_true", help="exit with 1 after a false alarm")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def stretch(mode: str, minutes: float, busy: int, seed: int) -> Stretch:
    """One producer's life."""
    dice, alarms, over = random.Random(seed), Alarms(), threading.Event()
    logging.getLogger("safeproducer").addHandler(alarms)
    ended: Counter[bool] = Counter()
    phases: Counter[str] = Counter()
    with FakeClusterProcess(brokers=3) as cluster:
        for number in range(MOST_TOPICS):
            cluster.create_topic(f"topic-{number}", partitions=2)
        producer = SafeProducer({"bootstrap.servers": cluster.bootstrap, "safeproducer.mode": mode})
        watch = threading.Thread(target=_watch, args=(producer, alarms, over), daemon=True)
        watch.start()
        deadline = time.monotonic() + minutes * 60
        while (left := deadline - time.monotonic()) > 0:
            show(f"{mode}: {left:.0f} s are left; {sum(alarms.told.values())} false alarm(s) so far")
            phase = dice.choice((_burst, _trickle, _rest, _move, _slow, _many))
            phases[phase.__name__[1:]] += 1
            phase(producer, cluster, dice, ended)
        report = producer.close(60)
        over.set()
        watch.join()
    logging.getLogger("safeproducer").removeHandler(alarms)
    show("")
    if report.left or ended[False]:
        alarms.told[f"{report.left} left, {ended[False]} failed"] += 1
    told = dict(alarms.told.most_common())
    return Stretch(
        mode, minutes, busy, report.accepted, report.delivered, report.failed, alarms.looks, dict(phases), told
    )


def described(one: Stretch) -> str:
    happened = ", ".join(f"{count} x {name}" for name, count in sorted(one.phases.items()))
    alarms = "\n".join(f"  {count} x {text}" for text, count in one.alarms.items())
    return (
        f"{one.mode}, {one.minutes:g} minutes, {one.busy} busy processes: {happened}; "
        f"{one.delivered} of {one.accepted} delivered; {one.looks} looks, "
        f"{sum(one.alarms.values())} false alarm(s)\n{alarms}"
    ).rstrip()


def _send(producer: SafeProducer, topic: str, records: int, size: int, ended: Counter[bool]) -> None:
    def told(error: Any, _message: Any) -> None:
        ended[error is None] += 1

    for number in range(records):
        while True:
            try:
                producer.produce(topic, bytes(size), key=str(number % 50).encode(), on_delivery=told)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)


def _burst(producer: SafeProducer, cluster: FakeCluster, dice: random.Random, ended: Counter[bool]) -> None:
    _send(producer, f"topic-{dice.randrange(5)}", dice.randrange(1_000, 20_000), dice.choice((10, 100, 1_000)), ended)


def _trickle(producer: SafeProducer, cluster: FakeCluster, dice: random.Random, ended: Counter[bool]) -> None:
    for _ in range(dice.randrange(10, 50)):
        _send(producer, f"topic-{dice.randrange(20)}", 1, 100, ended)
        producer.poll(0.1)


def _rest(producer: SafeProducer, cluster: FakeCluster, dice: random.Random, ended: Counter[bool]) -> None:
    producer.poll(dice.uniform(1, 15))


def _move(producer: SafeProducer, cluster: FakeCluster, dice: random.Random, ended: Counter[bool]) -> None:
    for number in range(5):
        _send(producer, f"topic-{number}", 500, 100, ended)
        cluster.move_leader(f"topic-{number}", dice.randrange(2))
        _send(producer, f"topic-{number}", 500, 100, ended)


def _slow(producer: SafeProducer, cluster: FakeCluster, dice: random.Random, ended: Counter[bool]) -> None:
    for _ in range(dice.randrange(2, 8)):
        producer.produce(f"topic-{dice.randrange(5)}", b"slow", on_delivery=lambda *_: time.sleep(SLOW_CALLBACK))
        producer.poll(0.2)


def _many(producer: SafeProducer, cluster: FakeCluster, dice: random.Random, ended: Counter[bool]) -> None:
    for number in dice.sample(range(MOST_TOPICS), 100):
        _send(producer, f"topic-{number}", 5, 100, ended)


def _watch(producer: SafeProducer, alarms: Alarms, over: threading.Event) -> None:
    while not over.wait(LOOK_EVERY):
        if producer.snapshot().state == "open":
            alarms.look(producer)


def _busy(stop: Any) -> None:
    while not stop.is_set():
        sum(range(10_000))


if __name__ == "__main__":
    main()
