"""A commit succeeds only if every record since begin_transaction() was acknowledged."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import KafkaException

from safeproducer import CallbackReentryError, FatalError, SafeProducer
from safeproducer.policy.expiry import DAY, Horizon, Source
from safeproducer.runtime import interrupts
from tests.inside import engine_of
from tests.mock_cluster import mock_cluster


@pytest.fixture
def producer(mock_bootstrap: str) -> SafeProducer:
    made = SafeProducer({"bootstrap.servers": mock_bootstrap, "transactional.id": "t", "log_level": 0})
    made.init_transactions(30)
    return made


def test_a_record_that_librdkafka_only_takes_for_delivered_is_not_committed(producer: SafeProducer) -> None:
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


def test_no_record_of_a_transaction_is_held_back(producer: SafeProducer) -> None:
    """Not while a broker throttles either: librdkafka would know nothing of what fails in the meantime."""
    lane: Any = engine_of(producer)
    lane.updates.throttled(1, "broker", 30.0)
    producer.begin_transaction()
    producer.produce("topic", b"v")
    assert producer.snapshot().held == 0
    assert producer.flush(20) == 0
    producer.commit_transaction(30)
    producer.close()


def test_the_guard_leaves_a_transaction_alone(producer: SafeProducer) -> None:
    """Its records are committed or not, however old they are: no age is theirs, though the broker's is known."""
    engine: Any = engine_of(producer)
    guard = engine.dispatcher.expiry
    guard._look_at, guard.expirations.current = 0.0, Horizon(DAY, Source.BROKER, "broker 1", {})
    with (
        mock.patch.object(guard.expirations, "look"),
        mock.patch.object(engine.updates.failures, "retries_beyond") as told,
    ):
        guard.look(time.monotonic())
    assert not told.called
    producer.close()


def test_an_exception_of_a_callback_is_raised_after_the_commit(producer: SafeProducer) -> None:
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
    brokers = mock_cluster(1)
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


@pytest.mark.parametrize("method", ["commit_transaction", "abort_transaction"])
def test_close_raises_no_fatal_error_again(
    producer: SafeProducer, plant_fatal: Callable[[SafeProducer], None], method: str
) -> None:
    """Whoever was told of it closes the producer, and needs its report."""
    producer.begin_transaction()
    producer.produce("topic", b"v")
    assert producer.flush(20) == 0
    plant_fatal(producer)
    with pytest.raises(FatalError):  # noqa: PT012
        getattr(producer, method)(10)
        producer.poll(10)  # the sender has taken the event, and librdkafka's state of the transaction is not planted
    assert producer.close(10).accepted == 1


@pytest.mark.parametrize("raised", [RuntimeError, KafkaException])
def test_a_close_behind_a_raising_callback_of_an_abort(producer: SafeProducer, raised: type[Exception]) -> None:
    """The transaction is not aborted again, which would fail, and the native producer is closed."""

    def report(error: Any, message: Any) -> None:
        raise raised("planted")

    native: Any = engine_of(producer).route.native
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


@pytest.mark.parametrize("method", ["commit_transaction", "abort_transaction", "close"])
def test_a_signal_handler_that_interrupted_a_callback_ends_no_transaction(producer: SafeProducer, method: str) -> None:
    """librdkafka would wait for the report that the handler keeps from its end; so does confluent_kafka."""
    raised: list[type[BaseException] | None] = []

    def handler(number: int, frame: Any) -> None:
        try:
            getattr(producer, method)(10)
        except CallbackReentryError as error:
            raised.append(type(error))
        else:
            raised.append(None)

    def report(error: Any, message: Any) -> None:
        if not raised and interrupts.in_native_callback():
            signal.raise_signal(signal.SIGUSR1)

    former = signal.signal(signal.SIGUSR1, handler)
    try:
        started = time.monotonic()
        while not raised:  # the sender takes the reports of a thread that is not run for a while: librdkafka has none
            started = time.monotonic()
            producer.begin_transaction()
            for _ in range(1 if method == "close" else 3):
                producer.produce("topic", b"v", partition=0, on_delivery=report)
            if method == "close":
                with contextlib.suppress(RuntimeError):
                    producer.flush(30)
                assert not raised or producer.snapshot().state == "closed"
            else:
                assert producer.flush(30) == 0
            if method != "close" or not raised:
                producer.commit_transaction(30)
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert raised == [None if method == "close" else CallbackReentryError]
    assert time.monotonic() - started < 9
    producer.close()


@pytest.mark.parametrize("settings", [{"enable.idempotence": False}, {"transactional.id": "u"}], ids=["plain", "txn"])
def test_flush_in_a_signal_handler_that_interrupted_a_callback(mock_bootstrap: str, settings: dict[str, Any]) -> None:
    """Only the callback that it interrupted is left: it need not wait for that."""
    producer = SafeProducer({"bootstrap.servers": mock_bootstrap, "log_level": 0, **settings})
    took: list[float] = []

    def handler(number: int, frame: Any) -> None:
        started = time.monotonic()
        producer.flush(30)
        took.append(time.monotonic() - started)

    former = signal.signal(signal.SIGUSR1, handler)
    try:
        if "transactional.id" in settings:
            producer.init_transactions(30)
            producer.begin_transaction()
        producer.produce("topic", b"v", on_delivery=lambda error, message: signal.raise_signal(signal.SIGUSR1))
        assert producer.flush(60) == 0
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert len(took) == 1
    assert took[0] < 25
    producer.close()


def test_a_long_rest_is_warned_of_once(mock_bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each rest; the horizon is that of the transactional.id."""
    config = {"bootstrap.servers": mock_bootstrap, "log_level": 0, "safeproducer.expiry.ms": 500}
    with SafeProducer({**config, "transactional.id": "rests"}) as producer:
        producer.init_transactions(30)
        for rests in (0.0, 0.6, 0.0):
            time.sleep(rests)
            caplog.clear()
            producer.begin_transaction()
            warned = [record for record in caplog.records if "after a rest of" in record.getMessage()]
            assert len(warned) == (rests > 0)
            producer.produce("topic", b"v")
            producer.commit_transaction(30)
