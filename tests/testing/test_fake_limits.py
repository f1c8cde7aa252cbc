"""What a cluster does without a file descriptor, and with a client that does not wait for its answers."""

import asyncio
import contextlib
import errno
import gc
import struct
import subprocess
import sys
import threading
import warnings
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from safeproducer.testing import FakeCluster
from safeproducer.testing.fake.network import broker, buffers
from safeproducer.testing.fake.network.buffers import MOST_OUT, DelayLine
from safeproducer.testing.fake.network.connection import Connection
from safeproducer.testing.fake.state.faults import Side
from safeproducer.testing.wire import decode_response, encode_request
from tests.testing.raw import RawClient, fetch_body, make_batch

ROOT = Path(__file__).resolve().parents[2]

STARVED = """
import os, resource, socket, sys, time, warnings
from safeproducer.testing import FakeCluster, FakeClusterWarning
from tests.testing.raw import RawClient

def answered(client):
    return client.ask("Metadata", 12, topics=[])["controller_id"] == 1

warnings.simplefilter("ignore", ResourceWarning)
with FakeCluster(1) as cluster, warnings.catch_warnings(record=True) as told:
    with RawClient(cluster.bootstrap) as before:
        assert answered(before)  # all modules are loaded
    while cluster._brokers[1]._connections:  # its descriptor would be free again later
        time.sleep(0.01)
    warnings.simplefilter("always", FakeClusterWarning)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 20, most))
    taken = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        os.close(taken.pop())  # one is left: the client's
    waiting = RawClient(cluster.bootstrap)
    waiting.set_timeout(60)
    deadline = time.monotonic() + 30
    while not told:
        assert time.monotonic() < deadline, "nobody was told"
        time.sleep(0.01)
    assert "cannot accept" in str(told[0].message) and "Too many open files" in str(told[0].message), told[0]
    if sys.argv[1] == "stop":
        cluster.stop(1)
        waiting = None
    elif sys.argv[1] == "reset":
        cluster.reset()
    for number in taken:
        os.close(number)
    if sys.argv[1] == "stop":
        cluster.start(1)
        waiting = RawClient(cluster.bootstrap)
        waiting.set_timeout(60)
    assert answered(waiting)
    with RawClient(cluster.bootstrap) as another:
        assert answered(another)
    waiting = None
    cluster.reset()
print("fine")
"""


@pytest.mark.parametrize("way", ["wait", "reset", "stop"])
def test_a_broker_accepts_again_when_there_are_file_descriptors(way: str) -> None:
    """Nothing is lost by it but time: neither the connection that waited nor the broker; and the test is warned."""
    command = [sys.executable, "-c", STARVED, way]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr


# ---- answers that wait


def connections(cluster: FakeCluster) -> list[Connection]:
    return [found for found in cluster._brokers[1]._connections.values() if found is not None]


def test_answers_that_wait_for_a_delay_are_bounded(cluster: FakeCluster) -> None:
    """A client that asks for forty megabytes at once gets all of them, a few at a time: the rest is not even read."""
    cluster.create_topic("t", config={"max.message.bytes": "2000000"})
    ask = fetch_body("t", min_bytes=1, max_bytes=2_000_000, partition_max_bytes=2_000_000)
    most = 0
    with RawClient(cluster.bootstrap) as client:
        client.set_timeout(60)
        assert client.produce("t", make_batch([bytes(1_000_000)]))["error_code"] == 0
        cluster.delay(0.5, api="Fetch")
        for number in range(40):
            client.send(encode_request("Fetch", 12, number, "raw", ask))
        for number in range(40):
            assert decode_response("Fetch", 12, client.receive())[0] == number
            (connection,) = connections(cluster)
            most = max(most, connection._outbox.bytes)
    assert 1_000_000 < most < MOST_OUT + 1_100_000


@pytest.mark.parametrize("side", ["answer", "request"])
def test_a_client_that_never_waits_is_not_read(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, side: Side
) -> None:
    """Neither its small requests nor their small answers fill the memory; its own socket fills, as with a broker."""
    most = 2 * 1024 * 1024
    monkeypatch.setattr(buffers, "MOST_OUT", most)
    monkeypatch.setattr(buffers, "MOST_IN", most)
    cluster.delay(3600, side=side)
    frame = encode_request("Metadata", 12, 1, "raw", {"topics": []})
    flood = (struct.pack(">i", len(frame)) + frame) * 200_000

    def send(client: RawClient) -> None:
        with contextlib.suppress(OSError):  # the cut below
            client.send_raw(flood)

    with RawClient(cluster.bootstrap) as client:
        client.set_timeout(60)
        sender = threading.Thread(target=send, args=(client,))
        sender.start()
        cluster.wait(lambda c: bool(connections(c)), 30)
        (connection,) = connections(cluster)

        def waiting() -> int:
            return connection._outbox.bytes + connection._inbox.bytes

        cluster.wait(lambda _: waiting() > most * 0.9, 30)
        for _ in range(100):  # turns of the cluster's loop, in each of which it would do more
            assert cluster._call(waiting) < most * 1.1
        assert len(cluster.journal()) < most / 1000
        cluster.wait(lambda _: not cast("asyncio.ReadTransport", connection._writer.transport).is_reading(), 30)
        assert cluster.cut() == 1
        sender.join(30)
        assert not sender.is_alive()


def test_a_line_has_room_when_enough_is_out() -> None:
    """Who waits for room goes on as soon as there is some, or nothing is to be sent any more."""

    async def work() -> None:
        box, done = DelayLine(MOST_OUT), list[int]()
        for _ in range(3):
            box.put(3600, lambda: done.append(1), MOST_OUT // 2)
        waiting = asyncio.create_task(box.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        await box.close()
        await asyncio.wait_for(waiting, 10)
        box.hold(True)
        box.put(0, lambda: done.append(2), MOST_OUT + 1)
        waiting = asyncio.create_task(box.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        box.hold(False)
        await asyncio.wait_for(waiting, 10)
        assert (done, box.bytes) == ([2], 0)

    asyncio.run(work())


def test_a_step_of_a_line_never_overtakes_another() -> None:
    """A delay that was ended does not let the next answer out before those that still wait."""

    async def work() -> None:
        line, done = DelayLine(MOST_OUT), list[int]()
        for number, delay in enumerate((0, 0.02, 0, 0.01)):
            line.put(delay, partial(done.append, number))
        assert done == [0]
        await line.finish()
        assert done == [0, 1, 2, 3]

    asyncio.run(work())


def test_a_cluster_that_ends_takes_its_port_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one may have it by then."""

    def taken(port: int = 0) -> None:
        raise OSError(errno.EADDRINUSE, "Address already in use")

    with FakeCluster(brokers=1):
        monkeypatch.setattr(broker, "reserve", taken)


def test_a_port_that_is_taken_leaves_no_socket_behind() -> None:
    with contextlib.closing(broker.reserve()) as listening:
        listening.listen()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with pytest.raises(OSError, match="in use"):
                broker.reserve(listening.getsockname()[1])
            gc.collect()
    assert not warned
