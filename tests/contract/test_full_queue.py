"""A full local queue: when BufferError is raised, and how room is re-created."""

from typing import Any

import pytest
from confluent_kafka import KafkaError

from tests.contract.support import NOWHERE, Reports, poll_until, wait_until


def test_produce_into_a_full_queue_raises_buffer_error(make: Any) -> None:
    """The record that does not fit raises BufferError, is not counted and never reported."""
    producer = make({"bootstrap.servers": NOWHERE, "queue.buffering.max.messages": 5})
    reports = Reports()
    for _ in range(5):
        producer.produce("t", b"v", on_delivery=reports)
    for _ in range(3):
        with pytest.raises(BufferError, match="Local: Queue full"):
            producer.produce("t", b"refused", on_delivery=reports)
    producer.purge()
    assert producer.flush(5) == 0
    assert [message.value() for _, message in reports] == [b"v"] * 5


def test_kbytes_limit_counts_too(make: Any) -> None:
    """queue.buffering.max.kbytes bounds the sum of the sizes."""
    producer = make({"bootstrap.servers": NOWHERE, "queue.buffering.max.kbytes": 10})

    def fill() -> int:
        for number in range(100):
            try:
                producer.produce("t", b"v" * 1000)
            except BufferError:
                return number
        return 100

    assert fill() in (10, 11)


def test_poll_makes_room(make: Any, topic: str) -> None:
    """After BufferError, poll() and a second try get the record through."""
    producer = make({"queue.buffering.max.messages": 5})
    reports = Reports()
    for number in range(100):
        while True:
            try:
                producer.produce(topic, str(number), partition=0, on_delivery=reports)
                break
            except BufferError:
                producer.poll(1)
    assert producer.flush(10) == 0
    assert [int(message.value()) for _, message in reports] == list(range(100))


def test_delivered_records_take_room_until_their_callback_ran(make: Any, cluster: Any, topic: str) -> None:
    """A record in the log still fills the queue as long as nobody polled."""
    producer = make({"queue.buffering.max.messages": 5})
    for _ in range(5):
        producer.produce(topic, b"v")
    wait_until(lambda: sum(cluster.end_offsets(topic)) == 5)
    with pytest.raises(BufferError):
        producer.produce(topic, b"v")
    poll_until(producer, lambda: len(producer) == 0)
    producer.produce(topic, b"v")


def test_purge_makes_room(make: Any) -> None:
    """purge() followed by poll() empties a full queue."""
    producer = make({"bootstrap.servers": NOWHERE, "queue.buffering.max.messages": 2})
    reports = Reports()
    producer.produce("t", b"v", on_delivery=reports)
    producer.produce("t", b"v", on_delivery=reports)
    producer.purge()
    poll_until(producer, lambda: len(reports) == 2)
    producer.produce("t", b"v", on_delivery=reports)
    assert reports.codes == [KafkaError._PURGE_QUEUE] * 2


def test_callback_may_use_the_room_of_its_record(make: Any, topic: str) -> None:
    """Inside the callback of a full queue, produce() is still refused: its record counts until it returns."""
    producer = make({"queue.buffering.max.messages": 1})
    refused: list[bool] = []

    def again(_error: Any, _message: Any) -> None:
        try:
            producer.produce(topic, b"second")
            refused.append(False)
        except BufferError:
            refused.append(True)

    producer.produce(topic, b"first", on_delivery=again)
    assert producer.flush(10) == 0
    assert refused == [True]


def test_batch_into_a_full_queue_is_accepted_in_part(make: Any) -> None:
    """produce_batch() returns how many fitted and puts _QUEUE_FULL under "_error" of the others; no exception."""
    producer = make({"bootstrap.servers": NOWHERE, "queue.buffering.max.messages": 3})
    reports = Reports()
    messages: list[dict[str, Any]] = [{"value": b"%d" % number} for number in range(4)]
    messages.append({"value": b"4", "headers": {"a": b"b"}})
    assert producer.produce_batch("t", messages, on_delivery=reports) == 3
    failed = [message for message in messages if "_error" in message]
    assert [message["_error"].code() for message in failed] == [KafkaError._QUEUE_FULL] * 2
    assert [message["_error"].str() for message in failed] == ["Message failed: Local: Queue full"] * 2
    assert [message["value"] for message in failed] == [b"3", b"4"]
    producer.purge()
    assert producer.flush(5) == 0
    assert [message.value() for _, message in reports] == [b"0", b"1", b"2"]
