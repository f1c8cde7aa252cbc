"""The end of the interpreter stops threads wherever they are. Destructors that flush then wait for none of them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import safeproducer
from safeproducer import SafeProducer
from safeproducer.kafka.lane_client import is_asked
from tests.clusters import cluster_of
from tests.contract.support import run_script
from tests.inside import engine_of


@pytest.fixture
def bootstrap() -> Iterator[str]:
    """One broker that knows the topic."""
    with cluster_of({"t": 1}) as cluster:
        yield cluster.bootstrap


OWNER = """
from safeproducer.pipeline import engine as of_engine
from tests.inside import engine_of

class Owner:
    def __init__(self):
        self.itself = self
        self.producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "safeproducer.mode": MODE})
        self.producer.produce("t", b"first")
        self.producer.flush()

    def __del__(self):
        self.producer.produce("t", b"at the end")
        print(self.producer.flush(), bool(self.producer.close()))

owner = Owner()
engine = engine_of(owner.producer)
names = {"sender": engine.sender, "queue": engine.counters.report_queue, "route": engine.route}
names["closing"] = owner.producer._SafeProducer__closing
names |= {"of_engine": of_engine, "threading": threading, "time": time, "there": threading.Event()}
exec(HERE, names)  # a frame of a stopped thread stays, and what it refers to: not this module
del engine
owner.producer.produce("t", b"before")
assert names["there"].wait(20)
"""
LATE = """
takes = queue.takes

def late(*report):
    if sender.is_this_thread():
        there.set()
        while not sender._stopped:
            time.sleep(0.001)
        time.sleep(0.3)  # on a busy machine
    return takes(*report)

queue.takes = late
"""
NEVER = """
class Native:  # stands before the native producer, which is in C
    def __init__(self, native):
        self.native = native

    def __getattr__(self, name):
        return getattr(self.native, name)

    def __len__(self):
        return len(self.native)

    def poll(self, timeout):
        if sender.is_this_thread():
            there.set()
            threading.Event().wait()
        return self.native.poll(timeout)

of_engine._LAST_TURN = 0.1
route.native = Native(route.native)
"""
IN_ITS_PLACE = """
def work():
    sender._running.acquire()
    there.set()
    threading.Event().wait()

of_engine._LAST_TURN = 0.1
sender.stop()
assert sender.join(10)
threading.Thread(target=work, daemon=True).start()
"""
CLOSES = """
closing.closers[object()] = -1  # a thread
there.set()
"""


@pytest.mark.parametrize(
    ("where", "mode"),
    [(LATE, "auto"), (NEVER, "auto"), (IN_ITS_PLACE, "held"), (CLOSES, "auto")],
    ids=["a report", "a native call", "in its place", "close"],
)
def test_a_thread_that_is_stopped_at_work_stops_no_destructor(bootstrap: str, where: str, mode: str) -> None:
    """Reports that librdkafka was giving a thread are gone with it, and so is what marks that one serves."""
    result = run_script(SafeProducer, bootstrap, f"HERE, MODE = {where!r}, {mode!r}\n{OWNER}")
    assert (result.returncode, result.stdout) == (0, "0 True\n"), result.stderr


def test_no_sender_is_started_after_the_account_at_exit(bootstrap: str) -> None:
    """A thread that hears of the cluster would wake it, and flush() works in its place."""
    producer = SafeProducer({"bootstrap.servers": bootstrap, "log_level": 0, "safeproducer.mode": "held"})
    engine = engine_of(producer)
    producer.produce("t", b"v")
    assert producer.flush(10) == 0
    engine.take_last_reports()
    assert not engine.sender.alive
    assert not engine.sender.live()  # a thread that was only about to begin
    producer.produce("t", b"w")
    engine.sender.wake(0.0)
    assert producer.flush(10) == 0
    assert not engine.sender.alive
    producer.close()


def test_flush_ends_records_whose_time_is_over_after_the_account_at_exit() -> None:
    """No broker is there, and no sender: a log handler's close() would hang the end of the interpreter."""
    producer = SafeProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "message.timeout.ms": 300})
    producer.produce("t", b"v")
    engine_of(producer).take_last_reports()
    assert producer.flush(10) == 0
    producer.close(0)


FIRST = """
class Owner:
    def __init__(self):
        self.producer = Producer({"bootstrap.servers": bootstrap, "safeproducer.mode": MODE})

    def __del__(self):
        print(self.producer.flush(20), flush=True)

owner = Owner()
for number in range(20):
    owner.producer.produce("t", b"%d" % number)
"""


AT_EXIT = """
import atexit
atexit.register(lambda: print(producer.flush(20), flush=True))
producer = Producer({"bootstrap.servers": bootstrap, "safeproducer.mode": MODE})
producer.produce("t", b"x")
"""


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_the_account_at_exit_comes_behind_what_is_registered_before_the_first_producer(
    bootstrap: str, mode: str
) -> None:
    """An import registers it, though most of the package is loaded later: records that were flushed were told lost."""
    result = run_script(SafeProducer, bootstrap, f"MODE = {mode!r}\n{AT_EXIT}")
    assert (result.returncode, result.stdout) == (0, "0\n"), result.stderr
    assert "were lost" not in result.stderr


@pytest.mark.parametrize("mode", ["auto", "held", "passthrough"])
def test_a_destructor_that_flushes_the_first_records_needs_no_import(bootstrap: str, mode: str) -> None:
    """There are none any more: records were lost on Python 3.13, and a traceback told of it."""
    result = run_script(SafeProducer, bootstrap, f"MODE = {mode!r}\n{FIRST}")
    assert (result.returncode, result.stdout) == (0, "0\n"), result.stderr
    assert "Traceback" not in result.stderr
    assert "Error" not in result.stderr


def test_only_threads_that_have_ended_by_then_import_something_late() -> None:
    """A destructor may come by any other function when imports fail."""
    package = Path(safeproducer.__file__).parent
    late = {
        f"{path.relative_to(package)}:{function.name}"
        for folder in ("kafka", "pipeline", "policy", "producer_ids", "runtime")
        for path in (package / folder).rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        and any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(function))
    }
    assert late == {
        "kafka/lane_client.py:load_answers",  # which takes none for an answer
        "kafka/properties.py:suggestions",  # of a constructor
        "pipeline/assembly.py:_questions",
        "pipeline/assembly.py:admin",
        "pipeline/cluster/asker.py:_after_failure",
        "pipeline/cluster/metadata.py:_most_like",
        "runtime/forks.py:spare_in_children",  # what makes a native producer
    }


def test_an_answer_that_the_client_has_no_class_for_is_an_answer() -> None:
    """At the end of the interpreter, where its turns failed on it."""

    class Native:
        def cluster_id(self, timeout: float) -> str:
            return "c"

        def list_topics(self, topic: str, timeout: float) -> None:
            raise ImportError("Module not found when looking up confluent_kafka.admin.ClusterMetadata")

    assert is_asked(Native(), "t", 0.0)


HANDLER = """
import logging

class Raises(logging.Handler):
    def emit(self, record):
        raise ValueError

logging.getLogger("safeproducer").addHandler(Raises())
"""
REPORTS = """
class Owner:
    def __init__(self):
        from safeproducer.runtime.log import logger
        self.log = logger

    def __del__(self):
        try:
            raise KeyError
        except KeyError:
            self.log.exception("what a destructor meets")
        print("told", flush=True)

if RAISES:  # of another module: this one ends first
    exec(HANDLER, {"__name__": "another"})
owner = Owner()
"""


@pytest.mark.parametrize("raises", [False, True], ids=["a traceback", "a handler that raises"])
def test_a_line_of_the_log_at_the_end_raises_nothing(raises: bool) -> None:
    """A traceback needs imports, as what logging prints of a handler that raises."""
    result = run_script(SafeProducer, "", f"RAISES, HANDLER = {raises}, {HANDLER!r}\n{REPORTS}")
    assert result.stdout == "told\n", result.stderr
    assert "Traceback" not in result.stderr
    assert raises or "what a destructor meets" in result.stderr
