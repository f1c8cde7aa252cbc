"""Every fault with the load it meets, what its producer may use, and the bars."""

import importlib
import threading
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

from integration.faults import faults
from integration.faults.faults import Fault, Steps
from integration.faults.figures import Figures
from integration.faults.ground import PARTITIONS, Ground
from integration.faults.load import Load
from integration.faults.oracle import Log, judge
from integration.faults.records import Records
from integration.faults.scene import Scene
from integration.kafka.log import read_records
from integration.tap import Tap

SOCKET_TIMEOUT = 5.0
"""socket.timeout.ms, in seconds."""
SESSION = 3.0
"""broker.session.timeout.ms of the cluster, in seconds."""
PRODUCERS = {"safe": "safeproducer.SafeProducer", "stock": "confluent_kafka.Producer"}


@dataclass(frozen=True)
class Scenario:
    """A fault and its load. `deadline` is message.timeout.ms in seconds; with `short` it is in every test run."""

    name: str
    fault: Fault
    rate: float = 4_000
    deadline: float = 60
    tapped: bool = False
    short: bool = False
    keyed: bool = False
    config: Mapping[str, object] = field(default_factory=dict)
    all_delivered: bool = True
    """The fault is over before the deadline, so no record may fail."""
    reported: float | None = None
    """Seconds within which each record has its report, where that is sooner than its deadline."""
    first_ack: float | None = None
    """Seconds from the fault to the first delivery to a partition that it hit, at most."""

    def records(self) -> Records:
        return Records(streams=200, keyed=True) if self.keyed else Records(streams=PARTITIONS)

    def settings(self, bootstrap: str) -> dict[str, object]:
        return {
            "bootstrap.servers": bootstrap,
            "client.id": self.name.replace(" ", "-"),
            "enable.idempotence": True,
            "linger.ms": 5,
            "message.timeout.ms": int(self.deadline * 1000),
            "socket.timeout.ms": int(SOCKET_TIMEOUT * 1000),
            "reconnect.backoff.max.ms": 1_000,
            "queue.buffering.max.messages": 5_000,
            "queue.buffering.max.kbytes": 1_048_576,
            "log_level": 0,
            **self.config,
        }


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("leader killed", faults.leader_killed, short=True, first_ack=SESSION + 3),
        # A client that waits for the hung broker finds out by one time-out, not by one for each native producer.
        Scenario("leader paused 20 s", faults.leader_paused(20), rate=1_000, reported=2 * SOCKET_TIMEOUT - 0.5),
        Scenario("leaders moved", faults.leaders_moved(0.15), keyed=True),
        Scenario("rolling restart", faults.rolling_restart, rate=1_000),
        Scenario("connections cut", faults.connections_cut, tapped=True, short=True),
        Scenario("half open", faults.half_open(3), tapped=True, short=True),
        Scenario("half open past T", faults.half_open(9), rate=2_000, deadline=4, tapped=True, all_delivered=False),
        Scenario("slow link", faults.slow_link(300_000, 0.025, 0.01), rate=2_000, tapped=True),
        Scenario("disk full", faults.disk_full, rate=2_000),
        Scenario("topic recreated", faults.topic_recreated, rate=2_000, all_delivered=False),
        Scenario(
            "all gone before T",
            faults.all_gone(6),
            deadline=40,
            config={"queue.buffering.max.messages": 100_000, "queue.buffering.max.kbytes": 400},
        ),
        Scenario("all gone past T", faults.all_gone(8), deadline=5, all_delivered=False),
    )
}


def play(scenario: Scenario, ground: Ground, seed: int = 1, producer: str = "safe") -> Figures:
    """Run one scenario to its end and judge it. The nodes are whole before and after."""
    topic = ground.make_topic()
    with ExitStack() as stack:
        stack.callback(ground.heal)
        tap = stack.enter_context(Tap(ground.cluster)) if scenario.tapped else None
        bootstrap = ground.cluster.bootstrap if tap else ground.cluster.direct_bootstrap
        scene = Scene(ground, topic, tap, seed)
        steps = stack.enter_context(closing(scenario.fault(scene)))
        next(steps)
        client = _made(producer, scenario.settings(bootstrap))
        stack.callback(_close, client)
        scene.load = Load(client, topic, scenario.records(), scenario.rate)
        _run(scene, steps, scenario.deadline + 30)
        account = scene.load.account
        next(steps, None)
        ground.heal()
        ground.wait_in_sync(topic)
        verdict = judge(account, scene.behind_earlier(_read(ground.cluster.direct_bootstrap, topic)))
        return Figures.of(scenario, producer, seed, scene, verdict)


def _run(scene: Scene, steps: Steps, patience: float) -> None:
    """The load on this thread, the fault on another one."""
    failures: list[BaseException] = []

    def strike() -> None:
        try:
            next(steps, None)
        except BaseException as failure:
            failures.append(failure)
        finally:
            scene.load.fault_over.set()

    thread = threading.Thread(target=strike, name="fault")
    thread.start()
    try:
        scene.load.run(patience)
    finally:
        thread.join()
        if failures:
            raise failures[0]


def _read(bootstrap: str, topic: str) -> Log:
    return [[record.value for record in records] for records in read_records(bootstrap, topic)]


def _made(producer: str, settings: dict[str, object]) -> Any:
    module, name = PRODUCERS[producer].rsplit(".", 1)
    return getattr(importlib.import_module(module), name)(settings)


def _close(client: Any) -> None:
    """What still has no report was judged already."""
    client.purge()
    client.flush(5)
    client.close()
