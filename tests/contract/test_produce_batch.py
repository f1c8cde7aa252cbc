"""produce_batch(): arguments, return value, "_error", callbacks."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from confluent_kafka import KafkaError

from tests.contract.support import Reports

BAD_CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[Exception]]] = {
    "nothing": ((), {}, TypeError),
    "no-messages": (("t",), {}, TypeError),
    "six-positional": (("t", [{}], 0, None, None, 1), {}, TypeError),
    "unknown-keyword": (("t", [{}]), {"values": []}, TypeError),
    "topic-none": ((None, [{}]), {}, TypeError),
    "topic-nul": (("a\0b", [{}]), {}, ValueError),
    "messages-none": (("t", None), {}, TypeError),
    "messages-tuple": (("t", ({},)), {}, TypeError),
    "messages-dict": (("t", {}), {}, TypeError),
    "messages-generator": (("t", (message for message in [{}])), {}, TypeError),
    "message-none": (("t", [None]), {}, TypeError),
    "message-bytes": (("t", [b"v"]), {}, TypeError),
    "second-message-int": (("t", [{"value": b"v"}, 5]), {}, TypeError),
    "partition-none": (("t", [{}]), {"partition": None}, TypeError),
    "partition-str": (("t", [{}]), {"partition": "0"}, TypeError),
    "partition-too-high": (("t", [{}]), {"partition": 2**31}, OverflowError),
    "value-int": (("t", [{"value": 5}]), {}, TypeError),
    "value-bytearray": (("t", [{"value": bytearray(b"v")}]), {}, TypeError),
    "value-numpy": (("t", [{"value": np.zeros(1)}]), {}, TypeError),
    "second-value-int": (("t", [{"value": b"v"}, {"value": 5}]), {}, TypeError),
    "key-int": (("t", [{"key": 5}]), {}, TypeError),
    "key-numpy": (("t", [{"key": np.zeros(1)}]), {}, TypeError),
    "own-partition-str": (("t", [{"partition": "0"}]), {}, TypeError),
    "headers-int": (("t", [{"headers": 5}]), {}, ValueError),
    "header-value-int": (("t", [{"headers": [("a", 5)]}]), {}, ValueError),
}


@pytest.mark.parametrize(("args", "kwargs", "raised"), BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_bad_call_raises_and_accepts_nothing(
    producer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], raised: type[Exception]
) -> None:
    """A malformed call raises before any message of the list is accepted."""
    reports = Reports()
    with pytest.raises(raised) as caught:
        producer.produce_batch(*args, **({"on_delivery": reports} | kwargs if len(args) < 5 else kwargs))
    assert str(caught.value)
    assert len(producer) == 0
    producer.poll(0)
    assert reports == []


def test_empty_list_returns_zero(producer: Any) -> None:
    """An empty list is accepted and means nothing."""
    assert producer.produce_batch("t", []) == 0


def test_returns_the_number_accepted(producer: Any, cluster: Any, topic: str) -> None:
    """All accepted: the number is that of the list, and every message is delivered and reported once."""
    reports = Reports()
    messages = [{"value": f"v{number}", "key": f"k{number}"} for number in range(100)]
    assert producer.produce_batch(topic, messages, on_delivery=reports) == 100
    assert producer.flush(10) == 0
    assert reports.codes == [None] * 100
    found = {(message.key(), message.value()) for message in cluster.read(topic)}
    assert found == {(b"k%d" % number, b"v%d" % number) for number in range(100)}
    assert all("_error" not in message for message in messages)


def test_fields_may_be_left_out(producer: Any, cluster: Any, topic: str) -> None:
    """value and key may be missing, None, empty, bytes or str; unknown fields are ignored."""
    messages: list[dict[str, Any]] = [
        {},
        {"value": None, "key": None},
        {"value": b"", "key": b""},
        {"value": "\u00e9", "key": "\u00fc"},
        {"value": b"v", "colour": "red"},
    ]
    assert producer.produce_batch(topic, messages, 0) == 5
    assert producer.flush(10) == 0
    assert [(message.value(), message.key()) for message in cluster.read(topic)] == [
        (None, None),
        (None, None),
        (b"", b""),
        ("\u00e9".encode(), "\u00fc".encode()),
        (b"v", None),
    ]


@pytest.mark.parametrize("settings", [{}, {"safeproducer.mode": "passthrough"}], ids=["default", "passthrough"])
def test_messages_may_be_of_a_class_with_defaults(
    make: Any, cluster: Any, topic: str, is_held: bool, is_stock: bool, settings: dict[str, Any]
) -> None:
    """A field that was left out is null, whatever asking for it would give, and nothing is put into the message."""
    producer = make({} if is_held or is_stock else settings)
    messages: list[dict[str, Any]] = [defaultdict(bytes, value=b"v"), defaultdict(lambda: 5, key=b"k")]
    assert producer.produce_batch(topic, messages, 0) == 2
    assert producer.flush(10) == 0
    assert [(message.value(), message.key()) for message in cluster.read(topic)] == [(b"v", None), (None, b"k")]
    assert messages == [{"value": b"v"}, {"key": b"k"}]


def test_order_is_kept(producer: Any, cluster: Any, topic: str) -> None:
    """The messages of a list are in the log in the order of the list."""
    assert producer.produce_batch(topic, [{"value": b"%d" % number} for number in range(300)], partition=3) == 300
    assert producer.flush(10) == 0
    assert cluster.values(topic) == [b"%d" % number for number in range(300)]


@pytest.mark.parametrize("form", ["positional", "keyword"])
def test_partition_of_the_call(producer: Any, topic: str, form: str) -> None:
    """The call's partition holds for all its messages."""
    reports = Reports()
    messages = [{"value": b"v"}, {"value": b"w"}]
    if form == "positional":
        producer.produce_batch(topic, messages, 2, reports)
    else:
        producer.produce_batch(messages=messages, on_delivery=reports, partition=2, topic=topic)
    assert producer.flush(10) == 0
    assert [message.partition() for _, message in reports] == [2, 2]


def test_callback_forms(make: Any, topic: str) -> None:
    """A message's own callback beats the call's, its `callback` beats `on_delivery`, both the configured."""
    own, call, alias, configured = Reports(), Reports(), Reports(), Reports()
    producer = make({"on_delivery": configured})
    producer.produce_batch(
        topic, [{"value": b"1", "callback": own}, {"value": b"2", "callback": None}], callback=call, on_delivery=alias
    )
    producer.produce_batch(topic, [{"value": b"3"}], on_delivery=alias)
    producer.produce_batch(topic, [{"value": b"4"}])
    assert producer.flush(10) == 0
    assert [reports.message.value() for reports in (own, call, alias, configured)] == [b"1", b"2", b"3", b"4"]


def test_messages_too_large_are_left_out(producer: Any, cluster: Any, topic: str) -> None:
    """A message over message.max.bytes gets "_error" MSG_SIZE_TOO_LARGE, no callback, and the others go."""
    reports = Reports()
    large = {"value": b"x" * 2_000_000}
    messages: list[dict[str, Any]] = [{"value": b"a"}, large, {**large, "headers": {"a": b"b"}}, {"value": b"b"}]
    assert producer.produce_batch(topic, messages, 0, on_delivery=reports) == 2
    for message in messages[1:3]:
        assert isinstance(message["_error"], KafkaError)
        assert message["_error"].code() == KafkaError.MSG_SIZE_TOO_LARGE
        assert message["_error"].str() == "Message failed: Broker: Message size too large"
    assert "_error" not in messages[0]
    assert "_error" not in messages[3]
    assert producer.flush(10) == 0
    assert reports.codes == [None, None]
    assert cluster.values(topic) == [b"a", b"b"]


def test_unknown_partition_is_reported_in_the_messages(producer: Any, topic: str) -> None:
    """Once the topic is known, a partition it lacks gives "_error" _UNKNOWN_PARTITION and returns 0."""
    producer.produce(topic, b"v")
    assert producer.flush(10) == 0
    messages: list[dict[str, Any]] = [{"value": b"v"}, {"value": b"w", "headers": {"a": b"b"}}]
    assert producer.produce_batch(topic, messages, partition=77) == 0
    assert [message["_error"].code() for message in messages] == [KafkaError._UNKNOWN_PARTITION] * 2
    assert [message["_error"].str() for message in messages] == ["Message failed: Local: Unknown partition"] * 2


def test_messages_can_be_reused(producer: Any, cluster: Any, topic: str) -> None:
    """The list and its dicts may be given again, and changed after the call."""
    messages = [{"value": b"v"}]
    producer.produce_batch(topic, messages, 0)
    messages[0]["value"] = b"w"
    producer.produce_batch(topic, messages, 0)
    messages.clear()
    assert producer.flush(10) == 0
    assert cluster.values(topic) == [b"v", b"w"]


def test_raising_callback_of_a_batch(producer: Any, topic: str) -> None:
    """A raising callback of one message comes out of flush() after the callbacks of the others."""
    called: list[bytes] = []

    def report(_error: Any, message: Any) -> None:
        called.append(message.value())
        if message.value() == b"1":
            raise LookupError(message.value())

    producer.produce_batch(topic, [{"value": b"%d" % number} for number in range(4)], 0, on_delivery=report)
    with pytest.raises(LookupError):
        producer.flush(10)
    assert called == [b"0", b"1", b"2", b"3"]


def test_timestamp_is_automatic(producer: Any, cluster: Any, topic: str) -> None:
    """Messages of a batch have a create time near now; "timestamp": None is allowed."""
    producer.produce_batch(topic, [{"value": b"v", "timestamp": None}, {"value": b"w"}], 0)
    assert producer.flush(10) == 0
    stamps = [message.timestamp()[1] for message in cluster.read(topic)]
    assert all(stamp > 1_600_000_000_000 for stamp in stamps)
