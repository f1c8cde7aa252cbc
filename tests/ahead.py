"""Runs in processes of their own, which mostly wait: some at a time, begun ahead of the tests that look at them."""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

AT_A_TIME = 4
TRIES = 5


def started(command: list[str], **options: Any) -> subprocess.Popen[str]:
    """A process with pipes for what it says.

    Sandboxed kernels (gVisor) answer EFAULT to one of some hundred starts while other threads of this process work.
    """
    for _ in range(TRIES):
        with suppress_bad_address():
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    raise OSError(errno.EFAULT, f"{TRIES} times in a row, starting {command[0]}")


@contextmanager
def suppress_bad_address() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.EFAULT:
            raise


class Ahead:
    """What `play` returns for the arguments that a test asks for, or raises."""

    def __init__(self, play: Callable[..., Any], pool: ThreadPoolExecutor, wanted: list[tuple[Any, ...]]) -> None:
        self._play = play
        self._pool = pool
        self._started: dict[tuple[Any, ...], Future[Any]] = {each: pool.submit(play, *each) for each in wanted}

    def __call__(self, *arguments: Any) -> Any:
        begun = self._started.get(arguments) or self._pool.submit(self._play, *arguments)
        return begun.result()


@contextmanager
def ahead(request: pytest.FixtureRequest, name: str, play: Callable[..., Any]) -> Iterator[Ahead]:
    """For all tests of this module with a parameter of that name, the arguments of their run."""
    wanted = [
        item.callspec.params[name]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.path == request.path
        and hasattr(item, "callspec")
        and name in item.callspec.params
        and not any(mark.name == "skip" for mark in item.iter_markers())
    ]
    if "PYTEST_XDIST_WORKER" in os.environ:  # this process may run a few of them only
        wanted = []
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        try:
            yield Ahead(play, pool, wanted)
        finally:
            pool.shutdown(cancel_futures=True)
