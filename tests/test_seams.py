"""What a front door, a counter or a view may wait for and read, without polling: each seam by one that uses it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from safeproducer import DeliveryError, Hook, Outcome, QueueFullError, Record, SafeProducer
from safeproducer.testing import FakeCluster
from tests.contract.support import wait_until
from tests.inside import engine_of

PATIENCE = 20
HELD = {"safeproducer.mode": "held", "linger.ms": 5, "log_level": 0}


class Observing(Hook):
    """Asks for records."""

    def record_accepted(self, record: Record) -> None:
        """It needs them for nothing."""


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=1) as made:
        made.create_topic("t", partitions=1)
        yield made


# --- reports are there -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_coroutine_waits_for_a_report_without_polling(cluster: FakeCluster, mode: str) -> None:
    """Its loop runs nothing of the producer until it is woken."""

    async def delivered() -> list[object]:
        loop, there, reports = asyncio.get_running_loop(), asyncio.Event(), list[object]()
        with SafeProducer({**HELD, "bootstrap.servers": cluster.bootstrap, "safeproducer.mode": mode}) as producer:
            engine_of(producer).subscribe(lambda: loop.call_soon_threadsafe(there.set))
            producer.produce("t", b"value", on_delivery=lambda error, _: reports.append(error))
            while not reports:
                await asyncio.wait_for(there.wait(), PATIENCE)
                there.clear()
                producer.poll(0)
        return reports

    assert asyncio.run(delivered()) == [None]


def test_a_waker_that_raises_is_logged_and_stops_nothing(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The report is there all the same, and so is the next waker's call."""
    calls, reports = list[int](), list[object]()

    def raises() -> None:
        raise RuntimeError("not obeyed")

    with SafeProducer({**HELD, "bootstrap.servers": cluster.bootstrap}) as producer:
        engine = engine_of(producer)
        engine.subscribe(raises)
        engine.subscribe(wakes := lambda: calls.append(1))
        producer.produce("t", b"value", on_delivery=lambda error, _: reports.append(error))
        assert producer.flush(PATIENCE) == 0
        engine.unsubscribe(wakes)
        woken = len(calls)
        producer.produce("t", b"value", on_delivery=lambda error, _: reports.append(error))
        assert producer.flush(PATIENCE) == 0
    assert reports == [None, None]
    assert woken == len(calls) == 1
    assert [record.levelno for record in caplog.records if "not obeyed" in str(record.exc_info)] == [logging.ERROR] * 2


def test_a_late_subscriber_is_woken_at_once(cluster: FakeCluster) -> None:
    """What waits already counts as well."""
    with SafeProducer({**HELD, "bootstrap.servers": cluster.bootstrap}) as producer:
        engine = engine_of(producer)
        engine.awake().counters.report_queue.reports.add_event(lambda *_: None, None, None)
        calls = list[int]()
        engine.subscribe(lambda: calls.append(1))
        assert calls == [1]


# --- there is room ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_coroutine_that_was_refused_waits_for_room(cluster: FakeCluster, mode: str) -> None:
    """Each record of a producer with a buffer of five is accepted in the end; who is woken was refused before."""

    async def accepted() -> tuple[int, int]:
        loop, room, refused = asyncio.get_running_loop(), asyncio.Event(), 0
        config = {**HELD, "queue.buffering.max.messages": 5, "safeproducer.max.block.ms": 0}
        with SafeProducer({**config, "bootstrap.servers": cluster.bootstrap, "safeproducer.mode": mode}) as producer:
            for number in range(20):
                while True:
                    try:
                        producer.produce("t", b"%d" % number)
                        break
                    except QueueFullError:
                        refused += 1
                    engine_of(producer).when_room(lambda: loop.call_soon_threadsafe(room.set))
                    serving = loop.run_in_executor(None, producer.flush, PATIENCE)
                    await asyncio.wait_for(room.wait(), PATIENCE)
                    room.clear()
                    await serving
            producer.flush(PATIENCE)
            return producer.snapshot().delivered, refused

    delivered, refused = asyncio.run(accepted())
    assert delivered == 20
    assert refused >= 3


def test_room_wakes_once_and_only_when_there_is_some() -> None:
    """Nothing is delivered nowhere: only a purge makes room."""
    calls = list[int]()
    producer = SafeProducer({**HELD, "bootstrap.servers": "127.0.0.1:1", "queue.buffering.max.messages": 2})
    buffer = engine_of(producer).dispatcher.record_buffer
    buffer.when_room(lambda: calls.append(0))
    assert calls == [0], "there is room now"
    for _ in range(2):
        producer.produce("t", b"value", partition=0)
    engine_of(producer).when_room(lambda: calls.append(1))
    engine_of(producer).sender.wait(0.1)
    assert calls == [0]
    producer.purge()
    producer.poll(0)
    wait_until(lambda: len(calls) > 1)
    producer.close(0)
    assert calls == [0, 1]


# --- take this record back -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hooks", [[], [Observing()]], ids=["plain", "hooked"])
@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_a_held_record_is_taken_back_by_its_report(cluster: FakeCluster, ordering: str, hooks: list[Hook]) -> None:
    """Only that one fails, certainly not written and with its one report; key, share and number are free again."""
    told = dict[int, list[object]]()
    config = {**HELD, "linger.ms": 60_000, "safeproducer.ordering": ordering, "bootstrap.servers": cluster.bootstrap}
    with SafeProducer(config, hooks=hooks) as producer:
        engine, reports = engine_of(producer), []
        account = engine.counters.open("t")
        for number in range(5):
            told[number] = []
            reports.append(account.bind(lambda error, _, to=told[number]: to.append(error))[1])
            account.accepted += 1
            engine.route.send("t", b"%d" % number, b"key", -1, reports[-1])
        buffer = engine.dispatcher.record_buffer
        waiting, size = buffer.waiting, buffer.waiting_bytes
        engine.withdraw_soon(reports[2])
        wait_until(lambda: len(buffer.numbers.reports) == waiting - 1)
        assert (buffer.waiting, buffer.waiting_bytes) == (waiting - 1, size - len(b"2key"))
        engine.withdraw_soon(reports[2])  # it is gone
        assert producer.flush(PATIENCE) == 0
        engine.withdraw_soon(reports[3])  # it is delivered
    (failed,) = told.pop(2)
    assert isinstance(failed, DeliveryError)
    assert (failed.code(), failed.outcome) == (KafkaError._PURGE_QUEUE, Outcome.NOT_WRITTEN)
    assert list(told.values()) == [[None]] * 4
    assert [record.value for record in cluster.log("t")] == [b"0", b"1", b"3", b"4"]
    assert producer.snapshot().unresolved == 0
