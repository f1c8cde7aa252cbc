"""SafeProducer beside confluent_kafka, aiokafka, kafka-python and Java's producer, near the broker and far from it.

Each client has its defaults, and then what suits such a load best: large batches, and a linger of 20 ms. All are
idempotent, and wait for all replicas. Each run is a process of its own that sends one record, and then all others as
fast as the client takes them, until all are acknowledged. See README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

import aiokafka
from confluent_kafka.cimpl import Producer

from benchmarks.brokers import written
from benchmarks.interleaved import Bystanders, Spread, show
from benchmarks.lanes import performance
from benchmarks.link import Link, link
from benchmarks.load import VoidError
from benchmarks.table import conclude, disturbed, ratio, table
from safeproducer import SafeProducer

PARTITIONS, RECORDS, VALUE = 6, 100_000, 100
PATIENCE = 120.0
OURS, JAVA = "SafeProducer", "Java"
DEFAULTS, BEST = "defaults", "at its best"
LARGE, LINGER, MEMORY = 1_000_000, 20, 128_000_000
_CONFLUENT = {"batch.size": LARGE, "linger.ms": LINGER}
BESTS: dict[str, dict[str, Any]] = {
    OURS: _CONFLUENT,
    "confluent_kafka": _CONFLUENT,
    "aiokafka": {"max_batch_size": LARGE, "linger_ms": LINGER},
    "kafka-python": {"batch_size": LARGE, "linger_ms": LINGER},
    JAVA: {**_CONFLUENT, "buffer.memory": MEMORY},
}
_topics = count(1)


@dataclass(frozen=True)
class Run:
    """Records a second from the second record to the last acknowledgement, and microseconds of CPU a record."""

    rate: float
    cpu: float | None


@dataclass(frozen=True)
class Result:
    """Ratios of SafeProducer to each peer, by settings and peer, within a round; `failed`: peer -> its message."""

    rtt: float
    disturbance: float
    speed: dict[str, dict[str, Spread]]
    cpu: dict[str, dict[str, Spread]]
    failed: dict[str, str]


# --- a client's run, in its own process ------------------------------------------------------------------------------


def librdkafka(make: Any, bootstrap: str, topic: str, config: dict[str, Any], values: list[bytes]) -> Run:
    errors: list[Any] = []
    ended = 0

    def report(error: Any, _: Any) -> None:
        nonlocal ended
        ended += 1
        if error is not None:
            errors.append(error)

    producer = make({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 3, **config})
    producer.produce(topic, values[0], on_delivery=report)
    producer.flush(PATIENCE)
    began, used = time.perf_counter(), time.process_time()
    for number, value in enumerate(values[1:]):
        while True:
            try:
                producer.produce(topic, value, on_delivery=report)
                break
            except BufferError:
                producer.poll(0.01)
        if not number % 1_000:
            producer.poll(0)
    producer.flush(PATIENCE)
    return run_of(ended, errors, values, began, used)


def kafka_python(bootstrap: str, topic: str, config: dict[str, Any], values: list[bytes]) -> Run:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it reads its own schemas in a deprecated way
        import kafka  # type: ignore[import-untyped]  # noqa: PLC0415 - one of five

        producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, **config)
        producer.send(topic, values[0]).get(PATIENCE)
        began, used = time.perf_counter(), time.process_time()
        sent = [producer.send(topic, value) for value in values[1:]]
        producer.flush(PATIENCE)
        errors = [each.exception for each in sent if each.failed()]
        return run_of(1 + sum(each.is_done for each in sent), errors, values, began, used)


async def aio_kafka(bootstrap: str, topic: str, config: dict[str, Any], values: list[bytes]) -> Run:
    made = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, **config)
    async with made as producer:
        await producer.send_and_wait(topic, values[0])
        began, used = time.perf_counter(), time.process_time()
        sent = [await producer.send(topic, value) for value in values[1:]]
        ended = await asyncio.gather(*sent, return_exceptions=True)
        errors = [each for each in ended if isinstance(each, BaseException)]
        return run_of(1 + len(ended), errors, values, began, used)


def run_of(ended: int, errors: list[Any], values: list[bytes], began: float, used: float) -> Run:
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    if errors or ended != len(values):
        raise VoidError(f"of {len(values)} records {ended} ended, {len(errors)} in vain: {errors[:1]}")
    return Run((len(values) - 1) / seconds, 1e6 * cpu / (len(values) - 1))


CLIENTS: dict[str, Callable[..., Run]] = {
    OURS: lambda *given: librdkafka(SafeProducer, *given),
    "confluent_kafka": lambda *given: librdkafka(Producer, *given),
    "aiokafka": lambda *given: asyncio.run(aio_kafka(*given)),
    "kafka-python": kafka_python,
}


# --- the measurement -------------------------------------------------------------------------------------------------


def run(client: str, best: bool, bootstrap: str, topic: str, records: int) -> Run:
    """One process. Raises RuntimeError with the last line that it wrote."""
    config = BESTS[client] if best else {}
    if client == JAVA:
        properties = {"bootstrap.servers": bootstrap, **config}
        return Run(performance(topic, records, VALUE, {name: str(value) for name, value in properties.items()}), None)
    command = [
        sys.executable,
        "-m",
        "benchmarks.peers",
        "--run",
        json.dumps([client, bootstrap, topic, config, records]),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * PATIENCE)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return Run(**json.loads(done.stdout))


def measure(way: Link, rtt: float, rounds: int, records: int) -> Result:
    way.set_rtt(rtt)
    bootstrap, bystanders = way.bootstrap if rtt else way.direct_bootstrap, Bystanders()
    done: dict[tuple[str, str], list[Run]] = {}
    failed: dict[str, str] = {}
    pairs = [(client, settings) for client in BESTS for settings in (DEFAULTS, BEST)]
    for number in range(rounds):
        show(f"RTT {rtt:g} ms: round {number + 1} of {rounds}")
        for client, settings in random.Random(f"{rtt} {number}").sample(pairs, len(pairs)):
            if client in failed:
                continue
            way.create_topic(topic := f"peers-{next(_topics)}", PARTITIONS)
            try:
                done.setdefault((client, settings), []).append(run(client, settings == BEST, bootstrap, topic, records))
                if (found := written(way.direct_bootstrap, topic, PARTITIONS)) != records:
                    raise VoidError(f"of {records} records the log has {found}")
            except (RuntimeError, VoidError, OSError, subprocess.SubprocessError) as error:
                failed[client] = f"{settings}, RTT {rtt:g} ms: {error}"
            way.delete_topic(topic)
    show("")
    speed: dict[str, dict[str, Spread]] = {DEFAULTS: {}, BEST: {}}
    cpu: dict[str, dict[str, Spread]] = {DEFAULTS: {}, BEST: {}}
    for client, settings in pairs if OURS not in failed else ():
        if client not in (OURS, *failed):
            both = list(zip(done[OURS, settings], done[client, settings], strict=True))
            speed[settings][client] = Spread.of([ours.rate / theirs.rate for ours, theirs in both])
            if client != JAVA:
                cpu[settings][client] = Spread.of([(ours.cpu or 0) / (theirs.cpu or 1) for ours, theirs in both])
    return Result(rtt, bystanders.share(), speed, cpu, failed)


def described(result: Result) -> str:
    rows = [
        (client, settings, ratio(speed), ratio(result.cpu[settings][client]) if client in result.cpu[settings] else "-")
        for settings, speeds in result.speed.items()
        for client, speed in speeds.items()
    ]
    told = "\n".join(f"{client} failed: {message}" for client, message in result.failed.items())
    heads = ("SafeProducer beside", "with", "records/s", "CPU of a record")
    return f"Round trip {result.rtt:g} ms; {disturbed(result.disturbance)}\n{table(heads, rows)}\n{told}"


def main() -> None:
    options = arguments()
    if options.run:
        client, bootstrap, topic, config, records = json.loads(options.run)
        source = random.Random(0)
        values = [source.randbytes(VALUE) for _ in range(records)]
        print(json.dumps(asdict(CLIENTS[client](bootstrap, topic, config, values))))
        return
    with link() as way:
        results = [measure(way, rtt, options.rounds, options.records) for rtt in options.rtt]
    failed = {client: message for result in results for client, message in result.failed.items()}
    facts = {"records": options.records, "cases": list(map(asdict, results)), "failed": failed}
    conclude(facts, "\n\n".join(map(described, results)), [], options.json, check=False)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench peers", description=__doc__)
    parser.add_argument("--rtt", type=float, nargs="+", default=[0.0, 100.0], metavar="MS", help="round trips to make")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each client and settings (5)")
    parser.add_argument("--records", type=int, default=RECORDS, help=f"of a run ({RECORDS})")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help="there are no bars")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    return parser.parse_args()


if __name__ == "__main__":
    main()
