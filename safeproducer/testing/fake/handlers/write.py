"""Produce: check, decide, append. Batches are known by their headers alone; records are never unpacked.

InitProducerId and DescribeProducers.
"""

import uuid
from typing import NamedTuple

from safeproducer.testing import wire
from safeproducer.testing.fake.handlers.request import NOT_LEADER_OR_FOLLOWER, Request
from safeproducer.testing.fake.rules.producer_state import Decision, Sequence
from safeproducer.testing.fake.rules.quotas import PRODUCER_IDS_RATE
from safeproducer.testing.fake.state.cluster_state import JournalBatch
from safeproducer.testing.fake.state.topic_changes import INVALID_TOPIC, is_topic_name
from safeproducer.testing.fake.state.topics import Partition, Topic
from safeproducer.testing.produce import BatchHeader, CorruptBatchError, ProducedBatch, read_batch_headers
from safeproducer.testing.wire import Body, WireError

__all__ = ["describe_producers", "init_producer_id", "produce"]

UNKNOWN_SERVER_ERROR = -1
CORRUPT_MESSAGE = 2
MESSAGE_TOO_LARGE = 10
NOT_ENOUGH_REPLICAS = 19
INVALID_REQUIRED_ACKS = 21
INVALID_TIMESTAMP = 32
INVALID_RECORD = 87
THROTTLING_QUOTA_EXCEEDED = 89
_ALL_REPLICAS = -1
_LAST_CODEC = 4


class Appended(NamedTuple):
    """``duplicate``: the batch was in the log already. ``stamp``: the time in ms that the answer tells, or -1."""

    error: int = 0
    offset: int = -1
    duplicate: bool = False
    stamp: int = -1


_NOT_APPENDED = Appended()


class UnansweredError(WireError):
    """An error that cannot be told, because the client wants no answer: Kafka closes the connection instead."""


def produce(request: Request) -> Body | None:
    """Acknowledged when appended: followers never lag, so no acknowledgement waits for them."""
    acks, hints, responses = request.body["acks"], [], []
    for topic in request.body["topic_data"]:
        answers = []
        for data in topic["partition_data"]:
            answer = _partition(request, topic.get("name"), topic.get("topic_id"), data, acks)
            hints.append(answer)
            answers.append(answer)
        response = {"name": topic.get("name"), "topic_id": topic.get("topic_id"), "partition_responses": answers}
        responses.append(response)
        if request.cluster.kip_1269_field == "topic":
            retained = [answer.pop(wire.FIELD) for answer in answers if wire.FIELD in answer]
            response |= {wire.FIELD: retained[0]} if retained else {}
    request.cluster.changed()
    if acks == 0:
        failed = [answer["error_code"] for answer in hints if answer["error_code"]]
        if failed:
            raise UnansweredError(f"acks=0 and error {failed[0]}")
        return None
    return {"responses": responses, **request.endpoints(hints)}


def _partition(request: Request, name: str | None, topic_id: uuid.UUID | None, data: Body, acks: int) -> Body:
    topic, partition, error = request.find_led(name, topic_id, data["index"])
    error = request.error or error or (0 if acks in (-1, 0, 1) else INVALID_REQUIRED_ACKS)
    try:
        batches = list(read_batch_headers(data["records"] or memoryview(b"")))
    except WireError as problem:
        wrong = CORRUPT_MESSAGE if isinstance(problem, CorruptBatchError) else INVALID_RECORD
        return {"index": data["index"], "error_code": error or wrong, "error_message": str(problem)}
    if len(batches) != 1:
        text = f"{len(batches)} batches; exactly one is allowed"
        return {"index": data["index"], "error_code": error or INVALID_RECORD, "error_message": text}
    label = topic.name if topic else name or str(topic_id)
    batch = ProducedBatch(label, None, data["index"], *batches[0])
    appended = _NOT_APPENDED
    reason: str | None = None
    if not error and topic is not None and partition is not None:
        error, reason = _check(request, topic, partition, batch, acks)
        if not error:
            error, reason = _admit(request, batch.header.producer_id)
        if not error:
            appended = _append(request, topic, partition, batch)
            error = appended.error
    request.produced.append(_seen(batch, error, appended.offset, appended.duplicate))
    return {
        "index": data["index"],
        "error_code": error,
        "base_offset": appended.offset,
        "log_append_time_ms": appended.stamp,
        "log_start_offset": -1 if error or partition is None else partition.log.start_offset,
        "error_message": reason,
        **_retained(request, topic, partition),
        **request.leader_hint(partition, error),
    }


def _retained(request: Request, topic: Topic | None, partition: Partition | None) -> Body:
    """KIP-1269: the leader tells how many batches it remembers, in good answers and bad; not if they are 5."""
    if topic is None or partition is None or partition.leader != request.broker.id:
        return {}
    retained = request.cluster.retain(request.broker, topic)
    return {} if retained == wire.DEFAULT else {wire.FIELD: retained}


def _seen(batch: ProducedBatch, error: int, offset: int, duplicate: bool) -> JournalBatch:
    header = batch.header
    return JournalBatch(
        batch.topic or "",
        batch.partition,
        header.producer_id,
        header.epoch,
        header.base_sequence,
        header.last_sequence,
        header.count,
        error,
        offset,
        duplicate,
    )


def _check(
    request: Request, topic: Topic, partition: Partition, batch: ProducedBatch, acks: int
) -> tuple[int, str | None]:
    """An error code and a text, for what is wrong with the replicas or with the batch itself."""
    header, cluster = batch.header, request.cluster
    in_sync = sum(cluster.brokers[replica].alive for replica in partition.replicas)
    wanted = min(cluster.value(request.broker, topic, "min.insync.replicas"), len(partition.replicas))
    if acks == _ALL_REPLICAS and in_sync < wanted:
        return NOT_ENOUGH_REPLICAS, None
    if not batch.crc_matches():
        return CORRUPT_MESSAGE, "the checksum does not fit"
    if header.size > cluster.value(request.broker, topic, "max.message.bytes"):
        return MESSAGE_TOO_LARGE, None
    ahead = 0 if cluster.stamps(request.broker, topic) else header.max_timestamp - cluster.clock.now_ms()
    if ahead > cluster.value(request.broker, topic, "message.timestamp.after.max.ms"):
        return INVALID_TIMESTAMP, f"a timestamp is {ahead} ms in the future"
    return _check_header(header)


def _check_header(header: BatchHeader) -> tuple[int, str | None]:
    if header.compression > _LAST_CODEC:
        return UNKNOWN_SERVER_ERROR, f"there is no compression {header.compression}"
    wrong = _invalid(header)
    return (INVALID_RECORD, wrong) if wrong else (0, None)


def _invalid(header: BatchHeader) -> str | None:
    if header.count < 1 or header.count != header.last_offset_delta + 1:
        return f"{header.count} records with a last offset delta of {header.last_offset_delta}"
    if header.base_offset:
        return f"the first offset is {header.base_offset}; clients count from 0"
    if header.control or header.transactional:
        return "FakeCluster has no transactions, and clients write no control batches"
    if header.producer_id >= 0 and header.base_sequence < 0:
        return f"producer {header.producer_id} without a sequence"
    return None


def _admit(request: Request, producer_id: int) -> tuple[int, str | None]:
    """KIP-936: may this user bring this producer ID? Asked last, so that only what is written counts as used."""
    limits, user, now = request.cluster.quotas, request.session.user, request.cluster.clock.now_ms()
    if producer_id < 0 or not limits.enabled(PRODUCER_IDS_RATE):
        return 0, None
    delay = request.broker.producer_ids.admit(user, producer_id, limits.find_for_user(PRODUCER_IDS_RATE, user), now)
    request.throttle_ms = max(request.throttle_ms, delay)
    return (THROTTLING_QUOTA_EXCEEDED, f"{user} brings too many new producer IDs") if delay else (0, None)


def _append(request: Request, topic: Topic, partition: Partition, batch: ProducedBatch) -> Appended:
    cluster, stamps = request.cluster, request.cluster.stamps(request.broker, topic)
    stored = batch.stamped(cluster.clock.now_ms()) if stamps else batch
    header, stamp = stored.header, stored.header.max_timestamp if stamps else -1
    if header.producer_id < 0:
        return Appended(0, partition.log.append(header, stored.data, partition.leader_epoch), False, stamp)
    sequence = Sequence(header.producer_id, header.epoch, header.base_sequence, header.last_sequence)
    leader = cluster.producers(partition, request.broker)
    decision, copy = leader.decide(sequence, cluster.retain(request.broker, topic))
    if copy is not None:
        return Appended(0, copy.offset, True, copy.timestamp)  # Kafka tells it whatever kind of time the topic has
    if decision is not Decision.APPEND:
        return Appended(decision.value)
    offset = partition.log.append(header, stored.data, partition.leader_epoch)
    for replica in partition.replicas:
        broker = cluster.brokers[replica]
        states = cluster.producers(partition, broker)
        states.append(sequence, offset, header.max_timestamp, cluster.retain(broker, topic))
    return Appended(0, offset, False, stamp)


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
        partitions = [_producers_of(request, topic["name"], index) for index in topic["partition_indexes"]]
        topics.append({"name": topic["name"], "partitions": partitions})
    return {"topics": topics}


def _producers_of(request: Request, name: str, index: int) -> Body:
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
