"""Where the benchmarks produce to: one real Kafka node, or librdkafka's mock cluster in a process of its own."""

from __future__ import annotations

import ctypes
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

import confluent_kafka
from confluent_kafka import Consumer, TopicPartition

from integration.kafka.cluster import KafkaCluster

MOCK_START_TIMEOUT = 20.0
_PRODUCER = 0


class Broker(Protocol):
    """A cluster, as a benchmark needs it."""

    kind: str
    bootstrap: str

    def create_topic(self, name: str, partitions: int) -> None: ...

    def delete_topic(self, name: str) -> None: ...


class RealBroker:
    kind = "one Apache Kafka node"

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self.bootstrap = cluster.bootstrap

    def create_topic(self, name: str, partitions: int) -> None:
        self._cluster.admin.create_topic(name, partitions)

    def delete_topic(self, name: str) -> None:
        self._cluster.admin.delete_topic(name)


class MockBroker:
    kind = "librdkafka's mock cluster"

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        if not pipe.poll(MOCK_START_TIMEOUT):
            raise TimeoutError(f"the mock cluster did not start within {MOCK_START_TIMEOUT:.0f} s")
        self.bootstrap = pipe.recv()

    def create_topic(self, name: str, partitions: int) -> None:
        self._pipe.send((name, partitions))
        if not self._pipe.poll(MOCK_START_TIMEOUT) or self._pipe.recv() != 0:
            raise RuntimeError(f"the mock cluster did not create topic {name!r}")

    def delete_topic(self, name: str) -> None:
        """The mock cluster cannot; it keeps at most 5 MB of each partition anyway."""


@contextmanager
def broker(*, mock: bool) -> Iterator[Broker]:
    """A broker for the time of a `with` block; its process ends with this one, however that ends."""
    if not mock:
        print("starting Kafka", file=sys.stderr, flush=True)
        # Old segments go during the run, or a long one would fill the disk.
        retention = {"log.retention.bytes": "134217728", "log.retention.check.interval.ms": "5000"}
        with KafkaCluster(1, throughput=True, configs=retention) as cluster:
            yield RealBroker(cluster)
        return
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_mock, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        yield MockBroker(ours)
    finally:
        ours.close()
        process.join(MOCK_START_TIMEOUT)
        if process.is_alive():
            process.kill()


def written(bootstrap: str, topics: str | Sequence[str], partitions: int) -> int:
    """How many records of these topics the broker's log holds or held, by the high watermarks."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "benchmark", "enable.auto.commit": False})
    try:
        return sum(
            consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)[1]
            for topic in ([topics] if isinstance(topics, str) else topics)
            for partition in range(partitions)
        )
    finally:
        consumer.close()


def _serve_mock(pipe: Connection) -> None:
    """Run the mock cluster by its C interface, since only that can set a topic's partition count."""
    library = _librdkafka()
    reason = ctypes.create_string_buffer(512)
    settings = library.rd_kafka_conf_new()
    library.rd_kafka_conf_set(settings, b"log_level", b"0", None, 0)  # else it complains of having no broker itself
    handle = library.rd_kafka_new(_PRODUCER, settings, reason, len(reason))
    if not handle:
        raise RuntimeError(f"librdkafka made no handle for the mock cluster: {reason.value.decode()}")
    cluster = library.rd_kafka_mock_cluster_new(handle, 1)
    pipe.send(library.rd_kafka_mock_cluster_bootstraps(cluster).decode())
    while True:
        try:
            name, partitions = pipe.recv()
        except EOFError:
            return
        pipe.send(library.rd_kafka_mock_topic_create(cluster, name.encode(), partitions, 1))


def _librdkafka() -> ctypes.CDLL:
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    found = sorted(folder.glob("librdkafka*.so*"))
    if not found:
        raise FileNotFoundError(f"no librdkafka in {folder}: leave out --mock to measure against real Kafka")
    library = ctypes.CDLL(str(found[0]))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("rd_kafka_conf_new", pointer, []),
        ("rd_kafka_conf_set", number, [pointer, text, text, text, ctypes.c_size_t]),
        ("rd_kafka_new", pointer, [number, pointer, text, ctypes.c_size_t]),
        ("rd_kafka_mock_cluster_new", pointer, [pointer, number]),
        ("rd_kafka_mock_cluster_bootstraps", text, [pointer]),
        ("rd_kafka_mock_topic_create", number, [pointer, text, number, number]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
