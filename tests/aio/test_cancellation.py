"""A cancelled record is taken back, or goes on and its end is told: never is anything else said than is true."""

import asyncio
from collections.abc import Callable
from typing import Any
from unittest import mock

import anyio
import pytest

from safeproducer import Hook, RecordAbandoned
from safeproducer.aio import AsyncSafeProducer, Delivery, NotWritten
from safeproducer.aio.settling import Settling
from safeproducer.testing import FakeCluster
from tests.aio.support import HELD, PATIENCE, QUIET, log_of, until

Run = Callable[[Any], Any]


class Abandons(Hook):
    """Notes what it is told of records that nobody awaits."""

    def __init__(self) -> None:
        self.told = list[tuple[str, int | None, str]]()

    def record_abandoned(self, event: RecordAbandoned) -> None:
        self.told.append((event.topic, event.partition, event.outcome))


def delivery_of(error: BaseException | None) -> Delivery:
    assert isinstance(error, asyncio.CancelledError)
    assert type(error) is asyncio.CancelledError, "a subclass defeats asyncio.timeout()"
    assert error.__notes__
    found: Delivery = error.delivery  # type: ignore[attr-defined]
    return found


# --- while it waits for room -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["send", "send_and_wait"])
async def test_a_sender_that_waits_for_room_leaves_the_line(cluster: FakeCluster, call: str) -> None:
    """Its record was not accepted, and is nowhere; nobody behind it waits for it."""
    config = {**HELD, "bootstrap.servers": cluster.bootstrap, "queue.buffering.max.messages": 1}
    async with AsyncSafeProducer(config) as producer:
        first = await producer.send("t", b"first", partition=0)
        waits = asyncio.create_task(getattr(producer, call)("t", b"never", partition=0))
        behind = asyncio.create_task(producer.send("t", b"behind", partition=0))
        await asyncio.sleep(0)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await waits
        assert not hasattr(caught.value, "delivery")
        assert await first.withdraw()
        await until(lambda: producer.snapshot().accepted == 2)  # the one behind got the room
        await producer.flush()
        await (await behind)
    assert log_of(cluster) == {b"behind": 1}


# --- while it is held back -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordering", ["partition", "key"])
async def test_a_held_record_is_taken_back(cluster: FakeCluster, ordering: str) -> None:
    """It is not written, its room and key are free, and it counts as withdrawn."""
    hook = Abandons()
    config = {**HELD, "bootstrap.servers": cluster.bootstrap, "safeproducer.ordering": ordering}
    async with AsyncSafeProducer({**config, "queue.buffering.max.messages": 1}, hooks=[hook]) as producer:
        task = asyncio.create_task(producer.send_and_wait("t", b"never", b"key"))
        await until(lambda: producer.snapshot().held)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        delivery = delivery_of(caught.value)
        assert await delivery.settled() == delivery.outcome == "not_written"
        assert delivery.cancelled()
        account = producer.snapshot()
        assert (account.withdrawn, account.abandoned, account.not_written) == (1, 0, 1)
        after = await producer.send("t", b"after", b"key")
        await producer.flush()
        assert after.outcome == "delivered"
    assert log_of(cluster) == {b"after": 1}
    assert hook.told == []


@pytest.mark.parametrize("limit", [asyncio.timeout, anyio.fail_after])
async def test_a_time_limit_tells_by_its_cause(cluster: FakeCluster, limit: Callable[[float], Any]) -> None:
    """Of asyncio, and of anyio: what they raise is a TimeoutError."""
    async with AsyncSafeProducer({**HELD, "bootstrap.servers": cluster.bootstrap}) as producer:
        with pytest.raises(TimeoutError) as caught:  # noqa: PT012
            if limit is asyncio.timeout:
                async with limit(0.02):
                    await producer.send_and_wait("t", b"never")
            else:
                with limit(0.02):
                    await producer.send_and_wait("t", b"never")
        cause = caught.value.__cause__ or caught.value.__context__
        assert await delivery_of(cause).settled() == "not_written"
    assert not log_of(cluster)


async def test_wait_for_tells_by_its_cause(cluster: FakeCluster) -> None:
    async with AsyncSafeProducer({**HELD, "bootstrap.servers": cluster.bootstrap}) as producer:
        with pytest.raises(TimeoutError) as caught:
            await asyncio.wait_for(producer.send_and_wait("t", b"never"), 0.02)
        assert await delivery_of(caught.value.__cause__).settled() == "not_written"
    assert not log_of(cluster)


async def test_a_record_is_withdrawn_by_hand(cluster: FakeCluster) -> None:
    """Whoever awaits it gets NotWritten. One that was delivered is not withdrawn."""
    async with AsyncSafeProducer({**HELD, "bootstrap.servers": cluster.bootstrap}) as producer:
        delivery = await producer.send("t", b"never")
        waits = asyncio.ensure_future(delivery)
        assert await delivery.withdraw()
        with pytest.raises(NotWritten):
            await waits
        assert not await delivery.withdraw(), "it is gone"
        nobody = await producer.send("t", b"never")
        assert await nobody.withdraw()
        del nobody  # and no complaint about an exception that nobody has retrieved
        other = await producer.send("t", b"written")
        await producer.flush()
        assert not await other.withdraw()
    assert log_of(cluster) == {b"written": 1}


async def test_a_record_is_withdrawn_before_the_loop_ends_its_future(cluster: FakeCluster) -> None:
    """Its outcome is known on the thread that took it back, a little earlier."""
    settle = Settling._settle

    def late(settling: Settling) -> None:
        asyncio.get_running_loop().call_later(0.02, settle, settling)

    async with AsyncSafeProducer({**HELD, "bootstrap.servers": cluster.bootstrap}) as producer:
        with mock.patch.object(Settling, "_settle", late):
            delivery = await producer.send("t", b"never")
            assert await delivery.withdraw()
        with pytest.raises(NotWritten):
            await delivery


# --- when it was handed over -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "held", "passthrough"])
async def test_a_record_that_was_handed_over_goes_on(cluster: FakeCluster, mode: str) -> None:
    """Pending until its end is known, which the delivery, the snapshot and a hook tell."""
    hook = Abandons()
    config = {**QUIET, "linger.ms": 1, "bootstrap.servers": cluster.bootstrap, "safeproducer.mode": mode}
    async with AsyncSafeProducer(config, hooks=[hook]) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        leader = cluster.leader("t", 0)[0]
        cluster.pause(leader)
        task = asyncio.create_task(producer.send_and_wait("t", b"goes on", partition=0))
        await asyncio.sleep(0)
        await until(lambda: producer.snapshot().unresolved and not producer.snapshot().held)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        delivery = delivery_of(caught.value)
        await until(lambda: producer.snapshot().abandoned == 1)
        assert (delivery.outcome, await delivery.withdraw()) == ("pending", False)
        assert hook.told == []
        cluster.resume(leader)
        assert await delivery.settled() == delivery.outcome == "delivered"
        assert delivery.cancelled()
        await until(lambda: hook.told)
        account = producer.snapshot()
        assert (account.withdrawn, account.abandoned, account.delivered) == (0, 0, 2)
    assert hook.told == [("t", 0, "delivered")]
    assert log_of(cluster) == {b"first": 1, b"goes on": 1}


# --- in the same step of the loop ------------------------------------------------------------------------------------


async def test_a_record_that_is_accepted_and_cancelled_in_one_step_is_told(cluster: FakeCluster) -> None:
    """Its sender was in the line; before its task runs, it is cancelled."""
    config = {**HELD, "bootstrap.servers": cluster.bootstrap, "queue.buffering.max.messages": 1}
    async with AsyncSafeProducer(config) as producer:
        first = await producer.send("t", b"first", partition=0)
        task = asyncio.create_task(producer.send("t", b"never", partition=0))
        await asyncio.sleep(0)
        fill = producer._room.fill

        def fill_and_cancel() -> bool:
            accepted = producer.snapshot().accepted
            more = fill()
            if producer.snapshot().accepted > accepted:
                task.cancel()
            return more

        producer._room.fill = fill_and_cancel  # type: ignore[method-assign]
        assert await first.withdraw()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert await delivery_of(caught.value).settled() == "not_written"
    assert not log_of(cluster)


# --- whose cancellation it is ----------------------------------------------------------------------------------------


async def test_cancelling_the_future_cancels_it_for_all(cluster: FakeCluster) -> None:
    """As with any future; shield() and wait() do not."""
    async with AsyncSafeProducer({**HELD, "bootstrap.servers": cluster.bootstrap}) as producer:
        delivery = await producer.send("t", b"never")
        tasks = [asyncio.ensure_future(asyncio.wait({delivery}, timeout=PATIENCE)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(delivery, 0.01)
        await asyncio.gather(*tasks)
        assert await delivery.settled() == "not_written"

        shielded = await producer.send("t", b"written")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(shielded), 0.01)
        await asyncio.wait({shielded}, timeout=0.01)
        assert shielded.outcome == "pending"
        await producer.flush()
        assert (await shielded).topic == "t"
    assert log_of(cluster) == {b"written": 1}


async def test_gather_lets_the_others_go_on(cluster: FakeCluster) -> None:
    async with AsyncSafeProducer({**HELD, "bootstrap.servers": cluster.bootstrap}) as producer:
        deliveries = [await producer.send("t", b"%d" % number) for number in range(5)]
        together = asyncio.gather(*deliveries)
        assert await deliveries[2].withdraw()
        with pytest.raises(NotWritten):
            await together
        await producer.flush()
        assert [each.outcome for each in deliveries].count("delivered") == 4
    assert log_of(cluster) == {b"%d" % number: 1 for number in (0, 1, 3, 4)}


async def test_a_task_group_takes_the_others_back(cluster: FakeCluster) -> None:
    """One of its tasks fails: the held records of all others are withdrawn."""
    async with AsyncSafeProducer({**HELD, "bootstrap.servers": cluster.bootstrap}) as producer:

        async def fails() -> None:
            await until(lambda: producer.snapshot().held == 5)
            raise ValueError("one of them")

        with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012
            async with asyncio.TaskGroup() as group:
                for number in range(5):
                    group.create_task(producer.send_and_wait("t", b"%d" % number))
                group.create_task(fails())
        assert [type(error) for error in caught.value.exceptions] == [ValueError]
        await until(lambda: producer.snapshot().withdrawn == 5)
    assert not log_of(cluster)


async def test_settled_may_be_cancelled_by_itself(cluster: FakeCluster) -> None:
    async with AsyncSafeProducer({**HELD, "bootstrap.servers": cluster.bootstrap}) as producer:
        delivery = await producer.send("t", b"written")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(delivery.settled(), 0.01)
        assert not delivery.cancelled()
        await producer.flush()
        assert await delivery.settled() == "delivered"
    assert log_of(cluster) == {b"written": 1}
