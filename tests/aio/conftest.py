"""One cluster for each test, and each event loop that there is."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tests.aio import support
from tests.clusters import fake_cluster

cluster = fake_cluster({"t": support.PARTITIONS}, brokers=3)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[support.Main], Any]:
    """Runs a coroutine function to its end; nothing is left over then."""
    found: Callable[[support.Main], Any] = getattr(support, f"on_{request.param}")
    return found


def pytest_pycollect_makeitem(collector: pytest.Module, name: str, obj: object) -> None:
    """Coroutine functions are tests that run on each loop."""
    if inspect.iscoroutinefunction(obj) and collector.istestfunction(obj, name):
        pytest.mark.usefixtures("run")(obj)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function as `run` does."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    pyfuncitem.funcargs["run"](lambda: pyfuncitem.obj(**arguments))
    return True
