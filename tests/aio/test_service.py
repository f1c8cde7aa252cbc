"""The example of a web service, on real uvicorn: whatever it has accepted is answered, and the answers are true."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from safeproducer.testing import FakeCluster
from tests.aio.support import PATIENCE, log_of

EXAMPLES = Path(__file__).parents[2] / "examples"
PARTITIONS = 3
IN_FLIGHT = 300
on_asyncio = pytest.mark.parametrize("run", ["asyncio"], indirect=True)


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
        return found


@asynccontextmanager
async def service(
    port: int, bootstrap: str, *options: str, **environment: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    variables = {**os.environ, "KAFKA": bootstrap, "TOPIC": "t", **environment}
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES), "--port", str(port), *options]
    quiet = ("--log-level", "warning", "--backlog", "2048", "fastapi_app:app")
    process = await asyncio.create_subprocess_exec(*command, *quiet, env=variables)
    try:
        async with asyncio.timeout(PATIENCE):
            while (await asked(port, "GET", "/health"))[0] != 200:
                await asyncio.sleep(0.05)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def asked(port: int, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    """(status, headers and body); 0 if nothing was answered."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.read()
        writer.close()
        return (int(answer.split(None, 2)[1]) if answer else 0), answer
    except OSError:
        return 0, b""


async def posted(port: int, count: int) -> list[asyncio.Task[tuple[int, bytes]]]:
    return [asyncio.create_task(asked(port, "POST", "/orders", b"%d" % number)) for number in range(count)]


@on_asyncio
async def test_whatever_was_accepted_is_answered_after_sigterm(cluster: FakeCluster, port: int) -> None:
    """Answers of brokers come late, so that requests are in flight then. Each 201 is in the log once."""
    async with service(port, cluster.bootstrap) as process:
        assert (await asked(port, "POST", "/orders", b"first"))[0] == 201
        cluster.delay(1.0)
        tasks = await posted(port, IN_FLIGHT)
        await asyncio.sleep(0.7)  # they have reached the application
        process.send_signal(signal.SIGTERM)
        answers = await asyncio.gather(*tasks)
        await asyncio.wait_for(process.wait(), PATIENCE)
    statuses = [status for status, _ in answers]
    log = log_of(cluster)
    assert set(statuses) <= {201, 0}, "0: the connection had not been accepted"
    assert statuses.count(201) > IN_FLIGHT / 2
    assert {status: log[b"%d" % number] for number, status in enumerate(statuses) if status == 201} == {201: 1}
    assert set(log.values()) == {1}


@on_asyncio
async def test_workers_have_a_producer_each(cluster: FakeCluster, port: int) -> None:
    async with service(port, cluster.bootstrap, "--workers", "4") as process:
        answers = await asyncio.gather(*await posted(port, 100))
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), PATIENCE)
    assert [status for status, _ in answers] == [201] * 100
    assert log_of(cluster) == {b"%d" % number: 1 for number in range(100)}


@on_asyncio
async def test_a_broker_that_hangs_is_told_by_503_and_504(cluster: FakeCluster, port: int) -> None:
    """No 503 is in the log, and a 504 at most once; the service answers other requests meanwhile."""
    async with service(port, cluster.bootstrap, MESSAGE_TIMEOUT_MS="2000") as process:
        assert (await asked(port, "POST", "/orders", b"first"))[0] == 201
        for broker in cluster.brokers:
            cluster.pause(broker)
        tasks = await posted(port, 100)
        await asyncio.sleep(0.5)
        assert (await asyncio.wait_for(asked(port, "GET", "/health"), PATIENCE))[0] in (200, 503)
        answers = await asyncio.gather(*tasks)
        assert all(b"retry-after: 1" in answer.lower() for status, answer in answers if status == 503)
        for broker in cluster.brokers:
            cluster.resume(broker)
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), PATIENCE)
    statuses = [status for status, _ in answers]
    log = log_of(cluster)
    assert set(statuses) <= {503, 504}
    wrong = [number for number, status in enumerate(statuses) if log[b"%d" % number] > (status == 504)]
    assert wrong == []
