"""Blocks of a transaction on an event loop: they commit, abort, and say how a commit ended that was cancelled."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from safeproducer import SafeProducerError
from safeproducer.aio import AsyncSafeProducer
from safeproducer.pipeline.polling import Serving
from safeproducer.pipeline.transactions import Transactions
from tests.aio.support import QUIET

Run = Callable[[Any], Any]
MOCK = {"test.mock.num.brokers": 1, "transactional.id": "tx", **QUIET}


class Calls:
    """Which transaction calls were made of a producer, in order; `slow` ones take so many seconds more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = list[str]()
        self.slow = dict[str, float]()
        for owner, name in (
            (Transactions, "begin"),
            (Transactions, "commit"),
            (Transactions, "abort"),
            (Serving, "flush"),
        ):
            self._watch(monkeypatch, owner, name)

    def _watch(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        method = getattr(owner, name)

        def watched(*args: Any) -> Any:
            self.made.append(name)
            time.sleep(self.slow.get(name, 0))
            return method(*args)

        monkeypatch.setattr(owner, name, watched)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


async def test_a_block_commits_at_its_end(calls: Calls) -> None:
    async with AsyncSafeProducer(MOCK) as producer:
        await producer.init_transactions(20)
        deliveries = []
        for number in range(3):
            async with producer.transaction() as same:
                assert same is producer
                deliveries.append(await producer.send("t", b"%d" % number))
        assert [each.outcome for each in deliveries] == ["delivered"] * 3
    assert calls.made == ["begin", "commit"] * 3


async def test_an_exception_aborts_behind_what_was_sent(calls: Calls) -> None:
    """And goes on. The next block begins."""
    async with AsyncSafeProducer(MOCK) as producer:
        await producer.init_transactions(20)
        with pytest.raises(ValueError, match="the application's"):  # noqa: PT012
            async with producer.transaction():
                await producer.send("t", b"aborted")
                raise ValueError("the application's")
        async with producer.transaction():
            await producer.send_and_wait("t", b"committed")
    assert calls.made == ["begin", "flush", "abort", "begin", "commit"]


@pytest.mark.parametrize("slow", ["begin", "abort", ""])
async def test_a_time_limit_aborts(calls: Calls, slow: str) -> None:
    """Whether it ends the block, or the begin: that is waited for, and the next block begins."""
    calls.slow[slow] = 0.2
    async with AsyncSafeProducer(MOCK) as producer:
        await producer.init_transactions(20)
        with pytest.raises(TimeoutError):  # noqa: PT012
            async with asyncio.timeout(0.05), producer.transaction():
                await producer.send("t", b"aborted")
                await asyncio.sleep(60)
        calls.slow.clear()
        async with producer.transaction():
            await producer.send_and_wait("t", b"committed")
    assert calls.made == ["begin", "flush", "abort", "begin", "commit"]


async def test_a_commit_that_is_cancelled_says_how_it_ended(calls: Calls) -> None:
    calls.slow["commit"] = 0.2
    async with AsyncSafeProducer(MOCK) as producer:
        await producer.init_transactions(20)

        async def block() -> None:
            async with producer.transaction():
                await producer.send_and_wait("t", b"committed")

        task = asyncio.create_task(block())
        while "commit" not in calls.made:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert caught.value.ended is True  # type: ignore[attr-defined]
        assert "succeeded" in caught.value.__notes__[0]
        calls.slow.clear()
        async with producer.transaction():
            await producer.send("t", b"next")
    assert calls.made == ["begin", "commit"] * 2


async def test_blocks_that_cannot_be_are_refused() -> None:
    """A block in a block, and one without a transactional.id: by errors of this library."""
    async with AsyncSafeProducer(MOCK) as producer:
        await producer.init_transactions(20)
        async with producer.transaction():
            with pytest.raises(SafeProducerError, match="open already"):
                async with producer.transaction():
                    pass
            await producer.send("t", b"of the outer one")
        async with producer.transaction():
            pass
    async with AsyncSafeProducer({"test.mock.num.brokers": 1, **QUIET}) as producer:
        with pytest.raises(SafeProducerError, match=r"transactional\.id"):
            async with producer.transaction():
                pass
