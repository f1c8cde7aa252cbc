"""One real Kafka node at a chosen distance: the wire tap delays what passes, in a process of its own.

In a process of its own the tap takes no interpreter lock and no CPU time of the clients that are measured.
"""

from __future__ import annotations

import multiprocessing
import selectors
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from integration.kafka.cluster import KafkaCluster
from integration.tap import Route, Tap
from safeproducer.testing import wire

PATIENCE = 20.0
"""Seconds until a tap that does not answer is given up."""
ECHOES = 21
ADJUSTMENTS = 8
TOLERANCE = 0.02
FINEST = 0.1
"""Milliseconds; a round trip that is off by less is as good as exact."""
API_VERSIONS = "ApiVersions", 0


class Link:
    """The way to the broker. `bootstrap` is for the clients that are measured."""

    def __init__(self, cluster: KafkaCluster, tap: Connection) -> None:
        self._cluster = cluster
        self._tap = tap
        self.bootstrap = cluster.bootstrap
        self.direct_bootstrap = cluster.direct_bootstrap

    def set_rtt(self, milliseconds: float) -> float:
        """Make the round trip this long and return how long it was measured to be; 0 is as short as it goes."""
        delay = 0.0
        for _ in range(ADJUSTMENTS):
            self._order("delay", delay / 1e3)
            measured = self.measured()
            error = measured - milliseconds
            if not milliseconds or abs(error) <= max(TOLERANCE * milliseconds, FINEST):
                break
            # A machine that is busy now makes it too long; half of it has to be taken from each direction.
            delay = max(0.0, delay - error / 2)
        return measured

    def measured(self) -> float:
        """Median milliseconds from a request to its answer, the broker's own time included."""
        api, version = API_VERSIONS
        took = []
        with socket.create_connection(("127.0.0.1", self._cluster.nodes[1].advertised_port), PATIENCE) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with peer.makefile("rb") as answers:
                for number in range(ECHOES):
                    frame = wire.encode_request(api, version, number, "echo", {})
                    before = time.perf_counter()
                    peer.sendall(len(frame).to_bytes(4, "big") + frame)
                    answers.read(int.from_bytes(answers.read(4), "big"))
                    took.append(time.perf_counter() - before)
        return statistics.median(took) * 1e3

    def seen(self, topics: dict[str, str]) -> dict[str, tuple[int, int]]:
        """Per topic, by key: Produce requests with retries and records without, since the last call."""
        counts: dict[str, tuple[int, int]] = self._order("count", topics)
        return counts

    def create_topic(self, name: str, partitions: int) -> None:
        self._cluster.admin.create_topic(name, partitions)

    def delete_topic(self, name: str) -> None:
        self._cluster.admin.delete_topic(name)

    def _order(self, *order: Any) -> Any:
        self._tap.send(order)
        if not self._tap.poll(PATIENCE):
            raise TimeoutError(f"the tap did not answer to {order} within {PATIENCE:.0f} s")
        return self._tap.recv()


@contextmanager
def link() -> Iterator[Link]:
    """A node and the way to it for the time of a `with` block."""
    print("starting Kafka", file=sys.stderr, flush=True)
    # Old segments go during the run, or a long one would fill the disk.
    retention = {"log.retention.bytes": "134217728", "log.retention.check.interval.ms": "5000"}
    with KafkaCluster(1, tapped=True, throughput=True, configs=retention) as cluster:
        node = cluster.nodes[1]
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        ports = node.client_port, node.advertised_port
        process = context.Process(target=_serve, args=(theirs, *ports), daemon=True)
        process.start()
        theirs.close()
        try:
            yield Link(cluster, ours)
        finally:
            ours.close()
            process.join(PATIENCE)
            if process.is_alive():
                process.kill()
                process.join()


def _serve(pipe: Connection, client_port: int, advertised_port: int) -> None:
    # asyncio's usual selector rounds waits up to whole milliseconds: too coarse for a round trip of one.
    selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[misc,assignment]
    with Tap([Route(1, client_port, advertised_port)]) as tap:
        while True:
            try:
                order, value = pipe.recv()
            except EOFError:
                return
            if order == "delay":
                tap.delay(value)
                pipe.send(None)
            else:
                pipe.send({key: _counts(tap, topic) for key, topic in value.items()})
                tap.reset()


def _counts(tap: Tap, topic: str) -> tuple[int, int]:
    batches = [batch for batch in tap.batches if batch.topic == topic]
    return len(batches), sum(batch.count for batch in batches if batch.attempt == 1)
