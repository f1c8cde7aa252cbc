"""A fatal error: no new records, every report still delivered, and a message that says what to do."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.cimpl import KafkaError, KafkaException, Message

from safeproducer import DeliveryError, FatalError, SafeProducer
from safeproducer.pipeline.reports.delivery_errors import Failures
from safeproducer.settings.config import parse
from tests.clusters import cluster_of
from tests.contract.support import noting, send_one
from tests.inside import engine_of

Plant = Callable[[SafeProducer], None]
RECORDS = 5


@pytest.fixture
def fatals() -> Any:
    return noting("fatal_error")


@pytest.fixture
def slow(fatals: Any) -> Iterator[SafeProducer]:
    """A producer whose acknowledgements take 300 ms, so that records are outstanding when the error strikes."""
    producer = SafeProducer(
        {
            "test.mock.num.brokers": 1,
            "test.mock.broker.rtt": 300,
            "log_level": 0,
            "enable.idempotence": True,
            "safeproducer.mode": "passthrough",  # what is held back learns of the error in poll(), see the last test
        },
        hooks=[fatals],
    )
    send_one(producer, "t", b"warm")
    yield producer
    with contextlib.suppress(FatalError):
        producer.close(5)


def outstanding(producer: SafeProducer, partition: int = -1) -> list[object]:
    reports: list[object] = []
    for number in range(RECORDS):
        producer.produce("t", b"%d" % number, partition=partition, on_delivery=lambda _, m: reports.append(m.topic()))
    return reports


@pytest.mark.parametrize("partition", [-1, 0])
@pytest.mark.parametrize("method", ["poll", "flush"])
def test_a_fatal_error_is_raised_once_and_every_report_still_comes(
    method: str,
    partition: int,
    slow: SafeProducer,
    fatals: Any,
    plant_fatal: Plant,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """From poll() and from flush() alike: FatalError with librdkafka's error, then the reports, none missing.

    confluent_kafka raises a KafkaError that is no exception out of flush(), and drops the first report.
    """
    reports = outstanding(slow, partition)
    plant_fatal(slow)
    raised: list[FatalError] = []
    for _ in range(50):
        try:
            getattr(slow, method)(0.2)
        except FatalError as error:
            raised.append(error)
        if len(reports) == RECORDS and raised:
            break
    assert [error.args[0].code() for error in raised] == [KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert raised[0].args[0].fatal()
    assert isinstance(raised[0], KafkaException)
    assert "create one new producer" in str(raised[0])
    assert len(reports) == RECORDS
    account = slow.snapshot()
    assert (account.state, account.unresolved, account.interrupted) == ("fatal", 0, 0)
    assert account.delivered + account.failed == account.accepted == RECORDS + 1
    assert [error.name() for error in fatals.told] == ["OUT_OF_ORDER_SEQUENCE_NUMBER"]
    assert [record.levelno for record in caplog.records].count(logging.CRITICAL) == 1


def test_after_a_fatal_error_new_records_are_refused(slow: SafeProducer, plant_fatal: Plant) -> None:
    plant_fatal(slow)
    accepted = slow.snapshot().accepted
    for _ in range(2):
        with pytest.raises(FatalError, match=r"takes no more records"):
            slow.produce("t", b"x")
        with pytest.raises(FatalError):
            slow.produce_batch("t", [{"value": b"x"}])
        with pytest.raises(FatalError):
            slow.produce_batch("t", [{"value": b"x", "headers": {"a": b"b"}}])
        with contextlib.suppress(FatalError):
            slow.poll(0.2)
    assert slow.snapshot().accepted == accepted
    assert "new one" in slow.explain()


def test_the_message_counts_what_is_outstanding(slow: SafeProducer, plant_fatal: Plant) -> None:
    outstanding(slow)
    plant_fatal(slow)
    with pytest.raises(FatalError) as caught:
        slow.produce("t", b"x")
    assert caught.value.unresolved == RECORDS
    assert f"{RECORDS} accepted record(s)" in str(caught.value)


def test_a_fatal_producer_closes(slow: SafeProducer, plant_fatal: Plant) -> None:
    outstanding(slow)
    plant_fatal(slow)
    with pytest.raises(FatalError):
        slow.close(10)
    assert slow.snapshot().state == "closed"
    assert slow.snapshot().unresolved == 0


def test_held_records_learn_of_a_fatal_error_in_poll(plant_fatal: Plant) -> None:
    """Before poll() saw the error produce() still accepts; then the record fails, not written, and produce() raises."""
    producer = SafeProducer({"test.mock.num.brokers": 1, "log_level": 0, "safeproducer.mode": "held"})
    send_one(producer, "t", b"warm")
    plant_fatal(producer)
    outcomes: list[object] = []
    producer.produce("t", b"v", on_delivery=lambda error, _: outcomes.append((error.name(), error.outcome)))
    deadline = time.monotonic() + 10
    while not outcomes:
        assert time.monotonic() < deadline
        with contextlib.suppress(FatalError):
            producer.poll(0.1)
    assert outcomes == [("_FATAL", "not_written")]
    with pytest.raises(FatalError):
        producer.produce("t", b"w")
    with contextlib.suppress(FatalError):
        producer.close(5)


def test_close_does_not_raise_the_fatal_error_that_poll_has_raised() -> None:
    """The handler of the error closes the producer, as the error says."""
    with cluster_of({"t": 1}, 3) as cluster:
        producer = SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        send_one(producer, "t", b"x")
        cluster.fail_next("Produce", KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, n=1, topic="t")
        producer.produce("t", b"x")
        with pytest.raises(FatalError):
            poll_on(producer)
        assert producer.close(5).failed == 1


def poll_on(producer: SafeProducer) -> None:
    """For ten seconds at most."""
    for _ in range(200):
        producer.poll(0.05)


@pytest.mark.parametrize(
    ("mode", "fatal"), [("auto", "stop"), ("held", "stop"), ("passthrough", "stop"), ("auto", "renew")]
)
def test_records_of_one_without_an_id_are_not_written(caplog: pytest.LogCaptureFixture, mode: str, fatal: str) -> None:
    """Without a producer ID nothing is sent; the record, explain(), the exception and the log name the right and the
    setting."""
    with cluster_of({"t": 1}, 3) as cluster:
        cluster.fail_next("InitProducerId", KafkaError.CLUSTER_AUTHORIZATION_FAILED, n=1000)
        config = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "message.timeout.ms": 5000}
        producer = SafeProducer({**config, "safeproducer.mode": mode, "safeproducer.fatal": fatal})
        errors: list[DeliveryError] = []
        said: list[str] = []
        with contextlib.suppress(FatalError):
            for _ in range(RECORDS):
                producer.produce("t", b"x", on_delivery=lambda error, _: errors.append(error))
        accepted = producer.snapshot().accepted
        deadline = time.monotonic() + 20
        # A held record may be refused before the error itself is served: produce() tells only that there is one.
        while len(errors) < accepted or not all("IDEMPOTENT_WRITE" in it for it in (producer.explain(), caplog.text)):
            assert time.monotonic() < deadline
            try:
                producer.poll(0.1)
            except FatalError as error:
                said += [str(error)] if error.args[0].fatal() else []
        said += [producer.explain(), *(str(error) for error in errors if error.name() == "_PURGE_QUEUE"), caplog.text]
        assert {error.outcome for error in errors} == {"not_written"}
        for told in said:
            assert "IDEMPOTENT_WRITE" in told
            assert "enable.idempotence" in told
        with contextlib.suppress(FatalError):
            producer.close(0)
        assert not cluster.log("t")


@pytest.mark.parametrize("others", [False, True])
def test_what_a_native_producer_without_an_id_had_is_unknown_beside_another_one(others: bool) -> None:
    """A report does not say which native producer had the record."""
    failures = Failures(parse(({"bootstrap.servers": "127.0.0.1:1"},), {}).delivery)
    refused = "Failed to acquire idempotence PID from broker x:1/1: Broker: Cluster authorization failed"
    failures.refusals.fatal_error(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, refused), lambda: not others)
    message = Message(topic="t", partition=0, latency=1.0)
    error = failures.reported(KafkaError(KafkaError._PURGE_QUEUE), message)
    assert isinstance(error, DeliveryError)
    assert error.outcome == ("unknown" if others else "not_written")


def test_another_native_producer_counts_once_it_may_write() -> None:
    """It has asked for its permit then; a producer that took over native producers has none of its own."""
    refused = "Failed to acquire idempotence PID from broker x:1/1: Broker: Cluster authorization failed"
    producer = SafeProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    engine = engine_of(producer)
    engine.updates.fatal_error(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, refused))
    never_sent = engine.failures.refusals.never_sent
    assert not never_sent()
    producer.produce("t", b"x")
    assert never_sent()
    engine.gate.lane_permits()._kept = 1
    assert not never_sent()
    producer.close(0)
