"""Web servers and other services: driven by requests, ended by signals, with both classes."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from integration.applications.account import settle
from integration.applications.application import SAFE, STOCK, Application
from safeproducer.testing import FakeCluster

PROGRAMS = "integration.applications.programs"
REQUESTS = 60
GUNICORN = ("gunicorn", "--config", "integration/applications/programs/gunicorn_settings.py")

Both = Callable[..., list[Any]]


def ask(application: Application, requests: int = REQUESTS) -> Counter[int]:
    """Send so many orders, four at a time; how often each status came."""
    with ThreadPoolExecutor(4) as pool:
        return Counter(status for status, _ in pool.map(lambda n: application.post(f"/orders/{n}"), range(requests)))


def test_a_flask_view_with_a_global_producer(both: Both, brokers: FakeCluster) -> None:
    """Threads of the server share it; Ctrl-C ends the server, and the exit flushes."""

    def drive(application: Application) -> None:
        assert ask(application) == {202: REQUESTS}
        application.ends_well(signal.SIGINT, 10)
        assert settle(application, brokers) == REQUESTS

    both(drive, f"{PROGRAMS}.flask_view")


def by_two_workers(brokers: FakeCluster) -> Callable[[Application], None]:
    """Drives gunicorn: its workers take all orders, and SIGTERM ends them in time."""

    def drive(application: Application) -> None:
        application.has("worker", 2)
        assert ask(application) == {202: REQUESTS}
        application.ends_well(signal.SIGTERM, 15)
        assert settle(application, brokers) == REQUESTS

    return drive


@pytest.mark.parametrize("workers", ["sync", "gthread", "gevent"])
def test_gunicorn(both: Both, brokers: FakeCluster, workers: str) -> None:
    """Loaded by the master, the producer made in each worker: all orders are written, and SIGTERM ends it in time."""
    threads = ("--threads", "4") if workers == "gthread" else ()
    both(by_two_workers(brokers), *GUNICORN, "--worker-class", workers, *threads, f"{PROGRAMS}.wsgi:app")


def test_gunicorn_with_the_producer_of_its_master(both: Both, brokers: FakeCluster) -> None:
    """Orders are refused in words, and the workers end. confluent_kafka's workers hang, and gunicorn kills them after
    30 s."""

    def drive(application: Application) -> None:
        application.has("worker", 2)
        status, text = application.post("/orders/1")
        assert (status, "fork" in text) == (500, True)
        application.ends_well(signal.SIGTERM, 15)
        assert not application.log(brokers)

    both(drive, *GUNICORN, f"{PROGRAMS}.wsgi_of_the_master:app", classes=(SAFE,))


def test_uvicorn(both: Both, brokers: FakeCluster) -> None:
    """A request waits for its report, which a thread polls for; SIGTERM meets requests that wait for a broker."""

    def drive(application: Application) -> None:
        assert ask(application) == {202: REQUESTS}
        brokers.pause(application.leader)
        with ThreadPoolExecutor(1) as pool:
            last = pool.submit(application.post, "/orders/last")
            try:
                application.has("accepted", REQUESTS + 1)
                application.send(signal.SIGTERM)
            finally:
                brokers.resume(application.leader)
            assert last.result()[0] == 202
        ended = application.ends(within=10)
        assert ended.status in (0, -signal.SIGTERM)  # it ends by the signal again, when it is done
        assert "Traceback" not in ended.errors
        assert settle(application, brokers) == REQUESTS + 1

    both(drive, "uvicorn", "--port", "0", f"{PROGRAMS}.asgi:app")


def test_celery_prefork(both: Both, brokers: FakeCluster) -> None:
    """A producer in each process, tasks that flush, tasks whose time is over in the middle of poll()."""

    def drive(application: Application) -> None:
        application.has("done", 20)
        application.has("limited", 2)
        application.ends_well(signal.SIGTERM, 20)
        assert {line["left"] for did in ("done", "limited") for line in application.lines(did)} == {0}
        assert settle(application, brokers, unsaid=2, reports=False) >= 20

    options = ("--pool", "prefork", "--concurrency", "2", "--loglevel", "INFO")
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    both(drive, "celery", "--app", f"{PROGRAMS}.celery_worker", "worker", *options, *quiet)


def test_asyncio_with_poll_on_the_loop(both: Both, brokers: FakeCluster) -> None:
    """Futures are set by callbacks that run on the loop; SIGTERM ends the service, which flushes."""

    def drive(application: Application) -> None:
        application.has("answered", 20)
        application.ends_well(signal.SIGTERM, 10, silent=True)
        assert [line["count"] for line in application.lines("left")] == [0]
        settle(application, brokers)

    both(drive, f"{PROGRAMS}.asyncio_service")


IN_BLOCKS = {"safeproducer.mode": "held", "delivery.report.only.error": True}


@pytest.mark.parametrize("when", ["first", "late", "never"])
@pytest.mark.parametrize(
    ("kind", "classes", "settings"),
    [
        pytest.param("", (STOCK, SAFE), {}, id="plain"),
        # Another greenlet polls while one is inside a callback: it serves nothing. confluent_kafka aborts the process.
        pytest.param("yielding", (SAFE,), {}, id="callbacks that yield"),
        # As the Spark sink does far from the brokers; nobody asks for a report of each record.
        pytest.param("blocks", (SAFE,), IN_BLOCKS, id="blocks"),
    ],
)
def test_greenlets(
    both: Both, brokers: FakeCluster, when: str, kind: str, classes: tuple[str, ...], settings: dict[str, Any]
) -> None:
    """gevent that patches before the import, after a producer has worked, or not at all."""

    def drive(application: Application) -> None:
        application.ends_well(silent=kind != "yielding")
        if kind != "yielding":
            assert [line["count"] for line in application.lines("left")] == [0]
        assert settle(application, brokers, reports=kind != "blocks") == 5 * 50

    both(drive, f"{PROGRAMS}.greenlets", when, *kind.split(), classes=classes, settings=settings)
