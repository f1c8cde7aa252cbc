"""submit(): a future for threads; transaction(): a block that commits or aborts."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest

from safeproducer import ConfigurationError, ProducerClosedError, QueueFullError, SafeProducer, SafeProducerError
from safeproducer.aio import DeliveredRecord, NotWritten, OutcomeUnknown
from safeproducer.pipeline.polling import Serving
from safeproducer.pipeline.transactions import Transactions
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.contract.support import wait_until

PATIENCE = 30
HELD = {"safeproducer.mode": "held", "linger.ms": 60_000, "log_level": 0}
MOCK = {"test.mock.num.brokers": 1, "transactional.id": "tx", "log_level": 0}


cluster = fake_cluster({"t": 1})


def serving() -> int:
    return sum(thread.name == "safeproducer-futures" for thread in threading.enumerate())


@pytest.mark.parametrize("mode", ["auto", "held", "passthrough"])
def test_a_future_ends_though_nobody_polls(cluster: FakeCluster, mode: str) -> None:
    """From several threads; one thread serves them all, and ends with the producer."""
    config = {"bootstrap.servers": cluster.bootstrap, "safeproducer.mode": mode, "log_level": 0}
    with SafeProducer(config) as producer:
        assert serving() == 0
        with ThreadPoolExecutor(4) as pool:
            futures = list(pool.map(lambda number: producer.submit("t", b"%d" % number, headers={}), range(200)))
        assert wait(futures, PATIENCE).not_done == set()
        records = [future.result() for future in futures]
        assert serving() == 1
    assert {type(record) for record in records} == {DeliveredRecord}
    assert sorted(record.offset for record in records) == list(range(200))
    assert {cluster.log("t")[record.offset].value for record in records} == {b"%d" % number for number in range(200)}
    wait_until(lambda: serving() == 0)
    with pytest.raises(ProducerClosedError):
        producer.submit("t", b"late")


def test_a_record_that_is_taken_back_is_cancelled(cluster: FakeCluster) -> None:
    """Only then is cancel() true; the record is nowhere."""
    with SafeProducer({**HELD, "bootstrap.servers": cluster.bootstrap}) as producer:
        futures = [producer.submit("t", b"%d" % number) for number in range(3)]
        assert futures[1].cancel()
        assert futures[1].cancelled()
        assert futures[1].cancel(), "it is, still"
        assert producer.snapshot().withdrawn == 1
        producer.flush(PATIENCE)
        assert not futures[0].cancel(), "it is delivered"
        assert futures[0].result(PATIENCE).offset == 0
    assert [record.value for record in cluster.log("t")] == [b"0", b"2"]


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_record_that_was_handed_over_cannot_be_cancelled(cluster: FakeCluster, mode: str) -> None:
    config = {"bootstrap.servers": cluster.bootstrap, "safeproducer.mode": mode, "log_level": 0}
    with SafeProducer(config) as producer:
        producer.submit("t", b"first").result(PATIENCE)
        cluster.pause(1)
        future = producer.submit("t", b"second")
        wait_until(lambda: not producer.snapshot().held)
        assert not future.cancel()
        cluster.resume(1)
        assert future.result(PATIENCE).offset == 1


def test_a_future_raises_what_became_of_its_record(cluster: FakeCluster) -> None:
    producer = SafeProducer({**HELD, "bootstrap.servers": "127.0.0.1:1"})
    lost = producer.submit("t", b"")
    producer.close(0)
    with pytest.raises(NotWritten):
        lost.result(PATIENCE)
    producer = SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    producer.submit("t", b"").result(PATIENCE)
    cluster.pause(1)
    unknown = producer.submit("t", b"")
    producer.close(0.2)
    with pytest.raises((OutcomeUnknown, NotWritten)):
        unknown.result(PATIENCE)


def test_a_full_buffer_is_waited_for_as_by_produce(cluster: FakeCluster) -> None:
    config = {"bootstrap.servers": cluster.bootstrap, "queue.buffering.max.messages": 5, "log_level": 0}
    with SafeProducer({**config, "safeproducer.max.block.ms": 30_000}) as producer:
        futures = [producer.submit("t", b"") for _ in range(50)]
        assert wait(futures, PATIENCE).not_done == set()
    with SafeProducer({**HELD, **config, "linger.ms": 60_000, "safeproducer.mode": "held"}) as producer:
        for _ in range(5):
            producer.submit("t", b"")
        with pytest.raises(QueueFullError):
            producer.submit("t", b"")


def test_a_dropped_producer_is_freed(cluster: FakeCluster) -> None:
    """The thread that serves does not keep it."""
    producer = SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    producer.submit("t", b"").result(PATIENCE)
    dropped = weakref.ref(producer)
    del producer
    gc.collect()
    wait_until(lambda: dropped() is None and serving() == 0)


def test_futures_need_all_reports() -> None:
    """With errors alone those of delivered records would never end."""
    with SafeProducer({"bootstrap.servers": "127.0.0.1:1", "delivery.report.only.error": True}) as producer:
        with pytest.raises(ConfigurationError, match="only"):
            producer.submit("t", b"")
        assert producer.snapshot().accepted == 0


# --- transactions ----------------------------------------------------------------------------------------------------


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that were made, in order, with their time limit."""
    calls = list[Any]()

    def watch(owner: type, name: str) -> None:
        method = getattr(owner, name)

        def watched(self: Any, *args: Any) -> Any:
            calls.append((name, *args))
            return method(self, *args)

        monkeypatch.setattr(owner, name, watched)

    for name in ("begin", "commit", "abort"):
        watch(Transactions, name)
    watch(Serving, "flush")
    return calls


def test_blocks_commit_and_abort(made: list[Any]) -> None:
    """Each call of the end has the time limit; before an abort what was sent is waited for."""
    with SafeProducer(MOCK) as producer:
        producer.init_transactions(20)
        with producer.transaction(20) as same:
            assert same is producer
            producer.produce("t", b"committed")
        with pytest.raises(KeyboardInterrupt), producer.transaction(20):  # noqa: PT012
            producer.produce("t", b"aborted")
            raise KeyboardInterrupt
        with producer.transaction():
            producer.produce("t", b"committed")
    assert made == [
        *(("begin", 20), ("commit", 20)),
        *(("begin", 20), ("flush", 2.0), ("abort", 20)),
        *(("begin", -1), ("commit", -1)),
    ]


def test_blocks_that_cannot_be_are_refused() -> None:
    with SafeProducer(MOCK) as producer:
        producer.init_transactions(20)
        with producer.transaction(20), pytest.raises(SafeProducerError, match="open already"), producer.transaction():
            pass
    with (
        SafeProducer({"test.mock.num.brokers": 1, "log_level": 0}) as producer,
        pytest.raises(SafeProducerError, match=r"transactional\.id"),
        producer.transaction(),
    ):
        pass
