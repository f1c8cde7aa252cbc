"""Clients that applications use, writing and reading back: each picks versions of its own."""

import asyncio
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from safeproducer import SafeProducer
from tests.conformance.target import Target, fresh, until

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
VALUES = [b"the same again and again %d" % number for number in range(60)]


def read(cluster: Target, topic: str, partitions: int, wanted: int) -> list[Message]:
    """Everything, by a confluent_kafka consumer with assigned partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": fresh("group"),
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: list[Message] = []
    try:
        until(lambda: found.extend(consumer.consume(wanted, 0.1)) or len(found) >= wanted, f"{wanted} records")
    finally:
        consumer.close()
    assert all(message.error() is None for message in found)
    return found


@pytest.mark.parametrize(
    ("producer_class", "codec", "idempotent"),
    [*((Producer, codec, False) for codec in CODECS), (Producer, "none", True), (SafeProducer, "lz4", True)],
)
def test_confluent_kafka(cluster: Target, producer_class: type, codec: str, idempotent: bool) -> None:
    """In every compression: each partition holds its records once, in order, with key and headers."""
    topic = cluster.topic(2)
    errors: list[KafkaError | None] = []
    producer = producer_class(
        {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": idempotent,
            "compression.type": codec,
            "linger.ms": 5,
            "log_level": 0,
        }
    )
    for number, value in enumerate(VALUES):
        producer.produce(
            topic, value, b"k", partition=number % 2, headers=[("h", b"x")], on_delivery=lambda e, _: errors.append(e)
        )
    assert producer.flush(20) == 0
    producer.close()
    assert errors == [None] * len(VALUES)
    found = read(cluster, topic, 2, len(VALUES))
    for partition in (0, 1):
        mine = [message for message in found if message.partition() == partition]
        assert [message.value() for message in mine] == VALUES[partition::2]
        assert [message.offset() for message in mine] == list(range(len(VALUES) // 2))
    assert {(message.key(), str(message.headers())) for message in found} == {(b"k", "[('h', b'x')]")}


@pytest.mark.filterwarnings("ignore:read_text is deprecated")
@pytest.mark.parametrize("codec", [None, "gzip"])
def test_kafka_python(cluster: Target, codec: str | None) -> None:
    """Its producer, and its consumer with assigned partitions."""
    kafka: Any = pytest.importorskip("kafka", reason="kafka-python is not installed")
    topic = cluster.topic(2)
    producer = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap, compression_type=codec, linger_ms=5)
    sent = [producer.send(topic, value, partition=number % 2) for number, value in enumerate(VALUES)]
    offsets = [future.get(10).offset for future in sent]
    producer.close(5)
    assert offsets == [number // 2 for number in range(len(VALUES))]
    consumer = kafka.KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id=None)
    places = [kafka.TopicPartition(topic, partition) for partition in (0, 1)]
    consumer.assign(places)
    consumer.seek_to_beginning()
    found: dict[int, list[bytes]] = {0: [], 1: []}

    def polled() -> bool:
        for place, records in consumer.poll(100).items():
            found[place.partition] += [record.value for record in records]
        return sum(map(len, found.values())) == len(VALUES)

    until(polled, "all records")
    ends = consumer.end_offsets(places)
    consumer.close()
    assert found == {partition: VALUES[partition::2] for partition in (0, 1)}
    assert list(ends.values()) == [len(VALUES) // 2] * 2


def test_aiokafka(cluster: Target) -> None:
    """Its idempotent producer, and its consumer with assigned partitions."""
    aiokafka: Any = pytest.importorskip("aiokafka", reason="aiokafka is not installed")
    topic = cluster.topic(2)

    async def write_and_read() -> dict[int, list[bytes]]:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, enable_idempotence=True) as producer:
            sent = [await producer.send(topic, value, partition=n % 2) for n, value in enumerate(VALUES)]
            offsets = [(await future).offset for future in sent]
        assert offsets == [number // 2 for number in range(len(VALUES))]
        found: dict[int, list[bytes]] = {0: [], 1: []}
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap, group_id=None, auto_offset_reset="earliest"
        )
        consumer.assign([aiokafka.TopicPartition(topic, partition) for partition in (0, 1)])
        async with consumer:
            while sum(map(len, found.values())) < len(VALUES):
                for place, records in (await consumer.getmany(timeout_ms=100)).items():
                    found[place.partition] += [record.value for record in records]
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # aiokafka asks asyncio for what is going away
        found = asyncio.run(asyncio.wait_for(write_and_read(), 30))
    assert found == {partition: VALUES[partition::2] for partition in (0, 1)}


def in_transactions(make: type[Producer]) -> Callable[[str, str, str], None]:
    """Commits, aborts, commits: four records each in two partitions."""

    def work(bootstrap: str, topic: str, name: str) -> None:
        client = make({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0})
        client.init_transactions(20)
        for committed in (True, False, True):
            client.begin_transaction()
            for number in range(4):
                client.produce(topic, b"%d" % committed, partition=number % 2)
            if committed:
                client.commit_transaction(20)
            else:
                client.flush(20)
                client.abort_transaction(20)

    return work


def in_transactions_of_kafka_python(bootstrap: str, topic: str, name: str) -> None:
    kafka: Any = pytest.importorskip("kafka", reason="kafka-python is not installed")
    client = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name, enable_idempotence=True)
    client.init_transactions()
    for committed in (True, False, True):
        client.begin_transaction()
        sent = [client.send(topic, b"%d" % committed, partition=number % 2) for number in range(4)]
        for one in sent:
            one.get(20)
        if committed:
            client.commit_transaction()
        else:
            client.abort_transaction()
    client.close(5)


def in_transactions_of_aiokafka(bootstrap: str, topic: str, name: str) -> None:
    aiokafka: Any = pytest.importorskip("aiokafka", reason="aiokafka is not installed")

    async def work() -> None:
        client = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        async with client:
            for committed in (True, False, True):
                await client.begin_transaction()
                for number in range(4):
                    await client.send_and_wait(topic, b"%d" % committed, partition=number % 2)
                await (client.commit_transaction() if committed else client.abort_transaction())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it asks asyncio for what is going away
        asyncio.run(asyncio.wait_for(work(), 20))


TRANSACTIONS = [
    pytest.param(in_transactions(Producer), id="confluent_kafka"),
    pytest.param(in_transactions(SafeProducer), id="safeproducer"),
    pytest.param(in_transactions_of_kafka_python, id="kafka-python"),
    pytest.param(in_transactions_of_aiokafka, id="aiokafka"),
]


@pytest.mark.filterwarnings("ignore:read_text is deprecated")
@pytest.mark.parametrize("work", TRANSACTIONS)
def test_transactions(cluster: Target, work: Callable[[str, str, str], None]) -> None:
    """Readers of committed records get those, and no others."""
    topic = cluster.topic(2)
    work(cluster.bootstrap, topic, fresh("tx"))
    assert [message.value() for message in read(cluster, topic, 2, 8)] == [b"1"] * 8


def as_a_member(bootstrap: str, topic: str, group: str, wanted: int) -> list[bytes]:
    """What a new member of the group gets, at least so many; it commits and leaves."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    client, found = Consumer(settings), list[bytes]()
    client.subscribe([topic])
    until(lambda: found.extend(one.value() or b"" for one in client.consume(100, 0.2)) or len(found) >= wanted, "all")
    client.close()
    return found


def as_a_member_with_aiokafka(bootstrap: str, topic: str, group: str, wanted: int) -> list[bytes]:
    aiokafka: Any = pytest.importorskip("aiokafka", reason="aiokafka is not installed")
    found: list[bytes] = []

    async def work() -> None:
        settings = {"bootstrap_servers": bootstrap, "group_id": group, "auto_offset_reset": "earliest"}
        async with aiokafka.AIOKafkaConsumer(topic, **settings) as client:
            while len(found) < wanted:
                batches = await client.getmany(timeout_ms=200)
                found.extend(record.value for records in batches.values() for record in records)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        asyncio.run(asyncio.wait_for(work(), 30))
    return found


# No member of kafka-python: on Kafka it misses the metadata of a new topic now and then, and leaves sockets open then.
MEMBERS = [as_a_member, as_a_member_with_aiokafka]


@pytest.mark.parametrize("first", MEMBERS)
@pytest.mark.parametrize("second", MEMBERS)
def test_members(cluster: Target, first: Callable[..., list[bytes]], second: Callable[..., list[bytes]]) -> None:
    """One reads and commits; the next one, of whatever library, goes on behind it."""
    topic, group = cluster.topic(), fresh("group")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(20) == 0
    assert first(cluster.bootstrap, topic, group, len(VALUES)) == VALUES
    producer.produce(topic, b"one more")
    assert producer.flush(20) == 0
    assert second(cluster.bootstrap, topic, group, 1) == [b"one more"]
