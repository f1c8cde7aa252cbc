"""A FakeCluster in a process of its own, asked over its standard input and output."""

import contextlib
import pickle
import signal
import sys
import threading
import warnings
from functools import partial
from subprocess import PIPE, Popen
from typing import Any, cast

from safeproducer.testing.fake.cluster import FakeCluster


class FakeClusterProcess:
    """A FakeCluster in a process of its own, for tests of load: it takes no interpreter lock from the clients.

    ``with FakeClusterProcess(brokers=3) as cluster:`` takes FakeCluster's arguments as ``args`` and ``kwargs``, and
    has its methods, for any thread. Its warnings come from the next call. The process ends with this one.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._made = args, kwargs
        self._lock = threading.Lock()

    def __enter__(self) -> FakeCluster:
        serve = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import _serve as serve; serve()"
        self._process = Popen([sys.executable, "-c", serve], stdin=PIPE, stdout=PIPE)  # noqa: S603
        try:
            self._ask("__init__", *self._made[0], **self._made[1])
        except BaseException:
            with self._process:
                raise
        return cast(FakeCluster, self)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._process:
            try:
                self._ask("__exit__", None, None, None)
            except Exception as failed:
                if error is None:
                    raise
                error.add_note(f"the fake cluster failed too: {failed!r}")

    wait = FakeCluster.wait

    def __getattr__(self, name: str) -> Any:
        return self._ask(name) if isinstance(getattr(FakeCluster, name), property) else partial(self._ask, name)

    def _ask(self, name: str, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            asked, answers = cast(Any, self._process.stdin), cast(Any, self._process.stdout)
            question = pickle.dumps((name, args, kwargs))
            try:
                asked.write(question)
                asked.flush()
                answer, error, warned = pickle.load(answers)  # noqa: S301
            except (EOFError, OSError, ValueError):
                asked.raw.close()  # else closing it would fail again
                raise RuntimeError("the process of this FakeCluster has ended") from None
            except BaseException:
                self._process.kill()  # else the next question would get the answer to this one
                raise
        for warning in warned:
            warnings.warn(warning, stacklevel=3)
        if error is not None:
            raise error
        return answer


def _serve() -> None:
    """In the process of its own: do what is asked for, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the tests may ask for more
    asked, answers, sys.stdout = sys.stdin.buffer, sys.stdout.buffer, sys.stderr
    cluster: Any = None
    with contextlib.suppress(EOFError), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        while True:
            name, args, kwargs = pickle.load(asked)  # noqa: S301
            try:
                found = getattr(cluster, name) if cluster else FakeCluster
                answer, error = found(*args, **kwargs) if callable(found) else found, None
                if not cluster:
                    cluster, answer = answer.__enter__(), None
            except Exception as raised:
                answer, error = None, raised
            answers.write(pickle.dumps((answer, error, [warning.message for warning in warned])))
            answers.flush()
            warned.clear()
