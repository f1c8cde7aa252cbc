"""What produce() takes and refuses, and what a refusal raises."""

import array
import ctypes
from typing import Any

import numpy as np
import pytest
from confluent_kafka import KafkaError, KafkaException

from safeproducer.testing import FakeCluster
from tests.contract.support import Reports, error_of, reports_of, send_one

SURROGATE = "\ud800"


class Index:
    """An object that can stand for an integer."""

    def __index__(self) -> int:
        return 1


class Text(str):
    """A str of the user's own."""


class Encoding(str):
    """With a method of its own in place of that of str."""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return b"other"


class Octets(bytes):
    """Bytes of the user's own."""


REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[Exception]]] = {
    "no-topic": ((), {}, TypeError),
    "no-topic-but-value": ((), {"value": b"v"}, TypeError),
    "nine-positional": (("t", b"v", b"k", 0, None, None, 0, None, 1), {}, TypeError),
    "unknown-keyword": (("t",), {"valeu": b"v"}, TypeError),
    "topic-twice": (("t",), {"topic": "t"}, TypeError),
    "topic-none": ((None,), {}, TypeError),
    "topic-bytes": ((b"t",), {}, TypeError),
    "topic-int": ((5,), {}, TypeError),
    "topic-nul": (("a\0b",), {}, ValueError),
    "topic-surrogate": ((SURROGATE,), {}, UnicodeEncodeError),
    "value-int": (("t", 5), {}, TypeError),
    "value-float": (("t", 5.0), {}, TypeError),
    "value-list": (("t", [b"v"]), {}, TypeError),
    "value-bytearray": (("t", bytearray(b"v")), {}, TypeError),
    "value-memoryview": (("t", memoryview(b"v")), {}, TypeError),
    "value-array": (("t", array.array("b", [1])), {}, TypeError),
    "value-strided-numpy": (("t", np.arange(8)[::2]), {}, ValueError),
    "value-fortran-numpy": (("t", np.zeros((2, 3), order="F")), {}, ValueError),
    "value-surrogate": (("t", SURROGATE), {}, UnicodeEncodeError),
    "key-int": (("t", b"v", 5), {}, TypeError),
    "key-bytearray": (("t", b"v", bytearray(b"k")), {}, TypeError),
    "key-memoryview": (("t", b"v", memoryview(b"k")), {}, TypeError),
    "key-surrogate": (("t", b"v", SURROGATE), {}, UnicodeEncodeError),
    "partition-none": (("t",), {"partition": None}, TypeError),
    "partition-str": (("t",), {"partition": "0"}, TypeError),
    "partition-float": (("t",), {"partition": 0.0}, TypeError),
    "partition-too-high": (("t",), {"partition": 2**31}, OverflowError),
    "partition-too-low": (("t",), {"partition": -(2**31) - 1}, OverflowError),
    "timestamp-none": (("t",), {"timestamp": None}, TypeError),
    "timestamp-float-zero": (("t",), {"timestamp": 0.0}, TypeError),
    "timestamp-float": (("t",), {"timestamp": 1.5}, TypeError),
    "timestamp-str": (("t",), {"timestamp": "1"}, TypeError),
    "timestamp-too-high": (("t",), {"timestamp": 2**63}, OverflowError),
    "timestamp-too-low": (("t",), {"timestamp": -(2**63) - 1}, OverflowError),
    "headers-tuple": (("t",), {"headers": (("a", b"b"),)}, TypeError),
    "headers-empty-tuple": (("t",), {"headers": ()}, TypeError),
    "headers-str": (("t",), {"headers": "a"}, TypeError),
    "headers-empty-str": (("t",), {"headers": ""}, TypeError),
    "headers-zero": (("t",), {"headers": 0}, TypeError),
    "headers-generator": (("t",), {"headers": (pair for pair in [("a", b"b")])}, TypeError),
    "header-list-pair": (("t",), {"headers": [["a", b"b"]]}, TypeError),
    "header-triple": (("t",), {"headers": [("a", b"b", 1)]}, TypeError),
    "header-single": (("t",), {"headers": [("a",)]}, TypeError),
    "header-value-int": (("t",), {"headers": [("a", 1)]}, TypeError),
    "header-value-bytearray": (("t",), {"headers": [("a", bytearray(b"b"))]}, TypeError),
    "header-value-surrogate": (("t",), {"headers": [("a", SURROGATE)]}, UnicodeEncodeError),
}


@pytest.mark.parametrize("behind", ["nothing", "a record", "a delivered record"])
def test_bad_argument_raises_and_nothing_is_accepted(producer: Any, topic: str, behind: str) -> None:
    """An argument of the wrong type, number or range; for a topic of which the partitions are known or not."""
    good, refused = Reports(), Reports()
    if behind != "nothing":
        producer.produce(topic, b"good", on_delivery=good)
    if behind == "a delivered record":
        assert producer.flush(10) == 0
    for name, (args, kwargs, raised) in REFUSED.items():
        placed = (topic, *args[1:]) if args[:1] == ("t",) else args
        with pytest.raises(raised) as caught:
            producer.produce(*placed, **({"on_delivery": refused} | kwargs))
        assert str(caught.value), name
        assert behind != "nothing" or len(producer) == 0, name  # behind a record events come, which count, too
    assert reports_of(producer, topic, b"good").codes == [None]
    assert (refused, good.codes) == ([], [] if behind == "nothing" else [None])


@pytest.mark.parametrize("partition", [4, 2**31 - 1, -2, -1001, -(2**31)])
def test_partition_outside_the_topic_raises_once_it_is_known(producer: Any, topic: str, partition: int) -> None:
    """Once the topic's metadata is known, a partition it does not have raises _UNKNOWN_PARTITION."""
    send_one(producer, topic, b"first")
    with pytest.raises(KafkaException) as caught:
        producer.produce(topic, b"v", partition=partition)
    error = error_of(caught.value)
    assert error.code() == KafkaError._UNKNOWN_PARTITION
    assert error.str() == "Unable to produce message: Local: Unknown partition"
    assert not error.fatal()
    assert not error.retriable()
    assert len(producer) == 0


@pytest.mark.parametrize("name", ["a b", "x" * 250, "ü", "..", ".", "", "gone!"])
def test_a_text_that_is_no_name_of_a_topic_is_refused(producer_class: Any, name: str) -> None:
    """Brokers refuse it, and the records that were accepted by then say so."""
    reports = Reports()
    with FakeCluster(brokers=1) as fake:
        producer = producer_class({"bootstrap.servers": fake.bootstrap, "log_level": 0})
        fake.pause(1)  # else its answer may come before the second one
        for partition in (-1, 0):
            producer.produce(name, b"v", partition=partition, on_delivery=reports)
        fake.resume(1)
        assert producer.flush(10) == 0
        assert reports.codes == [KafkaError.TOPIC_EXCEPTION] * 2
        with pytest.raises(KafkaException) as caught:
            producer.produce(name, b"v")
        assert error_of(caught.value).code() == KafkaError._UNKNOWN_TOPIC
        producer.close()


ACCEPTED: dict[str, tuple[tuple[Any, ...], dict[str, Any], bytes | None, bytes | None]] = {
    "topic-alone": ((), {}, None, None),
    "positional": ((b"v", b"k", 1, None, None, 0, None), {}, b"v", b"k"),
    "keyword": ((), {"value": b"v", "key": b"k", "partition": 1}, b"v", b"k"),
    "none": ((None, None), {}, None, None),
    "empty": ((b"", b""), {}, b"", b""),
    "str": (("\u00e9", "\u00fc"), {}, "\u00e9".encode(), "\u00fc".encode()),
    "empty-str": (("", ""), {}, b"", b""),
    "str-subclass": ((Text("v"), Text("k")), {}, b"v", b"k"),
    "str-subclass-that-encodes": ((Encoding("v"), Encoding("k")), {}, b"v", b"k"),
    "bytes-subclass": ((Octets(b"v"), Octets(b"k")), {}, b"v", b"k"),
    "nul-inside": (("a\0b", b"c\0d"), {}, b"a\0b", b"c\0d"),
    "numpy": ((np.arange(3, dtype="u1"), np.zeros(2, dtype="u1")), {}, b"\0\1\2", b"\0\0"),
    "numpy-matrix": ((np.ones((2, 2), dtype="u1"),), {}, b"\1\1\1\1", None),
    "numpy-scalar": ((np.int32(5),), {}, b"\5\0\0\0", None),
    "ctypes": (((ctypes.c_char * 3)(*b"abc"),), {}, b"abc", None),
    "ctypes-buffer": ((ctypes.create_string_buffer(b"ab"),), {}, b"ab\0", None),
    "partition-unassigned": ((b"v",), {"partition": -1}, b"v", None),
    "partition-bool": ((b"v",), {"partition": True}, b"v", None),
    "partition-numpy": ((b"v",), {"partition": np.int32(1)}, b"v", None),
    "partition-index": ((b"v",), {"partition": Index()}, b"v", None),
    "timestamp-zero": ((b"v",), {"timestamp": 0}, b"v", None),
    "timestamp-bool": ((b"v",), {"timestamp": True}, b"v", None),
    "timestamp-index": ((b"v",), {"timestamp": Index()}, b"v", None),
    "headers-none": ((b"v",), {"headers": None}, b"v", None),
    "headers-empty-list": ((b"v",), {"headers": []}, b"v", None),
    "headers-empty-dict": ((b"v",), {"headers": {}}, b"v", None),
}


@pytest.mark.parametrize(("args", "kwargs", "value", "key"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_good_argument_arrives_as_bytes(
    producer: Any, topic: str, args: tuple[Any, ...], kwargs: dict[str, Any], value: bytes | None, key: bytes | None
) -> None:
    """Every accepted form of value and key is reported as the bytes it stands for, and produce() returns None."""
    reports = Reports()
    positional_callback = {} if len(args) > 3 else {"on_delivery": reports}
    if len(args) > 3:
        args = (*args[:3], reports, *args[4:])
    assert producer.produce(topic, *args, **positional_callback, **kwargs) is None
    assert producer.flush(10) == 0
    assert (reports.message.value(), reports.message.key()) == (value, key)
    if kwargs.get("partition", -1) != -1:
        assert reports.message.partition() == 1


def test_topic_may_be_a_keyword(producer: Any, topic: str) -> None:
    """All arguments can be given by name, in any order."""
    reports = Reports()
    producer.produce(
        headers={"h": b"1"}, timestamp=5, on_delivery=reports, partition=2, key=b"k", value=b"v", topic=topic
    )
    assert producer.flush(10) == 0
    assert (reports.message.topic(), reports.message.partition()) == (topic, 2)


def test_eight_positional_arguments_in_stock_order(producer: Any, cluster: Any, topic: str) -> None:
    """The order is topic, value, key, partition, callback, on_delivery, timestamp, headers."""
    reports, ignored = Reports(), Reports()
    send_one(producer, topic, b"v", b"k", 3, reports, ignored, 1_600_000_000_000, [("h", b"x")])
    assert len(reports) == 1
    assert ignored == []
    [message] = cluster.read(topic)
    assert (message.value(), message.key(), message.partition()) == (b"v", b"k", 3)
    assert message.timestamp()[1] == 1_600_000_000_000
    assert message.headers() == [("h", b"x")]


@pytest.mark.parametrize("kind", ["numpy", "ctypes"])
def test_buffers_are_copied_at_the_call(producer: Any, cluster: Any, topic: str, kind: str) -> None:
    """A buffer changed after produce() returned does not change the record."""
    buffer: Any = np.full(4, 1, dtype="u1") if kind == "numpy" else (ctypes.c_ubyte * 4)(1, 1, 1, 1)
    producer.produce(topic, buffer, buffer)
    for position in range(4):
        buffer[position] = 9
    assert producer.flush(10) == 0
    [message] = cluster.read(topic)
    assert (message.value(), message.key()) == (b"\1\1\1\1", b"\1\1\1\1")


def test_record_over_the_size_limit_raises(make: Any, topic: str) -> None:
    """The limit is key + value + 36 bytes against message.max.bytes; one byte more raises MSG_SIZE_TOO_LARGE."""
    producer = make({"message.max.bytes": 2000})
    reports = Reports()
    producer.produce(topic, b"v" * (2000 - 36 - 10), b"k" * 10, on_delivery=reports)
    with pytest.raises(KafkaException) as caught:
        producer.produce(topic, b"v" * (2000 - 36 - 10 + 1), b"k" * 10, on_delivery=reports)
    assert error_of(caught.value).code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert len(producer) == 1


@pytest.mark.parametrize(("length", "more"), [(1, 1), (63, 1), (64, 2), (1000, 2)])
def test_headers_count_with_their_lengths(make: Any, topic: str, length: int, more: int) -> None:
    """The length of a header's name takes one byte, that of its value one or two."""
    producer = make({"message.max.bytes": 2000})
    room = 2000 - 36 - 1 - 1 - length - more
    producer.produce(topic, b"v" * room, headers=[("h", b"x" * length)])
    with pytest.raises(KafkaException) as caught:
        producer.produce(topic, b"v" * (room + 1), headers=[("h", b"x" * length)])
    assert error_of(caught.value).code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert len(producer) == 1


def test_record_that_was_refused_holds_nobody_up(make: Any, cluster: Any, topic: str) -> None:
    """The first record of a producer is too large; those behind it go at once."""
    producer = make()
    with pytest.raises(KafkaException):
        producer.produce(topic, b"v" * 2_000_000)
    for _ in range(3):
        producer.produce(topic, b"v")
    assert producer.flush(10) == 0
    assert cluster.values(topic) == [b"v"] * 3


@pytest.mark.parametrize(
    "settings", [{"batch.size": 1}, {"batch.size": 1000}, {"message.max.bytes": 5_000_000}, {}], ids=str
)
def test_first_record_may_be_larger_than_a_batch(make: Any, topic: str, settings: dict[str, int]) -> None:
    """The first records of a producer go, whatever batch.size is."""
    # More than batch.size by default, and what a topic takes by default.
    value = b"v" * (1_020_000 if "message.max.bytes" in settings else 1_000)
    producer = make(settings)
    reports = Reports()
    for _ in range(3):
        producer.produce(topic, value, on_delivery=reports)
    assert producer.flush(10) == 0
    assert reports.codes == [None] * 3
