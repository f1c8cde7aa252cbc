"""Topics made, grown and deleted, refused as Kafka refuses them."""

import re
import uuid
from collections.abc import Mapping, Sequence

from safeproducer.testing.codec import RefusedError
from safeproducer.testing.fake.rules import configs
from safeproducer.testing.fake.state.cluster_state import ClusterState
from safeproducer.testing.fake.state.topics import Partition, Topic

MAX_PARTITIONS = 10_000
"""Most partitions of one topic: a request must not be able to hold up the whole cluster."""
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS = 3, 17, 36, 37
INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG = 38, 39, 40
NO_REASSIGNMENT_IN_PROGRESS = 85

Assignment = Sequence[Sequence[int]]
"""The replicas of each partition, the leader first."""


def is_topic_name(name: str) -> bool:
    return _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


def create_topic(
    cluster: ClusterState,
    name: str,
    partitions: int,
    replication_factor: int,
    config: Mapping[str, str | None],
    *,
    assignment: Assignment | None = None,
    validate_only: bool = False,
) -> Topic:
    """Create a topic, or only check that with `validate_only`. Raises RefusedError."""
    if name in cluster.topics:
        raise RefusedError(TOPIC_ALREADY_EXISTS, f"topic {name} exists already")
    if not is_topic_name(name):
        raise RefusedError(INVALID_TOPIC, f"{name!r} is no topic name: 1 to 249 of a-z A-Z 0-9 . _ -")
    for key, value in config.items():
        try:
            configs.check(configs.TOPIC, key, value)
        except configs.ConfigError as error:
            raise RefusedError(INVALID_CONFIG, str(error)) from error
    if assignment is None:
        _check_count(partitions)
        first = len(cluster.topics)
        assignment = _spread(cluster, range(first, first + partitions), replication_factor)
    else:
        _check_assignment(cluster, assignment)
    made = [Partition(index, tuple(replicas), replicas[0]) for index, replicas in enumerate(assignment)]
    topic = Topic(name, uuid.uuid4(), made, {key: value for key, value in config.items() if value is not None})
    if not validate_only:
        cluster.topics[name] = topic
        _replicate(cluster, topic, made)
    return topic


def create_partitions(
    cluster: ClusterState, name: str, count: int, *, assignment: Assignment | None = None, validate_only: bool = False
) -> None:
    """Let a topic have ``count`` partitions; ``assignment`` is of the new ones. Raises RefusedError."""
    topic = cluster.topics.get(name)
    if topic is None:
        raise RefusedError(UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    had = len(topic.partitions)
    if count <= had:
        text = f"count: {count} is no increase, {name} has {had} partition(s)"
        raise RefusedError(INVALID_PARTITIONS, text)
    _check_count(count)
    factor = len(topic.partitions[0].replicas)
    if assignment is None:
        first = topic.partitions[0].replicas[0] - 1
        assignment = _spread(cluster, range(first + had, first + count), factor)
    else:
        if len(assignment) != count - had:
            text = f"{len(assignment)} assignment(s) for {count - had} new partition(s)"
            raise RefusedError(INVALID_REPLICA_ASSIGNMENT, text)
        _check_assignment(cluster, assignment)
        if {len(replicas) for replicas in assignment} != {factor}:
            text = f"{assignment}: the partitions of {name} have {factor} replica(s)"
            raise RefusedError(INVALID_REPLICA_ASSIGNMENT, text)
    if not validate_only:
        new = [Partition(index, tuple(replicas), replicas[0]) for index, replicas in enumerate(assignment, had)]
        topic.partitions += new
        _replicate(cluster, topic, new)


def _replicate(cluster: ClusterState, topic: Topic, partitions: Sequence[Partition]) -> None:
    if cluster.fetchers is not None:
        cluster.follow()
        for partition in partitions:
            cluster.fetchers.add(topic, partition)
    cluster.changed()


def delete_topic(cluster: ClusterState, topic: Topic) -> None:
    """Its records and what brokers remember of its producers are gone with it."""
    del cluster.topics[topic.name]
    if cluster.fetchers is not None:
        cluster.fetchers.remove(topic)
    cluster.changed()


def reassign(
    cluster: ClusterState, name: str, index: int, replicas: Sequence[int] | None, *, same_factor: bool
) -> None:
    """Move a partition to these replicas, or with None end its move. Raises RefusedError."""
    topic = cluster.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        raise RefusedError(UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of {name!r}")
    partition = topic.partitions[index]
    before = [replica for replica in partition.replicas if replica not in partition.adding]
    if replicas is None and not (partition.adding or partition.removing):
        raise RefusedError(NO_REASSIGNMENT_IN_PROGRESS, f"partition {index} of {name!r} does not move")
    target = before if replicas is None else replicas
    if not target or len({*target}) != len(target) or not {*target} <= cluster.brokers.keys():
        text = f"{target} is not made of the brokers {[*cluster.brokers]}, each once at most"
        raise RefusedError(INVALID_REPLICA_ASSIGNMENT, text)
    if same_factor and len(target) != len(before):
        raise RefusedError(INVALID_REPLICATION_FACTOR, f"{target}: partition {index} has {len(before)} replica(s)")
    cluster.follow()
    partition.move(target)
    cluster.review()


def _check_count(partitions: int) -> None:
    if not 1 <= partitions <= MAX_PARTITIONS:
        text = f"partitions: {partitions} is not between 1 and {MAX_PARTITIONS}, more than which are not made here"
        raise RefusedError(INVALID_PARTITIONS, text)


def _spread(cluster: ClusterState, positions: range, replication_factor: int) -> Assignment:
    """As Kafka does, but each topic begins at the broker behind that of the topic before, and not at random: leaders go
    round the brokers, and followers stand further from theirs at each round."""
    living = [broker.id for broker in cluster.alive]
    count = len(living)
    if not 1 <= replication_factor <= count:
        text = f"replication_factor: {replication_factor} is not between 1 and the {count} living brokers"
        raise RefusedError(INVALID_REPLICATION_FACTOR, text)
    return [
        [living[at % count]]
        + [living[(at + 1 + (at // count + step) % (count - 1)) % count] for step in range(replication_factor - 1)]
        for at in positions
    ]


def _check_assignment(cluster: ClusterState, assignment: Assignment) -> None:
    living = [broker.id for broker in cluster.alive]
    each_once = all(replicas and len({*replicas}) == len(replicas) for replicas in assignment)
    if not each_once or not {replica for replicas in assignment for replica in replicas} <= {*living}:
        text = f"{assignment} is not made of the living brokers {living}, each once at most"
        raise RefusedError(INVALID_REPLICA_ASSIGNMENT, text)
