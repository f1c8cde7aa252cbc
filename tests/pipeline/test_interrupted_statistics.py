"""A signal handler that comes while statistics or a throttle time are served: its flush() waits for nobody.

The sender does what the handler waits for, so nothing that it needs may be held by the interrupted thread.
"""

import signal
import time
from types import CodeType

from safeproducer import SafeProducer
from safeproducer.pipeline.cluster.client_events import ClientEvents
from safeproducer.pipeline.cluster.windows import Windows
from safeproducer.pipeline.dispatch.updates import ClientUpdates
from safeproducer.pipeline.lanes.direct_lane import DirectLane
from safeproducer.policy.throttle import Throttle
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.contract.support import handling
from tests.inside import engine_of
from tests.pipeline.interleaving import between, codes_of

SENDERS = codes_of(ClientUpdates._of_direct_lane, DirectLane.update, ClientUpdates.read_arrived, Windows.tell)
"""What they mean: with locks, and with what takes more than one step."""
SERVED = codes_of(
    ClientEvents.on_statistics,
    ClientEvents.on_throttle,
    ClientUpdates.statistics,
    ClientUpdates.throttled,
    ClientUpdates._skips,
    ClientUpdates._arrive,
    Throttle.announce,
    Throttle.deadlines,
    Windows.known,
)
PLAYS = 8
LONGEST = 5.0


cluster = fake_cluster({"t": 1})


def interrupt_at(producer: SafeProducer, cluster: FakeCluster, codes: set[CodeType], step: int) -> int:
    """Serve what comes, and look at it; the handler comes at one of the places, or at none. How many there were."""
    with between(codes, step, lambda: signal.raise_signal(signal.SIGUSR1)) as tps:
        cluster.set_throttle(0.05)
        producer.produce("t", b"throttled")
        until = time.monotonic() + 1.2
        while time.monotonic() < until:
            producer.poll(0.1)
            producer.snapshot()
        cluster.set_throttle(0)
    return tps[0]


def test_only_the_sender_reads_statistics(cluster: FakeCluster) -> None:
    """Interrupted in the middle, with the lock of what they change, it would have to be waited for."""
    with SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "linger.ms": 1}) as producer:
        assert interrupt_at(producer, cluster, SENDERS, -1) == 0
        assert engine_of(producer).updates.holds.cluster.statistics


def test_a_flush_in_a_handler_that_interrupts_what_is_served_ends(cluster: FakeCluster) -> None:
    """It takes longer than statistics are apart: the sender serves the next ones meanwhile."""
    took: list[float] = []
    producer = SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "linger.ms": 1})

    def handler(*_: object) -> None:
        began = time.monotonic()
        producer.produce("t", b"of the handler")
        left = producer.flush(LONGEST)
        took.append(LONGEST if left else time.monotonic() - began)

    with handling(signal.SIGUSR1, handler):
        producer.produce("t", b"first")
        assert producer.flush(10) == 0
        tps = interrupt_at(producer, cluster, SERVED, -1)
        cluster.delay(0.8, api="Produce")
        for play in range(PLAYS):
            interrupt_at(producer, cluster, SERVED, tps * play // PLAYS)
        cluster.delay(0)
        report = producer.close(10)
    assert report.left == 0
    assert tps > PLAYS
    assert len(took) >= PLAYS / 2, "what is served is not the same each time"
    assert max(took) < LONGEST
