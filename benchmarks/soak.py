"""Minutes of random faults on three Kafka nodes: nothing is lost, duplicated or reordered, and memory stays flat.

This process holds the producer and nothing else that grows; nodes, tap and faults are in another one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import psutil
from confluent_kafka.cimpl import Producer

from benchmarks.chaos import Field, chaos
from integration.faults.ground import PARTITIONS
from integration.faults.load import Load
from integration.faults.oracle import Verdict, judge
from integration.faults.records import Records
from integration.kafka.log import read_records
from safeproducer import SafeProducer

PRODUCERS: dict[str, Any] = {"stock": Producer, "safe": SafeProducer}
SAMPLE_EVERY = 2.0
SLOPE_LIMIT = 0.5
"""MB a minute over the last half: at 1 000 records a second, 9 bytes a record."""
MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Memory:
    """Resident memory of this process, in MB; the slope is that of the last half, in MB a minute."""

    first: float
    at_half: float
    last: float
    peak: float
    slope: float


@dataclass(frozen=True)
class Soak:
    """How it went."""

    producer: str
    seed: int
    minutes: float
    verdict: Verdict
    memory: Memory
    cpu: float
    peak_outstanding: int
    oldest_report: float
    fatal: str | None
    errors: dict[str, int]
    faults: dict[str, int]
    missed: list[str]

    def __str__(self) -> str:
        seen, memory = self.verdict, self.memory
        told = [
            f"soak of {self.minutes:.1f} minutes ({self.producer}, seed {self.seed})",
            f"{seen.accepted} accepted = {seen.delivered} delivered + {seen.not_written} not written + {seen.unknown} "
            f"unknown ({seen.unknown_present} in the log)",
            f"lost {seen.lost} duplicated {seen.duplicated} reordered {seen.reordered} phantom {seen.phantom}",
            f"RSS {memory.first:.0f} MB, at half {memory.at_half:.1f}, at the end {memory.last:.1f}, "
            f"slope {memory.slope:+.2f} MB a minute",
            f"CPU {self.cpu:.1%}",
            f"peak {self.peak_outstanding} records",
            f"oldest report {self.oldest_report:.1f} s",
            ", ".join(f"{name} {count}" for name, count in {**self.faults, **self.errors}.items()),
            f"MISSED: {', '.join(self.missed)}" if self.missed else "good",
        ]
        return "; ".join(told)


class Sampler:
    """Reads this process's resident memory every few seconds on a thread of its own."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._samples: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def memory(self) -> Memory:
        """The memory that was seen so far."""
        half = self._samples[len(self._samples) // 2 :]
        slope = statistics.linear_regression(*zip(*half, strict=True)).slope * 60 if len(half) > 1 else 0.0
        megabytes = [size for _, size in self._samples]
        return Memory(megabytes[0], half[0][1], megabytes[-1], max(megabytes), slope)

    def _run(self) -> None:
        while True:
            self._samples.append((time.monotonic(), self._process.memory_info().rss / MEGABYTE))
            if self._over.wait(SAMPLE_EVERY):
                return


def main() -> None:
    options = arguments()
    with chaos(options.minutes * 60 * 0.9, options.seed) as field:
        result = soak(field, options)
    print(json.dumps(asdict(result), indent=2) if options.json else result)
    if result.missed:
        sys.exit(1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long (10)")
    parser.add_argument("--seed", type=int, default=1, help="which faults, and when (1)")
    parser.add_argument("--rate", type=int, default=1_000, help="records a second (1000)")
    parser.add_argument("--deadline", type=float, default=15, help="message.timeout.ms in seconds (15)")
    parser.add_argument("--producer", choices=sorted(PRODUCERS), default="safe")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def soak(field: Field, options: argparse.Namespace) -> Soak:
    producer = PRODUCERS[options.producer](
        {
            "bootstrap.servers": field.bootstrap,
            "client.id": "soak",
            "enable.idempotence": True,
            "linger.ms": 5,
            "message.timeout.ms": int(options.deadline * 1000),
            "socket.timeout.ms": 5_000,
            "reconnect.backoff.max.ms": 1_000,
            "queue.buffering.max.messages": 20_000,
            "log_level": 0,
        }
    )
    records = Records(count=int(options.minutes * 60 * options.rate), streams=PARTITIONS)
    load = Load(producer, field.topic, records, options.rate)
    happened: list[Counter[str] | BaseException] = []
    watcher = threading.Thread(target=_watch, args=(field, load, happened), daemon=True)
    cpu, begun = time.process_time(), time.monotonic()
    watcher.start()
    with Sampler() as sampler:
        try:
            load.run(patience=options.deadline + 60)
        finally:
            producer.purge()
            producer.flush(5)
            producer.close()
    cpu = (time.process_time() - cpu) / (time.monotonic() - begun)
    watcher.join()
    (faults,) = happened
    if isinstance(faults, BaseException):
        raise faults
    log = [[record.value for record in partition] for partition in read_records(field.direct_bootstrap, field.topic)]
    verdict, memory = judge(load.account, log), sampler.memory()
    missed = list(verdict.broken)
    if memory.slope > SLOPE_LIMIT:
        missed.append(f"memory grew by {memory.slope:.2f} MB a minute")
    if load.fatal is not None:
        missed.append(f"fatal: {load.fatal}")
    return Soak(
        options.producer,
        options.seed,
        load.seconds / 60,
        verdict,
        memory,
        cpu,
        load.peak_outstanding,
        load.account.oldest_report(),
        load.fatal,
        dict(load.account.errors),
        dict(faults),
        missed,
    )


def _watch(field: Field, load: Load, happened: list[Counter[str] | BaseException]) -> None:
    try:
        happened.append(field.wait_until_over())
    except BaseException as failure:
        happened.append(failure)
    finally:
        load.fault_over.set()


if __name__ == "__main__":
    main()
