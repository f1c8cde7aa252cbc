"""What the caller passed is the caller's again when the call returns: changed then, it changes no record."""

import copy
import ctypes
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Consumer, TopicPartition

from safeproducer import SafeProducer
from safeproducer.hooks import Hook
from safeproducer.records import ProducerInfo
from safeproducer.testing import FakeCluster
from tests.contract.support import poll_until
from tests.contract.ways import EVERY_WAY, LONG_ROUND_TRIP, TOPIC, WAYS, Way
from tests.inside import engine_of
from tests.producer_ids.test_producer_id_quota import use_up

COUNT = 20


def written(brokers: FakeCluster) -> list[Any]:
    """What is in the log, without the record that found out how long its round trip is."""
    return [record for record in brokers.log(TOPIC, 0) if record.value != b"warm"]


def own_headers(record: Any) -> dict[str, bytes | None]:
    """Those that the application gave."""
    return {name: value for name, value in record.headers if name != "trace"}


@EVERY_WAY
@pytest.mark.parametrize("form", ["dict", "list"])
def test_headers_are_used_again(brokers: FakeCluster, start: Callable[..., Any], way: Way, form: str) -> None:
    """One dict or list for all records, changed between the calls, and emptied after the last."""
    producer = start(way)
    headers: Any = {} if form == "dict" else []
    for number in range(COUNT):
        if form == "dict":
            headers["number"] = b"%d" % number
        else:
            headers[:] = [("number", b"%d" % number)]
        before = headers.copy()
        producer.produce(TOPIC, b"%d" % number, key=b"k%d" % (number % 3), partition=0, headers=headers)
        assert headers == before, "the call changed it"
    headers.clear()
    assert producer.flush(30) == 0
    records = written(brokers)
    assert len(records) == COUNT
    assert [own_headers(record) for record in records] == [{"number": record.value} for record in records]


@EVERY_WAY
@pytest.mark.parametrize("kind", ["numpy", "ctypes"])
def test_buffers_are_filled_again(brokers: FakeCluster, start: Callable[..., Any], way: Way, kind: str) -> None:
    """The buffers that the C client takes for a value and a key: their bytes at the call count."""
    producer = start(way)
    value: Any = np.zeros(1, dtype="u1") if kind == "numpy" else (ctypes.c_ubyte * 1)()
    key: Any = np.zeros(1, dtype="u1") if kind == "numpy" else (ctypes.c_ubyte * 1)()
    for number in range(COUNT):
        value[0], key[0] = number, number % 3
        producer.produce(TOPIC, value, key, partition=0)
    value[0] = key[0] = 255
    assert producer.flush(30) == 0
    records = written(brokers)
    assert sorted(record.value for record in records) == [bytes([number]) for number in range(COUNT)]
    assert all(record.key == bytes([record.value[0] % 3]) for record in records)


@EVERY_WAY
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "with-headers"])
def test_batches_are_taken_apart_again(brokers: FakeCluster, start: Callable[..., Any], way: Way, plain: bool) -> None:
    """The list, its dicts and their headers, changed as soon as produce_batch() has returned."""
    producer = start(way)
    messages: list[dict[str, Any]] = [
        {"value": b"%d" % number, "key": b"k%d" % (number % 3)} for number in range(COUNT)
    ]
    if not plain:
        for message in messages:
            message["headers"] = {"number": message["value"]}
    before = copy.deepcopy(messages)
    assert producer.produce_batch(TOPIC, messages, 0) == COUNT
    assert messages == before, "the call changed it"
    for message in messages:
        message.get("headers", {})["number"] = b"changed"
        message.get("headers", {})["more"] = b"changed"
        message.clear()
        message["value"] = b"changed"
    messages.clear()
    assert producer.flush(30) == 0
    records = written(brokers)
    assert sorted(record.value for record in records) == sorted(message["value"] for message in before)
    assert all(record.key == b"k%d" % (int(record.value) % 3) for record in records)
    if not plain and way.cls is SafeProducer:  # confluent_kafka drops headers of a batch
        assert [own_headers(record) for record in records] == [{"number": record.value} for record in records]


@EVERY_WAY
def test_the_configuration_is_used_for_something_else(
    brokers: FakeCluster, start: Callable[..., Any], way: Way
) -> None:
    """The dict and the one in it, emptied after the construction, also where native producers are made later."""
    config: dict[str, Any] = {"default.topic.config": {"acks": "all"}, "client.id": "mine"}
    config |= {"bootstrap.servers": brokers.bootstrap, "enable.idempotence": True, "log_level": 0} | way.settings
    before = copy.deepcopy(config)
    made: list[Any] = []

    def build(settings: dict[str, Any], **hooks: Any) -> Any:
        # The application's own dict, and not a copy.
        del settings
        made.append(way.cls(config, **hooks))
        return made[-1]

    producer = start(Way(build, {}, way.hooked))
    assert config == before, "the constructor changed it"
    config["default.topic.config"].clear()
    config["default.topic.config"]["acks"] = "nonsense"
    config.clear()
    config["bootstrap.servers"] = "127.0.0.1:1"
    if way.long_round_trip:
        brokers.delay(LONG_ROUND_TRIP)
        producer.produce(TOPIC, b"warm")
        poll_until(producer, lambda: not engine_of(producer).route.goes_direct and not len(producer), timeout=30)
    for number in range(COUNT):
        producer.produce(TOPIC, b"%d" % number, key=b"k%d" % (number % 3), partition=0)
        producer.poll(0)
    assert producer.flush(30) == 0
    assert len(written(brokers)) == COUNT
    assert {entry.client_id for entry in brokers.journal("Produce")} == {"mine"}


@pytest.mark.parametrize("name", ["hooks", "hooks-held"])
def test_hooks_keep_what_was_passed(start: Callable[..., Any], name: str) -> None:
    """A Record has the headers of the call, and adding one to it does not reach the caller's."""
    producer = start(WAYS[name])
    hook = producer._SafeProducer__closing._hooks._hooks[0]
    headers = [("number", b"0")]
    producer.produce(TOPIC, b"0", headers=headers)
    headers[:] = [("other", b"1")]
    assert hook.seen[0].headers == [("number", b"0"), ("trace", b"1")]
    assert producer.flush(30) == 0


def test_the_list_of_hooks_is_used_again(brokers: FakeCluster) -> None:
    """Hooks are those of the construction."""
    told: list[tuple[str, str]] = []

    class Closed(Hook):
        def __init__(self, name: str) -> None:
            self.name = name

        def producer_closed(self, producer: ProducerInfo, report: Any) -> None:
            told.append((self.name, producer.client_id))

    hooks: list[Hook] = [Closed("first")]
    producer = SafeProducer({"bootstrap.servers": brokers.bootstrap, "client.id": "mine"}, hooks=hooks)
    hooks[:] = [Closed("second")]
    assert producer.close()
    assert told == [("first", "mine")]


def test_headers_of_records_that_a_quota_refused(start: Callable[..., Any], brokers: FakeCluster) -> None:
    """What is sent again (KIP-936) has the headers of the call, too."""
    brokers.create_topic("used", 1)
    use_up(brokers, brokers.bootstrap)
    producer = start(WAYS["auto"])
    headers: dict[str, bytes] = {}
    for number in range(COUNT):
        headers["number"] = b"%d" % number
        producer.produce(TOPIC, b"%d" % number, partition=0, headers=headers)
    headers["number"] = b"changed"
    assert producer.flush(30) == 0
    refused = [batch for entry in brokers.journal("Produce") for batch in entry.batches if batch.error_code == 89]
    assert any(batch.topic == TOPIC for batch in refused)
    records = written(brokers)
    assert [own_headers(record) for record in records] == [{"number": b"%d" % number} for number in range(COUNT)]


def test_positions_of_a_transaction_are_used_again(make: Any, cluster: Any, topic: str) -> None:
    """The list of send_offsets_to_transaction() and what is in it, changed when the call has returned."""
    group = uuid.uuid4().hex
    producer = make({"transactional.id": uuid.uuid4().hex, "enable.idempotence": True})
    producer.init_transactions(30)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    try:
        producer.begin_transaction()
        producer.produce(topic, b"v", partition=0)
        positions = [TopicPartition(topic, 0, 7)]
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 30)
        assert [(tp.topic, tp.partition, tp.offset) for tp in positions] == [(topic, 0, 7)]
        positions[0].offset = 99
        positions.clear()
        producer.commit_transaction(30)
        if cluster.kind == "kafka":  # the mock answers, but keeps no offsets of transactions
            end = time.monotonic() + 10
            while (offset := consumer.committed([TopicPartition(topic, 0)], 10)[0].offset) < 0:
                assert time.monotonic() < end
                time.sleep(0.05)
            assert offset == 7
    finally:
        consumer.close()
