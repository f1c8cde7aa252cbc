"""Asks all leaders at once, some partitions in each question, and halves a question that is refused."""

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from safeproducer.cli.common.producer_state import AskError, ProducerState, TopicPartition

Ask = Callable[[int | None, Sequence[TopicPartition]], Mapping[TopicPartition, Sequence[ProducerState]]]

_AT_ONCE = 8
_PARTITIONS = 50
_REFUSES_TOPIC = "TOPIC_AUTHORIZATION_FAILED"
_MOVED = "NOT_LEADER_FOR_PARTITION"


class _Question(NamedTuple):
    """`broker` is None to ask whoever leads by now."""

    broker: int | None
    partitions: Sequence[TopicPartition]


class _Result(NamedTuple):
    partitions: Sequence[TopicPartition]
    outcome: Mapping[TopicPartition, Sequence[ProducerState]] | BaseException


@dataclass(slots=True)
class Answers:
    """The producer states of leaders, and why some did not tell: code and text."""

    states: dict[TopicPartition, Sequence[ProducerState]] = field(default_factory=dict)
    refused: dict[TopicPartition, tuple[str, str]] = field(default_factory=dict)


def ask_leaders(
    ask: Ask, led: Mapping[int, Sequence[TopicPartition]], answered: Callable[[int], None] = lambda count: None
) -> Answers:
    """Ask each broker for the partitions that it leads. `answered(n)` is called as the first n are known.

    Threads that still wait for an answer do not keep the process from ending.
    """
    questions: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
    results: queue.SimpleQueue[_Result] = queue.SimpleQueue()
    total = sum(map(len, led.values()))
    for question in _questions(led):
        questions.put(question)
    gone: dict[int, AskError] = {}
    threads = [
        threading.Thread(target=_work, args=(ask, questions, results, gone), daemon=True)
        for _ in range(min(_AT_ONCE, total))
    ]
    for thread in threads:
        thread.start()
    try:
        return _collect(results, total, answered)
    finally:
        for _ in threads:
            questions.put(None)


def _collect(results: "queue.SimpleQueue[_Result]", total: int, answered: Callable[[int], None]) -> Answers:
    answers = Answers()
    done = 0
    while done < total:
        partitions, outcome = results.get()
        if isinstance(outcome, AskError):
            answers.refused |= dict.fromkeys(partitions, (outcome.code, str(outcome)))
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            answers.states |= {one: outcome.get(one, ()) for one in partitions}
        done += len(partitions)
        answered(done)
    return answers


def _questions(led: Mapping[int, Sequence[TopicPartition]]) -> Iterator[_Question]:
    """Brokers take turns, so that a slow one does not keep all threads waiting."""
    parts = {
        broker: [sorted(partitions)[start : start + _PARTITIONS] for start in range(0, len(partitions), _PARTITIONS)]
        for broker, partitions in led.items()
    }
    for turn in range(max(map(len, parts.values()), default=0)):
        yield from (_Question(broker, lists[turn]) for broker, lists in parts.items() if turn < len(lists))


def _work(
    ask: Ask,
    questions: "queue.SimpleQueue[_Question | None]",
    results: "queue.SimpleQueue[_Result]",
    gone: dict[int, AskError],
) -> None:
    while (question := questions.get()) is not None:
        try:
            if question.broker in gone:
                raise gone[question.broker]
            results.put(_Result(question.partitions, ask(*question)))
        except AskError as error:
            if error.of_broker and question.broker is not None:
                gone[question.broker] = error
            further = _further(question, error)
            for one in further:
                questions.put(one)
            if not further:
                results.put(_Result(question.partitions, error))
        except BaseException as error:
            results.put(_Result(question.partitions, error))


def _further(question: _Question, error: AskError) -> list[_Question]:
    """The questions to ask instead, because one partition that is refused has the others refused, too."""
    partitions = question.partitions
    topics = {topic for topic, _ in partitions}
    if error.of_broker or (error.code == _REFUSES_TOPIC and len(topics) == 1):
        return []
    if len(partitions) == 1:
        return [_Question(None, partitions)] if error.code == _MOVED and question.broker is not None else []
    middle = len(partitions) / 2
    # Rights are for whole topics.
    between = [place for place in range(1, len(partitions)) if partitions[place][0] != partitions[place - 1][0]]
    cut = min(between or [int(middle)], key=lambda place: abs(place - middle))
    return [_Question(question.broker, partitions[:cut]), _Question(question.broker, partitions[cut:])]
