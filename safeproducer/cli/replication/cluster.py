"""Reads moves, throttles and sizes of a cluster. Changes nothing."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from safeproducer.cli.common.admin_settings import AskError
from safeproducer.cli.common.connection import opened_reader
from safeproducer.cli.common.finding import facts_of
from safeproducer.cli.common.producer_states import BrokerQuestions
from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.settings import Setting
from safeproducer.cli.common.stop import Failure
from safeproducer.kafka.admin import Configs, Refusal
from safeproducer.kafka.advice import advice
from safeproducer.kafka.native import KafkaException
from safeproducer.policy.replication import Facts, Moves, Replicas, moves
from safeproducer.policy.types import TopicPartition

_WHAT = "What is moved, and how large replicas are,"
_Sizes = Mapping[tuple[TopicPartition, int], tuple[float, int]]


@dataclass(frozen=True, slots=True)
class Cluster:
    """`facts.bytes_in`: of all producers. `unseen`: topics that move, and that the user may not DESCRIBE."""

    facts: Facts
    brokers: frozenset[int]
    moves: Moves
    sizes: Mapping[tuple[TopicPartition, int], int]
    unseen: frozenset[str] = frozenset()

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
    reader = opened_reader(settings, screen, timeout)
    try:
        addresses, topics = reader.brokers(timeout), reader.all_topics(timeout)
    except KafkaException as error:
        raise Failure(advice(error.args[0].name(), error.args[0].str()), code=error.args[0].name()) from error
    brokers = frozenset(addresses)
    known = {(name, number): one for name, topic in topics.items() for number, one in topic.partitions.items()}
    limits, listed = reader.configs(brokers, timeout), reader.topic_configs(topics, timeout)
    answers: list[tuple[int | str, Configs]] = [*limits.items(), *listed.items()]
    for of, answer in answers:
        if answer.error is not None and answer.error[0] != "UNKNOWN_TOPIC_OR_PART":  # a topic may be deleted meanwhile
            raise refused(of, answer.error, "read", "DESCRIBE_CONFIGS")
    try:
        with BrokerQuestions(settings, addresses, timeout, _WHAT) as questions:
            ongoing = questions.moves()
            before = questions.sizes(brokers)
        time.sleep(measure)
        with BrokerQuestions(settings, addresses, timeout, _WHAT) as questions:  # a broker may close who rests
            after = questions.sizes(brokers)
    except AskError as error:
        why, code = f"{advice('_TRANSPORT', str(error))} {_WHAT} was not read.", "_TRANSPORT"
        if error.code == "CLUSTER_AUTHORIZATION_FAILED":
            why, code = f"{_WHAT} cannot be read: the user needs DESCRIBE on the cluster.", "no-right"
        raise Failure(why, code=code) from error
    seen = {tp: added for tp, added in ongoing.items() if tp in known}
    return Cluster(
        replace(facts_of(known, limits, listed), bytes_in=_bytes_in(known, before, after)),
        brokers,
        moves({tp: one.replicas for tp, one in known.items()}, seen, {}),
        {replica: size for replica, (_, size) in after.items()},
        frozenset(topic for topic, _ in ongoing.keys() - seen.keys()),
    )


def refused(of: int | str, error: Refusal, done: str, right: str, made: str = "", *, exit_code: int = 2) -> Failure:
    """A broker (its number) or topic (its name) whose throttle cannot be read or changed. `made`: what was changed."""
    kind, at = ("broker", "the cluster") if isinstance(of, int) else ("topic", "it")
    code, why = error[0], advice(*error)
    if code.endswith("AUTHORIZATION_FAILED"):
        code, why = "no-right", f"the user needs {right} on {at}."
    text = f"The throttle of {kind} {of} cannot be {done}: {why} {made}"
    return Failure(text.rstrip(), code=code, exit_code=exit_code)


def _bytes_in(known: Mapping[TopicPartition, Replicas], before: _Sizes, after: _Sizes) -> dict[TopicPartition, float]:
    """By the growth of the leader's replica. One that shrank has lost old segments, and counts as 0."""
    both = {tp: (tp, one.leader or 0) for tp, one in known.items() if (tp, one.leader) in before.keys() & after.keys()}
    spans = {tp: after[at][0] - before[at][0] for tp, at in both.items()}
    return {tp: max(0, after[at][1] - before[at][1]) / max(spans[tp], 0.001) for tp, at in both.items()}
