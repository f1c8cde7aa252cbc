"""When leaders are asked for their windows, and for whom an answer counts."""

from __future__ import annotations

import time
from collections.abc import Callable

from safeproducer import delivery
from safeproducer.kafka.statistics import BrokerStatistics, PartitionStatistics, Statistics
from safeproducer.own_settings import OwnSettings
from safeproducer.pipeline.cluster.cluster_view import ClusterView
from safeproducer.pipeline.cluster.outdated_leaders import DIRECT
from safeproducer.pipeline.cluster.windows import Windows
from safeproducer.policy.throttle import Throttle
from safeproducer.policy.topic_partition import TopicPartition
from safeproducer.policy.window import Announcement, Source, Window

REFRESH = 1000.0
PLACE = ("t", 0)


class Leaders:
    """Broker 1 remembers 20 batches, any other does not tell; `meanwhile` happens between question and answer."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.meanwhile: list[Callable[[], object]] = []

    def ask(self, node: int, topic: str) -> Announcement:
        self.asked.append(node)
        if self.meanwhile:
            self.meanwhile.pop()()
        return Announcement(20 if node == 1 else None, Source.LEADER if node == 1 else Source.ASSUMED, "it says so")


def seen(leader: int, epoch: int | None, now: float, broken: bool = False) -> Statistics:
    """What statistics say of one partition and its leader."""
    broker = BrokerStatistics("b", "DOWN" if broken else "UP", 0, 0, 0, 0, 0, 0, None)
    return Statistics(now, 7, 0, 0, 0, {leader: broker}, {PLACE: PartitionStatistics(leader, epoch, 0, 0, 0, 0, 0)})


def tell(asker: Windows, found: Statistics) -> None:
    """As the sender does, with what the memory of the cluster makes of it."""
    cluster = ClusterView(delivery.read({}, OwnSettings(mode="held"), True, False), Throttle())
    cluster.update(DIRECT, found)
    asker.update(cluster.partitions.info, cluster.lost(), found.at)


def windows(changes: list[tuple[int, int]]) -> Windows:
    def changed(tp: TopicPartition, before: Window, after: Window) -> None:
        changes.append((before.size, after.size))

    return Windows(None, REFRESH, None, changed, lambda due: None, lambda: True)


def answer_all(asker: Windows, leaders: Leaders) -> None:
    """Ask what is due, as the thread does, until nothing is."""
    while (question := asker._next(time.monotonic())) is not None:
        assert len(leaders.asked) < 10
        asker.ask(leaders, question)


def test_a_new_leader_is_asked_though_nobody_has_produced_to_it_yet() -> None:
    """Statistics tell of a change before the next record needs the window: the asking goes on, with the new leader."""
    changes: list[tuple[int, int]] = []
    asker, leaders, now = windows(changes), Leaders(), time.monotonic()
    asker.budget(PLACE, 1, now)
    answer_all(asker, leaders)
    tell(asker, seen(2, 1, now))
    answer_all(asker, leaders)
    assert leaders.asked == [1, 2]
    assert changes == [(5, 20), (20, 5)]


def test_an_epoch_learnt_between_question_and_answer_costs_one_question_more() -> None:
    """The answer may be of the time before the change; the next one is not, and does not wait for the refresh."""
    asker, leaders, now = windows([]), Leaders(), time.monotonic()
    asker.budget(PLACE, 1, now)
    leaders.meanwhile = [lambda: tell(asker, seen(1, 3, now))]
    answer_all(asker, leaders)
    assert leaders.asked == [1, 1]
    assert asker.budget(PLACE, 1, now).size == 20


def test_a_partition_that_comes_later_shares_the_answer() -> None:
    """What the leader said of the topic holds for each partition of it, without another question."""
    asker, leaders, now = windows([]), Leaders(), time.monotonic()
    asker.budget(PLACE, 1, now)
    answer_all(asker, leaders)
    assert asker.budget(("t", 1), 1, now).size == 20
    assert asker.budget(("t", 2), 2, now).size == 5
    assert asker.budget(("other", 0), 1, now).size == 5
    assert leaders.asked == [1]


def test_a_broken_connection_takes_the_answer_away() -> None:
    """From all partitions, those that come later included, until the leader has answered again."""
    asker, leaders, now = windows([]), Leaders(), time.monotonic()
    asker.budget(PLACE, 1, now)
    answer_all(asker, leaders)
    tell(asker, seen(1, None, now, broken=True))
    assert [asker.budget(("t", number), 1, now).size for number in (0, 1)] == [5, 5]
    answer_all(asker, leaders)
    assert [asker.budget(("t", number), 1, now).size for number in (0, 1)] == [20, 20]
