"""What stands, or stood, between a producer's records and its brokers, for explain()."""

from __future__ import annotations

import time
from collections.abc import Iterator

from safeproducer.pipeline.cluster_view import ClusterView
from safeproducer.pipeline.events import ClientEvents
from safeproducer.policy.trouble import Trouble, throttling


def troubles(events: ClientEvents, cluster: ClusterView, delivered: int) -> Iterator[Trouble]:
    """The newest error of each broker and each throttle time, newest first. A generator: most often nobody asks."""
    now = time.monotonic()
    held = cluster.throttled(now)
    ended = {broker: until for broker, until in events.throttled_until.copy().items() if broker not in held}
    for broker, until in (held | ended).items():
        yield throttling(broker, until, cluster.probes(broker, now), now)
    connected = cluster.connected()
    for error in sorted(events.errors.copy().values(), key=lambda error: -error.at):
        over = error.is_over(connected, delivered)
        about = "the last client error" + ("" if error.node is None else f" of broker {error.node}")
        told = f"{error.sentence.rstrip('.')} ({now - error.at:.0f} s ago)"
        yield Trouble(f"{about}{'' if over else ' was'}: {told}", error.node, over)
