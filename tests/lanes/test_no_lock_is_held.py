"""Callbacks, hooks and log handlers of the application run with no lock of this library held.

They may take a lock of their own that another thread holds which waits for ours: a logging handler that ships lines to
Kafka does, and stopped the whole application.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from safeproducer import Hook, SafeProducer
from safeproducer.kafka import lane_client
from safeproducer.testing import FakeCluster
from tests.contract.support import wait_until
from tests.lanes.conftest import BATCH, REFRESH_MS, RETAIN
from tests.lanes.traffic import Traffic


class Owned:
    """A lock that knows who holds it, re-entrant as what it stands for."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self._holders: list[int] = []

    def acquire(self, *args: Any, **keywords: Any) -> bool:
        taken: bool = self._real.acquire(*args, **keywords)
        if taken:
            self._holders.append(threading.get_ident())
        return taken

    def release(self) -> None:
        self._holders.remove(threading.get_ident())
        self._real.release()

    def locked(self) -> bool:
        return bool(self._holders)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def mine(self) -> bool:
        return threading.get_ident() in self._holders


class Witness(Hook, logging.Handler):
    """Notes what it is called for, and whether the calling thread held a lock."""

    def __init__(self, locks: list[Owned]) -> None:
        logging.Handler.__init__(self)
        self._locks = locks
        self.seen: set[str] = set()
        self.behind_a_lock: list[str] = []

    def note(self, what: str) -> None:
        self.seen.add(what)
        if any(lock.mine for lock in self._locks):
            self.behind_a_lock.append(what)

    def emit(self, record: logging.LogRecord) -> None:
        self.note(f"log: {record.msg}")

    def callback(self, name: str) -> Callable[[Any], None]:
        return lambda event: self.note(name)

    def client_error(self, *_: Any) -> None:
        self.note("client_error")

    def throttled(self, *_: Any) -> None:
        self.note("throttled")

    def window_changed(self, *_: Any) -> None:
        self.note("window_changed")

    def lanes_changed(self, *_: Any) -> None:
        self.note("lanes_changed")


@pytest.fixture
def witness(monkeypatch: pytest.MonkeyPatch) -> Iterator[Witness]:
    locks: list[Owned] = []

    def owned(make: Callable[[], Any]) -> Callable[[], Owned]:
        def made() -> Owned:
            locks.append(Owned(make()))
            return locks[-1]

        return made

    monkeypatch.setattr(lane_client, "allocate_lock", owned(threading.Lock))
    found = Witness(locks)
    logger = logging.getLogger("safeproducer")
    level = logger.level
    logger.addHandler(found)
    logger.setLevel(logging.INFO)
    yield found
    logger.removeHandler(found)
    logger.setLevel(level)
    assert locks, "this library's locks have other names now"
    assert found.behind_a_lock == []


def made(cluster: FakeCluster, witness: Witness, **settings: Any) -> SafeProducer:
    names = ("error_cb", "throttle_cb", "stats_cb")
    config = {
        "bootstrap.servers": cluster.bootstrap,
        "log_level": 0,
        "batch.num.messages": BATCH,
        "statistics.interval.ms": 200,
        "topic.metadata.refresh.interval.ms": REFRESH_MS,
        "reconnect.backoff.max.ms": 200,
        **{name: witness.callback(name) for name in names},
        **{f"safeproducer.{name}": value for name, value in settings.items()},
    }
    return SafeProducer(config, hooks=[witness])


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_with_several_lanes(cluster: FakeCluster, witness: Witness, mode: str) -> None:
    """While the application polls, and while it is away and the sender serves."""
    cluster.create_topic("t", config={RETAIN: "8"})
    producer = made(cluster, witness, mode=mode, ordering="key")
    load = Traffic(producer, "t", 200)
    load.until(lambda: {"lanes_changed", "window_changed", "stats_cb"} <= witness.seen, backlog=20 * BATCH)
    cluster.set_throttle(300)
    load.until(lambda: {"throttled", "throttle_cb"} <= witness.seen, backlog=20 * BATCH)
    cluster.set_throttle(0)
    load.finish()
    witness.seen.clear()
    load.send(BATCH)
    cluster.stop(1)
    cluster.stop(2)
    wait_until(lambda: "client_error" in witness.seen)
    assert "error_cb" not in witness.seen, "callbacks run on the application's thread"
    load.until(lambda: "error_cb" in witness.seen)
    cluster.start(1)
    cluster.start(2)
    load.finish()
    producer.close(5)


def test_a_hint_that_is_found_while_batches_are_handed_over(cluster: FakeCluster, witness: Witness) -> None:
    """A hint that is found while batches are handed over, perhaps inside a produce()."""
    cluster.create_topic("t")
    producer = made(cluster, witness, mode="held")
    load = Traffic(producer, "t", 200)
    load.until(lambda: any("is limited by the round trip" in what for what in witness.seen), backlog=20 * BATCH)
    load.finish()
    producer.close(5)
