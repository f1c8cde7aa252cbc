"""Three nodes that a fault may do anything to: afterwards they are whole again."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from types import TracebackType

from confluent_kafka import KafkaException

from integration.kafka.broker_requests import BrokerRequests
from integration.kafka.cluster import KafkaCluster
from integration.kafka.node import Node
from integration.kafka.poll import until

NODES = REPLICATION = 3
PARTITIONS = 6
METADATA_TOPIC = "__cluster_metadata"


class Ground:
    """A cluster of three nodes, minimum in sync two. Producers reach it directly, or through a tap if there is one."""

    def __init__(self) -> None:
        self.cluster = KafkaCluster(NODES, tapped=True)
        self._numbers = itertools.count(1)

    def __enter__(self) -> Ground:
        self.cluster.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cluster.close()

    @property
    def nodes(self) -> list[Node]:
        return list(self.cluster.nodes.values())

    def make_topic(self) -> str:
        """A fresh topic on all three nodes; waits until every one of them can take a replica."""
        name = f"faults-{next(self._numbers)}"
        until(lambda: self._created(name), f"topic {name} on {REPLICATION} nodes", 60, 0.2)
        self.wait_in_sync(name)
        return name

    def heal(self) -> None:
        """Every node runs."""
        for node in self.nodes:
            if node.state == "paused":
                node.resume()
        start([node for node in self.nodes if node.state == "stopped"])

    def wait_in_sync(self, topic: str) -> None:
        """Return when every replica of the topic is in sync on every node."""
        requests = self.cluster.admin.requests

        def whole() -> bool:
            try:
                told = [requests.partitions(topic, broker) for broker in requests.running()]
            except OSError:
                return False
            views = told[0].values()
            # A node that has just been resumed believes for a while in what was before.
            agreed = all(other == told[0] for other in told)
            return agreed and all(view.leader >= 0 and len(view.in_sync) == REPLICATION for view in views)

        until(whole, f"{topic} is in sync on {REPLICATION} nodes", 60, 0.1)

    def controller(self) -> int:
        """The node that is the active controller."""
        return Quorum(self.cluster.nodes).leader()

    def _created(self, name: str) -> bool:
        try:
            self.cluster.admin.create_topic(name, PARTITIONS, REPLICATION)
        except KafkaException as error:
            if error.args[0].name() != "INVALID_REPLICATION_FACTOR":
                raise
            return False
        return True


class Quorum(BrokerRequests):
    """Asks the nodes who of them is the active controller; a client's metadata names any broker instead."""

    def leader(self) -> int:
        """Node id of the active controller, -1 during an election."""
        topics = [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]
        answer = self._ask("DescribeQuorum", 1, topics=topics)
        return int(answer["topics"][0]["partitions"][0]["leader_id"])


def start(nodes: Iterable[Node]) -> None:
    """Start nodes together: a majority of them may be needed before one serves."""
    nodes = list(nodes)
    for node in nodes:
        node.launch()
    for node in nodes:
        node.wait_ready()
