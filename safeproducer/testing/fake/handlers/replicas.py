"""AlterPartitionReassignments, ListPartitionReassignments and DescribeLogDirs."""

from safeproducer.testing.codec import Body
from safeproducer.testing.fake.handlers.request import Request
from safeproducer.testing.fake.state import topic_changes
from safeproducer.testing.fake.state.topic_changes import TopicRefusedError

_VOLUME = 1 << 40


def alter_reassignments(request: Request) -> Body:
    """One answer for each partition; a refused one leaves the others alone. Any broker answers."""
    same_factor = not request.body.get("allow_replication_factor_change", True)
    responses = []
    for topic in request.body["topics"]:
        answers = []
        for wanted in topic["partitions"]:
            index, error, text = wanted["partition_index"], request.error, None
            try:
                if not error:
                    topic_changes.reassign(
                        request.cluster, topic["name"], index, wanted["replicas"], same_factor=same_factor
                    )
            except TopicRefusedError as refusal:
                error, text = refusal.error_code, str(refusal)
            answers.append({"partition_index": index, "error_code": error, "error_message": text})
        responses.append({"name": topic["name"], "partitions": answers})
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
