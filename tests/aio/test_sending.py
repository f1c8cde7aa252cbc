"""A record is sent on an event loop: what send(), send_and_wait() and submit_nowait() return and raise, and when."""

import asyncio
import contextvars
import gc
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Message

from safeproducer import DeliveryError, Hook, Outcome, QueueFullError, Record, SafeProducer
from safeproducer.aio import AsyncSafeProducer, DeliveredRecord, NotWritten, OutcomeUnknown
from safeproducer.testing import FakeCluster
from tests.aio.support import HELD, PATIENCE, QUIET, log_of, until

Run = Callable[[Any], Any]


class Accepts(Hook):
    """Notes events and the context in which records are accepted."""

    def __init__(self) -> None:
        self.events = list[str]()
        self.contexts = list[str]()

    def record_accepted(self, record: Record) -> None:
        self.events.append("accepted")
        self.contexts.append(f"{request.get('none')} {record.value.decode()}")

    def record_refused(self, record: Record, error: BaseException) -> None:
        self.events.append("refused")


request: contextvars.ContextVar[str] = contextvars.ContextVar("request")


@pytest.mark.parametrize("mode", ["auto", "held", "passthrough"])
async def test_an_awaited_record_tells_where_it_is(cluster: FakeCluster, mode: str) -> None:
    """Headers, timestamp and partition are sent, too."""
    config = {"bootstrap.servers": cluster.bootstrap, "safeproducer.mode": mode, **QUIET}
    async with AsyncSafeProducer(config) as producer:
        record = await producer.send_and_wait("t", b"value", b"key", 1, 5_000, {"name": b"header"})
    assert record[:4] == ("t", 1, 0, 5_000)
    assert 0 < record.latency < PATIENCE
    (stored,) = cluster.log("t", 1)
    assert (stored.value, stored.key, stored.headers) == (b"value", b"key", (("name", b"header"),))


async def test_send_gives_a_future_of_it(cluster: FakeCluster) -> None:
    """It may be awaited late, by several, and in gather()."""
    async with AsyncSafeProducer({"bootstrap.servers": cluster.bootstrap, **QUIET}) as producer:
        delivery = await producer.send("t", b"0")
        assert isinstance(delivery, asyncio.Future)
        others = [producer.submit_nowait("t", b"%d" % number) for number in range(1, 10)]
        records = await asyncio.gather(delivery, delivery, *others)
        assert (delivery.outcome, await delivery.settled()) == ("delivered", "delivered")
    assert records[0] is records[1]
    assert {type(record) for record in records} == {DeliveredRecord}
    assert log_of(cluster) == {b"%d" % number: 1 for number in range(10)}


async def test_who_keeps_many_futures_keeps_no_payloads(cluster: FakeCluster) -> None:
    """Nor the Message that holds them, at each of which the collector would look."""
    async with AsyncSafeProducer({"bootstrap.servers": cluster.bootstrap, **QUIET}) as producer:
        delivery = await producer.send("t", b"payload")
        await delivery
        assert not any(isinstance(found, Message) for found in gc.get_referents(delivery))
        assert delivery.outcome == "delivered"


async def test_a_record_that_is_not_written_raises_so() -> None:
    config = {**HELD, "bootstrap.servers": "127.0.0.1:1"}
    async with AsyncSafeProducer(config, close_timeout=0) as producer:
        delivery = await producer.send("t", b"value", partition=0)
    with pytest.raises(NotWritten) as caught:
        await delivery
    error = caught.value
    assert (delivery.outcome, error.outcome) == ("not_written", Outcome.NOT_WRITTEN)  # type: ignore[attr-defined]
    assert isinstance(error.args[0], DeliveryError)
    assert str(error) == str(error.args[0])


async def test_a_record_whose_end_is_unknown_raises_so(cluster: FakeCluster) -> None:
    """Its broker hangs, and close() does not wait for it."""
    async with AsyncSafeProducer({"bootstrap.servers": cluster.bootstrap, **QUIET}, close_timeout=0) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        cluster.pause(cluster.leader("t", 0)[0])
        delivery = await producer.send("t", b"lost", partition=0)
        await asyncio.sleep(0.1)  # librdkafka has sent it
    with pytest.raises(OutcomeUnknown):
        await delivery
    assert delivery.outcome == "unknown"


async def test_a_full_buffer_refuses_what_cannot_wait(cluster: FakeCluster) -> None:
    config = {**HELD, "bootstrap.servers": cluster.bootstrap, "queue.buffering.max.messages": 2}
    async with AsyncSafeProducer(config, close_timeout=0) as producer:
        deliveries = [producer.submit_nowait("t", b"") for _ in range(2)]
        with pytest.raises(QueueFullError):
            producer.submit_nowait("t", b"")
        assert [await each.withdraw() for each in deliveries] == [True, True]
        assert producer.snapshot().withdrawn == 2
    assert not log_of(cluster)


# --- room ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "held"])
async def test_senders_get_room_in_their_order(cluster: FakeCluster, mode: str) -> None:
    """A thousand of them, for a buffer of fifty. A third is cancelled meanwhile: none of those is in the log."""
    accepted = list[int]()
    config = {"bootstrap.servers": cluster.bootstrap, "queue.buffering.max.messages": 50, **QUIET}
    async with AsyncSafeProducer({**config, "safeproducer.mode": mode, "linger.ms": 5}) as producer:

        async def send(number: int) -> None:
            delivery = await producer.send("t", b"%d" % number, partition=0)
            accepted.append(number)
            await delivery

        tasks = [asyncio.create_task(send(number)) for number in range(1_000)]
        await asyncio.sleep(0)
        for number in range(200, 1_000, 3):
            tasks[number].cancel()
        await asyncio.wait(tasks)
    cancelled = set(range(200, 1_000, 3))
    assert len(accepted) > 700
    assert accepted == sorted(accepted)
    assert not cancelled & set(accepted)
    assert [record.value for record in cluster.log("t", 0)] == [b"%d" % number for number in accepted]


@pytest.mark.parametrize("mode", ["auto", "held"])
async def test_no_try_is_refused_where_there_is_known_to_be_no_room(cluster: FakeCluster, mode: str) -> None:
    """It would be an event of hooks, and an ERROR span. Each record is accepted in its sender's own context."""
    hook = Accepts()
    config = {"bootstrap.servers": cluster.bootstrap, "queue.buffering.max.messages": 20, **QUIET}
    async with AsyncSafeProducer({**config, "safeproducer.mode": mode, "linger.ms": 5}, hooks=[hook]) as producer:

        async def send(number: int) -> None:
            request.set(f"{number}")
            await producer.send_and_wait("t", b"%d" % number)

        await asyncio.gather(*map(send, range(300)))
    assert hook.events == ["accepted"] * 300
    assert sorted(hook.contexts) == sorted(f"{number} {number}" for number in range(300))


async def test_a_line_that_stands_holds_up_no_other(cluster: FakeCluster) -> None:
    """Its broker throttles; the line of another broker's partition goes on."""
    config = {"bootstrap.servers": cluster.bootstrap, "queue.buffering.max.messages": 64, "linger.ms": 1}
    async with AsyncSafeProducer({**QUIET, **config, "safeproducer.mode": "held"}) as producer:
        stands, goes = cluster.leader("t", 0)[0], cluster.leader("t", 1)[0]
        assert stands != goes
        await producer.send_and_wait("t", b"first", partition=1)
        cluster.set_throttle(4_000, broker=stands)
        await producer.send_and_wait("t", b"first", partition=0)
        cluster.set_throttle(0, broker=stands)
        waiting = [asyncio.create_task(producer.send_and_wait("t", b"stands", partition=0)) for _ in range(200)]
        await asyncio.sleep(0)
        await asyncio.gather(*(producer.send_and_wait("t", b"goes", partition=1) for _ in range(500)))
        done = sum(task.done() for task in waiting)
        await asyncio.gather(*waiting)
        assert done == 0
    assert log_of(cluster) == {b"first": 2, b"stands": 200, b"goes": 500}


async def test_a_record_for_which_there_is_never_room_is_refused(cluster: FakeCluster) -> None:
    """Nothing is under way that could make room: nobody waits for ever."""
    config = {"bootstrap.servers": cluster.bootstrap, "queue.buffering.max.kbytes": 1, **QUIET}
    async with AsyncSafeProducer(config) as producer:
        with pytest.raises(QueueFullError):
            await producer.send("t", b"x" * 5_000)
        ahead = await producer.send("t", b"ahead")
        with pytest.raises(QueueFullError):
            await producer.send("t", b"x" * 5_000)
        await ahead
    assert log_of(cluster) == {b"ahead": 1}


async def test_room_that_a_thread_makes_is_found(cluster: FakeCluster) -> None:
    """No record of the loop ends meanwhile."""
    config = {**HELD, "bootstrap.servers": cluster.bootstrap, "queue.buffering.max.messages": 2}
    async with AsyncSafeProducer(config) as producer:
        for _ in range(2):
            producer.producer.produce("t", b"of a thread")
        waiting = asyncio.create_task(producer.send("t", b"waits"))
        await asyncio.sleep(0)
        await asyncio.to_thread(producer.producer.flush, PATIENCE)
        await waiting
    assert log_of(cluster) == {b"of a thread": 2, b"waits": 1}


# --- the loop --------------------------------------------------------------------------------------------------------


def test_a_sender_that_never_waits_lets_others_run(cluster: FakeCluster, run: Run) -> None:
    """Every two hundred records, before the next one is accepted."""

    async def main() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        async with AsyncSafeProducer({"bootstrap.servers": cluster.bootstrap, **QUIET}) as producer:
            ticking = asyncio.create_task(tick())
            for _ in range(2_000):
                await producer.send("t", b"")
            found = ticks
            ticking.cancel()
            return found

    assert 9 <= run(main) <= 30


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_few_records_end_in_a_step_of_the_loop(cluster: FakeCluster, run: Run, mode: str) -> None:
    """Each wakes a task, and others are to run between them."""

    async def main() -> int:
        most, ended = 0, 0
        config = {"bootstrap.servers": cluster.bootstrap, "safeproducer.mode": mode, "linger.ms": 20, **QUIET}
        async with AsyncSafeProducer(config) as producer:
            deliveries = [producer.submit_nowait("t", b"%d" % number) for number in range(2_000)]
            while ended < len(deliveries):
                before, ended = ended, sum(each.done() for each in deliveries)
                most = max(most, ended - before)
                await asyncio.sleep(0)
        return most

    assert 1 <= run(main) <= 128, "64 by a report that came, and 64 by what was queued"


async def test_flush_counts_the_records_so_far(cluster: FakeCluster) -> None:
    """Linger does not count meanwhile. A flush that is cancelled keeps no thread."""
    async with AsyncSafeProducer({**HELD, "bootstrap.servers": cluster.bootstrap}) as producer:
        deliveries = [await producer.send("t", b"%d" % number) for number in range(10)]
        await producer.flush()
        assert all(each.done() for each in deliveries)
        cluster.pause(cluster.leader("t", 0)[0])
        stuck = await producer.send("t", b"stuck", partition=0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.flush(), 0.05)
        assert await asyncio.wait_for(producer._in_thread(lambda: "its turn"), PATIENCE) == "its turn"
        cluster.resume(cluster.leader("t", 0)[0])
        await producer.flush()
        assert stuck.done()


async def test_threads_do_not_grow_with_records(cluster: FakeCluster) -> None:
    import threading  # noqa: PLC0415

    found = set[int]()
    async with AsyncSafeProducer({"bootstrap.servers": cluster.bootstrap, **QUIET}) as producer:
        await producer.send_and_wait("t", b"")
        for count in (1, 100, 10_000):
            deliveries = [await producer.send("t", b"") for _ in range(count)]
            found.add(sum(each.name.startswith("safeproducer-aio") for each in threading.enumerate()))
            await asyncio.gather(*deliveries)
    assert found == {1}


async def test_callbacks_of_the_configuration_run_on_the_loop(cluster: FakeCluster) -> None:
    told = list[object]()
    loop = asyncio.get_running_loop()

    async def statistics(_: str) -> None:
        await asyncio.sleep(0)
        told.append(asyncio.get_running_loop() is loop)

    def throttled(_: object) -> None:
        told.append((asyncio.get_running_loop() is loop,))

    cluster.set_throttle(1)
    config = {"bootstrap.servers": cluster.bootstrap, "statistics.interval.ms": 50, **QUIET}
    async with AsyncSafeProducer({**config, "stats_cb": statistics, "throttle_cb": throttled}) as producer:
        await producer.send_and_wait("t", b"")
        await until(lambda: {True, (True,)} <= set(told))
        await producer.close()
        await asyncio.sleep(0)
    assert set(told) == {True, (True,)}


def test_records_of_threads_and_of_the_loop_share_a_producer(cluster: FakeCluster, run: Run) -> None:
    """Also of a producer that somebody else made and closes."""

    async def main(producer: SafeProducer) -> None:
        reports = list[object]()
        async with AsyncSafeProducer.wrap(producer) as wrapped:
            await asyncio.to_thread(
                producer.produce, "t", b"thread", on_delivery=lambda error, _: reports.append(error)
            )
            await wrapped.send_and_wait("t", b"loop")
            await until(lambda: reports == [None])
        producer.produce("t", b"later")

    with SafeProducer({"bootstrap.servers": cluster.bootstrap, **QUIET}) as producer:
        run(lambda: main(producer))
        assert producer.flush(PATIENCE) == 0
    assert log_of(cluster) == {b"thread": 1, b"loop": 1, b"later": 1}
