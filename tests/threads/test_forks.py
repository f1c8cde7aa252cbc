"""Children: of multiprocessing, which run no atexit; of forks in C, which run no hook; of processes at work."""

import contextlib
import ctypes
import gc
import mmap
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from safeproducer import ForkedProducerError, SafeProducer
from safeproducer.kafka.admin import Admin
from safeproducer.runtime import forks
from tests.contract.support import ran, send_one, switching, uncollected
from tests.inside import engine_of
from tests.threads.test_lifetime import CALLS, run

PROJECT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")


def fork_in_c() -> int:
    """A fork that Python does not hear of, as uWSGI's. It keeps the interpreter lock meanwhile.

    No other thread may have asked for that lock: in the child this one would wait for it to take it, without any hook
    of Python's that tells it better. So such a thread asks late.
    """
    with switching(1000):
        time.sleep(0.05)  # one that has asked already, or waits by the interval of before, gets it
        return int(ctypes.PyDLL(None).fork())


def in_child(fork: Callable[[], int], body: Callable[[], int]) -> int:
    """The exit code of a child that runs `body`; one that hangs is ended by SIGALRM after 10 s."""
    child = fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)
        code = 99
        with contextlib.suppress(BaseException):
            code = body()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextlib.contextmanager
def held(*locks: Any) -> Iterator[None]:
    """By another thread."""
    busy, over = threading.Event(), threading.Event()

    def hold() -> None:
        with contextlib.ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            busy.set()
            over.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert busy.wait(10)
    try:
        yield
    finally:
        over.set()
        thread.join()


def refused(call: Callable[[], Any]) -> bool:
    """Whether it raises at once that the producer is of another process."""
    started = time.monotonic()
    try:
        call()
    except ForkedProducerError as error:
        return "fork" in str(error) and time.monotonic() - started < 1
    return False


@pytest.mark.parametrize("mode", ["auto", "held", "passthrough"])
@pytest.mark.parametrize("name", ["poll", "flush", "close", "produce", "produce_batch"])
def test_a_fork_in_c_is_noticed_by_each_call_of_its_own(mode: str, name: str, mock_bootstrap: str) -> None:
    """Also by the first record of a topic; the parent goes on."""
    producer = SafeProducer({"bootstrap.servers": mock_bootstrap, "log_level": 0, "safeproducer.mode": mode})
    producer.produce("fork", b"before")
    assert producer.flush(10) == 0  # no thread asks for metadata any more
    arguments: dict[str, tuple[Any, ...]] = {
        "poll": (0,),
        "produce": ("new", b"x"),
        "produce_batch": ("fork", [{"value": b"x"}]),
    }

    def body() -> int:
        first = refused(lambda: getattr(producer, name)(*arguments.get(name, ())))
        rest = [refused(lambda call=call: getattr(producer, call[0])(*call[1])) for call in CALLS]  # type: ignore[misc]
        return 0 if first and all(rest) and len(producer) == 0 and producer.snapshot().state == "forked" else 1

    assert in_child(fork_in_c, body) == 0
    send_one(producer, "fork", b"after")
    assert producer.close().delivered == 2


@pytest.mark.parametrize("fork", [os.fork, fork_in_c], ids=["python", "c"])
@pytest.mark.parametrize("mode", ["auto", "held"])
def test_no_call_in_a_child_waits_for_a_lock(fork: Callable[[], int], mode: str, mock_bootstrap: str) -> None:
    """Other threads of the parent may have been anywhere in this library."""
    producer = SafeProducer({"bootstrap.servers": mock_bootstrap, "log_level": 0, "safeproducer.mode": mode})
    send_one(producer, "fork", b"before")
    lane: Any = engine_of(producer)
    lane.dispatcher.lanes.prepare()
    locks = [lane.sender.at_work, *(fed.client._asking for fed in lane.dispatcher.lanes)]

    def body() -> int:
        calls = [*CALLS, ("close", ())]
        rest = [refused(lambda call=call: getattr(producer, call[0])(*call[1])) for call in calls]  # type: ignore[misc]
        told = len(producer) == 0 and producer.snapshot().state == "forked"
        told = told and all("fork" in text for text in (repr(producer), producer.explain()))
        producer.__del__()
        return 0 if all(rest) and told else 1

    with held(*locks):  # a fork in C is noticed by a look alone
        assert in_child(fork, (lambda: producer.snapshot() and body()) if fork is fork_in_c else body) == 0
    send_one(producer, "fork", b"after")
    assert producer.close().delivered == 2


@pytest.mark.parametrize("fork", [os.fork, fork_in_c], ids=["python", "c"])
@pytest.mark.parametrize("kind", ["lane", "admin client"])
def test_a_child_destroys_no_client_of_its_parent_that_is_garbage(
    fork: Callable[[], int], kind: str, producer: SafeProducer
) -> None:
    """Its collector finds them, and librdkafka's threads are not there: their destructor would wait or crash."""
    engine = engine_of(producer)

    def make() -> Any:
        return engine.native_producers.batch_lane(None) if kind == "lane" else Admin({"bootstrap.servers": "a:1"})

    def body() -> int:
        forks.notice()
        gc.collect()
        return 0

    with uncollected():
        garbage: list[Any] = [make() for _ in range(3)]
        garbage.append(garbage)
        del garbage
        assert in_child(fork, body) == 0
    gc.collect()


@pytest.mark.parametrize("look", [len, SafeProducer.snapshot, SafeProducer.explain, SafeProducer.__del__])
def test_a_fork_in_c_is_noticed_by_whoever_asks(look: Callable[[Any], Any], producer: SafeProducer) -> None:
    """Nothing is asked of a native producer whose threads are not there, nor is it destroyed."""
    producer.produce("fork", b"before")

    def body() -> int:
        look(producer)
        return 0 if engine_of(producer).route.state == "forked" else 1

    assert in_child(fork_in_c, body) == 0


def test_a_child_of_a_fork_in_c_makes_its_own_producer_and_ends_quietly() -> None:
    """It claims no record of its parent as lost, and locks that threads of the parent held are new."""
    result = run(
        """
        import ctypes, os, sys, threading, time
        from safeproducer import SafeProducer
        from safeproducer.runtime import lifetime
        from safeproducer.pipeline.cluster import throttles
        parent = SafeProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
        parent.produce("t", b"unresolved")
        busy, over = threading.Event(), threading.Event()
        def hold():
            with throttles.registry._lock, parent._SafeProducer__engine.sender.at_work:
                busy.set()
                over.wait(20)
        thread = threading.Thread(target=hold)
        thread.start()
        busy.wait()
        sys.setswitchinterval(1000)  # see fork_in_c()
        time.sleep(0.05)
        if ctypes.PyDLL(None).fork() == 0:
            sys.setswitchinterval(0.005)
            own = SafeProducer({"test.mock.num.brokers": 1, "log_level": 0})
            own.produce("t", b"child")
            left = own.flush(10)
            del own
            lifetime._at_exit()
            del parent
            os._exit(7 + left)
        sys.setswitchinterval(0.005)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        over.set()
        thread.join()
        print(parent.close(0).left)
        """
    )
    assert result.stdout == "7\n1\n", result.stderr
    assert "were lost" not in result.stderr


@pytest.mark.parametrize("kind", ["page", "number"])
def test_each_child_is_told_from_its_parent(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its child, too; by the number of the process where the kernel empties no page."""
    renewed: list[int] = []
    monkeypatch.setattr(forks, "_renewals", [lambda: renewed.append(os.getpid())])
    monkeypatch.setattr(forks, "here", forks._mark() if kind == "page" else forks._Number())
    assert kind == "number" or isinstance(forks.here, mmap.mmap), "this kernel empties no page at a fork"

    def body() -> int:
        forks.notice()
        forks.notice()
        return 0 if renewed == [os.getpid()] else 1

    def nested() -> int:
        return body() or in_child(fork_in_c, lambda: renewed.clear() or body())  # type: ignore[func-returns-value]

    assert in_child(fork_in_c, nested) == 0
    forks.notice()
    assert renewed == []


@pytest.mark.parametrize("fork", [os.fork, fork_in_c], ids=["python", "c"])
def test_a_child_waits_for_no_thread_of_its_parent(fork: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender that did not rest in time is not there: what it holds must not stop each fork of the child."""
    monkeypatch.setattr(forks, "_WAITS", 0.05)
    work = forks.Work()

    def body() -> int:
        forks.notice()
        return 0 if work.ends(0) else 1

    with held(work):
        assert in_child(fork, body) == 0


@pytest.mark.parametrize("fork", [os.fork, fork_in_c], ids=["python", "c"])
def test_a_thread_that_forks_at_work_ends_it_in_the_child(fork: Callable[[], int]) -> None:
    """A hook that forks runs on the thread that holds the lock."""
    work = forks.Work()

    def body() -> int:
        forks.notice()
        work.__exit__()
        return 0

    with work:
        assert in_child(fork, body) == 0


CHILD = '''
import multiprocessing as mp, os, sys
from concurrent.futures import ProcessPoolExecutor
from safeproducer import Hook, SafeProducer

CONFIG = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
producer = None


class Told(Hook):
    def records_lost(self, event):
        os.write(1, f"{event.reason} {event.count}\\n".encode())


def made(*hooks):
    """It has looked up its broker's address: a child that is forked meanwhile can look up none (glibc)."""
    errors = []
    made = SafeProducer({**CONFIG, "error_cb": errors.append}, hooks=hooks)
    while not errors:
        made.poll(0.05)
    return made


def work(more=None):
    global producer
    producer = made(Told())
    for _ in range(7):
        producer.produce("t", b"x")
    if more is not None:
        child = mp.get_context("fork").Process(target=more)
        child.start()
        child.join()


def nothing():
    pass


def close():
    work()
    producer.close(0)


if __name__ == "__main__":
    how = sys.argv[1]
    if how == "pool":
        with ProcessPoolExecutor(1, mp_context=mp.get_context("fork")) as pool:
            pool.submit(work).result()
    else:
        before = made()
        context, target, arguments = {
            "fork": ("fork", work, ()),
            "spawn": ("spawn", work, ()),
            "forkserver": ("forkserver", work, ()),
            "a child's child": ("fork", work, (work,)),
            "a child's child that makes none": ("fork", work, (nothing,)),
            "closed": ("fork", close, ()),
        }[how]
        child = mp.get_context(context).Process(target=target, args=arguments)
        child.start()
        child.join()
        before.close()
'''
LOST = "interpreter exit 7"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("fork", [LOST]),
        ("spawn", [LOST]),
        ("forkserver", [LOST]),
        ("pool", [LOST]),
        ("a child's child", [LOST, LOST]),
        ("a child's child that makes none", [LOST]),
        ("closed", []),
    ],
)
def test_records_lost_in_a_child_of_multiprocessing_are_told(how: str, said: list[str], tmp_path: Path) -> None:
    """It ends by os._exit() after its own finalizers, and each loss is told once."""
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    result = ran(
        [sys.executable, "-W", "ignore::DeprecationWarning", str(script), how],
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    assert result.stdout.splitlines() == said, result.stderr
    assert result.stderr.count("were lost at") == len(said)
    assert result.returncode == 0


def test_a_fork_beside_a_thread_that_makes_producers_waits_for_all_of_them() -> None:
    """An error in a hook of a fork is printed and no more, and the fork goes on without waiting."""
    kept = [forks.Work() for _ in range(50)]
    ended = threading.Event()

    def make() -> None:
        while not ended.is_set():
            del kept[50:]
            kept.extend(forks.Work() for _ in range(50))

    maker = threading.Thread(target=make)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    maker.start()
    try:
        for _ in range(300):
            forks._before_fork()
            stopped = forks._stopped[threading.get_ident()]
            forks._after_fork()
            assert set(kept[:50]) <= set(stopped)
    finally:
        sys.setswitchinterval(interval)
        ended.set()
        maker.join()


@pytest.mark.parametrize("module", ["safeproducer.pipeline.calls", "safeproducer.futures"])
def test_a_fork_waits_while_another_thread_loads_what_a_producer_needs(module: str) -> None:
    """In the child that thread is gone, and each import of the same module would wait for it for ever."""
    script = f"""
        import os, signal, sys, threading, time
        from safeproducer import SafeProducer

        class Slow:
            def find_spec(self, name, *_):
                if name == "{module}":
                    loading.set()
                    time.sleep(0.3)

        def make():
            producer = SafeProducer({{"log_level": 0}})
            producer.submit("t", b"x")
            producer.close(0)

        loading = threading.Event()
        sys.meta_path.insert(0, Slow())
        thread = threading.Thread(target=make)
        thread.start()
        loading.wait()
        if not (child := os.fork()):
            signal.alarm(10)
            make()
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        thread.join()
    """
    assert run(script).stdout == "0\n"


def test_multiprocessing_is_not_imported() -> None:
    """Who does not use it does not pay for it."""
    result = run(
        """
        import sys
        from safeproducer import SafeProducer
        SafeProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}).close()
        print("multiprocessing.util" in sys.modules)
        """
    )
    assert result.stdout == "False\n", result.stderr


def test_a_fork_leaves_no_half_of_a_module_to_its_child(mock_bootstrap: str) -> None:
    """The thread that asks for metadata imports what the answer consists of. A child's own such thread can have the
    same number as its parent's, and would take the half that is there for the whole."""
    script = f"""
import importlib.abc, os, sys, threading, time

begun = threading.Event()

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "confluent_kafka.admin._config":  # from the midst of confluent_kafka.admin
            begun.set()
            time.sleep(0.5)

sys.meta_path.insert(0, Slow())
from safeproducer import SafeProducer

producer = SafeProducer({{"bootstrap.servers": "{mock_bootstrap}"}})
producer.produce("halves", b"x")
assert begun.wait(10)
child = os.fork()
if child == 0:
    producer = SafeProducer({{"bootstrap.servers": "{mock_bootstrap}"}})
    producer.produce("halves", b"y")
    left = producer.flush(10)
    whole = "ClusterMetadata" in dir(sys.modules["confluent_kafka.admin"])
    os._exit(left + 10 * (not whole))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert producer.flush(10) == 0
"""
    done = run(script)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
