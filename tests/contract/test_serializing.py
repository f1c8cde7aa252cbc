"""The serializing producers: confluent_kafka's SerializingProducer and SafeSerializingProducer."""

from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaException, SerializingProducer, cimpl
from confluent_kafka.error import KeySerializationError, ValueSerializationError
from confluent_kafka.serialization import IntegerSerializer, MessageField, SerializationContext, StringSerializer

from tests.contract.fixtures import discard
from tests.contract.support import Reports, reports_of, send_one


@pytest.fixture(params=["stock", "safe"])
def serializing_class(request: pytest.FixtureRequest) -> type:
    if request.param == "stock":
        return SerializingProducer
    from safeproducer import SafeSerializingProducer  # noqa: PLC0415

    return SafeSerializingProducer


@pytest.fixture
def serializing(serializing_class: type, cluster: Any) -> Iterator[Callable[..., Any]]:
    """Make a serializing producer on the cluster; closed after the test."""
    made: list[Any] = []

    def build(**config: Any) -> Any:
        settings = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": False, "log_level": 0}
        made.append(serializing_class({**settings, **config}))
        return made[-1]

    yield build
    for producer in made:
        discard(producer)


def test_key_and_value_are_serialized(serializing: Callable[..., Any], cluster: Any, topic: str) -> None:
    """Each side goes through its serializer, and the log holds the bytes."""
    producer = serializing(**{"key.serializer": IntegerSerializer(), "value.serializer": StringSerializer("utf_8")})
    reports = reports_of(producer, topic, key=5, value="\u00e9")
    assert (reports.message.key(), reports.message.value()) == (b"\0\0\0\5", "\u00e9".encode())
    [message] = cluster.read(topic)
    assert (message.key(), message.value()) == (b"\0\0\0\5", "\u00e9".encode())


def test_positional_order_has_the_key_first(serializing: Callable[..., Any], cluster: Any, topic: str) -> None:
    """The order is topic, key, value, partition, on_delivery, timestamp, headers: unlike Producer.produce()."""
    reports = Reports()
    producer = serializing()
    send_one(producer, topic, b"k", b"v", 2, reports, 1_600_000_000_000, [("h", b"1")])
    assert len(reports) == 1
    [message] = cluster.read(topic)
    assert (message.key(), message.value(), message.partition()) == (b"k", b"v", 2)
    assert message.timestamp()[1] == 1_600_000_000_000
    assert message.headers() == [("h", b"1")]


def test_without_serializers_bytes_pass(serializing: Callable[..., Any], cluster: Any, topic: str) -> None:
    """Without serializers it takes what Producer takes."""
    producer = serializing()
    producer.produce(topic, key="k", value=b"v")
    send_one(producer, topic)
    assert {(message.key(), message.value()) for message in cluster.read(topic)} == {(b"k", b"v"), (None, None)}


def test_serializers_get_object_and_context(serializing: Callable[..., Any], topic: str) -> None:
    """A serializer is called with the object and a SerializationContext of topic, field and headers; key first."""
    calls: list[tuple[Any, ...]] = []

    def record(thing: Any, context: SerializationContext) -> bytes:
        calls.append((thing, context.topic, context.field, context.headers))
        return b"bytes"

    producer = serializing(**{"key.serializer": record, "value.serializer": record})
    headers = [("h", b"1")]
    send_one(producer, topic, key="k", value=None, headers=headers)
    assert calls == [("k", topic, MessageField.KEY, headers), (None, topic, MessageField.VALUE, headers)]


def test_serializer_may_add_headers(serializing: Callable[..., Any], cluster: Any, topic: str) -> None:
    """A serializer that appends to the headers of the context (as schema registries do) changes what is sent."""

    def sign(thing: Any, context: SerializationContext) -> bytes:
        context.headers.append(("schema", b"7"))
        return bytes(thing)

    producer = serializing(**{"value.serializer": sign})
    send_one(producer, topic, value=b"v", headers=[("h", b"1")])
    [message] = cluster.read(topic)
    assert message.headers() == [("h", b"1"), ("schema", b"7")]


@pytest.mark.parametrize(
    ("side", "raised"), [("key.serializer", KeySerializationError), ("value.serializer", ValueSerializationError)]
)
def test_failing_serializer_raises_at_the_call(
    serializing: Callable[..., Any], topic: str, side: str, raised: type[Exception]
) -> None:
    """An exception of a serializer raises Key- or ValueSerializationError with it, and nothing is accepted."""

    def fail(_thing: Any, _context: SerializationContext) -> bytes:
        raise LookupError("no schema")

    producer = serializing(**{side: fail})
    reports = Reports()
    with pytest.raises(raised) as caught:
        producer.produce(topic, key=b"k", value=b"v", on_delivery=reports)
    assert isinstance(caught.value, KafkaException)
    assert caught.value.args[0].code() in (
        confluent_kafka.KafkaError._KEY_SERIALIZATION,
        confluent_kafka.KafkaError._VALUE_SERIALIZATION,
    )
    assert "no schema" in str(caught.value)
    assert len(producer) == 0
    assert producer.flush(1) == 0
    assert reports == []


def test_callback_argument_does_not_exist(serializing: Callable[..., Any], topic: str) -> None:
    """produce() of this class knows on_delivery only; callback= raises TypeError."""
    with pytest.raises(TypeError):
        serializing().produce(topic, value=b"v", callback=print)


@pytest.mark.parametrize("topic_argument", [None, b"t", 5])
def test_bad_topic_raises_before_the_serializers_run(serializing: Callable[..., Any], topic_argument: Any) -> None:
    """A topic that is no str raises TypeError; a serializer, which may have side effects, is not called."""
    calls: list[Any] = []

    def record(thing: Any, _context: SerializationContext) -> bytes:
        calls.append(thing)
        return b""

    producer = serializing(**{"key.serializer": record, "value.serializer": record})
    with pytest.raises(TypeError):
        producer.produce(topic_argument, key="k", value="v")
    assert calls == []


def test_closed_producer_raises_before_the_serializers_run(serializing: Callable[..., Any], topic: str) -> None:
    """After close() produce() raises RuntimeError and no serializer is called."""
    calls: list[Any] = []

    def record(thing: Any, _context: SerializationContext) -> bytes:
        calls.append(thing)
        return b""

    producer = serializing(**{"value.serializer": record})
    assert producer.close()
    assert producer.close()
    with pytest.raises(RuntimeError):
        producer.produce(topic, value="v")
    assert calls == []


def test_configuration_is_one_dict_and_stays_as_it_is(serializing_class: type) -> None:
    """The constructor takes one dict, named conf, and does not change it."""
    config = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "key.serializer": StringSerializer()}
    before = dict(config)
    serializing_class(conf=config).close()
    assert config == before
    with pytest.raises(TypeError):
        serializing_class()
    with pytest.raises(KafkaException):
        serializing_class({"no.such.setting": 1, "log_level": 0})


def test_batches_are_not_serialized(serializing: Callable[..., Any], cluster: Any, topic: str) -> None:
    """produce_batch() is the plain one: it takes bytes and calls no serializer."""
    producer = serializing(**{"value.serializer": lambda thing, context: b"serialized"})
    assert producer.produce_batch(topic, [{"value": b"plain"}, {"value": b"own", "partition": 0}]) == 2
    assert producer.flush(10) == 0
    assert sorted(cluster.values(topic)) == [b"own", b"plain"]


def test_a_serializing_producer_is_a_producer(serializing_class: type) -> None:
    """isinstance() against confluent_kafka.Producer holds."""
    assert issubclass(serializing_class, cimpl.Producer)


class Builder:
    """A serializer builder: takes a setting of its own out of the configuration."""

    def __init__(self) -> None:
        self.closed = 0
        self.is_key: bool | None = None

    def build(self, config: dict[str, Any], is_key: bool) -> tuple[Any, dict[str, Any]]:
        rest = dict(config)
        assert rest.pop("schema.registry.url") == "somewhere"
        self.is_key = is_key
        return self, rest

    def __call__(self, thing: Any, _context: SerializationContext) -> bytes:
        return f"built {thing}".encode()

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("side", ["key", "value"])
def test_serializer_builder(serializing: Callable[..., Any], cluster: Any, topic: str, side: str) -> None:
    """A builder makes the serializer from the configuration; close() closes what it built."""
    builder = Builder()
    producer = serializing(**{f"{side}.serializer.builder": builder, "schema.registry.url": "somewhere"})
    assert builder.is_key is (side == "key")
    producer.produce(topic, key="k", value="v")
    producer.close()
    assert builder.closed == 1
    [message] = cluster.read(topic)
    assert {message.key(), message.value()} == ({b"built k", b"v"} if side == "key" else {b"k", b"built v"})


@pytest.mark.parametrize("side", ["key", "value"])
def test_serializer_and_builder_together_are_refused(serializing: Callable[..., Any], side: str) -> None:
    """A serializer and a builder for the same side raise ValueError."""
    with pytest.raises(ValueError, match="serializer"):
        serializing(**{f"{side}.serializer": StringSerializer(), f"{side}.serializer.builder": Builder()})
