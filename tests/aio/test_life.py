"""The life of a producer on an event loop: its first use, other loops and threads, its end, a fork, bad input."""

import asyncio
import gc
import os
import sys
import time
import warnings
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from safeproducer import (
    ConfigurationError,
    ForkedProducerError,
    Hook,
    ProducerClosedError,
    SafeProducer,
    SafeProducerError,
)
from safeproducer.aio import AsyncSafeProducer, NotWritten, OutcomeUnknown
from safeproducer.testing import FakeCluster
from tests.aio.support import HELD, PATIENCE, QUIET, log_of, own_threads, until
from tests.contract.support import wait_until

Run = Callable[[Any], Any]
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", **QUIET}


# --- the end ---------------------------------------------------------------------------------------------------------


async def test_close_refuses_who_waits_and_tells_the_rest(cluster: FakeCluster) -> None:
    """Those in the line at once; what is accepted has the time limit."""
    config = {**HELD, "bootstrap.servers": cluster.bootstrap, "queue.buffering.max.messages": 1}
    producer = AsyncSafeProducer(config, close_timeout=0.3)
    cluster.pause(cluster.leader("t", 0)[0])
    accepted = await producer.send("t", b"accepted", partition=0)
    waits = asyncio.create_task(producer.send("t", b"waits", partition=0))
    await asyncio.sleep(0)
    began = time.monotonic()
    closing = asyncio.create_task(producer.close())
    with pytest.raises(ProducerClosedError):
        await waits
    assert not closing.done()
    report = await closing
    took = time.monotonic() - began
    with pytest.raises((NotWritten, OutcomeUnknown)):
        await accepted
    assert (report.accepted, report.left) == (1, 1)
    assert await producer.close() is report
    for call in (producer.send, producer.send_and_wait):
        with pytest.raises(ProducerClosedError):
            await call("t", b"late")
    with pytest.raises(ProducerClosedError):
        producer.submit_nowait("t", b"late")
    with pytest.raises(ProducerClosedError):
        await producer.flush()
    assert took < PATIENCE


async def test_a_cancelled_close_goes_on_by_itself(cluster: FakeCluster) -> None:
    """Outcomes are told all the same, and the next close() gives the report."""
    producer = AsyncSafeProducer({**HELD, "bootstrap.servers": cluster.bootstrap}, close_timeout=PATIENCE)
    leader = cluster.leader("t", 0)[0]
    cluster.pause(leader)
    delivery = await producer.send("t", b"value", partition=0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(producer.close(), 0.05)
    assert delivery.outcome == "pending"
    cluster.resume(leader)
    assert (await delivery).partition == 0
    assert (await producer.close()).delivered == 1
    assert log_of(cluster) == {b"value": 1}


def test_a_dropped_producer_is_freed(cluster: FakeCluster) -> None:
    """Nothing keeps it, its thread ends, and it is told that nobody closed it."""
    dropped = list[weakref.ref[Any]]()

    async def main() -> None:
        config = {"bootstrap.servers": cluster.bootstrap, "error_cb": lambda error: None, **QUIET}
        producer = AsyncSafeProducer(config)
        await producer.send_and_wait("t", b"value")
        dropped.extend([weakref.ref(producer), weakref.ref(producer.producer)])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(main())
        assert dropped[0]() is None
        wait_until(lambda: not own_threads())
        gc.collect()
        wait_until(lambda: dropped[1]() is None)


# --- the loop that it belongs to -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_outcomes_stay_true_without_the_loop(cluster: FakeCluster, mode: str) -> None:
    """The loop is closed first: one warning, and the next loop may use the producer."""
    config = {"bootstrap.servers": cluster.bootstrap, "safeproducer.mode": mode, "linger.ms": 20, **QUIET}
    producer = AsyncSafeProducer(config)

    async def sends() -> Any:
        return [await producer.send("t", b"%d" % number) for number in range(50)]

    async def ends() -> None:
        await producer.send_and_wait("t", b"next")
        await producer.close()

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        deliveries = asyncio.run(sends())
        wait_until(lambda: {each.outcome for each in deliveries} == {"delivered"})
        told = [each.category for each in warned if "event loop was closed" in str(each.message)]
        assert told == [ResourceWarning]
    assert not any(each.done() for each in deliveries), "no loop ends them any more"
    asyncio.run(ends())
    assert log_of(cluster) == {**{b"%d" % number: 1 for number in range(50)}, b"next": 1}


async def test_what_a_call_beside_the_loop_raises_is_raised(cluster: FakeCluster) -> None:
    """By whatever waits for it, and the next call is made."""
    async with AsyncSafeProducer({"bootstrap.servers": cluster.bootstrap, **QUIET}) as producer:
        no_text: Any = 5
        for call in (producer.send_offsets_to_transaction([], None), producer.set_sasl_credentials("user", no_text)):
            with pytest.raises(TypeError):
                await call
        assert "t" in (await producer.list_topics()).topics


@pytest.mark.parametrize("mode", ["auto", "held"])
async def test_a_callback_that_raises_ends_nothing(
    cluster: FakeCluster, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """That of a record which others produce is logged, and those behind it have their reports."""
    with SafeProducer({"bootstrap.servers": cluster.bootstrap, "safeproducer.mode": mode, **QUIET}) as made:
        async with AsyncSafeProducer.wrap(made) as producer:
            for number in range(5):
                made.produce("t", b"theirs", on_delivery=lambda *_: 1 // 0)
                assert (await producer.send_and_wait("t", b"%d" % number)).topic == "t"
            await until(lambda: caplog.text.count("a delivery callback raised") == 5)
    assert log_of(cluster) == {b"theirs": 5, **{b"%d" % number: 1 for number in range(5)}}


async def test_two_loops_at_a_time_are_one_too_many(cluster: FakeCluster) -> None:
    """The error names both, and is one of this library's and a RuntimeError."""
    async with AsyncSafeProducer({"bootstrap.servers": cluster.bootstrap, **QUIET}) as producer:
        own = repr(asyncio.get_running_loop())

        async def elsewhere() -> None:
            with pytest.raises(SafeProducerError) as caught:
                await producer.send("t", b"value")
            assert isinstance(caught.value, RuntimeError)
            assert own in str(caught.value)
            assert repr(asyncio.get_running_loop()) in str(caught.value)

        await asyncio.to_thread(asyncio.run, elsewhere())
        with pytest.raises(RuntimeError, match=r"\.producer"):
            await asyncio.to_thread(producer.submit_nowait, "t", b"value")
        await producer.send_and_wait("t", b"value")
    assert log_of(cluster) == {b"value": 1}


def test_no_loop_is_needed_to_make_one(cluster: FakeCluster, run: Run) -> None:
    """It may be made anywhere; without a loop every call says so."""
    producer = AsyncSafeProducer({"bootstrap.servers": cluster.bootstrap, **QUIET})
    with pytest.raises(RuntimeError, match="no event loop"):
        producer.submit_nowait("t", b"value")
    assert producer.snapshot().state == "open"
    assert not own_threads()

    async def main() -> None:
        async with producer:
            await producer.send_and_wait("t", b"value")
            assert "1 delivered" in repr(producer)
            assert repr(producer).startswith("<AsyncSafeProducer")
            assert producer.health().ok
            assert "Nothing waits" in producer.explain()
            assert bool(producer)
            assert len(producer) == 0

    run(main)


def test_trio_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where trio runs, no loop of asyncio does."""
    trio = SimpleNamespace(lowlevel=SimpleNamespace(in_trio_run=lambda: True))
    monkeypatch.setitem(sys.modules, "trio", trio)
    producer = AsyncSafeProducer(NOWHERE)
    with pytest.raises(SafeProducerError, match="trio"):
        producer.submit_nowait("t", b"value")
    producer.producer.close(0)


@pytest.mark.parametrize("inside", [True, False], ids=["in its loop", "in another loop"])
def test_a_forked_child_is_told(cluster: FakeCluster, inside: bool) -> None:
    """Before it is told that its loop is another one. The parent goes on."""

    async def main() -> int:
        async with AsyncSafeProducer({"bootstrap.servers": cluster.bootstrap, **QUIET}) as producer:
            await producer.send_and_wait("t", b"value")

            def attempt() -> int:
                try:
                    if inside:
                        producer.submit_nowait("t", b"child")
                    else:
                        loop = asyncio.new_event_loop()
                        asyncio._set_running_loop(None)
                        loop.run_until_complete(producer.send("t", b"child"))
                except ForkedProducerError:
                    return 7
                except BaseException:
                    return 8
                return 9

            if (child := os.fork()) == 0:
                os._exit(attempt())
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            await producer.send_and_wait("t", b"parent")
            return status

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
        assert asyncio.run(main()) == 7
    assert log_of(cluster) == {b"value": 1, b"parent": 1}


def test_the_interrupt_key_ends_all_senders(cluster: FakeCluster) -> None:
    """Ctrl-C in asyncio.run(): its tasks are cancelled, the producer is closed, each record that was told is there."""
    told = list[bytes]()

    async def main() -> None:
        async with AsyncSafeProducer({"bootstrap.servers": cluster.bootstrap, **QUIET}) as producer:

            async def sends(name: int) -> None:
                for number in range(1_000_000):
                    value = b"%d %d" % (name, number)
                    await producer.send_and_wait("t", value)
                    told.append(value)

            async with asyncio.TaskGroup() as group:
                for name in range(20):
                    group.create_task(sends(name))
                await until(lambda: len(told) > 200)
                os.kill(os.getpid(), 2)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    wait_until(lambda: not own_threads())
    log = log_of(cluster)
    assert set(log.values()) == {1}
    assert set(told) <= set(log)


# --- bad input -------------------------------------------------------------------------------------------------------


async def coroutine_function(*_: Any) -> None:
    """No value, and no hook."""


class Asynchronous(Hook):
    """A hook of which an event is a coroutine function."""

    async def producer_created(self, producer: Any) -> None:  # type: ignore[override]
        """Nobody would await it."""


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"config": {**NOWHERE, "on_delivery": print}}, "on_delivery"),
        ({"config": {**NOWHERE, "delivery.report.only.error": True}}, "delivery.report.only.error"),
        ({"config": {**NOWHERE, "logger": coroutine_function}}, "logger"),
        ({"config": "localhost"}, "config"),
        ({"config": NOWHERE, "close_timeout": -1}, "close_timeout"),
        ({"config": NOWHERE, "close_timeout": "long"}, "close_timeout"),
        ({"config": NOWHERE, "hooks": [Asynchronous()]}, "hooks"),
        ({"config": {**NOWHERE, "no.such.setting": 1}}, "no.such.setting"),
    ],
)
def test_bad_settings_are_refused_by_name(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named) as caught:
        AsyncSafeProducer(**arguments)
    assert caught.value.setting == named
    assert not own_threads()


def test_a_producer_that_was_refused_can_be_shown() -> None:
    """By a debugger, or a report of a test with its local variables."""
    producer = AsyncSafeProducer.__new__(AsyncSafeProducer)
    with pytest.raises(ConfigurationError):
        producer.__init__({"bootstrap.server": "b"})  # type: ignore[misc]
    assert repr(producer) == "<AsyncSafeProducer not initialised>"


async def test_a_coroutine_is_no_value(cluster: FakeCluster) -> None:
    """The error is this library's, and a TypeError."""
    async with AsyncSafeProducer({"bootstrap.servers": cluster.bootstrap, **QUIET}) as producer:
        value = coroutine_function()
        for call in (producer.send, producer.send_and_wait):
            with pytest.raises(SafeProducerError, match="awaited") as caught:
                await call("t", value)
            assert isinstance(caught.value, TypeError)
        value.close()
        assert producer.snapshot().accepted == 0
        await producer.flush()


async def test_a_token_may_come_from_a_coroutine_function() -> None:
    """While the producer is made, when its loop is blocked by that, and later on its loop."""
    loops = list[bool]()
    own = asyncio.get_running_loop()

    async def token(_: str) -> tuple[str, float]:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop() is own)
        return "token", time.time() + 0.5

    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": token}
    async with AsyncSafeProducer({**NOWHERE, **login}, close_timeout=0) as producer:
        delivery = await producer.send("t", b"value")
        await until(lambda: True in loops)  # it is asked for again, before it expires
    assert isinstance(delivery.exception(), NotWritten)
