"""Three Kafka nodes behind a tap, in a process of their own, to which something happens at random all the time."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

from integration.faults.ground import PARTITIONS, Ground, start
from integration.kafka.node import Node
from integration.tap import Tap

START_TIMEOUT = 120.0
EVERY = 12.0
"""Seconds from one fault's begin to the next one's, at least."""
EVERYTHING = 1_000_000


@dataclass(frozen=True)
class Field:
    """Where to produce to, and how to hear that the faults are over."""

    bootstrap: str
    direct_bootstrap: str
    topic: str
    pipe: Connection

    def wait_until_over(self) -> Counter[str]:
        """Returns when the last fault is over and all replicas are in sync, with the number of faults of each kind."""
        found = self.pipe.recv()
        if isinstance(found, BaseException):
            raise found
        return Counter(found)


@contextmanager
def chaos(seconds: float, seed: int) -> Iterator[Field]:
    """Faults for so many seconds. The nodes live as long as the `with` block."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, seconds, seed), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(START_TIMEOUT):
            raise TimeoutError(f"three Kafka nodes did not start within {START_TIMEOUT:.0f} s")
        bootstrap, direct_bootstrap, topic = ours.recv()
        yield Field(bootstrap, direct_bootstrap, topic, ours)
    finally:
        ours.close()
        process.join(30)
        if process.is_alive():
            process.kill()
            process.join()


def _serve(pipe: Connection, seconds: float, seed: int) -> None:
    with Ground() as ground, Tap(ground.cluster) as tap:
        topic = ground.make_topic()
        pipe.send((ground.cluster.bootstrap, ground.cluster.direct_bootstrap, topic))
        try:
            pipe.send(dict(_Faults(ground, tap, topic, seed).go_on(seconds)))
        except Exception as failure:
            pipe.send(RuntimeError(f"the faults ended early: {failure!r}"))
        with contextlib.suppress(EOFError):
            pipe.recv()


class _Faults:
    """One fault after the other, chosen at random. Each leaves everything whole."""

    def __init__(self, ground: Ground, tap: Tap, topic: str, seed: int) -> None:
        self._ground, self._tap, self._topic = ground, tap, topic
        self._random = random.Random(seed)

    def go_on(self, seconds: float) -> Counter[str]:
        kinds: list[tuple[Callable[[], None], int]] = [
            (self.kill, 4),
            (self.pause, 3),
            (self.restart, 3),
            (self.move_leaders, 4),
            (self.cut, 4),
            (self.lose_answers, 4),
            (self.slow_down, 2),
            (self.kill_all, 1),
        ]
        faults, weights = zip(*kinds, strict=True)
        done: Counter[str] = Counter()
        over = time.monotonic() + seconds
        while (begun := time.monotonic()) < over:
            (fault,) = self._random.choices(faults, weights)
            fault()
            done[fault.__name__] += 1
            self._ground.wait_in_sync(self._topic)
            self._tap.reset()  # its delivery counters would grow
            time.sleep(max(0.0, min(begun + EVERY, over) - time.monotonic()))
        return done

    def kill(self) -> None:
        node = self._one()
        node.kill()
        time.sleep(self._random.uniform(0, 8))
        node.start()

    def pause(self) -> None:
        node = self._one()
        node.pause()
        time.sleep(self._random.uniform(1, 8))
        node.resume()

    def restart(self) -> None:
        self._one().restart()

    def move_leaders(self) -> None:
        requests = self._ground.cluster.admin.requests
        for _ in range(20):
            partition = self._random.randrange(PARTITIONS)
            first, *others = requests.partitions(self._topic)[partition].replicas
            requests.reassign(self._topic, partition, [*others, first])
            requests.elect_preferred(self._topic, partition)
            time.sleep(0.15)

    def cut(self) -> None:
        for _ in range(10):
            self._tap.cut(broker=self._one().id, how=self._random.choice(["reset", "fin"]))
            time.sleep(self._random.uniform(0, 0.6))

    def lose_answers(self) -> None:
        self._tap.drop_answers(n=EVERYTHING, keep_open=self._random.random() < 0.7)
        time.sleep(self._random.uniform(0.5, 6))
        self._tap.heal()

    def slow_down(self) -> None:
        self._tap.delay(self._random.uniform(0.01, 0.1))
        self._tap.bandwidth(self._random.uniform(100_000, 500_000))
        time.sleep(8)
        self._tap.heal()

    def kill_all(self) -> None:
        for node in self._ground.nodes:
            node.kill()
        time.sleep(self._random.uniform(1, 12))
        start(self._ground.nodes)

    def _one(self) -> Node:
        return self._random.choice(self._ground.nodes)
