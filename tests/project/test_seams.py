"""What a front door, a counter or a view may wait for and read, without polling: each seam by one that uses it."""

import asyncio
import logging
import sys
from typing import Any

import pytest
from confluent_kafka import KafkaError

from safeproducer import DeliveryError, Hook, Outcome, QueueFullError, Record, SafeProducer
from safeproducer.pipeline.accepting import accept, lack_for
from safeproducer.pipeline.buffer.partition_buffer import PartitionBuffer
from safeproducer.pipeline.dispatch.expiry import Expiry
from safeproducer.policy.types import Lack, TopicPartition
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.contract.support import send_one, wait_until
from tests.inside import engine_of

PATIENCE = 20
HELD = {"safeproducer.mode": "held", "linger.ms": 5, "log_level": 0}


class Observing(Hook):
    def record_accepted(self, record: Record) -> None:
        """It needs them for nothing."""


cluster = fake_cluster({"t": 1})


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
        send_one(producer, "t", b"value", on_delivery=lambda error, _: reports.append(error))
        engine.unsubscribe(wakes)
        woken = len(calls)
        send_one(producer, "t", b"value", on_delivery=lambda error, _: reports.append(error))
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


class Told:
    """A callback of one record."""

    def __init__(self) -> None:
        self.reports = list[object]()

    def __call__(self, error: object, _: object) -> None:
        self.reports.append(error)


def accepted(producer: SafeProducer, value: bytes, partition: int = -1) -> tuple[Told, Any]:
    """The callback of a record that was accepted, and where it waits."""
    told = Told()
    return told, accept(engine_of(producer), told, "t", value, b"key", partition, 0, None)


def withdrawn(producer: SafeProducer, told: Told, ticket: Any) -> bool:
    """Whether that record was taken back."""
    answers = list[bool]()
    engine_of(producer).withdraw_soon(ticket, told, answers.append)
    wait_until(lambda: bool(answers))
    return answers[0]


@pytest.mark.parametrize("hooks", [[], [Observing()]], ids=["plain", "hooked"])
@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_a_held_record_is_taken_back_by_its_ticket(cluster: FakeCluster, ordering: str, hooks: list[Hook]) -> None:
    """Only that one fails, certainly not written and with its one report; key, share and number are free again."""
    config = {**HELD, "linger.ms": 60_000, "safeproducer.ordering": ordering, "bootstrap.servers": cluster.bootstrap}
    with SafeProducer(config, hooks=hooks) as producer:
        records = [accepted(producer, b"%d" % number) for number in range(5)]
        buffer = engine_of(producer).dispatcher.record_buffer
        waiting, size = buffer.waiting, buffer.waiting_bytes
        assert withdrawn(producer, *records[2])
        assert (buffer.waiting, buffer.waiting_bytes) == (waiting - 1, size - len(b"2key"))
        assert len(buffer.numbers.reports) == waiting - 1
        assert not withdrawn(producer, *records[2]), "it is gone"
        assert producer.flush(PATIENCE) == 0
        assert not withdrawn(producer, *records[3]), "it is delivered"
        assert producer.snapshot().withdrawn == 1
    (failed,) = records.pop(2)[0].reports
    assert isinstance(failed, DeliveryError)
    assert (failed.code(), failed.outcome) == (KafkaError._PURGE_QUEUE, Outcome.NOT_WRITTEN)
    assert [told.reports for told, _ in records] == [[None]] * 4
    assert [record.value for record in cluster.log("t")] == [b"0", b"1", b"3", b"4"]
    assert producer.snapshot().unresolved == 0


def test_another_record_with_the_same_number_stays(cluster: FakeCluster) -> None:
    """Numbers are used again: the callback tells whose it is now."""
    config = {**HELD, "linger.ms": 60_000, "bootstrap.servers": cluster.bootstrap}
    with SafeProducer(config) as producer:
        told, ticket = accepted(producer, b"stays")
        assert not withdrawn(producer, Told(), ticket)
        assert producer.flush(PATIENCE) == 0
    assert told.reports == [None]


def test_a_record_that_got_its_partition_meanwhile_is_found(cluster: FakeCluster) -> None:
    """It was put into the buffer of records without a partition, and waits in another one now."""
    config = {**HELD, "linger.ms": 60_000, "bootstrap.servers": cluster.bootstrap}
    with SafeProducer(config) as producer:
        told, ticket = accepted(producer, b"first")
        assert ticket[0].partition == -1
        buffers = engine_of(producer).dispatcher.record_buffer.buffers
        wait_until(lambda: ("t", 0) in buffers and bool(buffers["t", 0].records))
        assert withdrawn(producer, told, ticket)
        assert producer.flush(PATIENCE) == 0
    assert len(told.reports) == 1
    assert not cluster.log("t")


def test_only_its_partition_is_searched(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits elsewhere may be ten thousand times as much."""
    cluster.create_topic("other", partitions=1)
    searched, queues = set[TopicPartition](), PartitionBuffer.queues

    def noted(buffer: PartitionBuffer) -> Any:
        if sys._getframe(1).f_code is Expiry._withdraw.__code__:
            searched.add(buffer.tp)
        return queues(buffer)

    config = {**HELD, "linger.ms": 60_000, "bootstrap.servers": cluster.bootstrap}
    with SafeProducer(config) as producer:
        producer.produce("other", b"elsewhere", partition=0)
        told, ticket = accepted(producer, b"here", partition=0)
        monkeypatch.setattr(PartitionBuffer, "queues", noted)
        assert withdrawn(producer, told, ticket)
    assert searched == {("t", 0)}


# --- a part of the reports -------------------------------------------------------------------------------------------


def test_reports_are_run_in_parts(cluster: FakeCluster) -> None:
    """The rest stays, in order, and it is told that there is some."""
    reports = list[int]()
    with SafeProducer({**HELD, "bootstrap.servers": cluster.bootstrap}) as producer:
        engine, queue = engine_of(producer), engine_of(producer).counters.report_queue
        for number in range(5):
            producer.produce("t", b"value", on_delivery=lambda *_, number=number: reports.append(number))
        wait_until(lambda: queue.reports.count == 5)
        more = [engine.run_reports(2) for _ in range(3)]
        assert (more, reports) == ([True, True, False], [0, 1, 2, 3, 4])


# --- is there room, and where ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_lack_of_room_is_known_without_a_try(cluster: FakeCluster, mode: str) -> None:
    """A try that is refused would be an event of hooks."""
    cluster.pause(1)
    config = {**HELD, "safeproducer.mode": mode, "queue.buffering.max.messages": 4, "safeproducer.max.block.ms": 0}
    with SafeProducer({**config, "bootstrap.servers": cluster.bootstrap}) as producer:
        for _ in range(4):
            assert lack_for(engine_of(producer), "t", 0, b"value", None) is Lack.NONE
            producer.produce("t", b"value", partition=0)
        assert lack_for(engine_of(producer), "t", 0, b"value", None) is Lack.OF_ALL
        with pytest.raises(QueueFullError):
            producer.produce("t", b"value", partition=0)
        cluster.resume(1)
        assert producer.flush(PATIENCE) == 0
        assert lack_for(engine_of(producer), "t", 0, b"value", None) is Lack.NONE


def test_the_partition_of_a_key_is_known(cluster: FakeCluster) -> None:
    """It is that of librdkafka, as soon as a broker has told of the topic."""
    cluster.create_topic("wide", partitions=7)
    with SafeProducer({**HELD, "bootstrap.servers": cluster.bootstrap}) as producer:
        places, engine = dict[bytes, int | None](), engine_of(producer)
        assert engine.place_of("wide", b"key") == -1
        keys = [b"%d" % number for number in range(20)]
        for key in keys:
            producer.produce("wide", b"", key, on_delivery=lambda _, it: places.update({it.key(): it.partition()}))
        assert producer.flush(PATIENCE) == 0
        assert {key: engine.place_of("wide", key) for key in keys} == places
