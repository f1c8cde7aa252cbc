"""Asking leaders: nothing is left out, and what is refused costs no other partition its answer."""

import threading
from collections.abc import Sequence

import pytest

from safeproducer.cli.common.admin_settings import AskError, RememberedId
from safeproducer.cli.doctor.cluster import Answers, ask_leaders
from safeproducer.policy.types import TopicPartition

UNTOLD = 42


class Brokers:
    """Answer for each partition but one with one ID, its number; this one is gone."""

    def __init__(self, gone: int | None = None) -> None:
        self.gone = gone
        self.asked: list[tuple[int, Sequence[TopicPartition]]] = []
        self._lock = threading.Lock()

    def ask(self, broker: int, partitions: Sequence[TopicPartition]) -> Answers:
        with self._lock:
            self.asked.append((broker, partitions))
        if broker == self.gone:
            raise AskError("_TRANSPORT", "gone")
        return {one: [RememberedId(one[1], 0, 0.0)] for one in partitions if one[1] != UNTOLD}


def topic(name: str, partitions: int) -> list[TopicPartition]:
    """All of its partitions."""
    return [(name, number) for number in range(partitions)]


def test_each_leader_is_asked_for_its_partitions_in_few_questions() -> None:
    """1 000 partitions of three brokers: all answered, each asked for once, 50 at most in a question."""
    brokers, seen = Brokers(), []
    led = {1: topic("a", 500), 2: topic("b", 300), 3: topic("c", 200)}
    answers = ask_leaders(brokers.ask, led, seen.append)
    assert [(told[0][0] if told else UNTOLD) for told in answers.values()] == [number for _, number in answers]
    assert set(answers) == {one for partitions in led.values() for one in partitions}
    assert len(brokers.asked) == 20
    assert all(set(partitions) <= set(led[broker]) for broker, partitions in brokers.asked)
    assert (seen[-1], sorted(seen)) == (1000, seen)


def test_a_broker_that_is_gone_takes_no_other_with_it() -> None:
    """Each of its partitions has the reason."""
    brokers = Brokers(gone=1)
    answers = ask_leaders(brokers.ask, {1: topic("a", 2_000), 2: topic("b", 10)})
    assert {one for one, told in answers.items() if not isinstance(told, AskError)} == set(topic("b", 10))
    assert {str(told) for told in answers.values() if isinstance(told, AskError)} == {"gone"}
    assert len(answers) == 2_010


def test_a_fault_of_ours_is_raised() -> None:
    """It does not leave the command waiting."""

    def ask(broker: int, partitions: Sequence[TopicPartition]) -> Answers:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ask_leaders(ask, {1: topic("a", 3)})


def test_the_threads_of_a_look_end() -> None:
    """A program that asks again and again would have more of them each time."""
    before = set(threading.enumerate())
    ask_leaders(Brokers().ask, {1: topic("a", 100)})
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()
