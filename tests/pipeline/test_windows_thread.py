"""When leaders are asked for their windows, and what makes an answer void: statistics as the lanes would tell them."""

import time
from collections.abc import Iterator

import pytest

from safeproducer.kafka.statistics import BrokerStatistics, PartitionStatistics, Statistics
from safeproducer.pipeline.cluster import asker
from safeproducer.pipeline.cluster.asker import Asker
from safeproducer.pipeline.cluster.cluster_view import ClusterView
from safeproducer.pipeline.cluster.windows import Windows
from safeproducer.policy.cluster_metadata import PartitionMetadata
from safeproducer.policy.throttle import Throttle
from safeproducer.policy.types import DIRECT_LANE, TopicPartition
from safeproducer.policy.window import Announcement, Source, Window
from safeproducer.settings import delivery
from safeproducer.settings.own_settings import OwnSettings
from tests.contract.support import wait_until

A, B, ELSEWHERE = ("a", 0), ("a", 1), ("b", 0)
REFRESH = 0.2


class Brokers:
    """Each says what it is told to say."""

    def __init__(self) -> None:
        self.says: dict[int, int | None] = {1: 20, 2: 8}
        self.asked: list[tuple[int, str]] = []

    def window(self, node: int, topic: str) -> Announcement:
        self.asked.append((node, topic))
        value = self.says[node]
        return Announcement(value, Source.ASSUMED if value is None else Source.LEADER, f"broker {node}")


def statistics(leader: int, epoch: int = 0, state: str = "UP", *tps: TopicPartition) -> Statistics:
    """One leader for all partitions, in that state."""
    broker = BrokerStatistics("name", state, 0, 0, 0, None)
    partition = PartitionStatistics(leader, epoch, 0, 0, 0, 0, 0)
    return Statistics(
        time.monotonic(), 1, 0, 0, 0, {leader: broker}, dict.fromkeys(tps or (A, B, ELSEWHERE), partition)
    )


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def told() -> list[tuple[TopicPartition, int, int]]:
    return []


class Rig:
    """Windows that an asker's thread asks for."""

    def __init__(self, brokers: Brokers, told: list[tuple[TopicPartition, int, int]], fixed: int | None = None) -> None:
        self.told = told
        self.cluster = ClusterView(delivery.read({}, OwnSettings(mode="held"), True, False), Throttle())
        self.asker = Asker(lambda: brokers, bool, lambda: True)  # type: ignore[arg-type, return-value]
        self.windows = Windows(fixed, REFRESH, self.cluster, self.asker, self.changed)

    def changed(self, tp: TopicPartition, before: Window, after: Window) -> None:
        self.told.append((tp, before.size, after.size))

    def tell(self, found: Statistics) -> None:
        self.cluster.update(DIRECT_LANE, found)
        self.windows.tell(found.at)

    def size(self, tp: TopicPartition = A) -> int:
        return self.windows.budget(tp, time.monotonic()).size


@pytest.fixture
def rig(brokers: Brokers, told: list[tuple[TopicPartition, int, int]]) -> Iterator[Rig]:
    rig = Rig(brokers, told)
    rig.tell(statistics(leader=1))
    yield rig
    rig.asker.stop()
    assert rig.asker.join(5)


def test_a_lost_connection_is_a_change(rig: Rig, brokers: Brokers, told: list[tuple[TopicPartition, int, int]]) -> None:
    """The leader may have been restarted, and remember less: five, once for each loss, until it has answered again."""
    wait_until(lambda: rig.size() == 20)
    brokers.says[1] = None
    rig.tell(statistics(leader=1))
    rig.tell(statistics(leader=1, state="DOWN"))
    assert rig.size() == 5
    assert told == [(A, 5, 20), (A, 20, 5)]
    brokers.says[1] = 12
    rig.tell(statistics(leader=1, epoch=1))
    wait_until(lambda: rig.size() == 12)
    rig.tell(statistics(leader=1, epoch=1, state="DOWN"))
    rig.tell(statistics(leader=1, epoch=1, state="DOWN"))
    wait_until(lambda: rig.size() == 12)


def test_partitions_of_a_topic_share_the_question_and_not_the_answer(rig: Rig, brokers: Brokers) -> None:
    """When one of them moves, the other one's window stays."""
    wait_until(lambda: rig.size(A) == rig.size(B) == 20)
    assert set(brokers.asked) == {(1, "a")}
    rig.cluster.partitions.update("a", {0: PartitionMetadata(2, 1), 1: PartitionMetadata(1, 0)}, time.monotonic())
    assert (rig.size(A), rig.size(B)) == (5, 20)


def test_an_unused_partition_is_not_asked_for(rig: Rig, brokers: Brokers) -> None:
    """Used again, it is five until the answer is there."""
    wait_until(lambda: rig.size() == 20)
    wait_until(lambda: rig.size(ELSEWHERE) == 20)
    asked_once = brokers.asked.count((1, "a"))
    end = time.monotonic() + 4 * REFRESH
    while time.monotonic() < end:
        rig.size(ELSEWHERE)
        time.sleep(0.01)
    assert brokers.asked.count((1, "a")) <= asked_once + 1
    assert brokers.asked.count((1, "b")) >= 3
    assert rig.size() == 5
    wait_until(lambda: rig.size() == 20)


def test_a_window_that_was_set_needs_no_question(brokers: Brokers, told: list[tuple[TopicPartition, int, int]]) -> None:
    """No thread, no question, whatever statistics say."""
    rig = Rig(brokers, told, fixed=12)
    rig.tell(statistics(leader=1))
    assert rig.windows.budget(A, time.monotonic()) == Window(12, Source.SETTING, None, "safeproducer.window says so")
    assert brokers.asked == []
    assert not rig.asker.alive


def test_the_admin_client_is_closed_when_there_is_no_question_for_a_while(
    rig: Rig, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread ends with it; both come back with the next question."""
    monkeypatch.setattr(asker, "_LINGERS", 0.05)
    wait_until(lambda: rig.size() == 20)
    wait_until(lambda: not rig.asker.alive)
    assert rig.asker._admin is None
    time.sleep(2 * REFRESH)
    assert rig.size() == 5
    wait_until(lambda: rig.size() == 20)
