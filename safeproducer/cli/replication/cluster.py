"""Reads moves, throttles and sizes of a cluster. Changes nothing."""

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from safeproducer.cli.common.connection import BrokerErrors, await_topic, extra, open_reader
from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.settings import Setting
from safeproducer.cli.common.stop import Failure, StopRequest
from safeproducer.kafka.advice import advice
from safeproducer.kafka.cluster_reader import Configs
from safeproducer.kafka.native import KafkaException
from safeproducer.policy.replication import Facts, Moves, Replicas, Side, ThrottledReplicas, moves
from safeproducer.policy.types import TopicPartition

_Sizes = Mapping[tuple[TopicPartition, int], tuple[float, int]]


@dataclass(frozen=True, slots=True)
class Cluster:
    """`facts.bytes_in`: of all producers. `unreadable`: topics with a list that cannot be read."""

    facts: Facts
    brokers: frozenset[int]
    moves: Moves
    sizes: Mapping[tuple[TopicPartition, int], int]
    unreadable: frozenset[str] = frozenset()

    def behind(self, tp: TopicPartition, broker: int) -> int:
        """Bytes that a replica lacks. A broker's own offset_lag is 0 for a follower, however late it is."""
        one = self.facts.known[tp]
        if one.leader is None or broker in one.in_sync:
            return 0
        return max(0, self.sizes.get((tp, one.leader), 0) - self.sizes.get((tp, broker), 0))

    def produced(self) -> dict[int, float]:
        """Broker -> bytes/s that are produced to it."""
        found, facts = dict.fromkeys(self.brokers, 0.0), self.facts
        for tp, rate in facts.bytes_in.items():
            if (leader := facts.known[tp].leader) is not None:
                found[leader] = found.get(leader, 0.0) + rate
        return found


def read_cluster(settings: Mapping[str, Setting], screen: Screen, timeout: float, measure: float) -> Cluster:
    """Look for `measure` seconds. Raises Failure if the user lacks a right, or a broker does not answer."""
    with extra("asks brokers for moves and sizes"):
        from safeproducer.cli.common.producer_states import ReplicaQuestions  # noqa: PLC0415 - kafka-python is an extra
    errors = BrokerErrors(screen)
    reader = open_reader(settings, errors)
    await_topic(reader, None, settings=settings, errors=errors, timeout=timeout, stop=StopRequest())
    try:
        metadata = reader.list_topics(timeout)
    except KafkaException as error:
        raise Failure(advice(error.args[0].name(), error.args[0].str()), code=error.args[0].name()) from error
    brokers = frozenset(metadata.brokers)
    known = {
        (name, number): Replicas(one.leader if one.leader >= 0 else None, one.replicas, frozenset(one.isrs), brokers)
        for name, topic in metadata.topics.items()
        for number, one in topic.partitions.items()
    }
    limits = _read(reader.configs(brokers, timeout), "broker {}", "the cluster")
    found = {(broker, side): values.get(side("rate")) for broker, values in limits.items() for side in Side}
    rates = {key: None if text is None else float(text) for key, text in found.items()}
    listed = _read(reader.topic_configs(metadata.topics, timeout), "topic {}", "it")
    texts = {(topic, side): values.get(side("replicas")) or "" for topic, values in listed.items() for side in Side}
    lists = {key: one for key, text in texts.items() if (one := ThrottledReplicas.read(text)) is not None}
    servers = [f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()]
    with closing(ReplicaQuestions(settings, servers, timeout)) as questions:
        ongoing = {tp: added for tp, added in questions.moves().items() if tp in known}
        before = questions.sizes(brokers)
        time.sleep(measure)
        after = questions.sizes(brokers)
    return Cluster(
        Facts(known, lists, rates, _bytes_in(known, before, after)),
        brokers,
        moves({tp: one.replicas for tp, one in known.items()}, ongoing, {}),
        {replica: size for replica, (_, size) in after.items()},
        frozenset(topic for topic, side in texts if (topic, side) not in lists),
    )


def _read(answers: Mapping[Any, Configs], name: str, right: str) -> dict[Any, Mapping[str, str | None]]:
    for one, answer in answers.items():
        code, text = answer.error or ("", "")
        what = f"The throttles of {name.format(one)} cannot be read: "
        if code.endswith("AUTHORIZATION_FAILED"):
            raise Failure(f"{what}the user needs DESCRIBE_CONFIGS on {right}.", code="no-right")
        if code not in {"", "UNKNOWN_TOPIC_OR_PART"}:  # a topic may be deleted meanwhile
            raise Failure(what + advice(code, text), code=code)
    return {one: answer.values for one, answer in answers.items() if answer.error is None}


def _bytes_in(known: Mapping[TopicPartition, Replicas], before: _Sizes, after: _Sizes) -> dict[TopicPartition, float]:
    """By the growth of the leader's replica. One that shrank has lost old segments, and counts as 0."""
    both = {tp: (tp, one.leader or 0) for tp, one in known.items() if (tp, one.leader) in before.keys() & after.keys()}
    spans = {tp: after[at][0] - before[at][0] for tp, at in both.items()}
    return {tp: max(0, after[at][1] - before[at][1]) / max(spans[tp], 0.001) for tp, at in both.items()}
