"""Nothing is lost silently: fork, garbage collection, interpreter exit, and close() with a deadline."""

import contextlib
import gc
import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from safeproducer import ForkedProducerError, ProducerClosedError, SafeProducer
from safeproducer.pipeline.cluster.asker import Asker
from safeproducer.pipeline.cluster.metadata import Metadata
from safeproducer.pipeline.sender import Sender
from tests.clusters import cluster_of
from tests.contract.support import noting, ran, send_one, uncollected
from tests.inside import engine_of

CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("produce", ("t", b"x")),
    ("produce_batch", ("t", [{"value": b"x"}])),
    ("poll", (0,)),
    ("flush", (0,)),
    ("purge", ()),
    ("list_topics", ()),
    ("cluster_id", ()),
    ("set_sasl_credentials", ("u", "p")),
    ("init_transactions", (0,)),
    ("begin_transaction", ()),
    ("commit_transaction", (0,)),
    ("abort_transaction", (0,)),
    ("send_offsets_to_transaction", ([], None, 0)),
]


def run(script: str, *, timeout: float = 90) -> subprocess.CompletedProcess[str]:
    """Run a script of its own in a fresh interpreter; one that hangs is made to tell where, its children too."""
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-W", "always", "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGABRT)
        out, err = process.communicate()
        pytest.fail(f"hangs after {timeout} s: {out!r}\n{err}")
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_fork_while_the_sender_serves_does_not_stop_the_child(mode: str) -> None:
    """Its thread is not in the child, though it looks as if; poll() and flush() raise all the same."""
    producer = SafeProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "safeproducer.mode": mode})
    lane = engine_of(producer)
    lane.counters.report_queue.serve_on(-1)
    child = os.fork()
    if child == 0:
        raised = 0
        for call in (producer.poll, producer.flush):
            with contextlib.suppress(ForkedProducerError):
                call(0)
                continue
            raised += 1
        os._exit(raised)
    deadline = time.monotonic() + 10
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.01)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    lane.counters.report_queue.serve_on(0)
    producer.close(0)
    assert ended[0], "the child hangs"
    assert os.waitstatus_to_exitcode(ended[1]) == 2


@pytest.mark.parametrize("thread", ["sender", "asker"])
def test_a_fork_waits_for_a_log_line_that_is_being_written(thread: str) -> None:
    """A stream has a lock of its own, which logging does not renew in the child, and flushes at its exit."""
    result = run(
        f"""
        import logging, os, sys, threading, time
        from safeproducer import SafeProducer
        from safeproducer.policy.cluster_metadata import PartitionMetadata

        class Stream:
            lock, busy = threading.Lock(), threading.Event()
            def write(self, text):
                with self.lock:
                    self.busy.set()
                    time.sleep(0.3)
            def flush(self):
                with self.lock:
                    pass

        class Broker:
            def window(self, node, topic):
                raise ValueError("of the client")

        stream = Stream()
        logging.getLogger("safeproducer").addHandler(logging.StreamHandler(stream))
        producer = SafeProducer({{"bootstrap.servers": "127.0.0.1:1", "log_level": 0}})
        if "{thread}" == "sender":
            producer.produce("t", b"x")
        else:
            engine = producer._SafeProducer__engine
            engine.questions.asker._make = Broker
            engine.updates.holds.partitions.update("t", {{0: PartitionMetadata(1)}}, 1.0)
            engine.questions.windows.budget(("t", 0), time.monotonic())
        assert stream.busy.wait(5)
        if os.fork() == 0:
            sys.exit(7)
        print("child", os.waitstatus_to_exitcode(os.wait()[1]))
        producer.close(0)
        """,
        timeout=15,
    )
    assert result.stdout == "child 7\n", result.stderr


def test_a_fork_inside_a_callback_is_recognised_in_the_child(mock_bootstrap: str) -> None:
    """The child is on the thread that served the callback, and still gets the error of the fork."""
    result = run(
        f"""
        import os
        from safeproducer import ForkedProducerError, SafeProducer
        def fork(error, message):
            if os.fork() == 0:
                try:
                    producer.poll(0)
                except ForkedProducerError:
                    os._exit(7)
                os._exit(1)
        producer = SafeProducer({{"bootstrap.servers": "{mock_bootstrap}", "log_level": 0}})
        producer.produce("t", b"x", on_delivery=fork)
        producer.flush(10)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        producer.close()
        """
    )
    assert result.stdout == "7\n", result.stderr


@pytest.mark.parametrize("records", [1, 3])
def test_garbage_collection_with_unresolved_records_is_loud(
    records: int, unreachable: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """ResourceWarning, log and hook say how many records are gone and which line made the producer."""
    losses = noting("records_lost")
    producer = SafeProducer(unreachable, hooks=[losses])
    for _ in range(records):
        producer.produce("t", b"x")
    with pytest.warns(ResourceWarning, match=rf"{records} record\(s\).*test_lifetime\.py.*garbage collection"):
        del producer
        gc.collect()
    assert [(event.count, event.reason) for event in losses.told] == [(records, "garbage collection")]
    assert "garbage collection" in caplog.text


def test_garbage_collection_is_immediate() -> None:
    """No reference cycle keeps a dropped producer alive until the collector runs, nor keeps its threads."""
    with uncollected():
        losses = noting("records_lost")
        producer = SafeProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, hooks=[losses])
        producer.produce("t", b"x", on_delivery=lambda error, message: None)
        with pytest.warns(ResourceWarning):
            del producer
        assert len(losses.told) == 1


@pytest.mark.parametrize("hooked", [False, True], ids=["plain", "hooked"])
@pytest.mark.parametrize("mode", ["auto", "held", "passthrough"])
@pytest.mark.parametrize("lost", [0, 2])
def test_interpreter_exit_tells_only_of_what_is_not_known_to_be_written(mode: str, hooked: bool, lost: int) -> None:
    """Records that were acknowledged and not polled are no loss; no callback runs so late."""
    result = run(
        f"""
        import time
        from safeproducer import Hook, SafeProducer
        from safeproducer.testing import FakeCluster

        class Told(Hook):
            def records_lost(self, event):
                print(event.count, sorted(record.value for record in event.records))
            if {hooked}:
                def record_resolved(self, record, error, message):
                    pass

        cluster = FakeCluster(brokers=1)
        cluster.__enter__()
        cluster.create_topic("t", partitions=1)
        config = {{"bootstrap.servers": cluster.bootstrap, "log_level": 0, "safeproducer.mode": "{mode}"}}
        producer = SafeProducer(config, hooks=[Told()])
        lane = producer._SafeProducer__engine
        producer.produce("t", b"polled")
        assert producer.flush(10) == 0
        producer.produce("t", b"acknowledged", on_delivery=lambda error, message: print("called"))
        deadline = time.monotonic() + 10
        # Its report waits here, or in librdkafka, which counts the event beside its record.
        reports, native = lane.counters.report_queue.reports, lane.route.native
        while not (reports.count or ("{mode}" == "passthrough" and len(native) == 2)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        cluster.pause(1)
        for number in range({lost}):
            producer.produce("t", b"lost-%d" % number)
        """
    )
    records = [b"lost-0", b"lost-1"] if hooked else []
    assert result.stdout == (f"2 {records}\n" if lost else ""), result.stderr
    warning = r"ResourceWarning: 2 record\(s\) accepted by a SafeProducer made at <string>:\d+ .* at interpreter exit"
    assert bool(re.search(warning, result.stderr)) is bool(lost)
    assert result.stderr.count("were lost at") == (2 if lost else 0)  # in the log and as a warning
    assert result.returncode == 0


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_loss_is_told_on_stderr_where_logging_disabled_the_logger(mode: str) -> None:
    """As Django's logging does to all loggers that are there before it is configured."""
    code = """
        import logging.config, sys
        from safeproducer import SafeProducer

        logging.config.dictConfig({"version": 1})
        producer = SafeProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "safeproducer.mode": sys.argv[1]})
        producer.produce("t", b"x")
        """
    command = [sys.executable, "-c", textwrap.dedent(code), mode]
    result = ran(command, check=True)
    assert "safeproducer: 1 record(s) accepted by a SafeProducer made at" in result.stderr


@pytest.mark.parametrize(
    ("ends", "configured"), [("flush", ""), ("close", ""), ("flush", "logging.config.dictConfig({'version': 1})")]
)
def test_a_log_handler_that_produces_when_logging_ends_loses_nothing(ends: str, configured: str) -> None:
    """logging.shutdown() ends it after the exit was looked at; nothing is told to be lost that is in the log."""
    code = f"""
        import logging, logging.config
        from safeproducer import SafeProducer
        from safeproducer.testing import FakeCluster

        class Ships(logging.Handler):
            def __init__(self):
                super().__init__()
                config = {{"bootstrap.servers": cluster.bootstrap, "log_level": 0, "linger.ms": 500}}
                self.producer, self.lines = SafeProducer(config), []

            def emit(self, record):
                self.lines.append(record.getMessage())

            def {ends}(self):
                while self.lines:
                    self.producer.produce("t", self.lines.pop())
                self.producer.flush(30)

        {configured}
        cluster = FakeCluster(brokers=1).__enter__()
        cluster.create_topic("t")
        application = logging.getLogger("application")
        application.addHandler(Ships())
        application.propagate = False
        application.error("one")
        application.handlers[0].producer.produce("t", b"two")
        """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    result = ran(command, check=True)
    assert "lost" not in result.stderr


def test_a_refused_constructor_leaves_nothing_behind() -> None:
    """An object whose constructor raised is collected without a second error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Exception, match="no such setting"):
            SafeProducer({"no.such": 1})
        gc.collect()


@pytest.mark.parametrize("mode", ["auto", "held", "passthrough"])
def test_close_runs_every_callback_of_what_it_purges(
    mode: str, unreachable: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long they take, also when each stops the serving: patience is for reports that do not come."""
    monkeypatch.setattr("safeproducer.pipeline.polling._PURGE_PATIENCE", 0.2)
    told: list[object] = []

    def slowly(error: object, message: object) -> None:
        time.sleep(0.02)
        told.append(error)
        raise ZeroDivisionError

    producer = SafeProducer({**unreachable, "safeproducer.mode": mode})
    for _ in range(40):
        producer.produce("t", b"x", on_delivery=slowly)
    with pytest.raises(ZeroDivisionError):
        producer.close(0)
    report = producer.close()
    assert (len(told), report.failed, report.left) == (40, 40, 40)


def test_a_handler_that_raises_while_a_loss_is_reported_does_not_hide_it(
    unreachable: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next close() reports it, on every channel."""
    monkeypatch.setattr("safeproducer.pipeline.polling._PURGE_PATIENCE", 0.1)
    losses = noting("records_lost")
    producer = SafeProducer(unreachable, hooks=[losses])
    monkeypatch.setattr(engine_of(producer), "purge", lambda: None)
    producer.produce("t", b"v")
    logger = logging.getLogger("safeproducer")
    logger.addHandler(interrupting := Interrupting())
    try:
        with pytest.raises(KeyboardInterrupt):
            producer.close(0)
    finally:
        logger.removeHandler(interrupting)
    assert losses.told == []
    with pytest.warns(ResourceWarning, match="close deadline"):
        producer.close(0)
    assert [event.count for event in losses.told] == [1]


class Interrupting(logging.Handler):
    """As Ctrl-C while a line is written."""

    def emit(self, record: logging.LogRecord) -> None:
        if threading.current_thread() is threading.main_thread():  # where Python delivers it
            raise KeyboardInterrupt


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_close_waits_for_its_own_work_two_seconds_at_most(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that do not end, reports that do not come, records that do not leave."""
    for helper in (Sender, Asker, Metadata):
        monkeypatch.setattr(helper, "join", lambda self, timeout: time.sleep(timeout))
    with cluster_of({"t": 1}) as cluster:
        producer = SafeProducer({"bootstrap.servers": cluster.bootstrap, "safeproducer.mode": mode, "log_level": 0})
        lane = engine_of(producer)
        lane.dispatcher.lanes.prepare()
        monkeypatch.setattr(type(lane.dispatcher.lanes), "inside", property(lambda self: 1))
        monkeypatch.setattr(lane, "purge", lambda: None)
        cluster.pause(1)
        producer.produce("t", b"v")
        started = time.monotonic()
        with pytest.warns(ResourceWarning, match="close deadline"):
            assert producer.close(0.2).left == 1
        took = time.monotonic() - started
    assert took < 0.2 + 2.0 + 1.0  # a second for a busy machine


def test_close_keeps_native_producers_that_a_thread_is_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed under it, they would take the process with them; released, they end with that thread's call."""
    monkeypatch.setattr(Metadata, "join", lambda self, timeout: time.sleep(timeout))
    producer = SafeProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    native = engine_of(producer).route.native
    assert producer.close(0)
    native.poll(0)  # raises once it is closed


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_threads_that_close_together(mode: str) -> None:
    """One closes, the others wait for it: one account, told once, while threads that poll are refused."""
    closed = noting("producer_closed")
    with cluster_of({"t": 1}) as cluster:
        for _ in range(20):
            closed.told.clear()
            config = {"bootstrap.servers": cluster.bootstrap, "safeproducer.mode": mode, "log_level": 0}
            producer = SafeProducer(config, hooks=[closed])
            for _ in range(50):
                producer.produce("t", b"v")
            with ThreadPoolExecutor() as threads:
                polling = [threads.submit(poll_until_closed, producer) for _ in range(2)]
                reports = [one.result() for one in [threads.submit(producer.close, 20) for _ in range(3)]]
                rejections = [one.result() for one in polling]
            assert len(set(map(id, reports))) == 1
            assert (reports[0].accepted, reports[0].delivered) == (50, 50)
            assert closed.told == reports[:1]
            assert all("closed" in refusal for refusal in rejections)


def poll_until_closed(producer: SafeProducer) -> str:
    while True:
        try:
            producer.poll(0.001)
        except ProducerClosedError as refusal:
            return str(refusal)


def test_close_does_not_wait_longer_than_asked_for_another_thread() -> None:
    """The deadline of the one that came second counts for both."""
    producer = SafeProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    producer.produce("t", b"v")
    with ThreadPoolExecutor() as threads, warnings.catch_warnings(record=True):  # the other thread may be the first
        first = threads.submit(producer.close)
        time.sleep(0.1)
        started = time.monotonic()
        report = producer.close(0.2)
        assert time.monotonic() - started < 0.2 + 2.0 + 1.0
        assert report.left == 1
        assert first.result(10) is report


def test_a_producer_cannot_be_pickled(producer: SafeProducer) -> None:
    """The error says what to send instead."""
    with pytest.raises(TypeError, match="configuration"):
        pickle.dumps(producer)


def test_close_does_not_wait_for_records_reported_as_unknown() -> None:
    """A batch whose deadline passed without an answer is still inside librdkafka; close() releases it."""
    outcomes: list[str] = []
    with cluster_of({"t": 1}) as cluster:
        producer = SafeProducer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "safeproducer.mode": "held",
                "message.timeout.ms": 1000,
                "log_level": 0,
            }
        )
        send_one(producer, "t", b"warm", partition=0)
        cluster.pause(1)
        send_one(producer, "t", b"v", partition=0, on_delivery=lambda error, _: outcomes.append(error.outcome))
        assert outcomes == ["unknown"]
        started = time.monotonic()
        assert producer.close(10)
        assert time.monotonic() - started < 3
