"""Requests that confluent_kafka does not offer, or does not send to one chosen broker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from integration.kafka.exchange import exchange
from integration.kafka.node import Node
from safeproducer.testing import wire
from safeproducer.testing.codec import WireError

TIMEOUT = 20.0
TIMEOUT_MS = int(TIMEOUT * 1000)
LATEST = -1
SET, DELETE = 0, 1
EXACT_MATCH = 0
DEFAULT_MATCH = 1
TOPIC = 2
OF_TOPIC, OF_BROKER, OF_ALL_BROKERS = 1, 2, 3  # where a described value comes from
PREFERRED = 0
PREFERRED_LEADER_NOT_AVAILABLE, ELECTION_NOT_NEEDED = 80, 84
CANNOT_TELL_YET = (3, 5, 6, 7, 56, 74, 75, 78)

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

    Raises KafkaException for a broker's error, OSError when a node does not answer.
    """

    def __init__(self, nodes: Mapping[int, Node]) -> None:
        self._nodes = nodes

    def running(self) -> list[int]:
        """IDs of the nodes whose process runs and is not paused."""
        return [node.id for node in self._nodes.values() if node.state == "running"]

    def partitions(self, topic: str, broker: int | None = None) -> dict[int, PartitionView]:
        """The topic's partitions as `broker` knows them (any when None); empty when it does not know the topic."""
        answer = self._ask("Metadata", 12, broker, topics=[{"name": topic}], allow_auto_topic_creation=False)
        return {
            one["partition_index"]: PartitionView(
                one["leader_id"], tuple(one["replica_nodes"]), tuple(one["isr_nodes"])
            )
            for one in answer["topics"][0]["partitions"]
        }

    def alter_quota(self, entity: Entity, limits: Mapping[str, float | None]) -> None:
        """Set the limits of an entity; None removes one."""
        named = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
        changes = [{"key": key, "value": limit or 0.0, "remove": limit is None} for key, limit in limits.items()]
        entries = [{"entity": named, "ops": changes}]
        _checked(self._ask("AlterClientQuotas", 1, entries=entries, validate_only=False)["entries"][0])

    def quota(self, entity: Entity, broker: int) -> dict[str, float]:
        """The limits of exactly this entity as `broker` knows them."""
        components = [
            {"entity_type": kind, "match_type": DEFAULT_MATCH if name is None else EXACT_MATCH, "match": name}
            for kind, name in entity.items()
        ]
        answer = _checked(self._ask("DescribeClientQuotas", 1, broker, components=components, strict=True))
        return {value["key"]: value["value"] for entry in answer["entries"] for value in entry["values"]}

    def dynamic_configs(self, kind: int, name: str, broker: int) -> dict[str, str | None]:
        """The configs set at run time on just this topic, broker or (name "") all brokers, as `broker` knows them."""
        resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
        found = _checked(self._ask("DescribeConfigs", 4, broker, resources=resources)["results"][0])
        source = OF_TOPIC if kind == TOPIC else OF_BROKER if name else OF_ALL_BROKERS
        return {one["name"]: one["value"] for one in found["configs"] if one["config_source"] == source}

    def alter_configs(self, kind: int, name: str, configs: Mapping[str, str | None], broker: int | None) -> None:
        """Set configs of a topic or broker at run time; None removes one. A broker's own go to that broker."""
        changes = [
            {"name": key, "config_operation": DELETE if value is None else SET, "value": value}
            for key, value in configs.items()
        ]
        resources = [{"resource_type": kind, "resource_name": name, "configs": changes}]
        answer = self._ask("IncrementalAlterConfigs", 1, broker, resources=resources, validate_only=False)
        _checked(answer["responses"][0])

    def describe_producers(self, topic: str, partition: int) -> list[ProducerState]:
        """The producers that the partition's leader remembers, by producer ID."""
        leader = self.partitions(topic)[partition].leader
        answer = self._ask("DescribeProducers", 0, leader, topics=[{"name": topic, "partition_indexes": [partition]}])
        told = ("producer_id", "producer_epoch", "last_sequence", "last_timestamp", "current_txn_start_offset")
        active = _checked(answer["topics"][0]["partitions"][0])["active_producers"]
        return sorted((ProducerState(*(one[name] for name in told)) for one in active), key=lambda one: one.producer_id)

    def end_offset(self, topic: str, partition: int, leader: int) -> int | None:
        """The partition's high watermark as its leader tells it; None while the node cannot tell."""
        place = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": LATEST}
        topics = [{"name": topic, "partitions": [place]}]
        answer = self._ask("ListOffsets", 7, leader, replica_id=-1, isolation_level=0, topics=topics)
        found = answer["topics"][0]["partitions"][0]
        return None if found["error_code"] in CANNOT_TELL_YET else int(_checked(found)["offset"])

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Give the partition these replicas, the preferred leader first; returns when it was accepted."""
        topics = [{"name": topic, "partitions": [{"partition_index": partition, "replicas": list(replicas)}]}]
        answer = _checked(self._ask("AlterPartitionReassignments", 0, timeout_ms=TIMEOUT_MS, topics=topics))
        _checked(answer["responses"][0]["partitions"][0])

    def elect_preferred(self, topic: str, partition: int) -> bool:
        """Elect the first replica; False when it cannot lead yet."""
        places = [{"topic": topic, "partitions": [partition]}]
        asked: dict[str, Any] = {"election_type": PREFERRED, "topic_partitions": places, "timeout_ms": TIMEOUT_MS}
        answer = _checked(self._ask("ElectLeaders", 2, **asked))
        result = answer["replica_election_results"][0]["partition_result"][0]
        if result["error_code"] == PREFERRED_LEADER_NOT_AVAILABLE:
            return False
        if result["error_code"] != ELECTION_NOT_NEEDED:
            _checked(result)
        return True

    def _ask(self, api: str, version: int, broker: int | None = None, **body: Any) -> dict[str, Any]:
        node = self._nodes[self.running()[0] if broker is None else broker]
        answer = exchange(node.direct_port, wire.encode_request(api, version, 1, "admin", body), TIMEOUT)
        try:
            return wire.decode_response(api, version, answer)[1]
        except WireError as error:
            raise ConnectionError("the broker closed the connection before it had answered") from error


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if answer["error_code"]:
        raise KafkaException(KafkaError(answer["error_code"], answer.get("error_message")))
    return answer
