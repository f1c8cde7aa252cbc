"""The part of the contract that librdkafka's mock cluster cannot show: what only a real broker refuses or reports."""

import contextlib
import time
import uuid
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, KafkaException, ThrottleEvent

from integration.contract.conftest import support
from integration.kafka.cluster import KafkaCluster
from integration.kafka.poll import until

Make = Callable[..., Any]


def code_of(caught: pytest.ExceptionInfo[KafkaException]) -> int:
    code: int = support.error_of(caught.value).code()
    return code


def first_error(producer: Any, reports: Any, name: str, **more: Any) -> Any:
    """Of the first record to a topic, with either producer: it is in the report. produce() raises it once librdkafka
    knows of the topic, which may be while the thread that calls it rests inside the call."""
    try:
        producer.produce(name, b"v", b"k", on_delivery=reports, **more)
    except KafkaException as refused:
        assert producer.flush(20) == 0
        assert not reports
        return support.error_of(refused)
    assert producer.flush(20) == 0
    error, message = reports.only
    assert (message.topic(), message.value(), message.key()) == (name, b"v", b"k")
    return error


def test_unknown_topic_fails_in_the_report_and_then_at_the_call(make: Make, topic: str) -> None:
    """The first record of a topic that does not exist is accepted and fails in its report; later ones raise."""
    producer = make({"topic.metadata.propagation.max.ms": 100})
    missing = f"missing-{uuid.uuid4().hex}"
    error = first_error(producer, support.Reports(), missing)
    assert error.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)
    with pytest.raises(KafkaException) as caught:
        producer.produce(missing, b"w")
    assert code_of(caught) in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)
    messages: list[dict[str, Any]] = [{"value": b"v"}]
    assert producer.produce_batch(missing, messages) == 0
    assert messages[0]["_error"].code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert len(producer) == 0
    producer.produce(topic, b"v")
    assert producer.flush(10) == 0


def test_unknown_partition_fails_in_the_report_while_the_topic_is_not_known(make: Make, topic: str) -> None:
    """Before the topic's metadata is known, a partition it lacks is accepted and fails in the report."""
    error = first_error(make(), support.Reports(), topic, partition=77)
    assert error.code() == KafkaError._UNKNOWN_PARTITION


@pytest.mark.parametrize("name", ["a b", "", "x" * 250, "a/b"])
def test_invalid_topic_name_fails_in_the_report(make: Make, name: str) -> None:
    """A name no topic can have is accepted at the call; the broker refuses it, in the report."""
    producer = make({"topic.metadata.propagation.max.ms": 1000, "message.timeout.ms": 10_000})
    assert first_error(producer, support.Reports(), name).code() is not None


def test_record_too_large_for_the_topic_fails_in_the_report(make: Make, kafka: KafkaCluster) -> None:
    """What passes message.max.bytes and not the topic's max.message.bytes is refused by the broker, in the report."""
    name = f"small-{uuid.uuid4().hex[:8]}"
    kafka.admin.create_topic(name, configs={"max.message.bytes": "1000"})
    producer = make()
    reports = support.Reports()
    producer.produce(name, b"v" * 5000, on_delivery=reports)
    assert producer.flush(20) == 0
    assert reports.codes == [KafkaError.MSG_SIZE_TOO_LARGE]
    producer.produce(name, b"v", on_delivery=reports)
    assert producer.flush(20) == 0
    assert reports.codes[1:] == [None]


def test_report_tells_the_create_time(producer: Any, topic: str) -> None:
    """timestamp() of a report is the record's create time, given or automatic."""
    reports = support.Reports()
    before = int(time.time() * 1000)
    producer.produce(topic, b"v", partition=0, timestamp=1_600_000_000_000, on_delivery=reports)
    producer.produce(topic, b"v", partition=0, on_delivery=reports)
    assert producer.flush(10) == 0
    given, automatic = (message.timestamp() for _, message in reports)
    assert given == (TIMESTAMP_CREATE_TIME, 1_600_000_000_000)
    assert automatic[0] == TIMESTAMP_CREATE_TIME
    assert before - 1000 <= automatic[1] <= before + 5000


def test_throttle_cb_hears_of_the_quota(make: Make, kafka: KafkaCluster, topic: str) -> None:
    """throttle_cb is called with a ThrottleEvent: broker and the time in seconds, from poll()."""
    client = f"throttled-{uuid.uuid4().hex[:8]}"
    events: list[ThrottleEvent] = []
    kafka.admin.set_quota(client_id=client, producer_byte_rate=4_000)  # on average over ten seconds
    producer = make({"client.id": client, "throttle_cb": events.append, "linger.ms": 0})
    for _ in range(10):
        producer.produce(topic, b"v" * 5_000, partition=0)
        producer.poll(0)
    support.poll_until(producer, lambda: events, 20)
    first = events[0]
    assert isinstance(first, ThrottleEvent)
    assert isinstance(first.throttle_time, float)
    assert 0 < first.throttle_time < 60
    assert first.broker_id == 1
    assert isinstance(first.broker_name, str)
    kafka.admin.set_quota(client_id=client, producer_byte_rate=None)


def transactional(make: Make, name: str) -> Any:
    producer = make({"transactional.id": name, "enable.idempotence": True})
    producer.init_transactions(30)
    return producer


def test_aborted_records_are_not_visible(make: Make, cluster: Any, topic: str) -> None:
    """Records of an aborted transaction are in the log, and a committed reader never sees them."""
    producer = transactional(make, uuid.uuid4().hex)
    producer.begin_transaction()
    producer.produce(topic, b"aborted", partition=0)
    assert producer.flush(10) == 0
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"committed", partition=0)
    producer.commit_transaction(30)
    until(lambda: cluster.values(topic) == [b"committed"], "the committed record is visible")
    assert [message.value() for message in cluster.read(topic, "read_uncommitted")] == [b"aborted", b"committed"]


def test_records_of_an_open_transaction_are_not_visible(make: Make, cluster: Any, topic: str) -> None:
    """Until the commit a committed reader sees nothing; close() aborts, and it never will."""
    producer = transactional(make, uuid.uuid4().hex)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(10) == 0
    assert cluster.values(topic) == []
    producer.close()
    assert cluster.values(topic) == []
    assert [message.value() for message in cluster.read(topic, "read_uncommitted")] == [b"open"]


def test_second_producer_fences_the_first(make: Make, cluster: Any, topic: str) -> None:
    """init_transactions() of a second producer with the id fences the first: its next step is a fatal error."""
    name = uuid.uuid4().hex
    first = transactional(make, name)
    first.begin_transaction()
    first.produce(topic, b"first", partition=0)
    assert first.flush(10) == 0
    second = transactional(make, name)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(30)
    error = support.error_of(caught.value)
    assert error.code() == KafkaError._FENCED
    assert error.fatal()
    with pytest.raises(KafkaException):
        first.begin_transaction()
    with pytest.raises(KafkaException):
        first.produce(topic, b"after")
    with contextlib.suppress(KafkaException), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # confluent_kafka says here that it could not abort, by exception or by warning
        first.close()
    with pytest.raises(RuntimeError):
        first.poll(0)
    second.begin_transaction()
    second.produce(topic, b"second", partition=0)
    second.commit_transaction(30)
    until(lambda: cluster.values(topic) == [b"second"], "only the second producer's record is visible")


def test_failed_record_makes_the_commit_abortable(make: Make, cluster: Any, kafka: KafkaCluster, topic: str) -> None:
    """A record that failed dooms the transaction: commit raises an error that asks for abort; then work goes on."""
    small = f"small-{uuid.uuid4().hex[:8]}"
    kafka.admin.create_topic(small, configs={"max.message.bytes": "1000"})
    producer = transactional(make, uuid.uuid4().hex)
    producer.begin_transaction()
    producer.produce(topic, b"good", partition=0)
    producer.produce(small, b"v" * 5000)
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(30)
    error = support.error_of(caught.value)
    assert error.txn_requires_abort()
    assert not error.fatal()
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"again", partition=0)
    producer.commit_transaction(30)
    until(lambda: cluster.values(topic) == [b"again"], "only the second transaction is visible")
