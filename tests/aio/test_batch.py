"""send_batch(): the end of each message, in order; one that is malformed refuses all of them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from safeproducer import Hook, QueueFullError, RecordAbandoned, SafeProducerError
from safeproducer.aio import AsyncSafeProducer, BatchDelivery, DeliveredRecord, NotWritten
from safeproducer.testing import FakeCluster
from tests.aio.support import HELD, QUIET, log_of, until

Run = Callable[[Any], Any]


def messages_of(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"value": b"%d" % number, **fields} for number in range(count)]


@pytest.mark.parametrize("mode", ["auto", "held"])
async def test_each_message_has_its_end_in_order(cluster: FakeCluster, mode: str) -> None:
    """Also of one that is refused, and with a buffer that does not hold them all. All fields are sent."""
    config = {"bootstrap.servers": cluster.bootstrap, "queue.buffering.max.messages": 50, **QUIET}
    async with AsyncSafeProducer({**config, "safeproducer.mode": mode, "linger.ms": 5}) as producer:
        await producer.send_and_wait("t", b"first")
        messages = messages_of(500, key=b"key", headers=[("name", b"header")], timestamp=7)
        messages[3] = {"value": b"nowhere", "partition": 99}
        result = await producer.send_batch("t", messages, partition=1)
        await producer.flush()
    assert len(result) == 500
    assert isinstance(result[3], NotWritten)
    assert result.failed == [result[3]]
    assert len(result.delivered) == 499
    with pytest.raises(ExceptionGroup, match="1 of 500") as caught:
        result.raise_for_failures()
    assert caught.value.exceptions == (result[3],)
    stored = cluster.log("t", 1)
    for number in (0, 1, 2, *range(4, 500)):
        assert isinstance(result[number], DeliveredRecord)
        record = stored[result[number].offset]
        assert (record.value, record.key) == (b"%d" % number, b"key")
        assert record.headers == (("name", b"header"),)
        assert result[number][1:4] == (1, record.offset, 7)


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ("text", TypeError),
        ({}, TypeError),
        ([b"value"], TypeError),
        ([{"value": 1}], TypeError),
        ([{"partition": "1"}], TypeError),
        ([{"partition": 2**40}], OverflowError),
        ([{"headers": 1}], ValueError),
    ],
)
async def test_a_malformed_message_refuses_all(cluster: FakeCluster, messages: Any, error: type[Exception]) -> None:
    """Before any is accepted."""
    async with AsyncSafeProducer({"bootstrap.servers": cluster.bootstrap, **QUIET}) as producer:
        given = [*messages_of(3), *messages] if isinstance(messages, list) else messages
        with pytest.raises(error) as caught:
            await producer.send_batch("t", given)
        assert error is not TypeError or isinstance(caught.value, SafeProducerError)
        assert list(await producer.send_batch("t", [])) == []
        assert producer.snapshot().accepted == 0


async def test_a_cancelled_batch_is_taken_back(cluster: FakeCluster) -> None:
    """What waits in the process is; what waits for room is not accepted."""
    config = {**HELD, "bootstrap.servers": cluster.bootstrap, "queue.buffering.max.messages": 10}
    async with AsyncSafeProducer(config) as producer:
        task = asyncio.create_task(producer.send_batch("t", messages_of(30), partition=0))
        await until(lambda: producer.snapshot().held == 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        batch: BatchDelivery = caught.value.delivery  # type: ignore[attr-defined]
        assert await batch.settled() == batch.outcomes == ["not_written"] * 30
        account = producer.snapshot()
        assert (account.accepted, account.withdrawn, account.abandoned) == (10, 10, 0)
        await producer.flush()
    assert not log_of(cluster)


class Abandons(Hook):
    def __init__(self) -> None:
        self.told = list[str]()

    def record_abandoned(self, event: RecordAbandoned) -> None:
        self.told.append(event.outcome)


async def test_a_batch_that_was_handed_over_goes_on(cluster: FakeCluster) -> None:
    hook = Abandons()
    config = {**QUIET, "linger.ms": 1, "bootstrap.servers": cluster.bootstrap}
    async with AsyncSafeProducer(config, hooks=[hook]) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        cluster.pause(leader := cluster.leader("t", 0)[0])
        task = asyncio.create_task(producer.send_batch("t", messages_of(30), partition=0))
        await until(lambda: producer.snapshot().unresolved == 30 and not producer.snapshot().held)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        batch: BatchDelivery = caught.value.delivery  # type: ignore[attr-defined]
        assert batch.outcomes == ["pending"] * 30
        await until(lambda: producer.snapshot().abandoned == 30)
        cluster.resume(leader)
        assert await batch.settled() == ["delivered"] * 30
        assert producer.snapshot().abandoned == 0
    assert hook.told == ["delivered"] * 30
    assert log_of(cluster).total() == 31


async def test_a_message_for_which_there_is_never_room_ends_the_call(cluster: FakeCluster) -> None:
    """What was accepted before is told by the exception."""
    config = {"bootstrap.servers": cluster.bootstrap, "queue.buffering.max.kbytes": 1, **QUIET}
    async with AsyncSafeProducer(config) as producer:
        with pytest.raises(QueueFullError) as caught:
            await producer.send_batch("t", [{"value": b"fits"}, {"value": b"x" * 5_000}])
        outcomes = await caught.value.delivery.settled()  # type: ignore[attr-defined]
        assert outcomes[1] == "not_written"
