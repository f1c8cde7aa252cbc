"""Processes that start, produce one record and kill themselves: what the guard on producer IDs is for (KIP-936).

`python -m integration.crash_loop BOOTSTRAP TOPIC MAKER` is one of them. MAKER is `stock`, or a JSON object of settings
for a SafeProducer.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from safeproducer import ProducerIdLimitError, SafeProducer

PATIENCE = 60.0
_KILLED_EVERY = 5
_LATEST_KILL = 1.0
_alive: list[Any] = []
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Start:
    """One process. `said`: "delivered", or the error that it was refused with; empty when it was killed before."""

    killed: bool
    said: str

    @property
    def refused(self) -> bool:
        return self.said not in ("", "delivered")


def settings(bootstrap: str) -> dict[str, Any]:
    """What both kinds of producers are given."""
    return {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}


def one(bootstrap: str, topic: str, maker: str) -> str:
    """Produce one record; what became of it."""
    if maker == "stock":
        producer: Any = Producer(settings(bootstrap))
    else:
        producer = SafeProducer({**settings(bootstrap), **json.loads(maker)})
    _alive.append(producer)  # it is not collected before the process dies
    try:
        producer.produce(topic, b"x")
    except ProducerIdLimitError as refused:
        return str(refused)
    return "delivered" if producer.flush(PATIENCE / 2) == 0 else "nothing in time"


def start(
    bootstrap: str, topic: str, maker: str | Mapping[str, Any], kill_after: float | None, environment: Mapping[str, str]
) -> Start:
    """Run one process to its end."""
    told = maker if isinstance(maker, str) else json.dumps(maker)
    command = [sys.executable, "-m", "integration.crash_loop", bootstrap, topic, told]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as process:
        try:
            said = process.communicate(timeout=PATIENCE if kill_after is None else kill_after)[0]
            return Start(killed=False, said=said.strip())
        except subprocess.TimeoutExpired:
            process.kill()
            return Start(killed=True, said=process.communicate()[0].strip())


def loop(
    bootstrap: str,
    topic: str,
    maker: str | Mapping[str, Any],
    count: int,
    *,
    at_once: int = 4,
    seed: int = 1,
    environment: Mapping[str, str] | None = None,
) -> tuple[Sequence[Start], float]:
    """`count` processes, so many at once, each fifth of them killed at a random moment; and the seconds it took."""
    chance, began = random.Random(seed), time.monotonic()
    kills = [chance.uniform(0, _LATEST_KILL) if number % _KILLED_EVERY == 4 else None for number in range(count)]
    with ThreadPoolExecutor(at_once) as pool:
        found = list(pool.map(lambda kill: start(bootstrap, topic, maker, kill, environment or {}), kills))
    return found, time.monotonic() - began


def main() -> None:
    said = one(*sys.argv[1:4])
    print(said, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
