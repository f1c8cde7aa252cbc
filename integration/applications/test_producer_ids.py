"""Servers that end their workers again and again, each of which takes a producer ID (KIP-936): the rows of
docs/operate/producer-id-recipes.md with the real servers. Told by default; `delay` changes nothing within the rate."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration.applications.account import settle
from integration.applications.application import SAFE, Application
from integration.applications.test_services import GUNICORN, PROGRAMS
from safeproducer.producer_ids.ledger_places import Place
from safeproducer.producer_ids.ledger_reader import LedgerReading, read_ledgers
from safeproducer.settings.id_settings import LEDGER_VARIABLE, POLICY_VARIABLE
from safeproducer.testing import FakeCluster

REQUESTS = 8
RATES = pytest.mark.parametrize(("policy", "rate"), [("warn", 3), ("delay", 100)])
Both = Callable[..., list[Any]]


@pytest.fixture
def ledger(tmp_path: Path) -> Callable[[], LedgerReading]:
    """What the application of this test has counted."""

    def read() -> LedgerReading:
        (found,) = read_ledgers(Place(str(tmp_path / "ledger")))
        return found

    return read


def given(tmp_path: Path, policy: str, rate: int) -> dict[str, Any]:
    """Settings and environment of a program that counts for itself."""
    return {
        "settings": {"safeproducer.producer.ids.per.hour": rate},
        "environment": {LEDGER_VARIABLE: str(tmp_path / "ledger"), POLICY_VARIABLE: policy},
        "classes": (SAFE,),
    }


def judge(found: LedgerReading, errors: str, policy: str) -> None:
    """More than three an hour are told with line and pattern; nothing is while they are within the rate."""
    assert len({record.process.pid for record in found.in_hour}) > 3
    told = re.findall(r"producer-ID churn.*", errors)
    assert bool(told) == (policy == "warn")
    assert all("given.py:" in line for line in told)
    assert {pattern.code for pattern in found.patterns()} == {"one-per-process"}


@RATES
def test_gunicorn_with_worker_recycling(
    both: Both, brokers: FakeCluster, ledger: Callable[[], LedgerReading], tmp_path: Path, policy: str, rate: int
) -> None:
    """Each worker ends behind its request: one ID a worker."""

    def drive(application: Application) -> str:
        application.has("worker", 2)
        assert [application.post(f"/orders/{number}")[0] for number in range(REQUESTS)] == [202] * REQUESTS
        # A worker that gunicorn has just forked drops a signal: it has the handlers of its parent for a moment.
        application.has("worker", 2 + REQUESTS)
        ended = application.stop(signal.SIGTERM, within=15)
        assert ended.status == 0
        assert settle(application, brokers) == REQUESTS
        return ended.errors

    recycled = ("--max-requests", "1", f"{PROGRAMS}.wsgi:app")
    (errors,) = both(drive, *GUNICORN, *recycled, **given(tmp_path, policy, rate))
    judge(ledger(), errors, policy)


@RATES
def test_celery_with_worker_recycling(
    both: Both, brokers: FakeCluster, ledger: Callable[[], LedgerReading], tmp_path: Path, policy: str, rate: int
) -> None:
    """Each process runs two of 16 tasks: one ID a process."""

    def drive(application: Application) -> str:
        application.has("done", 16)
        ended = application.stop(signal.SIGTERM, within=20)
        assert ended.status == 0
        assert settle(application, brokers) == 16
        return ended.errors

    options = ("--pool", "prefork", "--concurrency", "2", "--loglevel", "INFO", "--max-tasks-per-child", "2")
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    worker = ("celery", "--app", f"{PROGRAMS}.celery_recycled", "worker", *options, *quiet)
    (errors,) = both(drive, *worker, **given(tmp_path, policy, rate))
    judge(ledger(), errors, policy)
