"""Requests that confluent_kafka does not offer, or does not send to one chosen broker.

kafka-python encodes and decodes them; the socket is our own, because its client leaks sockets when a broker is down.
"""

import itertools
import socket
import struct
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from integration.kafka.node import Node
from integration.kafka.ports import LOOPBACK

with warnings.catch_warnings():
    # kafka-python loads its schemas in a way that Python deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.admin as protocol  # type: ignore[import-untyped]
    from kafka import errors as kafka_errors
    from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse  # type: ignore[import-untyped]
    from kafka.protocol.metadata import MetadataRequest, MetadataResponse  # type: ignore[import-untyped]

TIMEOUT = 20.0
LATEST = -1
SET, DELETE = 0, 1
EXACT_MATCH = 0
DEFAULT_MATCH = 1
TOPIC = 2
OF_TOPIC, OF_BROKER, OF_ALL_BROKERS = 1, 2, 3  # where a described value comes from

Entity = Mapping[str, str | None]
"""Entity type (`user`, `client-id`) to name; None is the default entity."""


@dataclass(frozen=True)
class ProducerState:
    """What the leader keeps about one producer ID in one partition."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    transaction_start_offset: int
    """-1 when no transaction is open."""


@dataclass(frozen=True)
class PartitionView:
    """One partition as one broker's metadata sees it."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class BrokerRequests:
    """Typed requests to the nodes of a cluster, over their DIRECT listener; one connection each, thread-safe.

    Raises the error class of kafka-python that belongs to the broker's error code, OSError when a node does not answer.
    """

    def __init__(self, nodes: Mapping[int, Node]) -> None:
        self._nodes = nodes
        self._correlation = itertools.count(1)

    def running(self) -> list[int]:
        """IDs of the nodes whose process runs and is not paused."""
        return [node.id for node in self._nodes.values() if node.state == "running"]

    def partitions(self, topic: str, broker: int | None = None) -> dict[int, PartitionView]:
        """The topic's partitions as `broker` knows them (any when None); empty when it does not know the topic."""
        topics = [MetadataRequest.MetadataRequestTopic(name=topic, topic_id=None)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        answer = self._ask(request, MetadataResponse, 12, broker)
        return {
            one.partition_index: PartitionView(one.leader_id, tuple(one.replica_nodes), tuple(one.isr_nodes))
            for one in answer.topics[0].partitions
        }

    def alter_quota(self, entity: Entity, limits: Mapping[str, float | None]) -> None:
        """Set the limits of an entity; None removes one."""
        entry = protocol.AlterClientQuotasRequest.EntryData
        named = [entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
        changes = [entry.OpData(key=key, value=limit or 0.0, remove=limit is None) for key, limit in limits.items()]
        request = protocol.AlterClientQuotasRequest(entries=[entry(entity=named, ops=changes)], validate_only=False)
        answer = self._ask(request, protocol.AlterClientQuotasResponse, 1)
        _raise_for(answer.entries[0])

    def quota(self, entity: Entity, broker: int) -> dict[str, float]:
        """The limits of exactly this entity as `broker` knows them."""
        component = protocol.DescribeClientQuotasRequest.ComponentData
        components = [
            component(entity_type=kind, match_type=DEFAULT_MATCH if name is None else EXACT_MATCH, match=name)
            for kind, name in entity.items()
        ]
        request = protocol.DescribeClientQuotasRequest(components=components, strict=True)
        answer = self._ask(request, protocol.DescribeClientQuotasResponse, 1, broker)
        _raise_for(answer)
        return {value.key: value.value for entry in answer.entries for value in entry.values}

    def dynamic_configs(self, kind: int, name: str, broker: int) -> dict[str, str | None]:
        """The configs set at run time on just this topic, broker or (name "") all brokers, as `broker` knows them."""
        resource = protocol.DescribeConfigsRequest.DescribeConfigsResource
        request = protocol.DescribeConfigsRequest(
            resources=[resource(resource_type=kind, resource_name=name, configuration_keys=None)]
        )
        found = self._ask(request, protocol.DescribeConfigsResponse, 4, broker).results[0]
        _raise_for(found)
        source = OF_TOPIC if kind == TOPIC else OF_BROKER if name else OF_ALL_BROKERS
        return {one.name: one.value for one in found.configs if one.config_source == source}

    def alter_configs(self, kind: int, name: str, configs: Mapping[str, str | None], broker: int | None) -> None:
        """Set configs of a topic or broker at run time; None removes one. A broker's own go to that broker."""
        resource = protocol.IncrementalAlterConfigsRequest.AlterConfigsResource
        changes = [
            resource.AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
            for key, value in configs.items()
        ]
        one = resource(resource_type=kind, resource_name=name, configs=changes)
        request = protocol.IncrementalAlterConfigsRequest(resources=[one], validate_only=False)
        answer = self._ask(request, protocol.IncrementalAlterConfigsResponse, 1, broker)
        _raise_for(answer.responses[0])

    def describe_producers(self, topic: str, partition: int) -> list[ProducerState]:
        """The producers that the partition's leader remembers, by producer ID."""
        leader = self.partitions(topic)[partition].leader
        wanted = protocol.DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[partition])
        request = protocol.DescribeProducersRequest(topics=[wanted])
        answer = self._ask(request, protocol.DescribeProducersResponse, 0, leader).topics[0].partitions[0]
        _raise_for(answer)
        found = [
            ProducerState(
                state.producer_id,
                state.producer_epoch,
                state.last_sequence,
                state.last_timestamp,
                state.current_txn_start_offset,
            )
            for state in answer.active_producers
        ]
        return sorted(found, key=lambda state: state.producer_id)

    def end_offset(self, topic: str, partition: int, leader: int) -> int | None:
        """The partition's high watermark as its leader tells it; None while the node cannot tell."""
        one = ListOffsetsRequest.ListOffsetsTopic
        place = one.ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=LATEST)
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[one(name=topic, partitions=[place])])
        answer = self._ask(request, ListOffsetsResponse, 7, leader).topics[0].partitions[0]
        if answer.error_code:
            error = kafka_errors.for_code(answer.error_code)
            if error.retriable:
                return None
            raise error(f"{topic}[{partition}]")
        return int(answer.offset)

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Give the partition these replicas, the preferred leader first; returns when it was accepted."""
        one = protocol.AlterPartitionReassignmentsRequest.ReassignableTopic
        place = one.ReassignablePartition(partition_index=partition, replicas=list(replicas))
        request = protocol.AlterPartitionReassignmentsRequest(
            timeout_ms=int(TIMEOUT * 1000), topics=[one(name=topic, partitions=[place])]
        )
        answer = self._ask(request, protocol.AlterPartitionReassignmentsResponse, 0)
        _raise_for(answer)
        _raise_for(answer.responses[0].partitions[0])

    def elect_preferred(self, topic: str, partition: int) -> bool:
        """Elect the first replica; False when it cannot lead yet."""
        place = protocol.ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[partition])
        request = protocol.ElectLeadersRequest(
            election_type=protocol.ElectionType.PREFERRED, topic_partitions=[place], timeout_ms=int(TIMEOUT * 1000)
        )
        answer = self._ask(request, protocol.ElectLeadersResponse, 2)
        _raise_for(answer)
        result = answer.replica_election_results[0].partition_result[0]
        if result.error_code == kafka_errors.PreferredLeaderNotAvailableError.errno:
            return False
        if result.error_code != kafka_errors.ElectionNotNeededError.errno:
            _raise_for(result)
        return True

    def _ask(self, request: Any, answer: Any, version: int, broker: int | None = None) -> Any:
        node = self._nodes[self.running()[0] if broker is None else broker]
        request.API_VERSION = version
        request.with_header(correlation_id=next(self._correlation), client_id="admin")
        with socket.create_connection((LOOPBACK, node.direct_port), TIMEOUT) as connection:
            connection.sendall(request.encode(header=True, framed=True))
            (size,) = struct.unpack(">i", _receive(connection, 4))
            return answer.decode(_receive(connection, size), version=version, header=True)


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionError("the broker closed the connection before it had answered")
        received += piece
    return received


def _raise_for(answer: Any) -> None:
    if answer.error_code:
        raise kafka_errors.for_code(answer.error_code)(answer.error_message)
