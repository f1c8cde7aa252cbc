"""When leaders are asked for their windows, and what makes an answer void: statistics as the lanes would tell them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from safeproducer.kafka.statistics import BrokerStatistics, PartitionStatistics, Statistics
from safeproducer.pipeline.cluster.windows import Windows
from safeproducer.policy.topic_partition import TopicPartition
from safeproducer.policy.window import Announcement, Source, Window
from tests.pipeline.test_windows import tell

A, B, ELSEWHERE = ("a", 0), ("a", 1), ("b", 0)
REFRESH = 0.2


class Brokers:
    """Each says what it is told to say."""

    def __init__(self) -> None:
        self.says: dict[int, int | None] = {1: 20, 2: 8}
        self.asked: list[tuple[int, str]] = []

    def ask(self, node: int, topic: str) -> Announcement:
        self.asked.append((node, topic))
        value = self.says[node]
        return Announcement(value, Source.ASSUMED if value is None else Source.LEADER, f"broker {node}")


def eventually(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 5
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def statistics(leader: int, epoch: int = 0, state: str = "UP", *tps: TopicPartition) -> Statistics:
    """One leader for all partitions, in that state."""
    broker = BrokerStatistics("name", state, 0, 0, 0, 0, 0, 0, None)
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


@pytest.fixture
def windows(brokers: Brokers, told: list[tuple[TopicPartition, int, int]]) -> Iterator[Windows]:
    def changed(tp: TopicPartition, before: Window, after: Window) -> None:
        told.append((tp, before.size, after.size))

    made = Windows(None, REFRESH, lambda _: brokers, changed, lambda _: None, lambda: True)
    yield made
    made.stop()
    made.join(5)


def size(windows: Windows, tp: TopicPartition = A, node: int = 1) -> int:
    return windows.budget(tp, node, time.monotonic()).size


def test_a_lost_connection_is_a_change(
    windows: Windows, brokers: Brokers, told: list[tuple[TopicPartition, int, int]]
) -> None:
    """The leader may have been restarted, and remember less: five, once for each loss, until it has answered again."""
    tell(windows, statistics(leader=1))
    eventually(lambda: size(windows) == 20)
    brokers.says[1] = None
    tell(windows, statistics(leader=1, state="DOWN"))
    assert size(windows) == 5
    assert told == [(A, 5, 20), (A, 20, 5)]
    brokers.says[1] = 12
    tell(windows, statistics(leader=1, epoch=1))
    eventually(lambda: size(windows) == 12)
    tell(windows, statistics(leader=1, epoch=1, state="DOWN"))
    tell(windows, statistics(leader=1, epoch=1, state="DOWN"))
    eventually(lambda: size(windows) == 12)


def test_partitions_of_a_topic_share_the_question_and_not_the_answer(windows: Windows, brokers: Brokers) -> None:
    """When one of them moves, the other one's window stays."""
    tell(windows, statistics(leader=1))
    eventually(lambda: size(windows, A) == size(windows, B) == 20)
    assert set(brokers.asked) == {(1, "a")}
    tell(windows, statistics(2, 1, "UP", A))
    assert (size(windows, A, 2), size(windows, B)) == (5, 20)


def test_an_unused_partition_is_not_asked_for(windows: Windows, brokers: Brokers) -> None:
    """Used again, it is five until the answer is there."""
    eventually(lambda: size(windows) == 20)
    eventually(lambda: windows.budget(ELSEWHERE, 1, time.monotonic()).size == 20)
    asked_once = brokers.asked.count((1, "a"))
    end = time.monotonic() + 4 * REFRESH
    while time.monotonic() < end:
        size(windows, ELSEWHERE)
        time.sleep(0.01)
    assert brokers.asked.count((1, "a")) <= asked_once + 1
    assert brokers.asked.count((1, "b")) >= 3
    assert size(windows) == 5
    eventually(lambda: size(windows) == 20)


def test_a_window_that_was_set_needs_nobody() -> None:
    """No thread, no question, whatever statistics say."""
    brokers = Brokers()
    windows = Windows(12, REFRESH, lambda _: brokers, lambda *_: None, lambda _: None, lambda: True)
    tell(windows, statistics(leader=1))
    assert windows.budget(A, 1, time.monotonic()) == Window(12, Source.SETTING, None, "safeproducer.window says so")
    assert brokers.asked == []
    windows.stop()
    windows.join(0)
