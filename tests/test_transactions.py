"""A commit succeeds only if every record since begin_transaction() was acknowledged."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from safeproducer import SafeProducer
from tests.inside import engine_of


@pytest.fixture
def producer(mock_bootstrap: str) -> SafeProducer:
    made = SafeProducer({"bootstrap.servers": mock_bootstrap, "transactional.id": "t", "log_level": 0})
    made.init_transactions(30)
    return made


def test_what_librdkafka_only_takes_for_delivered_is_not_committed(producer: SafeProducer) -> None:
    """It concluded from a later acknowledgement; the next transaction is a new one."""
    failures: Any = engine_of(producer).updates.failures

    def report(error: Any, message: Any) -> None:
        failures.without_offset += 1  # as the report of a record without an offset does, see test_unproven.py

    producer.begin_transaction()
    producer.produce("topic", b"v", on_delivery=report)
    with pytest.raises(KafkaException, match=r"1 record\(s\) of this transaction .* abort_transaction\(\)") as caught:
        producer.commit_transaction(30)
    assert caught.value.args[0].txn_requires_abort()
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce("topic", b"v")
    producer.commit_transaction(30)
    producer.close()


def test_nothing_of_a_transaction_is_held_back(producer: SafeProducer) -> None:
    """Not while a broker throttles either: librdkafka would know nothing of what fails in the meantime."""
    lane: Any = engine_of(producer)
    lane.updates.throttled(1, "broker", 30.0)
    producer.begin_transaction()
    producer.produce("topic", b"v")
    assert producer.snapshot().held == 0
    assert producer.flush(20) == 0
    producer.commit_transaction(30)
    producer.close()


def test_what_a_callback_raises_is_raised_after_the_commit(producer: SafeProducer) -> None:
    """As confluent_kafka does: the transaction is committed all the same."""

    def report(error: Any, message: Any) -> None:
        raise RuntimeError("planted")

    producer.begin_transaction()
    producer.produce("topic", b"v", on_delivery=report)
    with pytest.raises(RuntimeError, match="planted"):
        producer.commit_transaction(30)
    producer.begin_transaction()
    producer.abort_transaction(30)
    producer.close()


def test_close_ends_though_nobody_aborts_its_transaction() -> None:
    """The native close() would try to abort it, for ever; the coordinator does so after transaction.timeout.ms."""
    brokers = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
    broker = next(iter(brokers.list_topics(timeout=10).brokers.values()))
    producer = SafeProducer(
        {"bootstrap.servers": f"{broker.host}:{broker.port}", "transactional.id": "alone", "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("topic", b"v")
    assert producer.flush(20) == 0
    brokers.close()
    closing = threading.Thread(target=producer.close, args=(0.5,), daemon=True)
    closing.start()
    closing.join(20)
    assert not closing.is_alive(), "close(0.5) hangs"
    assert producer.snapshot().state == "closed"


@pytest.mark.parametrize("raised", [RuntimeError, KafkaException])
def test_a_close_behind_a_raising_callback_of_an_abort(producer: SafeProducer, raised: type[Exception]) -> None:
    """The transaction is not aborted again, which would fail, and the native producer is closed."""

    def report(error: Any, message: Any) -> None:
        raise raised("planted")

    native: Any = engine_of(producer).client.native
    producer.begin_transaction()
    producer.produce("topic", b"v", on_delivery=report)
    with pytest.raises(raised, match="planted"):
        producer.abort_transaction(30)
    assert producer.close(10)
    with pytest.raises(RuntimeError, match="closed"):
        native.poll(0)


def test_a_callback_that_raises_ends_a_close_that_aborts(producer: SafeProducer) -> None:
    """The producer stayed open, with records in it: behind a `with` block, too."""
    told: list[Any] = []

    def report(error: Any, message: Any) -> None:
        told.append(error.code())
        raise RuntimeError("planted")

    producer.begin_transaction()
    for _ in range(3):
        producer.produce("topic", b"v", on_delivery=report)
    with pytest.raises(RuntimeError, match="planted"), producer:
        pass
    account = producer.snapshot()
    assert (account.state, account.accepted, account.failed, account.unresolved) == ("closed", 3, 3, 0)
    assert len(told) == 3
