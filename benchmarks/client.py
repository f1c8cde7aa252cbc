"""A producing application in a process of its own, so that its CPU time is its own too."""

from __future__ import annotations

import gc
import multiprocessing
import random
import statistics
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from multiprocessing.connection import Connection
from typing import Any

from confluent_kafka.cimpl import Producer

from benchmarks.load import FLUSH_TIMEOUT, POLL_EVERY, VoidError
from safeproducer import SafeProducer

PRODUCERS: dict[str, Callable[[dict[str, Any]], Any]] = {"stock": Producer, "safe": SafeProducer}
STOCK, SAFE = PRODUCERS
TICK = 0.001
"""Seconds between two looks at the clock of an application with a fixed rate."""
SAMPLED = 64
"""A saturated application times one record in so many: the clock would cost more than the producer."""
WAIT_FOR_ROOM = 0.1
STAMP = struct.Struct("d")
ANSWER_TIMEOUT = 300.0


@dataclass(frozen=True)
class Work:
    """The work of one block: `rate` records/s for `seconds`, or as many as go through when it is None.

    `busy`: between its records the application computes in Python, instead of waiting in poll().
    """

    topic: str
    value_size: int
    seconds: float
    rate: int | None = None
    busy: bool = False
    keys: int = 0
    """How many keys the records have, 0 for none. With keys each record carries the time when it was due."""


@dataclass(frozen=True)
class Done:
    """One block. Times from produce() to the delivery callback in milliseconds; CPU as a share of one core."""

    records: int
    seconds: float
    cpu: float
    p50: float
    p95: float
    p99: float
    account: str = ""

    @property
    def rate(self) -> float:
        """Records per second, from the first produce() to the last report."""
        return self.records / self.seconds


class Client:
    """The application's process with one producer, until `close`."""

    def __init__(self, side: str, config: dict[str, Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, side, config), daemon=True)
        self._process.start()
        theirs.close()

    def run(self, work: Work) -> Done:
        """Run one block. Raises VoidError when a record is not delivered."""
        self._pipe.send(work)
        if not self._pipe.poll(ANSWER_TIMEOUT):
            raise TimeoutError(f"a block of {work.seconds} s took longer than {ANSWER_TIMEOUT:.0f} s")
        done: Done | Exception = self._pipe.recv()
        if isinstance(done, Exception):
            raise done
        return done

    def close(self) -> None:
        self._pipe.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


class Reports:
    """Delivery reports of one partition, which come in the order of produce(): the oldest time is the one reported."""

    def __init__(self, every: int) -> None:
        self.delivered = 0
        self.failed = 0
        self.produced: deque[float] = deque()
        self.latencies: list[float] = []
        self.last = 0.0
        self._every = every

    def on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed += 1
            return
        if self.delivered % self._every == 0:
            self.latencies.append(time.perf_counter() - self.produced.popleft())
        self.delivered += 1


class StampedReports(Reports):
    """Delivery reports in any order: each record's value begins with its time, zero when it is not sampled."""

    def on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed += 1
            return
        (due,) = STAMP.unpack_from(message.value())
        if due:
            self.latencies.append(time.perf_counter() - due)
        self.delivered += 1


def produce_keys_at_rate(producer: Any, work: Work, rate: int, reports: Reports) -> int:
    """As produce_at_rate(), over keys in random order."""
    topic, on_delivery, keys = work.topic, reports.on_delivery, keys_of(work)
    filling = bytes(work.value_size - STAMP.size)
    start, sent, total = time.perf_counter(), 0, int(rate * work.seconds)
    while sent < total:
        tick = int((time.perf_counter() - start) / TICK)
        due = min(total, int((tick + 1) * TICK * rate))
        for number in range(sent, due):
            value = STAMP.pack(start + number // (rate * TICK) * TICK) + filling
            producer.produce(topic, value=value, key=next(keys), partition=0, on_delivery=on_delivery)
        sent = due
        producer.poll(TICK)
    return sent


def produce_all_keys_that_fit(producer: Any, work: Work, reports: Reports) -> int:
    """As produce_all_that_fit(), over keys in random order."""
    topic, on_delivery, keys = work.topic, reports.on_delivery, keys_of(work)
    unstamped, filling = bytes(work.value_size), bytes(work.value_size - STAMP.size)
    end, sent = time.perf_counter() + work.seconds, 0
    while time.perf_counter() < end:
        for _ in range(POLL_EVERY):
            value = unstamped if sent % SAMPLED else STAMP.pack(time.perf_counter()) + filling
            try:
                producer.produce(topic, value=value, key=next(keys), partition=0, on_delivery=on_delivery)
            except BufferError:
                producer.poll(WAIT_FOR_ROOM)
                break
            sent += 1
        producer.poll(0)
    return sent


def keys_of(work: Work) -> Iterator[bytes]:
    shuffled = [b"key-%06d" % number for number in range(work.keys)]
    random.Random(work.keys).shuffle(shuffled)
    return cycle(shuffled)


def produce_at_rate(producer: Any, work: Work, rate: int, reports: Reports) -> int:
    """A record's time begins when it was due: a producer that holds the application up pays for it."""
    topic, value, on_delivery, produced = work.topic, bytes(work.value_size), reports.on_delivery, reports.produced
    start, sent, total = time.perf_counter(), 0, int(rate * work.seconds)
    while sent < total:
        tick = int((time.perf_counter() - start) / TICK)
        due = min(total, int((tick + 1) * TICK * rate))
        for number in range(sent, due):
            produced.append(start + number // (rate * TICK) * TICK)
            producer.produce(topic, value=value, partition=0, on_delivery=on_delivery)
        sent = due
        if work.busy:
            compute_until(start + (tick + 1) * TICK)
            producer.poll(0)
        else:
            producer.poll(TICK)
    return sent


def produce_all_that_fit(producer: Any, work: Work, reports: Reports) -> int:
    topic, value, on_delivery, produced = work.topic, bytes(work.value_size), reports.on_delivery, reports.produced
    end, sent = time.perf_counter() + work.seconds, 0
    while time.perf_counter() < end:
        for _ in range(POLL_EVERY):
            try:
                producer.produce(topic, value=value, partition=0, on_delivery=on_delivery)
            except BufferError:
                producer.poll(WAIT_FOR_ROOM)
                break
            if sent % SAMPLED == 0:
                produced.append(time.perf_counter())
            sent += 1
        producer.poll(0)
    return sent


def compute_until(deadline: float) -> int:
    """Pure Python work that never releases the interpreter lock by itself."""
    result = 0
    while time.perf_counter() < deadline:
        for number in range(200):
            result ^= number * number
    return result


def _serve(pipe: Connection, side: str, config: dict[str, Any]) -> None:
    with PRODUCERS[side](config) as producer:
        while True:
            try:
                work = pipe.recv()
            except EOFError:
                return
            try:
                pipe.send(_block(producer, work))
            except Exception as error:
                pipe.send(error)


def _block(producer: Any, work: Work) -> Done:
    reports = StampedReports(1) if work.keys else Reports(1 if work.rate else SAMPLED)
    gc.collect()
    start, cpu = time.perf_counter(), time.process_time()
    if work.keys:
        sent = (
            produce_keys_at_rate(producer, work, work.rate, reports)
            if work.rate
            else produce_all_keys_that_fit(producer, work, reports)
        )
    elif work.rate:
        sent = produce_at_rate(producer, work, work.rate, reports)
    else:
        sent = produce_all_that_fit(producer, work, reports)
    left = producer.flush(FLUSH_TIMEOUT)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    if left or reports.failed or reports.delivered != sent:
        raise VoidError(
            f"{type(producer).__name__}: of {sent} records {reports.delivered} were delivered, {reports.failed} failed "
            f"and {left} were left by flush(); the measurement is void"
        )
    cuts = [1e3 * cut for cut in statistics.quantiles(reports.latencies, n=100, method="inclusive")]
    account = repr(producer.snapshot()) if isinstance(producer, SafeProducer) else ""
    return Done(sent, seconds, cpu / seconds, cuts[49], cuts[94], cuts[98], account)
