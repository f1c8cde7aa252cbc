"""Threads that calls of the application start: they cannot fail those calls, and come back after they died."""

import threading
import time
from typing import Any

import pytest

from safeproducer import SafeProducer
from safeproducer.pipeline.cluster import asker
from safeproducer.pipeline.cluster.asker import Asker
from safeproducer.pipeline.cluster.cluster_view import ClusterView
from safeproducer.pipeline.cluster.windows import Windows
from safeproducer.policy.cluster_metadata import PartitionMetadata
from safeproducer.policy.throttle import Throttle
from safeproducer.policy.window import Announcement, Source
from safeproducer.runtime import threads
from safeproducer.runtime.threads import BackgroundThread
from safeproducer.settings import delivery
from safeproducer.settings.own_settings import OwnSettings
from tests.contract.support import wait_until
from tests.inside import engine_of

NO_THREAD = "can't start new thread"


class Troubles(list[tuple[str, str]]):
    def __call__(self, kind: str, what: str) -> None:
        self.append((kind, what))


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which threads of this library were to be started; none can be while the list holds "none" in front."""
    tried: list[str] = []
    start = threading.Thread.start

    def attempt(thread: threading.Thread) -> None:
        if thread.name in ("safeproducer-asker", "safeproducer-metadata", "x"):
            tried.append(thread.name)
            if tried[0] == "none":
                raise RuntimeError(NO_THREAD)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", attempt)
    return tried


def test_without_a_thread_it_is_tried_again_after_longer_and_longer_pauses(
    starts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(threads.clock, "real", lambda: now[0])
    troubles, done = Troubles(), threading.Event()
    found = BackgroundThread("x", done.set, troubles)
    starts.append("none")
    moments: list[float] = []
    while now[0] < 120:
        before = len(starts)
        found.start()
        if len(starts) > before:
            moments.append(now[0] - 100)
        now[0] += 0.5
    assert moments == [0.0, 1.0, 3.0, 7.0, 15.0]
    assert [kind for kind, _ in troubles] == ["x"] * 5
    assert NO_THREAD in troubles[0][1]
    starts.clear()
    now[0] = 200.0
    found.start()
    assert done.wait(5)


def test_one_thread_at_a_time_and_a_new_one_when_it_has_ended() -> None:
    running, going = [0], threading.Event()

    def work() -> None:
        running[0] += 1
        going.wait(5)

    found = BackgroundThread("x", work, Troubles())
    for _ in range(10):
        found.start()
    wait_until(lambda: running[0])
    found.start()
    assert running == [1]
    going.set()
    found.join(5)
    assert not found.alive
    found.start()
    wait_until(lambda: running == [2])
    found.join(5)


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_no_thread_is_no_reason_for_a_call_to_fail(
    starts: list[str], unreachable: dict[str, Any], caplog: pytest.LogCaptureFixture, ordering: str
) -> None:
    """Neither of produce(), poll() nor flush(); it is told once, and snapshot() says it."""
    starts.append("none")
    mode = {"safeproducer.mode": "held", "safeproducer.ordering": ordering, "safeproducer.replication": "off"}
    producer = SafeProducer({**unreachable, **mode, "linger.ms": 0})
    engine_of(producer).updates.holds.partitions.update("known", {0: PartitionMetadata(1, 0)}, 1.0)
    for number in range(20):
        for topic in ("new", "known"):
            producer.produce(topic, b"x" * 200_000, b"%d" % number)
        producer.poll(0.05)
    assert producer.flush(0.2) == 40
    lines = [record.getMessage() for record in caplog.records if NO_THREAD in record.getMessage()]
    expected = {"safeproducer-metadata"} | ({"safeproducer-asker"} if ordering == "key" else set())
    assert {name for name in starts if name != "none"} == expected
    assert len(lines) == len(expected)
    producer.purge()
    producer.close(5)


class Odd:
    """Raises what a client may raise, and answers then."""

    def __init__(self, *raises: Exception) -> None:
        self.raises = list(raises)

    def window(self, node: int, topic: str) -> Announcement:
        if self.raises:
            raise self.raises.pop(0)
        return Announcement(20, Source.LEADER, "it says so")


@pytest.mark.parametrize("error", [TimeoutError(), ValueError("99 is not a valid ConfigSource"), KeyError("t")])
def test_the_asker_survives_whatever_is_raised(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the question, and by the making of the client that asks; it asks again later, and less and less often."""
    monkeypatch.setattr(asker, "_FIRST_PAUSE", 0.01)
    makes: list[Exception] = [RuntimeError("no admin client"), OSError(24, "Too many open files")]
    odd, troubles = Odd(error, error), Troubles()

    def make() -> Any:
        if makes:
            raise makes.pop(0)
        return odd

    cluster = ClusterView(delivery.read({}, OwnSettings(mode="held"), True, False), Throttle())
    cluster.partitions.update("t", {0: PartitionMetadata(1)}, 1.0)
    asks = Asker(make, bool, lambda: True, troubles)
    windows = Windows(None, 1000.0, cluster, asks, lambda *_: None)
    wait_until(lambda: windows.budget(("t", 0), time.monotonic()).size == 20)
    assert len(troubles) == 4
    assert type(error).__name__ in troubles[-1][1]
    wait_until(lambda: [asked.failed for asked in asks._asked.values()] == [None])  # noted after the answer
    asks.stop()
    assert asks.join(5)
    assert asks._admin is None


def test_pauses_after_failures_grow_up_to_a_minute_for_each_question() -> None:
    state, pauses = None, []
    for _ in range(10):
        state, pause = asker._after_failure(state)
        pauses.append(pause)
    assert all(
        0.75 * full <= pause <= full for full, pause in zip([0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60], pauses, strict=True)
    )
