"""Writes Arrow batches of keys and values to Kafka through one SafeProducer per Python worker process.

This is a module, not a part of the job's script, because Spark unpickles the mapped function for every task anew and
copies by value what a script (`__main__`) defines. Only the globals of an imported module live as long as the worker
process. So ship this file to the executors (`--py-files`, `addPyFile` or an installed package) and import it.

What a task promises: it returns when every row has been acknowledged, and raises KafkaWriteError otherwise. That is
at least once. Spark runs a failed task, and the micro-batch of a query that was started again, from its first row: the
rows that the failed attempt had already delivered are then in the topic twice. Idempotence removes the duplicates of
librdkafka's own retries, not these. Leave speculation off (Spark's default): it runs tasks twice on purpose.
"""

from __future__ import annotations

import itertools
import os
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message

from safeproducer import SafeProducer, SafeProducerError

METRICS = (
    "host string, os_pid long, producer string, producer_id long, producer_epoch long, rows long, bytes long, "
    "waits_for_room long, client_errors long, seconds double"
)
"""The schema of the row that each task yields.

`producer` is new, reused, or none when the task had no rows; `producer_id` is null until librdkafka's first statistics;
`waits_for_room` says how often the local queue was full; `client_errors` were survived, for example a broker that went
away and came back.
"""

EXPIRY_CHECK = 2.0
"""Seconds a task waits beyond its deadline: librdkafka looks for expired records once a second, and they say why."""

_ARROW_TYPES = {"string": pa.string(), "long": pa.int64(), "double": pa.float64()}
_METRICS_IN_ARROW = pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in map(str.split, METRICS.split(", "))])


class KafkaWriteError(RuntimeError):
    """Not every row of a task was acknowledged. Holds counts by error code; no payload and no configuration."""

    def __init__(self, topic: str, accepted: int, delivered: int, unresolved: int, errors: dict[str, int]) -> None:
        super().__init__(topic, accepted, delivered, unresolved, errors)  # every argument, so that it can be pickled
        self.topic, self.accepted, self.delivered, self.unresolved, self.errors = self.args

    def __str__(self) -> str:
        codes = ", ".join(f"{count} x {code}" for code, count in sorted(self.errors.items())) or "none"
        return (
            f"task failed to write all its rows to topic {self.topic}: {self.accepted} accepted, "
            f"{self.delivered} delivered, {self.unresolved} unresolved; errors: {codes}. It stopped at the first error"
        )


class WorkerProducer:
    """The producer of this process and what its callbacks noted. One task uses it at a time."""

    def __init__(self, config: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
        self.identity: tuple[int | None, int | None] = (None, None)
        self.errors: Counter[str] = Counter()
        self.client_errors = 0
        # Newer versions of Spark can be told to print the locals of a failed task. So no local here holds a secret, and
        # of a refused configuration only the message goes on, not the frames that know it.
        try:
            self.kafka = SafeProducer(
                {**config, **{setting: resolve(tp) for setting, tp in secrets.items()}},
                on_delivery=self._on_failure,
                error_cb=self._on_client_error,
                stats_cb=self._on_statistics,
                **{"delivery.report.only.error": True, "statistics.interval.ms": 500},
            )
        except SafeProducerError as error:
            raise RuntimeError(f"cannot make a producer: {error}") from None

    def _on_failure(self, error: KafkaError, message: Message) -> None:
        self.errors[error.name()] += 1

    def _on_client_error(self, error: KafkaError) -> None:
        self.client_errors += 1

    def _on_statistics(self, text: str) -> None:
        found = re.search(r'"producer_id":\s*(\d+),\s*"producer_epoch":\s*(\d+)', text)
        if found:
            self.identity = int(found[1]), int(found[2])

    def count(self, refusal: KafkaException) -> None:
        """Count an error that a call raised (a record too large, a fatal error) like that of a failed record."""
        self.errors[refusal.args[0].name()] += 1

    def attempt(self, call: Callable[..., Any], *args: Any) -> None:
        """Call the producer and count the error it raises."""
        try:
            call(*args)
        except KafkaException as error:
            self.count(error)


_producers: dict[tuple[Any, ...], WorkerProducer] = {}
"""By process ID and configuration; the ID because a forked child cannot use its parent's producer."""


def resolve(tp: str) -> str:
    """The secret at `env:NAME` or `file:PATH`, read here, on the executor."""
    kind, _, name = tp.partition(":")
    if kind == "env" and name in os.environ:
        return os.environ[name]
    if kind == "file" and Path(name).is_file():
        return Path(name).read_text(encoding="utf-8").rstrip("\n")
    raise LookupError(f"no secret at {tp!r} on {socket.gethostname()}: give env:NAME or file:PATH, present there")


def write(
    batches: Iterable[pa.RecordBatch],
    *,
    topic: str,
    config: Mapping[str, Any],
    secrets: Mapping[str, str],
    deadline: float,
) -> Iterator[pa.RecordBatch]:
    """What mapInArrow runs in each task: write all rows, wait until they are acknowledged, yield one row of METRICS.

    The batches have binary columns `key` and `value`. `secrets` maps a setting to the place of its value, see
    resolve(); a changed secret counts from the next worker process on. `deadline` is how many seconds a record may
    take from produce() on.
    """
    started = time.monotonic()
    row = {"host": socket.gethostname(), "os_pid": os.getpid(), "producer": "none", "rows": 0, "bytes": 0}
    filled = _filled(batches)
    if filled is not None:
        config = {"delivery.timeout.ms": int(deadline * 1000), **config}
        key = (os.getpid(), *sorted(config.items()), *sorted(secrets.items()))
        row["producer"] = "reused" if key in _producers else "new"
        if key not in _producers:
            _producers[key] = WorkerProducer(config, secrets)
        row.update(_write_all(filled, topic, key, deadline))
    row["seconds"] = time.monotonic() - started
    yield pa.RecordBatch.from_pylist([row], schema=_METRICS_IN_ARROW)


def _filled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch] | None:
    """The batches that have rows; None when there is not one."""
    with_rows = (batch for batch in batches if batch.num_rows)
    first = next(with_rows, None)
    return None if first is None else itertools.chain([first], with_rows)


def _write_all(batches: Iterator[pa.RecordBatch], topic: str, key: tuple[Any, ...], deadline: float) -> dict[str, Any]:
    worker = _producers[key]
    worker.errors.clear()
    worker.client_errors = 0
    before = worker.kafka.snapshot()
    size, waits = _produce_all(worker, batches, topic)
    worker.attempt(worker.kafka.flush, deadline + EXPIRY_CHECK)
    after = worker.kafka.snapshot()
    accepted, delivered = after.accepted - before.accepted, after.delivered - before.delivered
    if worker.errors or after.unresolved or after.interrupted:
        failure = KafkaWriteError(topic, accepted, delivered, after.unresolved, dict(worker.errors))
        # The retry starts with a new producer: nothing of this attempt may be sent in the middle of it.
        _producers.pop(key).kafka.close(0)
        raise failure
    producer_id, epoch = worker.identity
    return {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "rows": accepted,
        "bytes": size,
        "waits_for_room": waits,
        "client_errors": worker.client_errors,
    }


def _produce_all(worker: WorkerProducer, batches: Iterator[pa.RecordBatch], topic: str) -> tuple[int, int]:
    """Produce until the end or the first error; returns bytes and waits. Its locals are payloads: it raises nothing."""
    size = waits = 0
    produce, poll, errors = worker.kafka.produce, worker.kafka.poll, worker.errors
    for batch in batches:
        keys, values = batch.column("key"), batch.column("value")
        size += sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in (keys, values))
        for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True):
            while not errors:
                try:
                    produce(topic, value, key)
                    break
                except BufferError:
                    waits += 1
                    worker.attempt(poll, 0.05)
                except KafkaException as error:
                    worker.count(error)
        worker.attempt(poll, 0)
        if errors:
            break
    return size, waits
