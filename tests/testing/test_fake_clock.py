"""A cluster's time: real time, moved forward at will."""

import math
import time

import pytest

from safeproducer.testing import FakeCluster
from safeproducer.testing.fake.state.cluster_state import ClusterClock
from tests.testing.raw import RawClient, fetch_body


def test_time_goes_by_itself_and_can_be_moved_on(cluster: FakeCluster) -> None:
    """The cluster's time is real time plus what it was moved on; `reset()` brings it back."""
    assert cluster.now() == pytest.approx(time.time(), abs=0.5)
    assert cluster.advance(3600) == pytest.approx(time.time() + 3600, abs=0.5)
    cluster.advance(0.5)
    assert cluster.now() == pytest.approx(time.time() + 3600.5, abs=0.5)
    cluster.reset()
    assert cluster.now() == pytest.approx(time.time(), abs=0.5)


def test_waits_stay_real(cluster: FakeCluster, client: RawClient) -> None:
    """Neither a delayed answer nor a long poll gets shorter when time is moved on, nor does a client see it."""
    cluster.delay(0.1)
    began = time.monotonic()
    cluster.advance(3600)
    client.ask("ApiVersions", 0)
    assert time.monotonic() - began >= 0.1
    cluster.delay(0)
    began = time.monotonic()
    client.ask("Fetch", 11, **fetch_body("t", max_wait_ms=100, min_bytes=1))
    assert time.monotonic() - began >= 0.1
    assert {abs(entry.time - time.time()) < 60 for entry in cluster.journal()} == {True}


@pytest.mark.parametrize("seconds", [-1e-9, math.nan, math.inf])
def test_time_never_goes_back(cluster: FakeCluster, seconds: float) -> None:
    """Windows and expiry could not bear it."""
    with pytest.raises(ValueError, match="seconds"):
        cluster.advance(seconds)


def test_setting_the_machines_clock_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster takes the real time once and counts on from there."""
    clock = ClusterClock()
    before = clock.now_ms()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert before <= clock.now_ms() < before + 60_000
