"""What there is and where: Metadata, DescribeTopicPartitions, DescribeCluster, DescribeLogDirs; and what moves."""

from __future__ import annotations

import uuid

from safeproducer.testing.codec import Body, RefusedError
from safeproducer.testing.fake.handlers.request import LOOPBACK, UNKNOWN_TOPIC_OR_PARTITION, Request, by_partition
from safeproducer.testing.fake.state import topic_changes
from safeproducer.testing.fake.state.topic_changes import INVALID_TOPIC, is_topic_name
from safeproducer.testing.fake.state.topics import NO_LEADER, Partition, Topic

MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE = 114, 115
UNKNOWN_SERVER_ERROR, LEADER_NOT_AVAILABLE, INVALID_REQUEST = -1, 5, 42
_NO_ID = uuid.UUID(int=0)
_BY_ID_SINCE = 12
_BROKERS, _CONTROLLERS = 1, 2
_MOST_PARTITIONS = 2000
# What may be done with a topic, and with the cluster, where nobody is refused anything.
_ALL_OPERATIONS = 0b1101_1111_1000
_ALL_CLUSTER_OPERATIONS = 0b1_1111_1010_0000
_VOLUME = 1 << 40


def metadata(request: Request) -> Body:
    """Topics are never made on demand, as with ``auto.create.topics.enable=false``."""
    cluster, wanted = request.cluster, request.body["topics"]
    # In version 0 an empty list means all topics; from version 1 on it means none.
    if wanted is None or (request.header.version == 0 and not wanted):
        topics = [_topic(request, topic.name, topic.id, topic) for topic in cluster.topics.values()]
    elif refusal := _refusal(request, wanted):
        refused = [{**entry, "name": entry["name"] or "", "error_code": refusal} for entry in wanted]
        return {"brokers": [], "cluster_id": None, "controller_id": -1, "topics": refused}
    else:
        topics = [_asked_for(request, name, topic_id) for name, topic_id in _distinct(wanted)]
    brokers = [{"node_id": b.id, "host": LOOPBACK, "port": b.port, "rack": None} for b in cluster.alive]
    return {**_cluster(request), "brokers": brokers, "topics": topics}


def _refusal(request: Request, wanted: list[Body]) -> int:
    """The error of a request that names a topic in no way, or by its ID before version 12 (KIP-516); 0 for none."""
    if request.header.version < _BY_ID_SINCE:
        by_id = any(entry["name"] is None or entry.get("topic_id", _NO_ID) != _NO_ID for entry in wanted)
        return INVALID_REQUEST if by_id else 0
    return UNKNOWN_SERVER_ERROR if any(name is None and topic_id is None for name, topic_id in _distinct(wanted)) else 0


def _distinct(wanted: list[Body]) -> dict[tuple[str | None, uuid.UUID | None], None]:
    """Each topic once, by ID if there is any ID: then names count for nothing, as in Kafka."""
    ids = [entry["topic_id"] for entry in wanted if entry.get("topic_id", _NO_ID) != _NO_ID]
    return dict.fromkeys((None, topic_id) for topic_id in ids) or dict.fromkeys((e["name"], None) for e in wanted)


def _asked_for(request: Request, name: str | None, topic_id: uuid.UUID | None) -> Body:
    topic, error = request.find_topic(name, topic_id)
    if topic is None and name is not None and not is_topic_name(name):
        error = INVALID_TOPIC
    return _topic(request, name, topic_id, topic, error)


def _topic(request: Request, name: str | None, topic_id: uuid.UUID | None, topic: Topic | None, error: int = 0) -> Body:
    if topic is None or request.error:
        return {"error_code": request.error or error, "name": name, "topic_id": topic_id or _NO_ID}
    partitions = [_partition(request, partition) for partition in topic.partitions]
    found = {"error_code": 0, "name": topic.name, "topic_id": topic.id, "partitions": partitions}
    if request.body.get("include_topic_authorized_operations"):
        found["topic_authorized_operations"] = _ALL_OPERATIONS
    return found


def _partition(request: Request, partition: Partition) -> Body:
    brokers = request.cluster.brokers
    return {
        "error_code": LEADER_NOT_AVAILABLE if partition.leader == NO_LEADER else 0,
        "partition_index": partition.index,
        "leader_id": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": list(partition.replicas),
        "isr_nodes": request.cluster.in_sync(partition),
        "offline_replicas": [replica for replica in partition.replicas if not brokers[replica].alive],
    }


def describe_topic_partitions(request: Request) -> Body:
    """Topics by name, page by page: the cursor of an answer says where the next one begins (KIP-966)."""
    named = [entry["name"] for entry in request.body["topics"]]
    cursor = request.body["cursor"] or {"topic_name": "", "partition_index": 0}
    first, index = cursor["topic_name"], cursor["partition_index"]
    if request.error or index < 0 or (named and first and first not in named):
        return {"topics": [{"name": name, "error_code": request.error or INVALID_REQUEST} for name in named]}
    left = max(1, min(_MOST_PARTITIONS, request.body["response_partition_limit"]))
    described: list[Body] = []
    for name in sorted(name for name in {*(named or request.cluster.topics)} if name >= first):
        if left == 0:
            return {"topics": described, "next_cursor": {"topic_name": name, "partition_index": 0}}
        topic = request.cluster.topics.get(name)
        if topic is None:
            described.append({"name": name, "error_code": UNKNOWN_TOPIC_OR_PARTITION})
            continue
        start = index if name == first else 0
        shown = topic.partitions[start : start + left]
        left -= len(shown)
        described.append(
            {
                "name": name,
                "topic_id": topic.id,
                "partitions": [
                    {**_partition(request, partition), "eligible_leader_replicas": [], "last_known_elr": []}
                    for partition in shown
                ],
                "topic_authorized_operations": _ALL_OPERATIONS,
            }
        )
        if start + len(shown) < len(topic.partitions):
            return {"topics": described, "next_cursor": {"topic_name": name, "partition_index": start + len(shown)}}
    return {"topics": described}


def describe_cluster(request: Request) -> Body:
    """All brokers are living ones: a stopped broker is not registered, hence never fenced."""
    wanted = request.body.get("endpoint_type", _BROKERS)
    if request.error or wanted != _BROKERS:
        wrong = MISMATCHED_ENDPOINT_TYPE if wanted == _CONTROLLERS else UNSUPPORTED_ENDPOINT_TYPE
        return {"error_code": request.error or wrong, "error_message": None, "brokers": []}
    brokers = [{"broker_id": b.id, "host": LOOPBACK, "port": b.port, "rack": None} for b in request.cluster.alive]
    return {**_cluster(request), "brokers": brokers}


def _cluster(request: Request) -> Body:
    asked, cluster = request.body.get("include_cluster_authorized_operations"), request.cluster
    operations = {"cluster_authorized_operations": _ALL_CLUSTER_OPERATIONS} if asked else {}
    return {**operations, "cluster_id": cluster.id, "controller_id": cluster.controller}


def alter_reassignments(request: Request) -> Body:
    """One answer for each partition; a refused one leaves the others alone. Any broker answers."""
    same_factor = not request.body.get("allow_replication_factor_change", True)

    def answer(topic: Body, wanted: Body) -> Body:
        index, error, text = wanted["partition_index"], request.error, None
        try:
            if not error:
                replicas = wanted["replicas"]
                topic_changes.reassign(request.cluster, topic["name"], index, replicas, same_factor=same_factor)
        except RefusedError as refusal:
            error, text = refusal.error_code, str(refusal)
        return {"partition_index": index, "error_code": error, "error_message": text}

    responses = by_partition(request.body["topics"], answer)
    return {"allow_replication_factor_change": not same_factor, "error_code": request.error, "responses": responses}


def list_reassignments(request: Request) -> Body:
    """The moves in progress, all or those of some partitions. Others are left out without a word."""
    named, all_topics = request.body["topics"], request.cluster.topics
    wanted = None if named is None else {entry["name"]: entry["partition_indexes"] for entry in named}
    topics = []
    for topic in () if request.error else all_topics.values():
        partitions = [
            {
                "partition_index": partition.index,
                "replicas": list(partition.replicas),
                "adding_replicas": list(partition.adding),
                "removing_replicas": list(partition.removing),
            }
            for partition in topic.partitions
            if (partition.adding or partition.removing)
            and (wanted is None or partition.index in wanted.get(topic.name, ()))
        ]
        if partitions:
            topics.append({"name": topic.name, "partitions": partitions})
    return {"error_code": request.error, "error_message": None, "topics": topics}


def describe_log_dirs(request: Request) -> Body:
    """The sizes of this broker's replicas, in its one directory. No replica lags behind what it knows as committed."""
    named, broker, all_topics = request.body["topics"], request.broker.id, request.cluster.topics
    wanted = None if named is None else {entry["topic"]: entry["partitions"] for entry in named}
    topics, used = [], 0
    for topic in all_topics.values():
        sizes = {}
        for partition in topic.partitions:
            if broker in partition.replicas and (wanted is None or partition.index in wanted.get(topic.name, ())):
                end = partition.log.end_bytes if partition.copies is None else partition.copies.ends[broker]
                sizes[partition.index] = max(end - partition.log.start_bytes, 0)
        used += sum(sizes.values())
        if sizes:
            partitions = [
                {"partition_index": index, "partition_size": size, "offset_lag": 0, "is_future_key": False}
                for index, size in sizes.items()
            ]
            topics.append({"name": topic.name, "partitions": partitions})
    space = {"total_bytes": _VOLUME, "usable_bytes": max(_VOLUME - used, 0)}
    directory = {"error_code": request.error, "log_dir": f"/fake/{broker}", **space}
    return {"error_code": request.error, "results": [{**directory, "topics": () if request.error else topics}]}
