"""AsyncSafeProducer beside aiokafka and confluent_kafka's AIOProducer: latency of an awaited record, speed and CPU of a
thousand tasks, and for how long the event loop is kept.

All run in this process, in turns, on one real Kafka node behind a wire tap. The CPU is that of the process, with
librdkafka's threads. See README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import statistics
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

import aiokafka
import confluent_kafka.aio

from benchmarks.interleaved import Bystanders, Spread, show
from benchmarks.link import Link, link
from benchmarks.table import Bar, conclude, disturbed, table
from safeproducer import SafeProducer
from safeproducer.aio import AIOProducer, AsyncSafeProducer

VALUE = b"x" * 100
LINGER = 5
TASKS = 1_000
ROUNDS = 7
GATHER = "send() and gather()"
Await = Callable[[str, bytes], Awaitable[Any]]
_topics = count(1)


def config_of(bootstrap: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": LINGER, "log_level": 3}


# --- the sides: a function that awaits one record ------------------------------------------------------------------


@asynccontextmanager
async def ours(bootstrap: str) -> AsyncIterator[Await]:
    async with AsyncSafeProducer(config_of(bootstrap)) as producer:
        yield producer.send_and_wait


@asynccontextmanager
async def theirs(bootstrap: str) -> AsyncIterator[Await]:
    made = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=LINGER, enable_idempotence=True)
    async with made as producer:
        yield producer.send_and_wait


def drop_in(cls: Any) -> Callable[[str], Any]:
    @asynccontextmanager
    async def side(bootstrap: str) -> AsyncIterator[Await]:
        async with cls(config_of(bootstrap)) as producer:

            async def send_and_wait(topic: str, value: bytes) -> Any:
                return await (await producer.produce(topic, value))

            yield send_and_wait

    return side


@asynccontextmanager
async def bare(bootstrap: str) -> AsyncIterator[Await]:
    """confluent_kafka's Producer, futures and one thread that polls: what nobody can fall below."""
    loop, stopped = asyncio.get_running_loop(), threading.Event()
    producer: Any = confluent_kafka.Producer(config_of(bootstrap))

    def send_and_wait(topic: str, value: bytes) -> asyncio.Future[Any]:
        future = loop.create_future()
        producer.produce(
            topic, value, on_delivery=lambda _, message: loop.call_soon_threadsafe(future.set_result, message)
        )
        return future

    def serve() -> None:
        while not stopped.is_set():
            producer.poll(0.1)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield send_and_wait
    finally:
        stopped.set()
        await asyncio.to_thread(thread.join)


SIDES: dict[str, Callable[[str], Any]] = {
    "AsyncSafeProducer": ours,
    "its AIOProducer": drop_in(AIOProducer),
    "aiokafka": theirs,
    "bare futures": bare,
    "AIOProducer of confluent_kafka": drop_in(confluent_kafka.aio.AIOProducer),
}
OURS, DROP_IN, AIOKAFKA, BARE, STOCK = SIDES


@dataclass(frozen=True)
class Latency:
    """Of awaited records, in milliseconds."""

    side: str
    what: str
    p50: float
    p99: float


@dataclass(frozen=True)
class Speed:
    """Of many tasks: records a second, microseconds of CPU a record."""

    side: str
    what: str
    rate: float
    cpu: float


@dataclass(frozen=True)
class Ratio:
    """AsyncSafeProducer's `figure` in units of another side's in the same round."""

    side: str
    what: str
    figure: str
    spread: Spread


Rounds = dict[tuple[str, str], list[dict[str, float]]]
"""By side and by what it did: the figures of each round."""


def ratios(rounds: Rounds) -> list[Ratio]:
    return [
        Ratio(side, what, name, Spread.of([one[name] / other[name] for one, other in zip(mine, theirs, strict=True)]))
        for (side, what), theirs in rounds.items()
        if side not in (OURS, DROP_IN) and (mine := rounds.get((OURS, what)))
        for name in theirs[0]
    ]


def percentile(took: list[float], share: float) -> float:
    return sorted(took)[min(len(took) - 1, int(share * len(took)))]


async def one_by_one(send: Await, topic: str, records: int, pause: float) -> list[float]:
    took = []
    for _ in range(records):
        began = time.perf_counter()
        await send(topic, VALUE)
        took.append(1e3 * (time.perf_counter() - began))
        await asyncio.sleep(pause)
    return took


async def steadily(send: Await, topic: str, rate: float, seconds: float) -> list[float]:
    """So many a second, each in a task of its own."""
    took = list[float]()

    async def one() -> None:
        began = time.perf_counter()
        await send(topic, VALUE)
        took.append(1e3 * (time.perf_counter() - began))

    tasks = []
    for _ in range(int(rate * seconds)):
        tasks.append(asyncio.create_task(one()))
        await asyncio.sleep(1 / rate)
    await asyncio.gather(*tasks)
    return took


async def together(send: Await, topic: str, tasks: int, each: int) -> tuple[float, float]:
    """(seconds, seconds of CPU) of that many records."""

    async def one() -> None:
        for _ in range(each):
            await send(topic, VALUE)

    began, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(one() for _ in range(tasks)))
    return time.perf_counter() - began, time.process_time() - used


async def gathered(send: Await, topic: str, records: int) -> tuple[float, float]:
    """(seconds, seconds of CPU) of that many records that are sent one after another, and awaited together."""
    sends = getattr(send, "__self__", None)

    async def bare(topic: str, value: bytes) -> Awaitable[Any]:
        return send(topic, value)

    submit = bare if sends is None else sends.send
    began, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*[await submit(topic, VALUE) for _ in range(records)])
    return time.perf_counter() - began, time.process_time() - used


async def batches(producer: SafeProducer, front: AsyncSafeProducer, topic: str, each: int) -> tuple[float, float]:
    """Records a second of send_batch(1 000), and of produce_batch() with a callback, one after the other."""
    messages = [{"value": VALUE} for _ in range(1_000)]
    began = time.perf_counter()
    for _ in range(each):
        (await front.send_batch(topic, messages)).raise_for_failures()
    batch = each * 1_000 / (time.perf_counter() - began)

    def callbacks() -> float:
        began, reports = time.perf_counter(), list[Any]()
        for done in range(1, each + 1):
            producer.produce_batch(
                topic, [{"value": VALUE} for _ in range(1_000)], on_delivery=lambda *it: reports.append(it)
            )
            while len(reports) < done * 1_000:
                producer.poll(0.1)
        return each * 1_000 / (time.perf_counter() - began)

    return batch, await asyncio.to_thread(callbacks)


async def ticks(send: Callable[[str, bytes], Any], topic: str, records: int) -> list[float]:
    """CPU of the process, in milliseconds, between two ticks of the loop, while so many records end."""
    found, used, over = list[float](), time.process_time(), False

    async def tick() -> None:
        nonlocal used
        while not over:
            await asyncio.sleep(0.001)
            now = time.process_time()
            found.append(1e3 * (now - used))
            used = now

    deliveries = [send(topic, VALUE) for _ in range(records)]
    used = time.process_time()
    ticking = asyncio.create_task(tick())
    ended = 0
    while ended < records:
        while ended < records and deliveries[ended].done():
            ended += 1
        await asyncio.sleep(0.01)
    over = True
    await ticking
    return found


# --- the measurement -------------------------------------------------------------------------------------------------


async def measured(way: Link, quick: bool) -> tuple[dict[tuple[str, str], list[float]], Rounds, dict[str, float]]:
    """Milliseconds of each await by side and what; the figures of each round; other figures."""
    took: dict[tuple[str, str], list[float]] = {}
    found: Rounds = {}
    warm_up, records, seconds, each = (3, 8, 1.0, 20) if quick else (10, 45, 1.5, 50)

    def note(side: str, what: str, one: list[float]) -> None:
        took.setdefault((side, what), []).extend(one)
        found.setdefault((side, what), []).append({"p50": statistics.median(one)})

    for rtt in (0.0, 20.0, 100.0):
        way.set_rtt(rtt)
        bootstrap, topic = (way.bootstrap if rtt else way.direct_bootstrap), f"aio-{next(_topics)}"
        way.create_topic(topic, 3)
        for side in in_turn([*SIDES][:4]):
            show(f"RTT {rtt:g} ms: {side}")
            async with SIDES[side](bootstrap) as send:
                await one_by_one(send, topic, warm_up, 0)
                note(side, f"one, RTT {rtt:g} ms", await one_by_one(send, topic, records, 0.002))
    way.set_rtt(0)
    topic = f"aio-{next(_topics)}"
    way.create_topic(topic, 3)
    for rate in (2, 20, 100):
        for side in in_turn([OURS, DROP_IN, AIOKAFKA, STOCK]):
            show(f"{rate}/s: {side}")
            async with SIDES[side](way.direct_bootstrap) as send:
                if side != STOCK:
                    await one_by_one(send, topic, 3, 0)
                note(side, f"{rate}/s", await steadily(send, topic, rate, seconds))
    for side in in_turn([*SIDES][:4]):
        show(f"{TASKS} tasks: {side}")
        async with SIDES[side](way.direct_bootstrap) as send:
            await together(send, topic, TASKS, 2)
            number = each if side != AIOKAFKA else max(5, each // 5)
            row = of_each(TASKS * number, *await together(send, topic, TASKS, number))
            found.setdefault((side, f"{TASKS} tasks"), []).append(row)
            if side != DROP_IN:
                row = of_each(each * 400, *await gathered(send, topic, each * 400))
                found.setdefault((side, GATHER), []).append(row)
    others = await batches_and_ticks(way, topic, each)
    show("")
    return took, found, others


async def batches_and_ticks(way: Link, topic: str, each: int) -> dict[str, float]:
    show("batches and ticks")
    others = dict[str, float]()
    async with AsyncSafeProducer(config_of(way.direct_bootstrap)) as front:
        with SafeProducer(config_of(way.direct_bootstrap)) as producer:
            await batches(producer, front, topic, 5)
            batch, callbacks = await batches(producer, front, topic, 2 * each)
        others["send_batch(), of produce_batch() with callbacks"] = batch / callbacks
    async with SIDES[BARE](way.direct_bootstrap) as send:
        await send(topic, VALUE)
        found_ticks = [tick for _ in range(5) for tick in await ticks(send, topic, 50_000)]
        others["50 000 reports, bare futures: most CPU between ticks, ms"] = max(found_ticks)
    for mode in ("auto", "held"):
        async with AsyncSafeProducer({**config_of(way.direct_bootstrap), "safeproducer.mode": mode}) as front:
            await front.send_and_wait(topic, VALUE)
            found_ticks = [tick for _ in range(5) for tick in await ticks(front.submit_nowait, topic, 50_000)]
            others[f"50 000 reports, {mode}: p99 of CPU between ticks, ms"] = percentile(found_ticks, 0.99)
            others[f"50 000 reports, {mode}: most CPU between ticks, ms"] = max(found_ticks)
            gc.disable()
            others[f"50 000 reports, {mode}, collector off: most, ms"] = max(
                await ticks(front.submit_nowait, topic, 50_000)
            )
            gc.enable()
    return others


def in_turn(sides: list[str]) -> list[str]:
    """The sides of all rounds; in each of them all, in random order."""
    return [side for _ in range(ROUNDS) for side in random.sample(sides, len(sides))]


def of_each(records: int, seconds: float, cpu: float) -> dict[str, float]:
    return {"rate": records / seconds, "cpu": 1e6 * cpu / records}


def judged(latencies: list[Latency], speeds: list[Speed], others: dict[str, float]) -> list[Bar]:
    late = {(one.side, one.what): one for one in latencies}
    speed = {one.side: one for one in speeds if one.what != GATHER}
    gather = {one.side: one for one in speeds if one.what == GATHER}
    bars = []
    for rtt in (0, 20, 100):
        one = late[OURS, f"one, RTT {rtt} ms"]
        bars.append(Bar(f"one awaited, RTT {rtt} ms: p50 in ms", one.p50, rtt + LINGER + 2, at_least=False))
        bars.append(Bar(f"one awaited, RTT {rtt} ms: p99 in ms", one.p99, 1.25 * rtt + LINGER + 5, at_least=False))
        bare = one.p50 - late[BARE, f"one, RTT {rtt} ms"].p50
        bars.append(Bar(f"one awaited, RTT {rtt} ms: p50 beyond bare futures', in ms", bare, 0.5, at_least=False))
    near = late[OURS, "one, RTT 0 ms"].p50 - late[AIOKAFKA, "one, RTT 0 ms"].p50
    bars.append(Bar("one awaited, RTT 0 ms: p50 beyond aiokafka's, in ms", near, 1, at_least=False))
    steady = late[DROP_IN, "20/s"].p50 / late[STOCK, "20/s"].p50
    bars.append(Bar("AIOProducer at 20/s: p50, of confluent_kafka's", steady, 1 / 400, at_least=False))
    what = f"{TASKS} tasks:"
    bars += [
        Bar(f"{what} records a second, of bare futures", speed[OURS].rate / speed[BARE].rate, 0.8, at_least=True),
        Bar(f"{what} CPU, of bare futures", speed[OURS].cpu / speed[BARE].cpu, 1.25, at_least=False),
        Bar(f"{what} CPU, of aiokafka", speed[OURS].cpu / speed[AIOKAFKA].cpu, 0.45, at_least=False),
    ]
    bars += [
        Bar(f"{GATHER}: records a second, of bare futures", gather[OURS].rate / gather[BARE].rate, 0.8, at_least=True),
        Bar(f"{GATHER}: records a second, of aiokafka", gather[OURS].rate / gather[AIOKAFKA].rate, 2, at_least=True),
        Bar(f"{GATHER}: CPU, of aiokafka", gather[OURS].cpu / gather[AIOKAFKA].cpu, 0.8, at_least=False),
    ]
    limits = {"send_batch": (0.7, True), "p99": (15.0, False), "collector off": (25.0, False)}
    for name, figure in others.items():
        for part, (limit, at_least) in limits.items():
            if part in name:
                bars.append(Bar(name, figure, limit, at_least=at_least))
    return bars


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.aio", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer records: for a look, not a gate")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    options = parser.parse_args()
    bystanders = Bystanders()
    with link() as way:
        took, found, others = asyncio.run(measured(way, options.quick))
    latencies = [Latency(*of, statistics.median(all_of), percentile(all_of, 0.99)) for of, all_of in took.items()]
    speeds = [
        Speed(*of, *(statistics.median(row[name] for row in rows) for name in ("rate", "cpu")))
        for of, rows in found.items()
        if "rate" in rows[0]
    ]
    rows = [(one.what, one.side, f"{one.p50:.1f}", f"{one.p99:.1f}") for one in latencies]
    text = disturbed(bystanders.share()) + "\n\n" + table(("awaited", "by", "p50 ms", "p99 ms"), rows) + "\n\n"
    rows = [(one.what, one.side, f"{one.rate:.0f}", f"{one.cpu:.1f}") for one in speeds]
    text += table(("", "by", "records/s", "CPU us/record"), rows) + "\n\n"
    text += "\n".join(f"{name}: {figure:.2f}" for name, figure in others.items())
    told: dict[str, list[Any]] = {"latencies": latencies, "speeds": speeds, "ratios": ratios(found)}
    facts = {**{name: [asdict(each) for each in those] for name, those in told.items()}, "others": others}
    conclude(facts, text, judged(latencies, speeds, others), options.json, options.check)


if __name__ == "__main__":
    main()
