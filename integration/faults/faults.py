"""What goes wrong. Each fault is a generator: what is before its first `yield` prepares it, what is before a second
one happens on a thread of its own while the load runs, and the rest puts things right when the load is over.
"""

import time
from collections.abc import Callable, Generator

from integration.faults.disk import small_disk
from integration.faults.ground import PARTITIONS, REPLICATION, start
from integration.faults.scene import Scene
from integration.faults.segments import deleted_values
from integration.kafka.poll import until

Steps = Generator[None, None, None]
Fault = Callable[[Scene], Steps]

EARLY, LATE = 0.2, 0.88
"""Shares of the records: faults strike when the first was accepted, repeated ones go on until the second."""
NOTICED = 0.2
"""Seconds within which a client notices that its connections have ended; what it sends meanwhile is outstanding."""
EVERYTHING = 1_000_000
MSS = 1448
RTO = 0.2


def leader_killed(scene: Scene) -> Steps:
    """SIGKILL for a leader; it comes back when others lead."""
    node = scene.a_leader(controller=False)
    yield
    scene.wait_for(EARLY)
    with scene.strike(node):
        node.kill()
    scene.wait_for_new_leaders(node)
    time.sleep(2)  # the first deliveries are not to compete with the start of a JVM
    node.start()


def leader_paused(seconds: float) -> Fault:
    """SIGSTOP for a leader: it hangs, and its connections stay open."""

    def fault(scene: Scene) -> Steps:
        node = scene.a_leader()
        yield
        scene.wait_for(EARLY)
        begun = time.monotonic()
        with scene.strike(node):
            node.pause()
        scene.wait_for_new_leaders(node)
        with scene.measure_cpu():
            time.sleep(max(0.0, begun + seconds - time.monotonic()))
        node.resume()

    return fault


def leaders_moved(every: float) -> Fault:
    """Another replica becomes the leader of one partition after the other."""

    def fault(scene: Scene) -> Steps:
        yield
        moves, due = 0, time.monotonic()
        while not scene.reached(LATE):
            partition = scene.random.randrange(PARTITIONS)
            first, *others = scene.views()[partition].replicas
            scene.admin.requests.reassign(scene.topic, partition, [*others, first])
            with scene.strike():
                moves += scene.admin.requests.elect_preferred(scene.topic, partition)
            due = max(due + every, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
        scene.evidence["moves"] = moves
        assert moves >= 5

    return fault


def rolling_restart(scene: Scene) -> Steps:
    """Each node is stopped cleanly and started again, the next one when all replicas are in sync."""
    yield
    scene.wait_for(0.05)
    for node in scene.ground.nodes:
        with scene.strike(node):
            node.stop()
        node.start()
        scene.ground.wait_in_sync(scene.topic)
    scene.evidence["accepted meanwhile"] = scene.load.account.accepted


def connections_cut(scene: Scene) -> Steps:
    """One open connection after the other is reset."""
    yield
    cuts = 0
    while not scene.reached(LATE):
        time.sleep(scene.random.uniform(0.05, 0.3))
        still_open = [seen.number for seen in scene.tap.connections if seen.closed_at is None]
        if still_open:
            with scene.strike():
                cuts += scene.tap.cut(connection=scene.random.choice(still_open))
    scene.evidence["cuts"] = cuts
    assert cuts >= 5


def half_open(seconds: float) -> Fault:
    """The brokers write and answer, and no answer to a Produce request arrives."""

    def fault(scene: Scene) -> Steps:
        yield
        scene.wait_for(EARLY)
        with scene.strike():
            scene.tap.drop_answers(n=EVERYTHING, keep_open=True)
        time.sleep(seconds)
        scene.evidence["answers dropped"] = dropped = EVERYTHING - scene.tap.drops_left
        sent = {seen.identity: seen.count for seen in scene.tap.batches if seen.time >= (scene.struck_at or 0)}
        scene.evidence["records sent into it"] = sum(sent.values())
        # Nobody can know of it before the first answer is late: what was sent by then is outstanding as well.
        scene.outstanding += sum(sent.values())
        scene.tap.heal()
        assert dropped >= 1

    return fault


def slow_link(bytes_per_second: float, delay: float, loss: float) -> Fault:
    """A narrow and long line that stands still as often as it would lose a segment.

    Nothing is really lost: the tap is a TCP peer on either side. For each segment of the line's bandwidth the line of
    one broker stands still with probability `loss`, mostly for a round trip as in a fast retransmission, one time in
    ten for a retransmission timeout.
    """

    def fault(scene: Scene) -> Steps:
        scene.tap.delay(delay)
        scene.tap.bandwidth(bytes_per_second)
        yield
        stalls = 0
        with scene.strike():
            pass
        while not scene.reached(LATE):
            time.sleep(scene.random.expovariate(loss * bytes_per_second / MSS))
            broker = scene.random.choice(scene.ground.nodes).id
            scene.tap.pause(broker=broker)
            time.sleep(RTO if scene.random.random() < 0.1 else 2 * delay)
            scene.tap.resume(broker=broker)
            stalls += 1
        scene.evidence["stalls"] = stalls
        assert stalls >= 5
        yield
        scene.tap.heal()

    return fault


def disk_full(scene: Scene) -> Steps:
    """A leader's disk is full until the node has given up; then there is room again and it comes back."""
    node = scene.a_leader(controller=False)
    with small_disk(node) as disk:
        scene.ground.wait_in_sync(scene.topic)
        for partition in sorted(scene.views())[:2]:
            scene.admin.move_leader(scene.topic, partition, node.id)
        yield
        scene.wait_for(EARLY)
        with scene.strike(node):
            scene.evidence["filled MB"] = disk.fill() >> 20
        begun = time.monotonic()
        until(lambda: node.state == "stopped", f"{node} gives up", 60)
        scene.evidence["node gave up after s"] = round(time.monotonic() - begun, 1)
        scene.wait_for_new_leaders(node)
        disk.empty()
        node.start()
        scene.ground.wait_in_sync(scene.topic)
        yield


def topic_recreated(scene: Scene) -> Steps:
    """The topic is deleted under the load, and re-created at once."""
    yield
    scene.wait_for(0.4)
    leaders = {number: scene.cluster.nodes[view.leader] for number, view in scene.views().items()}
    with scene.strike():
        scene.admin.delete_topic(scene.topic)
    scene.earlier_log = [deleted_values(node, scene.topic, number) for number, node in sorted(leaders.items())]
    scene.evidence["in the old topic"] = sum(map(len, scene.earlier_log))
    scene.admin.create_topic(scene.topic, PARTITIONS, REPLICATION)
    assert scene.evidence["in the old topic"] > 0


def all_gone(seconds: float) -> Fault:
    """SIGKILL for every node; they come back after a while."""

    def fault(scene: Scene) -> Steps:
        yield
        scene.wait_for(EARLY)
        begun = time.monotonic()
        with scene.strike(*scene.ground.nodes):
            for node in scene.ground.nodes:
                node.kill()
            time.sleep(NOTICED)
        time.sleep(1 - NOTICED)
        with scene.measure_cpu():
            time.sleep(begun + seconds - time.monotonic())
        start(scene.ground.nodes)
        scene.evidence["down s"] = round(time.monotonic() - begun, 1)

    return fault
