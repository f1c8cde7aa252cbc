"""Programs without a server: processes, logging, reused arguments, with both classes."""

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
        application.ends_well(silent=True)
        assert [line["status"] for line in application.lines("child")] == [0, 0]
        assert {line["count"] for line in application.lines("left")} == {0}
        assert settle(application, brokers) == (3 + 2 + 4) * 20

    both(drive, f"{PROGRAMS}.processes", method)


def test_a_logging_handler(both: Both, brokers: FakeCluster) -> None:
    """Each line is in the topic; the handler flushes when logging is shut down."""

    def drive(application: Application) -> None:
        application.ends_well(silent=True)
        assert settle(application, brokers) >= 300

    both(drive, f"{PROGRAMS}.log_shipping")


def test_a_logging_handler_without_a_broker(both: Both, brokers: FakeCluster) -> None:
    """The application goes on logging, and ends when its lines have failed."""

    def drive(application: Application) -> None:
        application.ends_well(within=20)
        assert settle(application, brokers) >= 300

    nowhere = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 1500, "log_level": 0}
    both(drive, f"{PROGRAMS}.log_shipping", settings=nowhere)
