"""What a delivery report says, and what is in the log afterwards."""

import time
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from tests.contract.support import Reports, reports_of, send_one


def test_fields_of_a_delivered_message(producer: Any, topic: str) -> None:
    """A report names topic, partition, offset, key and value; error is None and latency a duration in seconds."""
    reports = Reports()
    for _ in range(3):
        producer.produce(topic, b"value", b"key", partition=2, headers={"h": b"1"}, on_delivery=reports)
    assert producer.flush(10) == 0
    for offset, (error, message) in enumerate(reports):
        assert error is None
        assert isinstance(message, Message)
        assert message.error() is None
        assert (message.topic(), message.partition(), message.offset()) == (topic, 2, offset)
        assert (message.key(), message.value(), len(message)) == (b"key", b"value", 5)
        assert 0 < message.latency() < 10
        assert message.leader_epoch() is None


def test_report_carries_no_headers(producer: Any, cluster: Any, topic: str) -> None:
    """headers() of a report is None although the record in the log has them."""
    reports = reports_of(producer, topic, b"v", headers=[("h", b"1")])
    assert reports.message.headers() is None
    [message] = cluster.read(topic)
    assert message.headers() == [("h", b"1")]


def test_fields_of_a_failed_message(make: Any) -> None:
    """A failed record's report has the same error in both places, no offset, and the record's key and value."""
    producer = make({"bootstrap.servers": "127.0.0.1:1"})
    reports = Reports()
    producer.produce("t", b"value", b"key", partition=1, on_delivery=reports)
    producer.purge()
    assert producer.flush(10) == 0
    [(error, message)] = reports
    assert error is not None
    assert error.code() == message.error().code()
    assert (message.topic(), message.partition()) == ("t", 1)
    assert (message.key(), message.value()) == (b"key", b"value")
    assert message.offset() in (None, -1001)
    assert not error.fatal()


def test_explicit_timestamp_is_in_the_log(producer: Any, cluster: Any, topic: str) -> None:
    """timestamp= in milliseconds is the record's create time."""
    send_one(producer, topic, b"v", partition=0, timestamp=1_234_567_890_123)
    [message] = cluster.read(topic)
    assert message.timestamp() == (TIMESTAMP_CREATE_TIME, 1_234_567_890_123)


@pytest.mark.parametrize("arguments", [{}, {"timestamp": 0}], ids=["absent", "zero"])
def test_automatic_timestamp_is_the_time_of_produce(
    make: Any, cluster: Any, topic: str, arguments: dict[str, Any]
) -> None:
    """Without a timestamp (or with 0) a record gets the time of its produce(), not of its sending."""
    producer = make({"linger.ms": 1_000})
    before = time.time() * 1000
    producer.produce(topic, b"first", partition=0, **arguments)
    after = time.time() * 1000
    time.sleep(0.3)  # the gap between the two stamps is what is measured
    send_one(producer, topic, b"second", partition=0, **arguments)
    first, second = (message.timestamp()[1] for message in cluster.read(topic))
    assert before - 2 <= first <= after + 2
    assert second - first >= 290


def test_negative_timestamp_is_accepted(producer: Any, topic: str) -> None:
    """A negative timestamp is taken at the call."""
    reports = reports_of(producer, topic, b"v", timestamp=-1)
    assert len(reports) == 1


HEADERS: dict[str, tuple[Any, list[tuple[str, bytes | None]]]] = {
    "list": ([("a", b"1"), ("b", b"2")], [("a", b"1"), ("b", b"2")]),
    "dict": ({"a": b"1", "b": b"2"}, [("a", b"1"), ("b", b"2")]),
    "repeated-name": ([("a", b"1"), ("a", b"2")], [("a", b"1"), ("a", b"2")]),
    "str-value": ([("a", "\u00e9")], [("a", "\u00e9".encode())]),
    "none-value": ([("a", None)], [("a", None)]),
    "empty-value": ([("a", b"")], [("a", b"")]),
    "empty-name": ([("", b"1")], [("", b"1")]),
    "bytes-with-nul": ([("a", b"1\x002")], [("a", b"1\x002")]),
    "unicode-name": ([("\u00fc", b"1")], [("\u00fc", b"1")]),
    "int-name": ([(1, b"1")], [("1", b"1")]),
}


@pytest.mark.parametrize(("given", "found"), HEADERS.values(), ids=HEADERS.keys())
def test_headers_arrive(producer: Any, cluster: Any, topic: str, given: Any, found: list[Any]) -> None:
    """Names and values of headers, their order and repetitions are in the log."""
    send_one(producer, topic, b"v", headers=given)
    [message] = cluster.read(topic)
    assert message.headers() == found


def test_header_name_of_bytes_arrives(producer: Any, cluster: Any, topic: str) -> None:
    """A name given as bytes is accepted; what arrives is a text made of it."""
    send_one(producer, topic, b"v", headers=[(b"a", b"1")])
    [message] = cluster.read(topic)
    [(name, value)] = message.headers()
    assert name in ("a", "b'a'")
    assert value == b"1"


def test_caller_keeps_its_headers(producer: Any, topic: str) -> None:
    """The headers given are not changed, and changing them afterwards changes nothing in the record."""
    headers = [("a", b"1")]
    producer.produce(topic, b"v", headers=headers)
    assert headers == [("a", b"1")]
    assert producer.flush(10) == 0
    assert headers == [("a", b"1")]


def test_none_and_empty_differ_in_the_log(producer: Any, cluster: Any, topic: str) -> None:
    """None is a null value (a tombstone) and b'' an empty one, for the key too."""
    producer.produce(topic, None, None, 0)
    send_one(producer, topic, b"", b"", 0)
    assert [(message.value(), message.key()) for message in cluster.read(topic)] == [(None, None), (b"", b"")]


def test_every_kind_of_text_arrives_as_utf8(producer: Any, cluster: Any, topic: str) -> None:
    """str values and keys are in the log as UTF-8."""
    texts = ["", "ascii", "\u00e9\u4e2d\U0001f600", "a\0b", "x" * 100_000]
    for text in texts:
        producer.produce(topic, text, text, 0)
    assert producer.flush(10) == 0
    assert [message.value() for message in cluster.read(topic)] == [text.encode() for text in texts]
