"""Asks brokers what confluent_kafka does not offer: producer IDs, moves of replicas, and the sizes of replicas."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import chain
from typing import Any

from safeproducer.cli.common.admin_settings import AskError, OpenTransaction, RememberedId, admin_settings
from safeproducer.cli.common.broker_connection import BrokerConnection, refusal
from safeproducer.cli.common.settings import Setting
from safeproducer.cli.common.stop import Failure
from safeproducer.kafka.advice import advice
from safeproducer.kafka.native import KafkaError
from safeproducer.policy.types import TopicPartition

_NONE = -1
_NOT_LEADER, _NO_SUCH_ID = "NOT_LEADER_FOR_PARTITION", 105  # of transactions
Producers = Sequence[RememberedId] | AskError
"""The producers that a leader remembers for a partition, or why it does not tell."""


class BrokerQuestions(ExitStack):
    """One connection to each broker. Its questions raise AskError.

    `settings` are librdkafka's, `addresses` those of all brokers; what any may answer, the first that does is asked.
    Raises Failure if a setting has no counterpart, or none is reached within `timeout` seconds; a question takes that
    long at most, too. `what` is not read then.
    """

    def __init__(
        self, settings: Mapping[str, Setting], addresses: Mapping[int, str], timeout: float, what: str
    ) -> None:
        translated = admin_settings(settings, what)
        super().__init__()
        self._brokers = {number: BrokerConnection(at, translated, timeout) for number, at in addresses.items()}
        self._timeout = timeout
        for broker in self._brokers.values():
            self.callback(broker.close)
        try:
            self._any("ApiVersions", {})
        except AskError as error:
            self.close()
            raise Failure(f"{advice('_TRANSPORT', str(error))} {what} was not read.", code="_TRANSPORT") from error

    def producers(self, broker: int, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Producers]:
        """Return what this broker keeps for each of these partitions. Several threads may ask a broker each at once."""
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)
        asked = [{"name": topic, "partition_indexes": numbers} for topic, numbers in topics.items()]
        answer = self._ask(broker, "DescribeProducers", {"topics": asked})
        return {tp: _producers(one) for tp, one in _partitions(answer)}

    def moved(self, found: Mapping[TopicPartition, Producers]) -> dict[TopicPartition, Producers]:
        """Return what the leaders of now keep for partitions whose leader has moved meanwhile, as far as they tell."""
        moved = [tp for tp, one in found.items() if isinstance(one, AskError) and one.code == _NOT_LEADER]
        told: dict[TopicPartition, Producers] = {}
        with suppress(AskError):
            for leader, led in self._leaders(moved).items() if moved else ():
                told |= self.producers(leader, led)
        return told

    def moves(self) -> dict[TopicPartition, Sequence[int]]:
        """Partition that moves -> the replicas that are being added."""
        answer = self._any("ListPartitionReassignments", {"timeout_ms": int(self._timeout * 1000)})
        return {tp: one["adding_replicas"] for tp, one in _partitions(answer)}

    def open_transactions(self, brokers: Sequence[int]) -> list[OpenTransaction]:
        """Return those of which these are the coordinators, and which this user may describe; the oldest first."""
        described = []
        for broker in brokers:
            answer = _checked(self._ask(broker, "ListTransactions", {"state_filters": ["Ongoing"]}))
            ids = [one["transactional_id"] for one in answer["transaction_states"]]
            told = self._ask(broker, "DescribeTransactions", {"transactional_ids": ids}) if ids else {}
            described += told.get("transaction_states", ())
        now = time.time()
        opened = [
            OpenTransaction(
                one["transactional_id"],
                now - one["transaction_start_time_ms"] / 1000,
                one["transaction_timeout_ms"] / 1000,
                tuple(sorted((topic["topic"], number) for topic in one["topics"] for number in topic["partitions"])),
            )
            for one in described
            # else it has ended since
            if one["error_code"] != _NO_SUCH_ID and _checked(one)["transaction_start_time_ms"] != _NONE
        ]
        return sorted(opened, key=lambda one: -one.age)

    def sizes(self, brokers: Iterable[int]) -> dict[tuple[TopicPartition, int], tuple[float, int]]:
        """Partition and broker -> when it was asked, and the bytes of that replica."""
        found = {}
        for broker in brokers:
            directories = self._ask(broker, "DescribeLogDirs", {"topics": None})["results"]
            now = time.monotonic()
            if not directories:  # without the right a broker tells of no directory
                raise refusal(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
            for tp, one in chain.from_iterable(map(_partitions, directories)):
                if not one["is_future_key"]:
                    found[tp, broker] = now, one["partition_size"]
        return found

    def _leaders(self, partitions: Sequence[TopicPartition]) -> dict[int, list[TopicPartition]]:
        names = [{"name": topic} for topic in dict.fromkeys(topic for topic, _ in partitions)]
        answer = self._any("Metadata", {"topics": names, "allow_auto_topic_creation": False})
        told = {tp: one["leader_id"] for tp, one in _partitions(answer)}
        leaders: dict[int, list[TopicPartition]] = {}
        for one in partitions:
            leaders.setdefault(told.get(one, _NONE), []).append(one)
        return leaders

    def _ask(self, broker: int, api: str, body: Mapping[str, Any], within: float | None = None) -> dict[str, Any]:
        if broker not in self._brokers:
            raise refusal(KafkaError.LEADER_NOT_AVAILABLE)
        return self._brokers[broker].request(api, body, within)

    def _any(self, api: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of the first broker that can tell. In old clusters only the controller knows of moves."""
        last, left = refusal(KafkaError.BROKER_NOT_AVAILABLE), len(self._brokers)
        ends = time.monotonic() + self._timeout
        for broker in self._brokers:
            try:  # one that hangs leaves time for the next
                return _checked(self._ask(broker, api, body, (ends - time.monotonic()) / min(left, 2)))
            except AskError as error:
                last, left = error, left - 1
                if error.code.endswith("AUTHORIZATION_FAILED"):
                    break
        raise last


def _partitions(answer: Mapping[str, Any]) -> Iterator[tuple[TopicPartition, dict[str, Any]]]:
    for topic in answer["topics"]:
        for one in _checked(topic)["partitions"]:
            yield (topic["name"], one["partition_index"]), one


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if code := answer.get("error_code", 0):
        raise refusal(code, answer.get("error_message"))
    return answer


def _producers(answer: dict[str, Any]) -> Producers:
    try:
        return [_state(row) for row in _checked(answer)["active_producers"]]
    except AskError as error:
        return error


def _state(row: Mapping[str, Any]) -> RememberedId:
    is_open = row["current_txn_start_offset"] != _NONE
    transactional = is_open or row["coordinator_epoch"] != _NONE  # a coordinator wrote the marker of a transaction
    last = row["last_sequence"], row["last_timestamp"] / 1000
    return RememberedId(row["producer_id"], *last, transactional, is_open)
