"""Signal handlers that flush, close or raise, wherever they come. Real signals, in processes of their own.

Python runs a handler on the main thread between two steps of whatever that does. A handler is no callback: what it
calls does its work. confluent_kafka is not asked: it hangs, aborts or ends in SystemError in most of these.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from safeproducer.testing import FakeCluster

RECORDS = 3_000
MODES = {
    "auto": "{}",
    "held": "{'safeproducer.mode': 'held'}",
    "key": "{'safeproducer.mode': 'held', 'safeproducer.ordering': 'key'}",
}
MAKE = """
import faulthandler, os, random, signal, sys, time
from safeproducer import SafeProducer
faulthandler.dump_traceback_later(50, exit=True)
producer = SafeProducer({{"bootstrap.servers": {bootstrap!r}, "log_level": 0, "linger.ms": 5, **{extra}}})
told, failed = {{}}, []
def report(error, message):
    value = message.value()
    told[value] = told.get(value, 0) + 1
    if error is not None:
        failed.append(error)
producer.produce("t", b"first", partition=0, on_delivery=report)
assert producer.flush(20) == 0
"""


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=1) as made:
        made.create_topic("t")
        yield made


def start(cluster: FakeCluster, mode: str, body: str) -> subprocess.Popen[str]:
    """A program with `producer` at hand; `told` counts the reports of each value."""
    made = MAKE.format(bootstrap=cluster.bootstrap, extra=MODES[mode])
    return subprocess.Popen(
        [sys.executable, "-c", made + textwrap.dedent(body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )


def ended(process: subprocess.Popen[str], status: int = 0) -> str:
    try:
        out, errors = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == status, errors[-3000:]
    return out


def written(cluster: FakeCluster) -> Counter[bytes | None]:
    return Counter(record.value for record in cluster.log("t", 0))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("waits", ["producer.poll(1)", "producer.flush()", "produce()"])
def test_what_a_sigterm_handler_flushes_is_written(cluster: FakeCluster, mode: str, waits: str) -> None:
    """The most usual end of a producer: flush, then exit, while the main thread is inside a call."""
    cluster.delay(0.2, api="Produce")
    process = start(
        cluster,
        mode,
        f"""
        accepted = 1
        def end(number, frame):
            left = producer.flush(30)
            print(left, accepted, flush=True)
            sys.exit(0)
        def produce():
            global accepted
            while accepted < 50_000:
                try:
                    producer.produce("t", b"%d" % accepted, partition=0, on_delivery=report)
                except BufferError:
                    producer.poll(0.01)
                    continue
                accepted += 1
            producer.poll(0)
        for number in range({RECORDS}):
            producer.produce("t", b"x%d" % number, partition=0, on_delivery=report)
            accepted += 1
        signal.signal(signal.SIGTERM, end)
        print("ready", flush=True)
        while True:
            {waits}
            producer.poll(0.5)
        """,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)  # somewhere inside
    process.send_signal(signal.SIGTERM)
    left, accepted = map(int, ended(process).split())
    found = written(cluster)
    assert left == 0
    assert accepted <= found.total() <= accepted + 1, "produce() may have been interrupted before it was counted"
    assert set(found.values()) == {1}


@pytest.mark.parametrize("mode", MODES)
def test_a_handler_that_interrupts_a_callback(cluster: FakeCluster, mode: str) -> None:
    """What it flushes is written. Stock aborts the process at the next callback."""
    process = start(
        cluster,
        mode,
        f"""
        accepted, flushed = 1, []
        def end(number, frame):
            for value in range(10):
                producer.produce("t", b"y%d" % value, partition=0, on_delivery=report)
            flushed.append(producer.flush(20))
        signal.signal(signal.SIGUSR1, end)
        def raising(error, message):
            report(error, message)
            if len(told) == 100:
                os.kill(os.getpid(), signal.SIGUSR1)
        for number in range({RECORDS}):
            producer.produce("t", b"x%d" % number, partition=0, on_delivery=raising)
        while not flushed:
            producer.poll(0.1)
        producer.produce("t", b"after", partition=0, on_delivery=report)
        assert producer.flush(20) == 0
        account = producer.snapshot()
        assert account.accepted == account.delivered == {RECORDS} + 12, account
        assert set(told.values()) == {{1}}
        """,
    )
    ended(process)
    assert set(written(cluster).values()) == {1}
    assert written(cluster).total() == RECORDS + 12


@pytest.mark.parametrize("mode", MODES)
def test_close_in_a_handler_closes(cluster: FakeCluster, mode: str) -> None:
    """Everything is written, and the program ends with its own status. Stock hangs."""
    cluster.delay(0.2, api="Produce")
    process = start(
        cluster,
        mode,
        f"""
        def end(number, frame):
            print(producer.close(20).left, flush=True)
            sys.exit(3)
        signal.signal(signal.SIGTERM, end)
        for number in range({RECORDS}):
            producer.produce("t", b"x%d" % number, partition=0)
        print("ready", flush=True)
        while True:
            producer.poll(1)
        """,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    assert ended(process, status=3) == "0\n"
    assert written(cluster).total() == RECORDS + 1


@pytest.mark.parametrize("mode", MODES)
def test_handlers_that_raise_all_the_time(cluster: FakeCluster, mode: str) -> None:
    """A time limit by SIGALRM around produce() and poll(): nothing is stuck, lost, written or reported twice."""
    process = start(
        cluster,
        mode,
        """
        class Limit(Exception): pass
        def alarm(*_):
            raise Limit
        signal.signal(signal.SIGALRM, alarm)
        produced, interrupts, number, end = [], 0, 0, time.monotonic() + 6
        random.seed(1)
        while time.monotonic() < end:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0005, 0.004))
                while True:
                    number += 1
                    try:
                        producer.produce("t", b"%d" % number, b"k", 0, on_delivery=report)
                    except BufferError:
                        producer.poll(0.001)
                        continue
                    if number % 20 == 0:
                        producer.poll(0)
            except Limit:
                interrupts += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert producer.flush(30) == 0, producer.snapshot()
        producer.produce("t", b"after", b"k", 0, on_delivery=report)
        assert producer.flush(10) == 0
        account = producer.snapshot()
        assert told[b"after"] == 1
        assert set(told.values()) == {1} and not failed
        assert account.accepted == account.delivered + account.interrupted, account
        assert account.unresolved == 0 and producer.close(10)
        print(interrupts, len(told), flush=True)
        """,
    )
    interrupts, told = map(int, ended(process).split())
    found = written(cluster)
    assert interrupts > 100
    assert set(found.values()) == {1}, "nothing is written twice"
    assert found.total() >= told
