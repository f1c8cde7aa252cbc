"""Programs without a server: processes and logging, with both classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from integration.applications.account import settle
from integration.applications.application import Application
from safeproducer.testing import FakeCluster

PROGRAMS = "integration.applications.programs"

Both = Callable[..., list[Any]]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes(both: Both, brokers: FakeCluster, method: str) -> None:
    """Process and ProcessPoolExecutor: each child's own producer delivers, and the parent's before and after."""

    def drive(application: Application) -> None:
        ended = application.ends()
        assert (ended.status, ended.errors) == (0, "")
        assert [line["status"] for line in application.lines("child")] == [0, 0]
        assert {line["count"] for line in application.lines("left")} == {0}
        assert settle(application, brokers) == (3 + 2 + 4) * 20

    both(drive, f"{PROGRAMS}.processes", method)


def test_a_logging_handler(both: Both, brokers: FakeCluster) -> None:
    """Each line is in the topic; the handler flushes when logging is shut down."""

    def drive(application: Application) -> None:
        ended = application.ends()
        assert (ended.status, ended.errors) == (0, "")
        assert settle(application, brokers) >= 300

    both(drive, f"{PROGRAMS}.log_shipping")
