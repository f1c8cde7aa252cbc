"""Asks brokers what confluent_kafka does not offer: producer IDs, moves of replicas, and the sizes of replicas.

The one module of the commands that knows kafka-python, whose admin client sends the request.
"""

import logging
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import tenacity

from safeproducer.cli.common.admin_settings import (
    AskError,
    OpenTransaction,
    RememberedId,
    TopicPartition,
    admin_settings,
)
from safeproducer.cli.common.settings import Setting
from safeproducer.cli.common.stop import Failure
from safeproducer.kafka.advice import advice

with warnings.catch_warnings():
    # kafka-python loads its schemas in a way that Python deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # type: ignore[import-untyped]
    from kafka import errors

_CODES = {
    errors.TopicAuthorizationFailedError: "TOPIC_AUTHORIZATION_FAILED",
    errors.ClusterAuthorizationFailedError: "CLUSTER_AUTHORIZATION_FAILED",
    errors.UnknownTopicOrPartitionError: "UNKNOWN_TOPIC_OR_PART",
    errors.NotLeaderForPartitionError: "NOT_LEADER_FOR_PARTITION",
    errors.UnsupportedVersionError: "UNSUPPORTED_VERSION",
}
"""librdkafka's names of the errors that the commands tell apart."""
_OF_BROKER = (errors.UnsupportedVersionError, errors.RequestTimedOutError, errors.NetworkExceptionError)
_NONE = -1
_WAIT = 0.1


def admin_client(settings: Mapping[str, Setting], servers: Sequence[str], timeout: float, what: str) -> Any:
    """kafka-python's, connected; raises Failure, which says that `what` was not read."""
    translated = {**admin_settings(settings, what), "bootstrap_servers": list(servers)}
    # It would log each attempt to connect that failed, which is told once here.
    logging.getLogger("kafka").addHandler(logging.NullHandler())
    limit = max(1, int(timeout * 1000))
    try:
        return kafka.KafkaAdminClient(
            **translated,
            request_timeout_ms=limit,
            bootstrap_timeout_ms=limit,
            max_in_flight_requests_per_connection=100,
        )
    except errors.KafkaError as error:
        raise Failure(f"{advice('_TRANSPORT', str(error))} {what} was not read.", code="_TRANSPORT") from error


class BrokerQuestions:
    """One admin client. Its questions raise AskError, and ask() may be called by several threads at once.

    `settings` are librdkafka's, `servers` brokers that answer: kafka-python waits for the first one that it happens to
    choose. Raises Failure if it has no counterpart of the settings, or reaches no broker within `timeout` seconds; a
    question takes that long at most, too. `what` is not read then.
    """

    def __init__(self, settings: Mapping[str, Setting], servers: Sequence[str], timeout: float, what: str) -> None:
        self._admin = admin_client(settings, servers, timeout, what)
        self._again = tenacity.Retrying(
            # It is throttled, or was connected to in vain a moment ago.
            retry=tenacity.retry_if_exception_type(errors.NodeNotReadyError),
            stop=tenacity.stop_after_delay(timeout),
            wait=tenacity.wait_fixed(_WAIT),
            reraise=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close()

    def ask(self, broker: int | None, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, list[RememberedId]]:
        """Return what this broker keeps for these partitions; None asks the leader of each.

        Raises AskError, also if only one partition is refused.
        """
        wanted = [kafka.TopicPartition(*one) for one in partitions]
        answer = self._answer(self._admin.describe_producers, wanted, broker_id=broker)
        return {(one.topic, one.partition): [_state(row) for row in found[0]] for one, found in answer.items()}

    def moves(self) -> dict[TopicPartition, Sequence[int]]:
        """Partition that moves -> the replicas that are being added."""
        found = self._answer(self._admin.list_partition_reassignments)
        return {(tp.topic, tp.partition): one["adding_replicas"] for tp, one in found.items()}

    def open_transactions(self, brokers: Sequence[int]) -> list[OpenTransaction]:
        """Of which these are the coordinators, and which this user may describe; the oldest first."""
        listed = self._answer(self._admin.list_transactions, broker_ids=brokers, state_filters=["Ongoing"])
        ids = [one.transactional_id for each in listed.values() for one in each]
        found, now = self._answer(self._admin.describe_transactions, ids) if ids else {}, time.time()
        opened = [
            OpenTransaction(name, now - began / 1000, limit / 1000, tuple(sorted(map(tuple, partitions))))
            for name, (*_, limit, began, partitions) in found.items()
            if began != _NONE  # else it has ended since
        ]
        return sorted(opened, key=lambda one: -one.age)

    def sizes(self, brokers: Iterable[int]) -> dict[tuple[TopicPartition, int], tuple[float, int]]:
        """Partition and broker -> when it was asked, and the bytes of that replica."""
        found = {}
        for broker in brokers:
            (answer,) = self._answer(self._admin.describe_log_dirs, brokers=[broker])
            now = time.monotonic()
            if not answer["log_dirs"]:  # without the right a broker tells of no directory
                raise _ask_error(errors.ClusterAuthorizationFailedError())
            for topic in (topic for directory in answer["log_dirs"] for topic in directory["topics"]):
                for one in topic["partitions"]:
                    if not one["is_future_key"]:
                        found[(topic["name"], one["partition_index"]), broker] = now, one["partition_size"]
        return found

    def _answer(self, question: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return self._again(question, *arguments, **named)
        except errors.KafkaError as error:
            raise _ask_error(error) from error


def _state(row: Any) -> RememberedId:
    is_open = row.current_transaction_start_offset != _NONE
    return RememberedId(
        row.producer_id,
        row.last_sequence,
        row.last_timestamp / 1000,
        # A coordinator wrote the marker of a transaction.
        is_open or row.coordinator_epoch != _NONE,
        is_open,
    )


def _ask_error(error: Exception) -> AskError:
    code = next((name for kind, name in _CODES.items() if isinstance(error, kind)), type(error).__name__)
    of_broker = not isinstance(error, errors.BrokerResponseError) or isinstance(error, _OF_BROKER)
    return AskError(code, str(error), of_broker=of_broker)
