"""InitProducerId and DescribeProducers."""

from safeproducer.testing.fake.handlers.request import NOT_LEADER_OR_FOLLOWER, Request
from safeproducer.testing.fake.state.topic_changes import INVALID_TOPIC, is_topic_name
from safeproducer.testing.wire import Body

__all__ = ["describe_producers", "init_producer_id"]

INVALID_REQUEST = 42


def init_producer_id(request: Request) -> Body:
    """A new ID for each call, as Kafka does for a producer without a transactional ID.

    There is no transaction coordinator: a transactional ID is answered with INVALID_REQUEST.
    """
    error = request.error or (INVALID_REQUEST if request.body["transactional_id"] is not None else 0)
    if error:
        return {"error_code": error, "producer_id": -1, "producer_epoch": -1}
    return {"producer_id": request.cluster.new_producer_id(), "producer_epoch": 0}


def describe_producers(request: Request) -> Body:
    """The producers that this replica remembers, leader or follower."""
    topics = []
    for topic in request.body["topics"]:
        partitions = [_partition(request, topic["name"], index) for index in topic["partition_indexes"]]
        topics.append({"name": topic["name"], "partitions": partitions})
    return {"topics": topics}


def _partition(request: Request, name: str, index: int) -> Body:
    _, partition, error = request.find_led(name or "", None, index)
    if not is_topic_name(name):
        error = INVALID_TOPIC
    if error == NOT_LEADER_OR_FOLLOWER and partition is not None and request.broker.id in partition.replicas:
        error = 0
    error = request.error or error
    if partition is None or error:
        return {"partition_index": index, "error_code": error, "active_producers": []}
    active = [
        {
            "producer_id": producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_timestamp": entry.batches[-1].timestamp,
            "coordinator_epoch": -1,
            "current_txn_start_offset": -1,
        }
        for producer_id, entry in request.cluster.producers(partition, request.broker).entries().items()
    ]
    return {"partition_index": index, "error_code": 0, "active_producers": active}
