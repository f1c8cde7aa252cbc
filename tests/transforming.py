"""Five instances of a program that reads, transforms and writes in transactions, and what may befall them."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests import transformer

ROOT = Path(__file__).resolve().parents[1]
INSTANCES, PARTITIONS = 5, 6
GROUP, SOURCE, TARGET = "program", "in", "out"
LOST = ("EndTxn", "TxnOffsetCommit", "AddOffsetsToTxn", "AddPartitionsToTxn", "Produce", "InitProducerId")
"""Requests whose answers are lost."""
NEEDED = ("SIGKILL", "SIGSTOP")
"""What befalls instances at least once each."""
PATIENCE = 30
MOST_SECONDS = 180

Trouble = Callable[[], object]


class Program:
    """The instances as processes, each with a `transactional.id`. What has ended begins anew by `mend()`."""

    def __init__(self, bootstrap: str, folder: Path, rng: random.Random) -> None:
        self._bootstrap, self._folder, self._rng = bootstrap, folder, rng
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._paused: set[str] = set()
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self.mend()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()
        if error is not None:
            said = sorted(self._folder.glob("*.log"))
            error.add_note(f"{self.counts}\n" + "\n".join(f"{one.name}: {one.read_text()[-2000:]}" for one in said))

    @property
    def names(self) -> list[str]:
        return [f"tx-{number}" for number in range(INSTANCES)]

    def mend(self) -> None:
        """Start what has ended, as who runs a service does."""
        for name in self.names:
            process = self._running.get(name)
            if process is not None and process.poll() is not None and process.returncode != -signal.SIGKILL:
                self.counts["ended by itself"] += 1
            if process is None or process.poll() is not None:
                arguments = self._bootstrap, name, GROUP, SOURCE, TARGET
                with (self._folder / f"{name}.log").open("ab") as log:
                    command = [sys.executable, "-m", transformer.__name__, *arguments]
                    self._running[name] = subprocess.Popen(command, stderr=log, cwd=ROOT)

    def _one(self, signal_: signal.Signals, among: Sequence[str]) -> str:
        name = self._rng.choice(among)
        self._running[name].send_signal(signal_)
        self.counts[signal_.name] += 1
        return name

    def kill(self) -> None:
        """One of them ends in the middle of whatever it does."""
        name = self._one(signal.SIGKILL, self.names)
        self._running[name].wait()
        self._paused.discard(name)

    def pause(self) -> None:
        """One of them stands still: others take over after its session, and it may then go on as if nothing was."""
        if awake := sorted({*self.names} - self._paused):
            self._paused.add(self._one(signal.SIGSTOP, awake))

    def resume(self) -> None:
        """One that stands still goes on."""
        if self._paused:
            self._paused.discard(self._one(signal.SIGCONT, sorted(self._paused)))

    def resume_all(self) -> None:
        while self._paused:
            self.resume()


class Reader:
    """All records of the target that readers of committed records see."""

    def __init__(self, bootstrap: str) -> None:
        reading = {"group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True}
        settings = {"bootstrap.servers": bootstrap, "enable.auto.commit": False, "log_level": 0, **reading}
        self._client = Consumer(settings)
        self._client.assign([TopicPartition(TARGET, partition, 0) for partition in range(PARTITIONS)])
        self.found: Counter[bytes | None] = Counter()

    def read(self) -> int:
        """What has come meanwhile; how many different records there are."""
        for message in self._client.consume(1_000, 0.05):
            if message.error() is None:
                self.found[message.value()] += 1
        return len(self.found)

    def close(self) -> None:
        """Read to the end of each partition, and leave."""
        self._client.assign([TopicPartition(TARGET, partition, 0) for partition in range(PARTITIONS)])
        self.found.clear()
        ended: set[int | None] = set()
        until = time.monotonic() + PATIENCE
        while len(ended) < PARTITIONS:
            assert time.monotonic() < until, f"the ends of {ended} only"
            for message in self._client.consume(1_000, 0.2):
                error = message.error()
                if error is None:
                    self.found[message.value()] += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
        self._client.close()


def play(bootstrap: str, folder: Path, seed: int, records: int, rate: int, troubles: Sequence[Trouble]) -> Counter[str]:
    """Write records at this `rate` a second, have the program pass them on amid `troubles`, all of which come once and
    then again, about three times a second; readers of committed records must see each of them once. What has befallen
    the program."""
    rng = random.Random(seed)
    writer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    reader = Reader(bootstrap)
    written, began = 0, time.monotonic()
    with Program(bootstrap, folder, rng) as program:
        deck: list[Trouble] = []
        all_of_them = [program.kill, program.pause, program.resume, *troubles, *troubles]
        while (read := reader.read()) < records or not all(program.counts[each] for each in NEEDED):
            passed = time.monotonic() - began
            assert passed < MOST_SECONDS, f"{read} of {written} after {passed:.0f} s"
            while written < min(records, rate * passed):
                writer.produce(SOURCE, b"%d" % written, partition=written % PARTITIONS)
                written += 1
            writer.poll(0)
            if written < records or not all(program.counts[each] for each in NEEDED):
                deck = deck or rng.sample(all_of_them, len(all_of_them))
                deck.pop()()
                time.sleep(rng.random() * 0.5)
            else:
                program.resume_all()
            program.mend()
        program.resume_all()
        assert writer.flush(PATIENCE) == 0
        found = program.counts
    reader.close()
    twice = {value: count for value, count in reader.found.items() if count > 1}
    assert not twice, f"more than once: {twice}; {found}"
    assert len(reader.found) == records
    return found
