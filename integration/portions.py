"""An application that feeds a producer in portions which do not match its batches, on a quiet or a busy machine."""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from confluent_kafka import KafkaError, Message

Around = Literal["calm", "busy processes", "busy main thread"]

BUSY_PROCESSES = 4
COMPUTING = 0.02
PAUSE = 0.012


@dataclass(frozen=True)
class Case:
    """`batches` times `count` records of `size` bytes, in portions that do not match the batches."""

    count: int
    size: int
    batches: int = 30
    codec: str = "none"
    partitions: int = 1
    around: Around = "calm"
    in_one_call: bool = False
    rtt: float = 0.0
    lost_answers: int = 0

    def __str__(self) -> str:
        parts = [f"{self.count}x{self.size}B", self.codec, f"{self.partitions}p", self.around]
        parts += ["produce_batch" if self.in_one_call else "produce"]
        parts += [f"rtt{self.rtt * 1e3:g}"] * bool(self.rtt) + ["lost answers"] * bool(self.lost_answers)
        return "-".join(parts)


class Feeder:
    """An application that produces in portions of chance length, and then polls, pauses or computes."""

    def __init__(self, producer: Any, topic: str, case: Case) -> None:
        self.delivered = 0
        self.errors: list[KafkaError] = []
        self._producer, self._topic, self._case = producer, topic, case
        self._chance = random.Random(str(case))
        self._value = self._chance.randbytes(case.size)

    def feed(self) -> int:
        """Produce everything and wait for the reports; gives the number of records."""
        case = self._case
        total = case.count * case.batches
        most = max(1, min(2 * case.count, total // 10))
        sent = 0
        while sent < total:
            portion = min(self._chance.randint(1, most), total - sent)
            self._produce(self._chance.randrange(case.partitions), portion)
            sent += portion
            self._afterwards()
        assert self._producer.flush(60) == 0
        return total

    def _produce(self, partition: int, count: int) -> None:
        if self._case.in_one_call:
            messages = [{"value": self._value} for _ in range(count)]
            taken = self._producer.produce_batch(self._topic, messages, partition=partition, on_delivery=self._reported)
            assert taken == count
            return
        for _ in range(count):
            self._producer.produce(self._topic, self._value, partition=partition, on_delivery=self._reported)

    def _afterwards(self) -> None:
        if self._case.around == "busy main thread":
            deadline = time.perf_counter() + self._chance.uniform(0, COMPUTING)
            while time.perf_counter() < deadline:
                sum(number * number for number in range(100))
            self._producer.poll(0)
        else:
            self._producer.poll(self._chance.choice((0, 0, PAUSE)))

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.errors.append(error)


@contextmanager
def busy(around: Around) -> Iterator[None]:
    """Other processes that take all the CPU they can get."""
    with ExitStack() as stack:
        for _ in range(BUSY_PROCESSES if around == "busy processes" else 0):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(process.kill)
        yield
