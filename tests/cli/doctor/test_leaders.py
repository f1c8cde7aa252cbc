"""Asking leaders: nothing is left out, and what is refused costs no other partition its answer."""

import threading
from collections.abc import Mapping, Sequence

import pytest

from safeproducer.cli.common.producer_states import AskError, RememberedId, TopicPartition
from safeproducer.cli.doctor.cluster import ask_leaders

RIGHTS = "TOPIC_AUTHORIZATION_FAILED"
MOVED = "NOT_LEADER_FOR_PARTITION"


class Brokers:
    """Answer each partition with one ID, its number; refuse whole questions, as BrokerQuestions does."""

    def __init__(self, refused: Mapping[str | TopicPartition | int, str] | None = None) -> None:
        self.refused = refused or {}
        self.asked: list[tuple[int | None, Sequence[TopicPartition]]] = []
        self._lock = threading.Lock()

    def ask(self, broker: int | None, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, list[RememberedId]]:
        with self._lock:
            self.asked.append((broker, partitions))
        if broker in self.refused:
            raise AskError(self.refused[broker], "gone", of_broker=True)
        for one in partitions:
            for key in (one, one[0]):
                code = self.refused.get(key)
                if code is not None and (broker is not None or code != MOVED):
                    raise AskError(code, f"{one} refused", of_broker=False)
        return {one: [RememberedId(one[1], 0, 0.0)] for one in partitions}


def topic(name: str, partitions: int) -> list[TopicPartition]:
    """All of its partitions."""
    return [(name, number) for number in range(partitions)]


def test_each_leader_is_asked_for_its_partitions_in_few_questions() -> None:
    """1 000 partitions of three brokers: all answered, each asked for once, 50 at most in a question."""
    brokers, seen = Brokers(), []
    led = {1: topic("a", 500), 2: topic("b", 300), 3: topic("c", 200)}
    answers = ask_leaders(brokers.ask, led, seen.append)
    assert {one: states[0].producer_id for one, states in answers.states.items()} == {
        one: one[1] for partitions in led.values() for one in partitions
    }
    assert not answers.refused
    assert len(brokers.asked) == 20
    assert all(set(partitions) <= set(led[broker or 0]) for broker, partitions in brokers.asked)
    assert (seen[-1], sorted(seen)) == (1000, seen)


def test_a_topic_without_rights_takes_no_other_with_it() -> None:
    """Rights are for whole topics: a refused one is asked for no partition by partition."""
    brokers = Brokers({"b": RIGHTS})
    answers = ask_leaders(brokers.ask, {1: [*topic("a", 10), *topic("b", 30), *topic("c", 10)]})
    assert set(answers.states) == {*topic("a", 10), *topic("c", 10)}
    assert {code for code, _ in answers.refused.values()} == {RIGHTS}
    assert set(answers.refused) == set(topic("b", 30))
    assert len(brokers.asked) < 10


def test_a_partition_that_is_refused_is_alone() -> None:
    """The other 99 of the topic are answered."""
    answers = ask_leaders(Brokers({("a", 42): "UNKNOWN_TOPIC_OR_PART"}).ask, {1: topic("a", 100)})
    assert len(answers.states) == 99
    assert answers.refused == {("a", 42): ("UNKNOWN_TOPIC_OR_PART", "('a', 42) refused")}


def test_a_partition_whose_leader_moved_is_asked_again() -> None:
    """By whoever leads it now."""
    brokers = Brokers({("a", 1): MOVED})
    answers = ask_leaders(brokers.ask, {1: topic("a", 3)})
    assert set(answers.states) == set(topic("a", 3))
    assert [partitions for broker, partitions in brokers.asked if broker is None] == [[("a", 1)]]


def test_a_broker_that_is_gone_is_asked_once() -> None:
    """2 000 partitions do not wait for it in each question; the other broker's are answered."""
    brokers = Brokers({1: "KafkaConnectionError"})
    answers = ask_leaders(brokers.ask, {1: topic("a", 2_000), 2: topic("b", 10)})
    assert set(answers.states) == set(topic("b", 10))
    assert len(answers.refused) == 2_000
    assert sum(broker == 1 for broker, _ in brokers.asked) == 1


def test_a_fault_of_ours_is_raised() -> None:
    """It does not leave the command waiting."""

    def ask(broker: int | None, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, list[RememberedId]]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ask_leaders(ask, {1: topic("a", 3)})


def test_a_cluster_without_topics_is_not_asked() -> None:
    """A cluster without topics."""
    assert not ask_leaders(Brokers().ask, {}).states


def test_the_threads_of_a_look_end() -> None:
    """A program that asks again and again would have more of them each time."""
    before = set(threading.enumerate())
    ask_leaders(Brokers().ask, {1: topic("a", 100)})
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()
