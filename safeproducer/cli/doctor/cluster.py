"""This module reads a cluster and changes nothing: its brokers, their expirations, and the producer IDs of its topics.

It asks all leaders at once, some partitions in each question.
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import TypeVar

from safeproducer.cli.common.admin_settings import WHAT, AskError, admin_settings
from safeproducer.cli.common.connection import opened_reader, topic_failure
from safeproducer.cli.common.finding import facts_of, some
from safeproducer.cli.common.producer_states import BrokerQuestions, Producers
from safeproducer.cli.common.screen import Screen, progress
from safeproducer.cli.common.settings import Setting
from safeproducer.cli.common.stop import Failure
from safeproducer.cli.doctor.census import SILENT, BrokerCensus, BrokerError, ClusterCensus, TopicCensus, Unread, census
from safeproducer.kafka.admin import ClusterReader, Configs, Topic
from safeproducer.kafka.advice import advice
from safeproducer.kafka.native import KafkaException
from safeproducer.policy import expiry
from safeproducer.policy.replication import Facts
from safeproducer.policy.types import TopicPartition

Answers = dict[TopicPartition, Producers]
Ask = Callable[[int, Sequence[TopicPartition]], Answers]

_PARTITIONS = 50
_OF_KAFKA = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Coordinators write to them with the IDs of others."""
_UNKNOWN_TOPIC = "UNKNOWN_TOPIC_OR_PART"
_Told = TypeVar("_Told")
_PATIENCE = 2.0
"""Seconds for each broker's own answer: by then another one has answered a question."""
_NO_LEADER = AskError("LEADER_NOT_AVAILABLE", "it has no leader")


def ask_leaders(
    ask: Ask, led: Mapping[int, Sequence[TopicPartition]], answered: Callable[[int], None] = lambda count: None
) -> Answers:
    """Ask each broker for the partitions that it leads. `answered(n)` is called as the first n are known.

    Each broker has a thread, which does not keep the process from ending while it waits for an answer.
    """
    outcomes = queue.SimpleQueue[Answers | BaseException]()
    for broker, partitions in led.items():
        threading.Thread(target=_ask_one, args=(ask, broker, sorted(partitions), outcomes.put), daemon=True).start()
    answers, total = Answers(), sum(map(len, led.values()))
    while len(answers) < total:
        outcome = outcomes.get()
        if isinstance(outcome, BaseException):
            raise outcome
        answers |= outcome
        answered(len(answers))
    return answers


def _ask_one(
    ask: Ask, broker: int, partitions: Sequence[TopicPartition], put: Callable[[Answers | BaseException], None]
) -> None:
    for start in range(0, len(partitions), _PARTITIONS):
        asked = partitions[start : start + _PARTITIONS]
        try:
            put(dict.fromkeys(asked, ()) | ask(broker, asked))
        except AskError as error:  # a broker that is gone refuses the next ones at once
            put(dict.fromkeys(asked, error))
        except BaseException as error:
            put(error)


def look(
    settings: Mapping[str, Setting], screen: Screen, timeout: float, names: Sequence[str], lines: Mapping[int, str]
) -> tuple[ClusterCensus, Failure | None]:
    """Return what was read of these topics, or all, and why not everything was.

    `lines`: ID -> line of code that this host's ledger knows.
    """
    cluster = ClusterCensus()
    try:
        reader = _connected(settings, screen, timeout)
        addresses = reader.brokers(timeout)
        configs = reader.configs(addresses, min(timeout, _PATIENCE))
        brokers = [_broker(number, address, configs[number]) for number, address in addresses.items()]
        cluster = ClusterCensus(brokers, all_topics=not names)
        topics, missing = _topics(reader, names, timeout)
        readable = [name for name, topic in topics.items() if topic.error is None]
        facts, unread = _replication(topics, configs, reader.topic_configs(readable, timeout))
        cluster = ClusterCensus(brokers, (), not names, facts, None, unread)
        topics = {name: topic for name, topic in topics.items() if names or name not in _OF_KAFKA}
        answers, cluster = _ask(settings, screen, timeout, topics, cluster)
    except Failure as failure:
        return cluster, failure
    except KafkaException as error:
        reason = error.args[0]
        return cluster, Failure(advice(reason.name(), reason.str()), code=reason.name())
    known = cluster.expirations
    counted = [_census(name, topic, answers, known, lines) for name, topic in topics.items()]
    return replace(cluster, topics=counted), missing


def _connected(settings: Mapping[str, Setting], screen: Screen, timeout: float) -> ClusterReader:
    try:
        return opened_reader(settings, screen, timeout)
    except Failure as failure:
        if failure.code != "configuration":
            admin_settings(settings)  # what librdkafka lacks for such a mechanism is another question
        raise


def _topics(reader: ClusterReader, names: Sequence[str], timeout: float) -> tuple[Mapping[str, Topic], Failure | None]:
    """The topics that are there, and what to tell of one that is not."""
    if not names:
        return reader.all_topics(timeout), None
    topics = reader.topics(dict.fromkeys(names), timeout)
    missing = next((name for name, topic in topics.items() if topic.error == _UNKNOWN_TOPIC), None)
    if missing is None:
        return topics, None
    near = get_close_matches(missing, reader.list_topics(timeout).topics, 1)
    failure = topic_failure(f"{missing}{f' (nearest name: {near[0]!r})' if near else ''}", _UNKNOWN_TOPIC, "")
    return {name: topic for name, topic in topics.items() if topic.error != _UNKNOWN_TOPIC}, failure


def _ask(
    settings: Mapping[str, Setting], screen: Screen, timeout: float, topics: Mapping[str, Topic], cluster: ClusterCensus
) -> tuple[Answers, ClusterCensus]:
    """Ask for what leaders remember; return it, and the census with moves and open transactions."""
    led: dict[int, list[TopicPartition]] = {}
    for name, topic in topics.items():
        for partition, one in topic.partitions.items():
            if one.leader is not None:
                led.setdefault(one.leader, []).append((name, partition))
    if not led:
        return Answers(), cluster
    total = sum(map(len, led.values()))
    brokers = cluster.brokers
    coordinators = [broker.number for broker in brokers if broker.refused not in SILENT]
    # Those that answered come first: what any may answer, they are asked.
    addresses = {one.number: one.address for one in sorted(brokers, key=lambda one: one.refused in SILENT)}
    with (
        progress(screen, "reading producer IDs", total, "partitions") as done,
        BrokerQuestions(settings, addresses, timeout, WHAT) as questions,
    ):
        answers, unread = ask_leaders(questions.producers, led, done), [*cluster.unread]
        answers |= questions.moved(answers)
        right = "open transactions", "DESCRIBE on the transactional ids"
        found = _told(partial(questions.open_transactions, coordinators), *right, unread) or ()
        moves = _told(questions.moves, "which replicas move", "DESCRIBE on the cluster", unread)
    opened = (one._replace(partitions=tuple(tp for tp in one.partitions if tp[0] in topics)) for one in found)
    transactions = [one for one in opened if one.partitions]
    return answers, replace(cluster, moves=moves, unread=unread, transactions=transactions)


def _told(ask: Callable[[], _Told], what: str, right: str, unread: list[Unread]) -> _Told | None:
    """The answer. Without the right there is none, which goes to `unread`, nor from Kafka before 3.0 or 2.4."""
    try:
        return ask()
    except AskError as error:
        if error.code != "UNSUPPORTED_VERSION":
            unread.append(Unread(what, right, error.code, str(error)))
        return None


def _replication(
    topics: Mapping[str, Topic], brokers: Mapping[int, Configs], configs: Mapping[str, Configs]
) -> tuple[Facts, list[Unread]]:
    known = {(name, number): one for name, topic in topics.items() for number, one in topic.partitions.items()}
    # A topic may be deleted meanwhile.
    errors = {name: one.error for name, one in configs.items() if one.error and one.error[0] != _UNKNOWN_TOPIC}
    unread = []
    for error in sorted(set(errors.values())):
        names = [name for name in errors if errors[name] == error]
        unread.append(Unread(f"the configs of {some(names)}", "DESCRIBE_CONFIGS on these topics", *error))
    return facts_of(known, brokers, configs), unread


def _broker(number: int, address: str, configs: Configs) -> BrokerCensus:
    if configs.error is None:
        return BrokerCensus(number, address, expiry.told(number, configs.values))
    code, text = configs.error
    return BrokerCensus(number, address, expiry.unreadable(number, f"{code}: {text}"), code)


def _census(
    name: str, topic: Topic, answers: Answers, known: Mapping[int, float], lines: Mapping[int, str]
) -> TopicCensus:
    if topic.error is not None:
        return TopicCensus(name, error=BrokerError(topic.error, advice(topic.error, topic.error)))
    partitions = []
    for number, one in topic.partitions.items():
        told: Producers = _NO_LEADER if one.leader is None else answers.get((name, number), ())
        partitions.append((number, one.leader, told))
    return census(name, partitions, known, lines, time.time())
