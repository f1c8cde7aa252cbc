"""What the tests of asyncio share."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from safeproducer.testing import FakeCluster
from tests.contract.support import wait_until

PATIENCE = 30
QUIET = {"log_level": 0}
HELD = {"safeproducer.mode": "held", "linger.ms": 60_000, **QUIET}
"""What is sent waits in the process, until a flush."""
PARTITIONS = 3

Main = Callable[[], Coroutine[Any, Any, Any]]


def on_asyncio(main: Main) -> Any:
    """Run it on a loop of asyncio, which reports what is left over as an error."""
    return _run(main, asyncio.new_event_loop)


def on_uvloop(main: Main) -> Any:
    return _run(main, uvloop.new_event_loop)


def _run(main: Main, factory: Callable[[], asyncio.AbstractEventLoop]) -> Any:
    complaints = list[dict[str, Any]]()

    async def watched() -> Any:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with asyncio.timeout(3 * PATIENCE):
            result = await main()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left
        return result

    with asyncio.Runner(loop_factory=factory) as runner:
        result = runner.run(watched())
    assert not complaints, complaints
    wait_until(lambda: not own_threads())
    return result


def own_threads() -> list[str]:
    """Threads of the package that serve an event loop."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("safeproducer-aio")]


def log_of(cluster: FakeCluster, topic: str = "t") -> Counter[bytes | None]:
    return Counter(record.value for partition in range(PARTITIONS) for record in cluster.log(topic, partition))


async def until(happened: Callable[[], Any]) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not happened():
        assert asyncio.get_running_loop().time() < deadline, "it never happened"
        await asyncio.sleep(0.002)
