"""A leader hangs, and another broker leads from then on. Each native producer would find that out by a time-out of its
own: once one of them has, the others are told, and none sends to the old leader any more.
"""

import time
from typing import Any

from safeproducer import SafeProducer
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster

TIMEOUT = 2.5
"""socket.timeout.ms, in seconds: how long a native producer takes to find out by itself."""
SOON = 1.0


cluster = fake_cluster({"t": 1}, brokers=3)


def producer(cluster: FakeCluster, **settings: Any) -> SafeProducer:
    return SafeProducer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "log_level": 0,
            "socket.timeout.ms": int(TIMEOUT * 1000),
            "linger.ms": 5,
            "retry.backoff.ms": 50,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def hang(cluster: FakeCluster) -> None:
    """The leader of the partition hangs, and another broker leads it."""
    old = cluster.leader("t")[0]
    cluster.pause(old)
    cluster.move_leader("t", to=old % 3 + 1)


def acknowledge(producer: SafeProducer, keys: int = 1) -> float:
    """Send a record of each key; seconds until the last was delivered."""
    errors: list[Any] = []
    begun = time.monotonic()
    for key in range(keys):
        producer.produce("t", b"v", str(key), partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None] * keys
    return time.monotonic() - begun


def test_one_lane_finds_out_for_all(cluster: FakeCluster) -> None:
    """Lanes that had nothing under way when the leader hung do not run into a time-out each, later."""
    held = {"safeproducer_mode": "held", "safeproducer_ordering": "key", "safeproducer_lanes": 4}
    with producer(cluster, batch_num_messages=1, **held) as made:
        acknowledge(made, keys=1)
        deadline = time.monotonic() + 10
        while made.snapshot().lanes < 4 and time.monotonic() < deadline:
            acknowledge(made, keys=20)
        acknowledge(made, keys=40)  # each lane knows the topic
        hang(cluster)
        assert acknowledge(made) > TIMEOUT / 2  # one lane had to find out
        assert acknowledge(made, keys=40) < SOON


def test_straight_lane_is_told_what_the_fed_lane_found_out(cluster: FakeCluster) -> None:
    """A partition that is not held back any more does not run into the time-out again."""
    with producer(cluster) as made:
        acknowledge(made)
        cluster.set_throttle(100)
        acknowledge(made)
        acknowledge(made)  # by the batch lane, as long as its broker throttles
        assert made.snapshot().lanes
        cluster.set_throttle(0)
        hang(cluster)
        assert acknowledge(made) > TIMEOUT / 2
        assert acknowledge(made) < SOON
