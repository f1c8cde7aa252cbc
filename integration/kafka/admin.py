"""What tests change and ask on a cluster. Every change returns when all running brokers act on it."""

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from integration.kafka.broker_requests import BrokerRequests, PartitionView, ProducerState
from integration.kafka.node import Node
from integration.kafka.poll import until

LIMITS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")


class Admin:
    """Admin calls over the DIRECT listener. Errors of the broker come as KafkaException, slowness as TimeoutError."""

    def __init__(self, bootstrap: str, nodes: Mapping[int, Node]) -> None:
        self.client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        """The confluent_kafka admin client, for whatever this class does not wrap."""
        self.requests = BrokerRequests(nodes)
        """The calls that confluent_kafka does not offer."""

    def create_topic(
        self, name: str, partitions: int = 1, replication: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; returns when every running broker knows a leader of every partition."""
        new = NewTopic(name, num_partitions=partitions, replication_factor=replication, config=dict(configs or {}))
        self.client.create_topics([new])[name].result()
        self._wait_for_leaders(name, partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; returns when no running broker lists it."""
        self.client.delete_topics([name])[name].result()
        self._everywhere(lambda broker: not self.requests.partitions(name, broker), f"topic {name} is gone")

    def create_partitions(self, topic: str, total: int) -> None:
        self.client.create_partitions([NewPartitions(topic, total)])[topic].result()
        self._wait_for_leaders(topic, total)

    def set_topic_config(self, topic: str, configs: Mapping[str, str | None]) -> None:
        """Set configs of a topic; None removes one, so that the broker's default holds."""
        self._alter(ResourceType.TOPIC, topic, configs)

    def set_broker_config(self, configs: Mapping[str, str | None], node_id: int | None = None) -> None:
        """Set dynamic configs of one broker, or of all when no node is named; None removes one."""
        self._alter(ResourceType.BROKER, "" if node_id is None else str(node_id), configs, node_id)

    def configs(self, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
        resource = ConfigResource(kind, name)
        described: dict[str, ConfigEntry] = self.client.describe_configs([resource])[resource].result()
        return described

    def set_quota(self, *, user: str | None = None, client_id: str | None = None, **limits: float | None) -> None:
        """Limit a user, a client id or both together; the limit None removes it.

        `limits`: producer_byte_rate and consumer_byte_rate in bytes/s, request_percentage, controller_mutation_rate.
        The user or client id "" is the default one. A quota holds per broker.
        """
        unknown = [key for key in limits if key not in LIMITS]
        if unknown or not limits:
            raise TypeError(f"set_quota takes {', '.join(LIMITS)}, got {unknown or 'none of them'}")
        named = {"user": user, "client-id": client_id}
        entity = {kind: name or None for kind, name in named.items() if name is not None}
        if not entity:
            raise TypeError("set_quota needs a user, a client_id or both")
        self.requests.alter_quota(entity, limits)

        def known(broker: int) -> bool:
            quota = self.requests.quota(entity, broker)
            return all(quota.get(key) == limit for key, limit in limits.items())

        self._everywhere(known, f"quota {limits} of {entity}")

    def add_scram_user(
        self, name: str, password: str, mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512
    ) -> None:
        credential = UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), password.encode())
        altered: Any = self.client.alter_user_scram_credentials([credential])
        altered[name].result()

        describe: Any = self.client.describe_user_scram_credentials

        def known() -> bool:
            described = describe([name])[name]
            try:
                return any(info.mechanism == mechanism for info in described.result().scram_credential_infos)
            except KafkaException:
                return False

        until(known, f"SCRAM user {name} is known")

    def add_acl(
        self,
        principal: str,
        topic: str | None,
        *operations: AclOperation,
        pattern: ResourcePatternType = ResourcePatternType.LITERAL,
        permission: AclPermissionType = AclPermissionType.ALLOW,
    ) -> None:
        """Let (or forbid) a principal such as `User:alice` do the operations on a topic, or None: the cluster."""
        kind, name = (ResourceType.BROKER, "kafka-cluster") if topic is None else (ResourceType.TOPIC, topic)
        bindings = [AclBinding(kind, name, pattern, principal, "*", operation, permission) for operation in operations]
        for created in self.client.create_acls(bindings).values():
            created.result()

    def describe_producers(self, topic: str, partition: int) -> list[ProducerState]:
        """The producers that the partition's leader remembers, by producer ID."""
        return self.requests.describe_producers(topic, partition)

    def partitions(self, topic: str) -> dict[int, PartitionView]:
        """Leader, replicas and in-sync replicas of each partition."""
        return self.requests.partitions(topic)

    def leader(self, topic: str, partition: int) -> int:
        """Node id of the partition's leader, -1 when it has none."""
        return self.partitions(topic)[partition].leader

    def move_leader(self, topic: str, partition: int, node_id: int, timeout: float = 30) -> None:
        """Make the node the partition's leader; it becomes a replica first when it is none."""
        replicas = self.partitions(topic)[partition].replicas
        others = [replica for replica in replicas if replica != node_id][: len(replicas) - 1]
        self.requests.reassign(topic, partition, [node_id, *others])

        def leads() -> bool:
            if self.leader(topic, partition) == node_id:
                return True
            return self.requests.elect_preferred(topic, partition) and False

        until(leads, f"{topic}[{partition}] is led by node {node_id}", timeout)

    def end_offsets(self, topic: str) -> list[int]:
        """The high watermark of each partition, by partition; waits for a leader that can tell."""

        def told() -> list[int] | None:
            found = []
            for number, partition in sorted(self.partitions(topic).items()):
                known = partition.leader >= 0
                offset = self.requests.end_offset(topic, number, partition.leader) if known else None
                if offset is None:
                    return None
                found.append(offset)
            return found

        return until(told, f"every partition of {topic} tells its end offset") or []

    def _alter(
        self, kind: ResourceType, name: str, configs: Mapping[str, str | None], node_id: int | None = None
    ) -> None:
        self.requests.alter_configs(kind.value, name, configs, node_id)

        def known(broker: int) -> bool:
            if node_id not in {None, broker}:
                return True
            dynamic = self.requests.dynamic_configs(kind.value, name, broker)
            return all(dynamic.get(key) == value for key, value in configs.items())

        self._everywhere(known, f"{kind.name} {name or 'default'} has {dict(configs)}")

    def _wait_for_leaders(self, topic: str, count: int) -> None:
        def led(broker: int) -> bool:
            partitions = self.requests.partitions(topic, broker)
            return len(partitions) == count and all(one.leader >= 0 for one in partitions.values())

        self._everywhere(led, f"{topic} has {count} partitions with a leader")

    def _everywhere(self, holds: Callable[[int], bool], what: str, timeout: float = 30) -> None:
        """Wait until it holds at every node that runs."""
        until(lambda: all(holds(broker) for broker in self.requests.running()), what, timeout)
