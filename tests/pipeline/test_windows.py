"""When leaders are asked for their windows, and for whom an answer counts."""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.cimpl import KafkaError, KafkaException

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

REFRESH, SOON = 1000.0, 0.2
PLACE = ("t", 0)


class Leaders:
    """Broker 1 remembers 20 batches, any other does not tell; `meanwhile` happens between question and answer."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.topics: list[str] = []
        self.meanwhile: list[Callable[[], object]] = []

    def window(self, node: int, topic: str) -> Announcement:
        self.asked.append(node)
        self.topics.append(topic)
        if self.meanwhile:
            self.meanwhile.pop()()
        source = Source.LEADER if node == 1 else Source.ASSUMED
        return Announcement(20 if node == 1 else None, source, "it says so")


class Rig:
    """Windows of a cluster. Where the asker's thread does not run, `answer_all()` asks what is due."""

    def __init__(self, refresh: float = REFRESH, fixed: int | None = None, runs: bool = False) -> None:
        self.leaders, self.changes = Leaders(), list[tuple[int, int]]()
        self.cluster = ClusterView(delivery.read({}, OwnSettings(mode="held"), True, False), Throttle())
        self.asker = Asker(lambda: self.leaders, bool, lambda: True)  # type: ignore[arg-type, return-value]
        if not runs:
            self.asker.stop()
        self.windows = Windows(fixed, refresh, self.cluster, self.asker, self.changed)
        self.at = time.monotonic()

    def changed(self, tp: TopicPartition, before: Window, after: Window) -> None:
        self.changes.append((before.size, after.size))

    def tell(self, leader: int, epoch: int | None = None, broken: bool = False) -> None:
        """As the sender does with statistics of two partitions and their leader."""
        self.at += 10.0
        broker = BrokerStatistics("b", "DOWN" if broken else "UP", 0, 0, 0, None)
        partition = PartitionStatistics(leader, epoch, 0, 0, 0, 0, 0)
        tps = dict.fromkeys([PLACE, ("t", 1), ("other", 0)], partition)
        self.cluster.update(DIRECT_LANE, Statistics(self.at, 7, 0, 0, 0, {leader: broker}, tps))
        self.windows.tell(self.at)

    def answer_all(self) -> None:
        """Ask what is due, as the thread does, until nothing is."""
        while (question := self.asker.next(time.monotonic())[0]) is not None:
            assert len(self.leaders.asked) < 10
            self.asker.ask(question)
        self.windows.tell(self.at)

    def budget(self, tp: TopicPartition = PLACE) -> int:
        return self.windows.budget(tp, time.monotonic()).size


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.tell(1)
    rig.budget()
    return rig


@pytest.fixture
def running() -> Iterator[Rig]:
    """Its thread asks by itself, again and again."""
    rig = Rig(SOON, runs=True)
    rig.tell(1)
    yield rig
    rig.asker.stop()
    assert rig.asker.join(5)


def test_a_new_leader_is_asked_though_no_record_is_for_it_yet(rig: Rig) -> None:
    """Statistics tell of a change before the next record needs the window: the asking goes on, with the new leader."""
    rig.answer_all()
    rig.tell(2, 1)
    rig.answer_all()
    assert rig.leaders.asked == [1, 2]
    assert rig.changes == [(5, 20), (20, 5)]


def test_an_epoch_learnt_between_question_and_answer_costs_one_question_more(rig: Rig) -> None:
    """The answer may be of the time before the change; the next one is not, and does not wait for the refresh."""
    rig.leaders.meanwhile = [lambda: rig.tell(1, 3)]
    rig.answer_all()
    assert rig.leaders.asked == [1, 1]
    assert rig.budget() == 20


def test_a_change_between_question_and_answer_costs_one_question_more(rig: Rig) -> None:
    """The leader was away in between, and leads in another epoch."""
    rig.tell(1, 3)
    rig.leaders.meanwhile = [lambda: rig.tell(1, 4)]
    rig.answer_all()
    assert rig.leaders.asked == [1, 1]
    assert rig.budget() == 20


def test_a_partition_that_comes_later_shares_the_answer(rig: Rig) -> None:
    """What the leader said of the topic holds for each partition of it, without another question."""
    rig.answer_all()
    assert rig.budget(("t", 1)) == 20
    assert rig.budget(("other", 0)) == 5
    assert rig.leaders.asked == [1]
    moved = {0: PartitionMetadata(2, 1), 1: PartitionMetadata(1, 0)}
    rig.cluster.partitions.update("t", moved, rig.at + 10.0)
    assert [rig.budget(("t", number)) for number in (0, 1)] == [5, 20], "the other one's window stays"


def test_a_broken_connection_takes_the_answer_away(rig: Rig) -> None:
    """From all partitions, those that come later included, until the leader has answered again."""
    rig.answer_all()
    rig.tell(1, broken=True)
    rig.tell(1, broken=True)
    assert [rig.budget(("t", number)) for number in (0, 1)] == [5, 5]
    assert "connection to broker 1" in rig.windows.known(rig.at)[PLACE].reason
    rig.answer_all()
    assert [rig.budget(("t", number)) for number in (0, 1)] == [20, 20]
    assert rig.leaders.asked == [1, 1]
    assert rig.changes == [(5, 20), (20, 5), (5, 20), (5, 20)]


def test_a_question_that_fails_is_asked_again_after_a_pause_of_its_own(rig: Rig) -> None:
    """What the leader said before is believed meanwhile; another question does not wait."""
    rig.answer_all()

    def fail() -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    rig.leaders.meanwhile = [fail]
    rig.asker._asked.clear()
    rig.answer_all()
    assert (rig.budget(), rig.leaders.asked) == (20, [1, 1])
    rig.budget(("other", 0))
    rig.answer_all()
    assert rig.leaders.asked == [1, 1, 1]
    (failed,) = [asked for asked in rig.asker._asked.values() if asked.failed is not None]
    assert 0 < failed.due - time.monotonic() <= 0.5


def test_a_leader_that_has_never_answered_is_the_reason(rig: Rig) -> None:
    """It is told in snapshot()."""

    def fail() -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    rig.leaders.meanwhile = [fail]
    rig.answer_all()
    assert rig.windows.known(rig.at)[PLACE].reason.startswith("broker 1 did not tell: _TRANSPORT")


def test_an_unused_partition_is_not_asked_for(running: Rig) -> None:
    """Used again, it is five until the answer is there."""
    wait_until(lambda: running.budget() == 20)
    wait_until(lambda: running.budget(("other", 0)) == 20)
    asked_once, end = running.leaders.topics.count("t"), time.monotonic() + 4 * SOON
    while time.monotonic() < end:
        running.budget(("other", 0))
        time.sleep(0.01)
    assert running.leaders.topics.count("t") <= asked_once + 1
    assert running.leaders.topics.count("other") >= 3
    assert running.budget() == 5
    wait_until(lambda: running.budget() == 20)


def test_a_window_that_was_set_needs_no_question() -> None:
    """No thread, no question, whatever statistics say."""
    rig = Rig(SOON, fixed=12, runs=True)
    rig.tell(1)
    found = rig.windows.budget(PLACE, time.monotonic())
    assert found == Window(12, Source.SETTING, None, "safeproducer.window says so")
    assert rig.leaders.asked == []
    assert not rig.asker.alive


def test_the_admin_client_is_closed_when_nothing_is_asked_for_a_while(
    running: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread ends with it; both come back with the next question."""
    monkeypatch.setattr(asker, "_LINGERS", 0.05)
    wait_until(lambda: running.budget() == 20)
    wait_until(lambda: not running.asker.alive)
    assert running.asker._admin is None
    time.sleep(2 * SOON)
    assert running.budget() == 5
    wait_until(lambda: running.budget() == 20)
