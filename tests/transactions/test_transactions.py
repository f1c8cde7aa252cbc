"""A commit succeeds only if every record since begin_transaction() was acknowledged."""

import asyncio
import contextlib
import inspect
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import Consumer, KafkaException

from safeproducer import (
    CallbackReentryError,
    FatalError,
    ForkedProducerError,
    ProducerClosedError,
    SafeProducer,
    TransactionAborted,
    TransactionError,
)
from safeproducer.aio import AsyncSafeProducer
from safeproducer.policy.expiry import DAY, Horizon
from safeproducer.runtime import interrupts
from safeproducer.testing import FakeCluster
from tests.clusters import cluster_of
from tests.contract.support import handling, send_one
from tests.inside import engine_of
from tests.mock_cluster import mock_cluster

PATIENCE = 30


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
    guard._look_at, guard.expirations.current = 0.0, Horizon(DAY, "broker 1", {})
    with (
        mock.patch.object(guard.expirations, "look"),
        mock.patch.object(engine.updates.failures, "retries_beyond") as told,
    ):
        guard.look(time.monotonic())
    assert not told.called
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
    send_one(producer, "topic", b"v")
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
    send_one(producer, "topic", b"v")
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

    with handling(signal.SIGUSR1, handler):
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
    assert raised == [None if method == "close" else CallbackReentryError]
    assert time.monotonic() - started < 9
    producer.close()


@pytest.mark.parametrize("settings", [{"enable.idempotence": False}, {"transactional.id": "u"}], ids=["plain", "txn"])
def test_flush_in_a_signal_handler_that_interrupted_a_callback(mock_bootstrap: str, settings: dict[str, Any]) -> None:
    """Only the callback that it interrupted is left: it need not wait for that. Statistics tell, which are read seldom
    once nothing is under way."""
    producer = SafeProducer({"bootstrap.servers": mock_bootstrap, "log_level": 0, **settings})
    took: list[float] = []

    def handler(number: int, frame: Any) -> None:
        time.sleep(2)  # several statistics say that nothing is under way
        started = time.monotonic()
        producer.flush(30)
        took.append(time.monotonic() - started)

    with handling(signal.SIGUSR1, handler):
        if "transactional.id" in settings:
            producer.init_transactions(30)
            producer.begin_transaction()
        send_one(
            producer, "topic", b"v", on_delivery=lambda error, message: signal.raise_signal(signal.SIGUSR1), seconds=60
        )
    assert len(took) == 1
    assert took[0] < 15
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


# --- blocks with the positions of a consumer -------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with cluster_of({"in": 1, "out": 1}) as made:
        with SafeProducer({"bootstrap.servers": made.bootstrap, "log_level": 0}) as writer:
            for number in range(10):
                writer.produce("in", b"%d" % number, partition=0)
        yield made


READING = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0}


def reader(cluster: FakeCluster) -> Any:
    made = Consumer({"bootstrap.servers": cluster.bootstrap, "isolation.level": "read_committed", **READING})
    made.subscribe(["in"])
    return made


def take(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.consume(count - len(found), 0.2)
    assert len(found) == count
    return found


def transactional(cluster: FakeCluster, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap, "transactional.id": "shop", "log_level": 0, **more}


def positions(cluster: FakeCluster) -> dict[tuple[str, int], int]:
    return cluster.groups()["g"].offsets


def written(cluster: FakeCluster) -> int:
    return len(cluster.log("out", isolation="read_committed"))


def test_the_positions_of_a_consumer_go_into_the_transaction(cluster: FakeCluster) -> None:
    """Those at the end of the block; none of a block that is aborted, or of a transaction that cannot be committed."""
    consumer = reader(cluster)
    with SafeProducer(transactional(cluster)) as producer:
        producer.init_transactions(PATIENCE)
        with producer.transaction(PATIENCE, offsets_of=consumer):
            for message in take(consumer, 4):
                producer.produce("out", message.value())
            assert positions(cluster) == {}
        assert (positions(cluster), written(cluster)) == ({("in", 0): 4}, 4)
        with pytest.raises(ZeroDivisionError), producer.transaction(PATIENCE, offsets_of=consumer):  # noqa: PT012
            producer.produce("out", take(consumer, 1)[0].value())
            raise ZeroDivisionError
        cluster.fail_next("TxnOffsetCommit", 22)  # ILLEGAL_GENERATION
        with pytest.raises(TransactionAborted) as caught, producer.transaction(PATIENCE, offsets_of=consumer):
            producer.produce("out", take(consumer, 1)[0].value())
        assert caught.value.args[0].name() == "ILLEGAL_GENERATION"
        assert (positions(cluster), written(cluster)) == ({("in", 0): 4}, 4)
        with producer.transaction(PATIENCE, offsets_of=consumer):
            producer.produce("out", take(consumer, 1)[0].value())
        assert (positions(cluster), written(cluster)) == ({("in", 0): 7}, 5)
    consumer.close()


def test_a_rebalance_in_a_block_that_reads_aborts(cluster: FakeCluster) -> None:
    """The consumer reads from what is committed again; the coordinator takes positions of the new generation."""
    consumer = reader(cluster)
    with SafeProducer(transactional(cluster)) as producer:
        producer.init_transactions(PATIENCE)
        first = take(consumer, 1)
        with producer.transaction(PATIENCE, offsets_of=consumer):
            producer.produce("out", first[0].value())
        with pytest.raises(TransactionAborted) as caught, producer.transaction(PATIENCE, offsets_of=consumer):  # noqa: PT012
            for message in take(consumer, 2):
                producer.produce("out", message.value())
            member = consumer.consumer_group_metadata()
            cluster.rebalance("g")
            while consumer.consumer_group_metadata() == member:
                consumer.consume(9, 0.2)
        assert caught.value.args[0].name() == "REBALANCE_IN_PROGRESS"
        assert (positions(cluster), written(cluster)) == ({("in", 0): 1}, 1)
        for place in consumer.committed(consumer.assignment(), PATIENCE):
            consumer.seek(place)
        with producer.transaction(PATIENCE, offsets_of=consumer):
            for message in take(consumer, 3):
                producer.produce("out", message.value())
        assert (positions(cluster), written(cluster)) == ({("in", 0): 4}, 4)
    consumer.close()


def test_positions_that_cannot_be_sent_in_time_abort(cluster: FakeCluster) -> None:
    """What is told is certain: the commit was not asked for."""
    consumer = reader(cluster)
    with SafeProducer(transactional(cluster, **{"socket.timeout.ms": 500})) as producer:
        producer.init_transactions(PATIENCE)
        cluster.hold_next("TxnOffsetCommit", 99)
        with pytest.raises(TransactionAborted), producer.transaction(1.5, offsets_of=consumer):
            producer.produce("out", take(consumer, 1)[0].value())
        cluster.release()
        with producer.transaction(PATIENCE, offsets_of=consumer):
            producer.produce("out", take(consumer, 1)[0].value())
        assert (positions(cluster), written(cluster)) == ({("in", 0): 2}, 1)
    consumer.close()


def test_offsets_of_what_is_no_consumer_or_has_no_group(cluster: FakeCluster) -> None:
    class Groupless:
        def position(self, of: object) -> list[object]:
            return []

        def assignment(self) -> list[object]:
            return []

        def consumer_group_metadata(self) -> None:
            return None

    consumer = reader(cluster)
    with SafeProducer(transactional(cluster)) as producer:
        producer.init_transactions(PATIENCE)
        for wrong, said in ((7, "no consumer"), (producer, "no consumer"), (Groupless(), "no group")):
            with pytest.raises(TransactionError, match=said), producer.transaction(offsets_of=wrong):
                pytest.fail("it begins")
        consumer.close()
        with pytest.raises(RuntimeError, match="closed"), producer.transaction(offsets_of=consumer):
            pytest.fail("it begins")
        with producer.transaction():
            producer.produce("out", b"")
        with pytest.raises(RuntimeError, match="closed"), producer.transaction() as same:  # noqa: PT012
            same.produce("out", b"")
            consumer.position([])
        assert written(cluster) == 1


def test_blocks_that_cannot_be_are_refused_at_once(cluster: FakeCluster) -> None:
    """Without a transactional.id, in a block, from another thread, after close(), and in a child."""
    with (
        SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0}) as plain,
        pytest.raises(TransactionError, match=r"set transactional\.id"),
        plain.transaction(),
    ):
        pytest.fail("it begins")
    told: list[BaseException] = []
    made: list[SafeProducer] = []

    def begin() -> None:
        try:
            with made[0].transaction(PATIENCE):
                pass
        except BaseException as error:
            told.append(error)

    with SafeProducer(transactional(cluster)) as producer:
        made.append(producer)
        producer.init_transactions(PATIENCE)
        with producer.transaction(PATIENCE):
            begin()
            other = threading.Thread(target=begin)
            other.start()
            other.join(PATIENCE)
            producer.produce("out", b"")
        child = os.fork()
        if not child:
            begin()
            os._exit(0 if isinstance(told[-1], ForkedProducerError) else 1)
        assert os.waitpid(child, 0)[1] == 0
    begin()
    assert [type(error) for error in told] == [TransactionError, TransactionError, ProducerClosedError]
    assert written(cluster) == 1


@pytest.mark.parametrize("kind", ["Consumer", "AIOConsumer"])
def test_positions_on_an_event_loop(cluster: FakeCluster, kind: str) -> None:
    made = getattr(pytest.importorskip("confluent_kafka.aio"), kind, Consumer)

    async def main() -> None:
        found: Any = None
        consumer = made({"bootstrap.servers": cluster.bootstrap, **READING})
        async with AsyncSafeProducer(transactional(cluster)) as producer:
            await producer.init_transactions(PATIENCE)
            with pytest.raises(TransactionError, match="no consumer"):
                async with producer.transaction(offsets_of=producer):
                    pytest.fail("it begins")
            for call in (lambda: consumer.subscribe(["in"]), lambda: consumer.consume(4, PATIENCE)):
                found = await told if inspect.isawaitable(told := call()) else told
            async with producer.transaction(PATIENCE, offsets_of=consumer):
                for message in found:
                    await producer.send("out", message.value())
        if inspect.isawaitable(closed := consumer.close()):
            await closed
        assert len(found) == 4

    asyncio.run(main())
    assert (positions(cluster), written(cluster)) == ({("in", 0): 4}, 4)
