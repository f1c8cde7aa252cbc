"""Reads a cluster: its brokers, their expirations, and the producer IDs of its topics. Changes nothing."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from safeproducer.cli.common.admin_settings import admin_settings
from safeproducer.cli.common.config_file import Setting
from safeproducer.cli.common.connection import BrokerErrors, await_topic, extra, open_reader, topic_failure
from safeproducer.cli.common.failure import Failure
from safeproducer.cli.common.producer_state import ProducerState, TopicPartition
from safeproducer.cli.common.progress import Progress
from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.stop import StopRequest
from safeproducer.cli.doctor.census import PartitionCensus, TopicCensus, census
from safeproducer.cli.doctor.examined import Broker, Cluster, expirations
from safeproducer.cli.doctor.leaders import Answers, ask_leaders
from safeproducer.kafka.advice import advice
from safeproducer.kafka.cluster_reader import ClusterReader, Configs, Topic
from safeproducer.kafka.native import KafkaException
from safeproducer.policy import expiry

if TYPE_CHECKING:
    from safeproducer.cli.common.producer_states import ProducerStates

_OF_KAFKA = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Coordinators write to them with the IDs of others."""
_UNKNOWN_TOPIC = "UNKNOWN_TOPIC_OR_PART"
_SILENT = frozenset({"_TIMED_OUT", "_TRANSPORT"})
_NO_LEADER = ("LEADER_NOT_AVAILABLE", "it has no leader")


class ClusterLook:
    """One look at a cluster. `cluster` keeps what was read before something failed; None without any answer."""

    def __init__(self, settings: Mapping[str, Setting], screen: Screen, timeout: float) -> None:
        self.cluster: Cluster | None = None
        self._settings = settings
        self._screen = screen
        self._timeout = timeout

    def run(self, names: Sequence[str], lines: Mapping[int, str]) -> None:
        """Read the topics of these names, or all. `lines`: ID -> line of code that this host's ledger knows.

        Raises Failure if nobody answers, a named topic does not exist, or IDs cannot be read at all.
        """
        reader = self._connect()
        try:
            brokers = _brokers(reader, self._timeout)
            self.cluster = Cluster(brokers, all_topics=not names)
            topics = self._topics(reader, names)
        except KafkaException as error:
            reason = error.args[0]
            raise Failure(advice(reason.name(), reason.str()), code=reason.name()) from error
        answers = self._ask(topics, [broker.address for broker in brokers if broker.refused not in _SILENT])
        known = expirations(brokers)
        counted = [_census(name, topic, answers, known, lines) for name, topic in topics.items()]
        self.cluster = Cluster(brokers, counted, all_topics=not names)

    def _connect(self) -> ClusterReader:
        settings, errors = self._settings, BrokerErrors(self._screen)
        reader = open_reader(settings, errors)
        try:
            await_topic(reader, None, settings=settings, errors=errors, timeout=self._timeout, stop=StopRequest())
        except Failure:
            admin_settings(settings)  # what librdkafka lacks for such a mechanism is another question
            raise
        return reader

    def _topics(self, reader: ClusterReader, names: Sequence[str]) -> Mapping[str, Topic]:
        if not names:
            found = reader.all_topics(self._timeout)
            return {name: topic for name, topic in found.items() if name not in _OF_KAFKA}
        topics = reader.topics(dict.fromkeys(names), self._timeout)
        for name, topic in topics.items():
            if topic.error == _UNKNOWN_TOPIC:
                raise topic_failure(name, topic.error, "it does not exist")
        return topics

    def _ask(self, topics: Mapping[str, Topic], servers: Sequence[str]) -> Answers:
        led: dict[int, list[TopicPartition]] = {}
        for name, topic in topics.items():
            for partition, leader in topic.leaders.items():
                if leader is not None:
                    led.setdefault(leader, []).append((name, partition))
        if not led:
            return Answers()
        total = sum(map(len, led.values()))
        with (
            Progress(self._screen, "reading producer IDs", total, unit="partitions") as progress,
            _producer_states(self._settings, servers, self._timeout) as states,
        ):
            return ask_leaders(states.ask, led, lambda done: progress.update(done, done, last=done == total))


def _producer_states(settings: Mapping[str, Setting], servers: Sequence[str], timeout: float) -> "ProducerStates":
    with extra("asks brokers for producer IDs"):
        from safeproducer.cli.common.producer_states import ProducerStates  # noqa: PLC0415 - kafka-python is an extra
    return ProducerStates(settings, servers, timeout)


def _brokers(reader: ClusterReader, timeout: float) -> list[Broker]:
    addresses = reader.brokers(timeout)
    configs = reader.configs(addresses, timeout)
    return [_broker(number, address, configs[number]) for number, address in addresses.items()]


def _broker(number: int, address: str, configs: Configs) -> Broker:
    if configs.error is None:
        return Broker(number, address, expiry.told(number, configs.values))
    code, text = configs.error
    return Broker(number, address, expiry.unreadable(number, f"{code}: {text}"), code)


def _census(
    name: str, topic: Topic, answers: Answers, known: Mapping[int, float], lines: Mapping[int, str]
) -> TopicCensus:
    if topic.error is not None:
        return TopicCensus(name, error=(topic.error, advice(topic.error, topic.error)))
    partitions: list[tuple[PartitionCensus, Sequence[ProducerState]]] = []
    for number, leader in topic.leaders.items():
        error = _NO_LEADER if leader is None else answers.refused.get((name, number))
        empty = PartitionCensus(number, leader, error=error)
        partitions.append((empty, answers.states.get((name, number), ())))
    return census(name, partitions, known, lines, time.time())
