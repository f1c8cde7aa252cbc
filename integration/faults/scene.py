"""What a fault sees of a load: how far it is, whom it can hurt, and where it notes what it did."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from integration.faults.ground import Ground
from integration.faults.load import Load
from integration.faults.oracle import Log
from integration.kafka.node import Node
from integration.kafka.poll import until
from integration.tap import Tap

TICK = 0.005
STEADY = 0.25
"""Seconds of load that may be unreported: a busy machine always has some, and the fault must come before the end."""


class Scene:
    """One load and the faults it meets. The methods belong to the thread of the fault."""

    def __init__(self, ground: Ground, topic: str, tap: Tap | None, seed: int) -> None:
        self.ground = ground
        self.cluster = ground.cluster
        self.admin = ground.cluster.admin
        self.topic = topic
        self.random = random.Random(seed)
        self.evidence: dict[str, Any] = {}
        """What the fault did, for the figures: a fault that did nothing must show here."""
        self.struck_at: float | None = None
        """When the first fault struck."""
        self.struck_partitions: set[int] = set()
        """Whose leader it hit."""
        self.outstanding = 0
        """Records without a report when faults struck; the sum when there were several."""
        self.cpu: float | None = None
        """Share of one core that this process used while it was measured."""
        self.earlier_log: Log | None = None
        """What the topic held before it was deleted."""
        self._tap = tap
        self._load: Load | None = None

    @property
    def tap(self) -> Tap:
        """The tap between the producer and the nodes."""
        if self._tap is None:
            raise LookupError("this scenario has no tap: set `tapped`")
        return self._tap

    @property
    def load(self) -> Load:
        if self._load is None:
            raise LookupError("no load yet: faults strike after their first yield")
        return self._load

    @load.setter
    def load(self, load: Load) -> None:
        self._load = load

    def wait_for(self, share: float) -> None:
        """Return when this share of the records was accepted, and nearly all reported: the start-up is over."""
        account = self.load.account
        wanted = account.records.count * share

        def steady() -> bool:
            return account.accepted >= wanted and account.outstanding < self.load.rate * STEADY

        until(lambda: steady() or self.load.fatal, f"{wanted:.0f} records accepted and reported", 120, TICK)

    def reached(self, share: float) -> bool:
        """Whether this share of the records was accepted."""
        return self.load.account.accepted >= self.load.account.records.count * share or self.load.fatal is not None

    @contextmanager
    def strike(self, *nodes: Node) -> Iterator[None]:
        """Around the moment of a fault: counts what is outstanding, and notes the partitions that `nodes` lead."""
        hit = {number for number, view in self.views().items() if view.leader in {node.id for node in nodes}}
        before, now = self._unresolved(), time.monotonic()
        yield
        self.outstanding += max(before, self._unresolved())
        if self.struck_at is None:
            self.struck_at, self.struck_partitions = now, hit

    @contextmanager
    def measure_cpu(self) -> Iterator[None]:
        """Measure the CPU time of all threads of this process."""
        cpu, begun = time.process_time(), time.monotonic()
        yield
        self.cpu = (time.process_time() - cpu) / (time.monotonic() - begun)

    def views(self) -> dict[int, Any]:
        """Leader and replicas of the topic's partitions, as a running node knows them."""
        return self.admin.partitions(self.topic)

    def a_leader(self, *, controller: bool = True) -> Node:
        """A node that leads partitions; not the active controller when `controller` is false.

        Losing the controller too costs an election of its own before the sessions of brokers count again.
        """
        leaders = {view.leader for view in self.views().values()}
        if not controller:
            leaders.discard(until(lambda: max(0, self.ground.controller()), "an active controller"))
        return self.cluster.nodes[self.random.choice(sorted(leaders))]

    def wait_for_new_leaders(self, old: Node) -> None:
        """Return when no partition is led by `old`, or by nobody."""

        def moved() -> bool:
            leaders = {view.leader for view in self.views().values()}
            return not leaders & {-1, old.id}

        begun = time.monotonic()
        until(moved, f"other leaders than {old}", 30)
        self.evidence["new leaders s"] = round(time.monotonic() - begun, 1)

    def behind_earlier(self, log: Log) -> Log:
        """The log behind what its topic held before it was deleted.

        What the deletion met on its way, written but not yet acknowledged, is in both: it had to be sent again, and
        whoever reads the topic finds it once. So it counts once, and `evidence` has the number.
        """
        if self.earlier_log is None:
            return log
        again = [set(new) for new in log]
        kept = [[value for value in old if value not in new] for old, new in zip(self.earlier_log, again, strict=True)]
        self.evidence["in both topics"] = sum(map(len, self.earlier_log)) - sum(map(len, kept))
        return [[*old, *new] for old, new in zip(kept, log, strict=True)]

    def _unresolved(self) -> int:
        snapshot = getattr(self.load.producer, "snapshot", None)
        return self.load.account.outstanding if snapshot is None else int(snapshot().unresolved)
