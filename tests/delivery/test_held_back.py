"""What an application sees of records that are held back: throttle times, timestamps, room, reasons, the off switch."""

import re
import time
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import KafkaError

from safeproducer import DeliveryError, HoldReason, PartitionSnapshot, QueueFullError, SafeProducer
from safeproducer.policy.decision import Hold
from safeproducer.testing import FakeCluster
from tests.contract.support import poll_until as wait
from tests.contract.support import send_one, switching
from tests.diagnosis.test_explanation import Make, cluster, make, throttle
from tests.inside import engine_of

__all__ = ["cluster", "make"]

THROTTLE = 1.0


def row(producer: SafeProducer, partition: int) -> PartitionSnapshot:
    (found,) = [each for each in producer.snapshot().partitions if each.partition == partition]
    return found


def seconds(sentence: str | None) -> float:
    """The time that a sentence names."""
    found = re.search(r"for another ([\d.]+) s ", sentence or "")
    assert found is not None, sentence
    return float(found[1])


def fill(producer: SafeProducer, count: int) -> None:
    for _ in range(count):
        producer.produce("t", b"v", partition=0)


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_throttled_broker_is_waited_for_and_the_other_is_not(cluster: FakeCluster, make: Make, mode: str) -> None:
    """Nothing is sent to it before the time is over; the other broker's partition goes on; explain() says why."""
    heard: list[float] = []
    producer = make(mode, throttle_cb=lambda event: heard.append(event.throttle_time))
    throttle(cluster, producer)
    began = time.monotonic()
    times: dict[int, float] = {}
    for partition in (0, 1):
        producer.produce(
            "t", b"v", partition=partition, on_delivery=lambda _, m: times.setdefault(m.partition(), time.monotonic())
        )
    assert producer.snapshot().held >= 1
    wait(producer, lambda: re.search(r"broker 1 \(\S+\), its leader, throttles this client", producer.explain("t", 0)))
    wait(producer, lambda: len(times) == 2)
    assert times[1] - began < THROTTLE / 2
    assert times[0] - began >= THROTTLE * 0.8
    assert max(heard) == pytest.approx(THROTTLE)


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_snapshot_has_the_code_of_a_throttle_time_that_counts_down(cluster: FakeCluster, make: Make, mode: str) -> None:
    """Of the throttled broker's partition alone; explain() adds what to do about it."""
    producer = make(mode)
    throttle(cluster, producer, 60_000)
    wait(producer, lambda: not row(producer, 0).unresolved)
    producer.produce("t", b"v", partition=0)
    wait(producer, lambda: row(producer, 0).reason is HoldReason.THROTTLED)
    told = seconds(row(producer, 0).why)
    assert told <= 60
    wait(producer, lambda: seconds(row(producer, 0).why) < told)
    assert row(producer, 0).reason == "throttled"
    assert (row(producer, 1).reason, row(producer, 1).why) == (None, None)
    assert producer.explain("t", 0).count(HoldReason.THROTTLED.cure or "no cure") == 1


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_sentences_are_made_for_who_asks_and_for_nobody_else(cluster: FakeCluster, make: Make, mode: str) -> None:
    """produce() and the sender deal with values: a sentence for each record would cost more than the record."""
    producer = make(mode)
    throttle(cluster, producer, 60_000)
    buffer = engine_of(producer).dispatcher.record_buffer.buffers["t", 0]
    with mock.patch.object(Hold, "sentence", autospec=True, side_effect=Hold.sentence) as sentence:
        fill(producer, 50)
        wait(producer, lambda: buffer.why and buffer.why.reason is HoldReason.THROTTLED)
        fill(producer, 50)
        assert sentence.call_count == 0
        assert row(producer, 0).why
        assert sentence.call_count == 1


def test_throttle_times_are_shared_by_the_producers_of_a_process(cluster: FakeCluster, make: Make) -> None:
    first, second = make(), make()
    throttle(cluster, first)
    second.poll(0)
    wait(second, lambda: not engine_of(second).route.goes_direct)
    second.produce("t", b"v", partition=0)
    assert second.snapshot().held == 1
    assert second.flush(10) == 0


def test_a_leader_that_is_silent_from_the_start_keeps_no_other_back(cluster: FakeCluster) -> None:
    """The first batch is all for it, so no acknowledgement ends the probation."""
    cluster.pause(1)
    producer = SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    try:
        for _ in range(5_000):
            producer.produce("t", b"for the silent one", partition=0)
        reports: list[Any] = []
        producer.produce("t", b"for the other", partition=1, on_delivery=lambda error, _: reports.append(error))
        wait(producer, lambda: reports)
        assert reports == [None]
        assert producer.snapshot().delivered == 1
    finally:
        cluster.resume(1)
        producer.close(10)


@pytest.mark.parametrize("extra", [{"safeproducer.mode": "passthrough"}, {"transactional.id": "a"}])
def test_records_that_are_never_held_go_behind_an_application_that_did_not_poll(extra: dict[str, Any]) -> None:
    """The sender has taken its reports, so its records went through the intake: which held them for a throttle time."""
    producer = SafeProducer({"bootstrap.servers": "localhost:1", "test.mock.num.brokers": 1, "log_level": 0, **extra})
    engine, transactional = engine_of(producer), "transactional.id" in extra
    try:
        if transactional:
            producer.init_transactions(30)
            producer.begin_transaction()
        send_one(producer, "t", b"first", partition=0)
        deadline, count = time.monotonic() + 10, 6
        while engine.route.goes_direct:  # nobody polls
            assert time.monotonic() < deadline
            producer.produce("t", b"more", partition=0)
            time.sleep(0.05)
            count += 1
        engine.updates.holds.cluster.throttle.announce(1, 60.0, time.monotonic())
        for number in range(5):
            producer.produce("t", b"%d" % number, partition=0)
        assert producer.snapshot().held == 0
        assert producer.flush(30) == 0
        assert producer.snapshot().delivered == count
        wait(producer, lambda: engine.route.goes_direct)
        if transactional:
            producer.commit_transaction(30)
    finally:
        producer.close(10)


def test_a_deadline_that_the_throttle_time_outlasts_fails_at_once(cluster: FakeCluster, make: Make) -> None:
    """Not written, and not after the deadline: there is nothing to wait for."""
    producer = make(**{"message.timeout.ms": 2000})
    throttle(cluster, producer, 5_000)
    errors: list[Any] = []
    began = time.monotonic()
    producer.produce("t", b"late", partition=0, on_delivery=lambda error, _: errors.append(error))
    wait(producer, lambda: errors)
    assert time.monotonic() - began < 1
    (error,) = errors
    assert isinstance(error, DeliveryError)
    assert (error.code(), error.outcome) == (KafkaError._MSG_TIMED_OUT, "not_written")
    assert producer.snapshot().not_written == 1
    assert b"late" not in [record.value for record in cluster.log("t", 0)]


def test_a_throttled_broker_leaves_room_for_the_others(cluster: FakeCluster, make: Make) -> None:
    """Its records may fill half of the buffer; BufferError names the partition and why; the other partition goes on."""
    producer = make(**{"queue.buffering.max.messages": 100})
    throttle(cluster, producer, 3_000)
    wait(producer, lambda: len(producer) == 0)
    with pytest.raises(QueueFullError, match=r"t \[0\].*throttles this client"):
        fill(producer, 100)
    assert 45 <= producer.snapshot().held <= 55
    for _ in range(20):
        producer.produce("t", b"w", partition=1)
    wait(producer, lambda: sum(record.value == b"w" for record in cluster.log("t", 1)) == 20, timeout=2)


def test_the_reason_is_known_before_the_sender_has_looked(make: Make) -> None:
    """A busy application may fill the buffer before the sender's thread gets the interpreter lock."""
    producer = make()
    wait(producer, lambda: len(producer) == 0)
    with switching(10):
        engine_of(producer).updates.throttled(1, "broker", 3.0)
        producer.produce("t", b"v", partition=0)
        assert row(producer, 0).reason is HoldReason.THROTTLED


def test_max_block_ends(cluster: FakeCluster, make: Make) -> None:
    producer = make(**{"queue.buffering.max.messages": 5, "safeproducer.max.block.ms": 300})
    cluster.pause(1)
    cluster.pause(2)
    began = time.monotonic()
    with pytest.raises(BufferError):
        fill(producer, 6)
    assert 0.25 <= time.monotonic() - began < 3
    assert producer.snapshot().unresolved == 5
    cluster.resume(1)
    cluster.resume(2)
    assert producer.flush(10) == 0


@pytest.mark.parametrize("settings", [{"acks": 1}, {"acks": 0}, {"enable.idempotence": False}], ids=str)
def test_weaker_settings_keep_the_account_and_the_throttle_time(
    cluster: FakeCluster, make: Make, settings: dict[str, Any]
) -> None:
    """With acks=1 and idempotence off, records of a throttled broker wait; acks=0 gets no answer, so none is known."""
    producer = make(**settings)
    if settings != {"acks": 0}:
        throttle(cluster, producer)
        producer.produce("t", b"v", partition=0)
        assert producer.snapshot().held == 1
    assert producer.flush(10) == 0
    account = producer.snapshot()
    assert (account.delivered, account.failed) == (account.accepted, 0)


def test_records_held_before_their_topic_is_known_keep_their_order(cluster: FakeCluster) -> None:
    """What is accepted once the partitions are known waits behind what was accepted before."""
    cluster.delay(1.0, api="Produce")
    config = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "batch.num.messages": 10}
    with SafeProducer(config) as producer:
        for number in range(60):
            producer.produce("t", b"%d" % number, b"key")
        assert producer.snapshot().held == 50
        wait(producer, lambda: engine_of(producer).updates.holds.partitions.count("t"))
        for number in range(60, 90):
            producer.produce("t", b"%d" % number, b"key")
        cluster.delay(0, api="Produce")
        assert producer.flush(20) == 0
    written = [int(record.value) for partition in (0, 1) for record in cluster.log("t", partition)]
    assert written == list(range(90))


def test_a_record_right_behind_the_first_answer_goes_directly(cluster: FakeCluster) -> None:
    """Who awaits each record would wait for the sender and for linger: the second of ten took 16 ms in place of 0.4."""
    held = 0
    for _ in range(10):
        with SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0}) as producer:
            send_one(producer, "t", b"first")
            producer.produce("t", b"second")
            held += producer.snapshot().held
            assert producer.flush(10) == 0
    assert held <= 3  # a busy machine may need longer for the first answer than a record is on probation
