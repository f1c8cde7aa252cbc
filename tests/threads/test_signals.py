"""Signal handlers that flush, close or raise, wherever they come. Real signals, in processes of their own.

Python runs a handler on the main thread between two steps of whatever that does. A handler is no callback: what it
calls does its work. confluent_kafka is not asked: it hangs, aborts or ends in SystemError in most of these.
"""

import contextlib
import ctypes
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from safeproducer import SafeProducer
from safeproducer.testing import FakeCluster
from tests.ahead import Ahead, ahead, started
from tests.clusters import cluster_of
from tests.contract.support import handling
from tests.mock_cluster import mock_cluster

RECORDS = 3_000
MODES = {
    "auto": "{}",
    "held": "{'safeproducer.mode': 'held'}",
    "key": "{'safeproducer.mode': 'held', 'safeproducer.ordering': 'key'}",
}
MAKE = """
import faulthandler, os, random, signal, sys, time
from safeproducer import SafeProducer
faulthandler.dump_traceback_later(170, exit=True)
def make():
    return SafeProducer({{"bootstrap.servers": {bootstrap!r}, "log_level": 0, "linger.ms": {linger}, **{extra}}})
producer = make()
told, failed = {{}}, []
def report(error, message):
    value = message.value()
    told[value] = told.get(value, 0) + 1
    if error is not None:
        failed.append(error)
producer.produce("t", b"first", partition=0, on_delivery=report)
assert producer.flush(20) == 0
"""


@pytest.fixture(scope="module")
def plays(request: pytest.FixtureRequest) -> Iterator[Ahead]:
    with ahead(request, "scene", play) as found:
        yield found


def play(name: str, *arguments: str) -> None:
    """One of the functions below, which fails as a test does."""
    with cluster_of({"t": 1}) as cluster:
        globals()[name](cluster, *arguments)


def start(cluster: FakeCluster, mode: str, body: str, linger: int = 5) -> subprocess.Popen[str]:
    """A program with `producer` at hand; `told` counts the reports of each value."""
    made = MAKE.format(bootstrap=cluster.bootstrap, linger=linger, extra=MODES[mode])
    return started(
        [sys.executable, "-c", made + textwrap.dedent(body)], stdin=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )


def interrupt(cluster: FakeCluster, process: subprocess.Popen[str]) -> None:
    """Send SIGTERM while nothing is answered: the handler must not come in a callback, and finds records under way."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "warm\n"
    cluster.pause(1)
    process.stdin.write("go on\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)  # somewhere inside
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "handling\n"
    cluster.resume(1)


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


@pytest.mark.parametrize("scene", [("interrupt_a_callback", mode) for mode in MODES], ids="-".join)
def test_a_handler_that_interrupts_a_callback(plays: Ahead, scene: tuple[str, ...]) -> None:
    """What it flushes is written. confluent_kafka aborts the process at the next callback."""
    plays(*scene)


def interrupt_a_callback(cluster: FakeCluster, mode: str) -> None:
    process = start(
        cluster,
        mode,
        f"""
        accepted, flushed = 1, []
        def end(number, frame):
            for value in range(10):
                producer.produce("t", b"y%d" % value, partition=0, on_delivery=report)
            began = time.monotonic()
            flushed.append(producer.flush(20))
            print(flushed[0], time.monotonic() - began, flush=True)
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
    left, seconds = ended(process).split()
    assert float(seconds) < 15, "it waits for the report that it has interrupted"
    assert mode == "auto" or left == "0"  # librdkafka runs no other report inside one
    assert set(written(cluster).values()) == {1}
    assert written(cluster).total() == RECORDS + 12


@pytest.mark.parametrize("scene", [("close_and_exit", mode) for mode in MODES], ids="-".join)
def test_close_in_a_handler_closes(plays: Ahead, scene: tuple[str, ...]) -> None:
    """Everything is written, and the program ends with its own status. confluent_kafka hangs."""
    plays(*scene)


def close_and_exit(cluster: FakeCluster, mode: str) -> None:
    process = start(
        cluster,
        mode,
        f"""
        def end(number, frame):
            os.write(1, b"handling\\n")
            print(producer.close(20).left, flush=True)
            raise SystemExit(3)  # before 3.12 the C client keeps no number of a sys.exit() in its callback
        signal.signal(signal.SIGTERM, end)
        print("warm", flush=True)
        sys.stdin.readline()
        for number in range({RECORDS}):
            producer.produce("t", b"x%d" % number, partition=0)
        print("ready", flush=True)
        while True:
            producer.poll(1)
        """,
    )
    interrupt(cluster, process)
    assert ended(process, status=3) == "0\n"
    assert written(cluster).total() == RECORDS + 1


@pytest.mark.parametrize(
    "scene", [("close_in_a_callback", limit) for limit in ("None", "0", "1.5 behind others")], ids=" ".join
)
def test_reports_that_the_interrupted_call_has_taken_are_not_lost(plays: Ahead, scene: tuple[str, ...]) -> None:
    """Written records, whose callbacks run when it goes on; records of a silent broker are lost beside them."""
    plays(*scene)


def close_in_a_callback(cluster: FakeCluster, limit: str) -> None:
    timeout, _, others = limit.partition(" ")
    if others:
        cluster.create_topic("silent")
        cluster.fail_next("Produce", 7, 100_000, topic="silent")
    process = start(
        cluster,
        "auto",
        f"""
        import logging
        lines = []
        logging.getLogger("safeproducer").addHandler(type("Keep", (logging.Handler,), dict(
            emit=lambda self, record: lines.append(record.getMessage())))())
        def end(number, frame):
            ends.append((producer.close({timeout}), len(told)))
        signal.signal(signal.SIGTERM, end)
        ends = []
        def interrupted(error, message):
            report(error, message)
            if len(told) == 4:
                os.kill(os.getpid(), signal.SIGTERM)
        for number in range(10 if {bool(others)} else 0):
            producer.produce("silent", b"s%d" % number, partition=0, on_delivery=report)
        for number in range(100):
            producer.produce("t", b"x%d" % number, partition=0, on_delivery=interrupted)
        while not ends:
            try:
                producer.poll(1)
            except RuntimeError:
                pass
        (found, at_close), account = ends[0], producer.snapshot()
        assert at_close < 100, "nothing was taken"
        lost = {10 if others else 0}
        assert found.left == found.failed == lost, found
        assert account.delivered == 101 and account.failed == lost and not account.unresolved, account
        assert not any("lost" in line for line in lines), lines
        assert set(told.values()) == {{1}} and len(told) == 101 + lost
        """,
        linger=300,  # all of them are acknowledged at once
    )
    ended(process)
    assert written(cluster).total() == 101


@pytest.mark.parametrize("scene", [("interrupt_the_logger", mode) for mode in ("auto", "passthrough")], ids="-".join)
def test_a_handler_that_interrupts_a_handler_of_the_clients_logger(plays: Ahead, scene: tuple[str, ...]) -> None:
    """What it flushes is written. The client aborts the process at the next callback if it is called there."""
    plays(*scene)


def interrupt_the_logger(cluster: FakeCluster, mode: str) -> None:
    process = start(
        cluster,
        "auto",
        f"""
        import logging
        class Interrupting(logging.Handler):
            def emit(self, record):
                if armed and not flushed:
                    os.kill(os.getpid(), signal.SIGUSR1)
        def end(number, frame):
            flushed.append(None)
            for value in range(10):
                producer.produce("t", b"y%d" % value, partition=0, on_delivery=report)
            flushed.append(producer.flush(3))
        signal.signal(signal.SIGUSR1, end)
        armed, flushed, log = False, [], logging.getLogger("of the application")
        log.setLevel(logging.DEBUG)
        log.addHandler(Interrupting())
        producer = SafeProducer({{"bootstrap.servers": {cluster.bootstrap!r}, "linger.ms": 20, "debug": "msg",
                                 "logger": log, "safeproducer.mode": {mode!r}}})
        producer.produce("t", b"warm", partition=0, on_delivery=report)
        assert producer.flush(20) == 0
        armed = True
        producer.produce("t", b"x", partition=0, on_delivery=report)
        time.sleep(0.03)  # the report waits behind the line: the client aborts at the next callback
        while not flushed:
            producer.poll(0.1)
        assert producer.flush(20) == 0
        account = producer.snapshot()
        assert account.accepted == account.delivered == 12, account
        assert len(told) == 13 and set(told.values()) == {{1}}, told
        """,
    )
    ended(process)
    assert set(written(cluster).values()) == {1}
    assert written(cluster).total() == 13


SIGNALS = {
    # How to ask for the next one, and the lives of a producer and signals in each: every day, and with --full.
    "alarm": ("signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00005, 0.0008))", (2, 300), (20, 500)),
    "ctrl-c": ("print('c', flush=True)", (2, 50), (10, 100)),
}
LIVES = """
    class Interrupted(Exception): pass
    def interrupt(*_): raise Interrupted
    signal.signal(signal.SIGALRM, interrupt)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    def arm(): {arm}
    number, calls, kept = 0, 0, []
    def work():
        global number
        while True:
            number += 1
            try:
                producer.produce("t", b"%d" % number, b"k", 0, on_delivery=report)
            except BufferError:
                producer.poll(0.001)
            if number % 20 == 0:
                producer.poll(0)
            if number % 200 == 0:
                producer.flush(0.001)
    def close():
        producer.close(30)
        while True:
            time.sleep(1)
    def interrupted(call, times):
        global calls
        for _ in range(times):
            try:
                arm()
                call()
            except (Interrupted, KeyboardInterrupt):
                calls += 1
    for life in range({lives}):
        interrupted(work, {times})
        assert producer.flush(30) == 0, producer.snapshot()
        producer.produce("t", b"after %d" % life, b"k", 0, on_delivery=report)
        assert producer.flush(10) == 0
        assert told[b"after %d" % life] == 1
        interrupted(close, 20)
        ended, account = producer.close(30), producer.snapshot()
        assert account.state == "closed" and ended and producer.close() is ended
        assert ended.failed == account.unresolved == 0 and not failed, account
        assert ended.accepted == account.accepted == account.delivered + account.interrupted, account
        assert set(told.values()) == {{1}}
        kept.append(producer)  # Python drops what a handler raises inside __del__()
        producer = make()
    assert producer.close(10)
    print("ended", calls, len(told), flush=True)
"""


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(("raise_all_the_time", mode, kind, extent), marks=[pytest.mark.full] if extent == "full" else [])
        for extent in ("short", "full")
        for kind in SIGNALS
        for mode in MODES
    ],
    ids="-".join,
)
def test_handlers_that_raise_all_the_time(plays: Ahead, scene: tuple[str, ...]) -> None:
    """Into produce(), poll(), flush() and close(): nothing is stalled, lost, written or reported twice."""
    plays(*scene)


def raise_all_the_time(cluster: FakeCluster, mode: str, kind: str, extent: str) -> None:
    arm, *extents = SIGNALS[kind]
    lives, times = extents[extent == "full"]
    process = start(cluster, mode, LIVES.format(arm=arm, lives=lives, times=times))
    assert process.stdout is not None
    chance = random.Random(1)
    last = ""
    while (line := process.stdout.readline()) == "c\n":
        time.sleep(chance.uniform(0.00005, 0.0008))
        process.send_signal(signal.SIGINT)
    last = line
    ended(process)
    calls, told = map(int, last.split()[1:])
    found = written(cluster)
    assert calls == lives * (times + 20)
    assert set(found.values()) == {1}, "nothing is written twice"
    assert found.total() >= told


def test_flush_waits_for_what_waits_for_linger_where_it_interrupted_a_callback() -> None:
    """librdkafka counts such a record neither as queued nor as in flight."""
    written: list[int] = []

    def handler(number: int, frame: Any) -> None:
        started = time.monotonic()
        producer.flush(20)
        assert time.monotonic() - started < 15
        written.append(len(cluster.log("t", 0)))

    def report(error: Any, message: Any) -> None:
        if message.value() == b"first":
            producer.produce("t", b"second", partition=0)
            signal.raise_signal(signal.SIGUSR1)

    with handling(signal.SIGUSR1, handler), cluster_of({"t": 1}) as cluster:
        settings = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": False, "linger.ms": 1500}
        producer = SafeProducer({**settings, "log_level": 0})
        producer.produce("t", b"first", partition=0, on_delivery=report)
        while not written:
            producer.poll(0.1)
        producer.close()
    assert written == [2]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals of one thread, by its number in /proc")
def test_no_signal_ends_the_mock_cluster_of_the_tests() -> None:
    """Or one that comes at a bad moment fails all tests behind it, and stops their process for ever."""
    owner = mock_cluster(1)
    with handling(signal.SIGUSR1, lambda *_: None), contextlib.closing(owner):
        assert len(owner.list_topics(timeout=10).brokers) == 1
        tasks = []
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(FileNotFoundError):  # a thread of an earlier test has ended
                tasks += [task.name] if (task / "comm").read_text() == "rdk:mock\n" else []
        assert tasks
        for name in tasks:
            assert ctypes.CDLL(None).tgkill(os.getpid(), int(name), signal.SIGUSR1) == 0
        time.sleep(0.2)
        assert len(owner.list_topics(timeout=10).brokers) == 1
