"""Produce: check, decide, append, by the headers of batches alone: records are never unpacked. DescribeProducers."""

import asyncio
import uuid
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, NamedTuple

from safeproducer.testing.codec import Body, WireError
from safeproducer.testing.fake.handlers import request as requests
from safeproducer.testing.fake.handlers import transactions
from safeproducer.testing.fake.handlers.request import NOT_LEADER_OR_FOLLOWER, Request, Unacknowledged, by_partition
from safeproducer.testing.fake.rules.producer_state import Decision, Sequence
from safeproducer.testing.fake.rules.quotas import PRODUCER_IDS_RATE
from safeproducer.testing.fake.state.cluster_state import JournalBatch
from safeproducer.testing.fake.state.topic_changes import INVALID_TOPIC, is_topic_name
from safeproducer.testing.fake.state.topics import Partition, Topic
from safeproducer.testing.produce import BatchHeader, CorruptBatchError, ProducedBatch, read_batch_headers
from safeproducer.testing.wire import BATCHES_TO_RETAIN, DEFAULT_BATCHES_TO_RETAIN

UNKNOWN_SERVER_ERROR, CORRUPT_MESSAGE, REQUEST_TIMED_OUT, MESSAGE_TOO_LARGE = -1, 2, 7, 10
NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND, INVALID_REQUIRED_ACKS = 19, 20, 21
INVALID_TIMESTAMP, INVALID_RECORD, THROTTLING_QUOTA_EXCEEDED = 32, 87, 89
_ALL_REPLICAS = -1
_LAST_CODEC = 4


class Appended(NamedTuple):
    """``duplicate``: the batch was in the log already. ``stamp``: the time in ms that the answer tells, or -1."""

    error: int = 0
    offset: int = -1
    duplicate: bool = False
    stamp: int = -1


def produce(request: Request) -> Body | Coroutine[Any, Any, Body] | None:
    """Acknowledged when appended if followers never lag, else when all replicas have it that have to."""
    acks, hints, responses, rules = request.body["acks"], [], [], request.cluster.rules
    for topic in request.body["topic_data"]:
        answers = []
        for data in topic["partition_data"]:
            answer = _partition(request, topic.get("name"), topic.get("topic_id"), data, acks)
            hints.append(answer)
            answers.append(answer)
        response = {"name": topic.get("name"), "topic_id": topic.get("topic_id"), "partition_responses": answers}
        responses.append(response)
        if rules.kip_1269_field == "topic":
            retained = [answer.pop(BATCHES_TO_RETAIN) for answer in answers if BATCHES_TO_RETAIN in answer]
            response |= {BATCHES_TO_RETAIN: retained[0]} if retained else {}
    request.cluster.follow()
    request.cluster.changed()
    if request.unacknowledged:
        return _acknowledge(request, responses, hints)
    if acks == 0:
        failed = [answer["error_code"] for answer in hints if answer["error_code"]]
        if failed:  # it cannot be told: Kafka closes the connection instead
            raise WireError(f"acks=0 and error {failed[0]}")
        return None
    return {"responses": responses, **request.endpoints(hints)}


async def _acknowledge(request: Request, responses: list[Body], hints: list[Body]) -> Body:
    """Answer when replicas have what they have to, or the client's time is over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.body["timeout_ms"] / 1000
    waiting = request.unacknowledged
    while waiting:
        began = loop.time()
        over, still = began >= deadline, []
        for one in waiting:
            error = _verdict(request, one)
            if error is None and not over:
                still.append(one)
            elif error or error is None:
                code = REQUEST_TIMED_OUT if error is None else error
                one.answer.update(error_code=code, **request.leader_hint(one.partition, code))
                request.produced[one.seen] = replace(request.produced[one.seen], error_code=code)
        if still:
            await request.cluster.wait_for_change(deadline - began)
            request.idle += loop.time() - began
        waiting = still
    return {"responses": responses, **request.endpoints(hints)}


def _verdict(request: Request, one: Unacknowledged) -> int | None:
    """The error code, 0 for a success; None while replicas lack the batch."""
    copies = one.partition.copies
    if copies is None:
        return requests.UNKNOWN_TOPIC_OR_PARTITION
    if one.partition.leader != request.broker.id:
        return NOT_LEADER_OR_FOLLOWER
    if copies.committed < one.end:
        return None
    # The set may have shrunk since then.
    enough = len(copies.in_sync) >= request.cluster.minimum(one.topic, one.partition)
    return 0 if enough else NOT_ENOUGH_REPLICAS_AFTER_APPEND


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
    appended = Appended()
    reason: str | None = None
    if not error and topic is not None and partition is not None:
        if batch.header.transactional:
            error, reason = transactions.admit(request, topic, partition, batch.header), None
        if not error:
            error, reason = _check(request, topic, partition, batch, acks)
        if not error:
            error, reason = _admit(request, batch.header.producer_id)
        if not error:
            appended = _append(request, topic, partition, batch)
            error = appended.error
    request.produced.append(_seen(batch, error, appended.offset, appended.duplicate))
    answer = {
        "index": data["index"],
        "error_code": error,
        "base_offset": appended.offset,
        "log_append_time_ms": appended.stamp,
        "log_start_offset": -1 if error or partition is None else partition.log.start_offset,
        "error_message": reason,
        **_retained(request, topic, partition),
        **request.leader_hint(partition, error),
    }
    if not error and acks == _ALL_REPLICAS and topic is not None and partition is not None and partition.copies:
        end, seen = partition.log.position(appended.offset), len(request.produced) - 1
        request.unacknowledged.append(Unacknowledged(answer, topic, partition, end, seen))
    return answer


def _retained(request: Request, topic: Topic | None, partition: Partition | None) -> Body:
    """KIP-1269: the leader tells how many batches it remembers, in good answers and bad; not if they are 5."""
    if topic is None or partition is None or partition.leader != request.broker.id:
        return {}
    retained = request.cluster.retain(request.broker, topic)
    return {} if retained == DEFAULT_BATCHES_TO_RETAIN else {BATCHES_TO_RETAIN: retained}


def _seen(batch: ProducedBatch, error: int, offset: int, duplicate: bool) -> JournalBatch:
    header = batch.header
    numbers = header.producer_id, header.epoch, header.base_sequence, header.last_sequence, header.count
    return JournalBatch(batch.topic or "", batch.partition, *numbers, error, offset, duplicate)


def _check(
    request: Request, topic: Topic, partition: Partition, batch: ProducedBatch, acks: int
) -> tuple[int, str | None]:
    """An error code and a text, for what is wrong with the replicas or with the batch itself."""
    header, cluster = batch.header, request.cluster
    if acks == _ALL_REPLICAS and len(cluster.in_sync(partition)) < cluster.minimum(topic, partition):
        return NOT_ENOUGH_REPLICAS, None
    if not batch.crc_matches():
        return CORRUPT_MESSAGE, "the checksum does not fit"
    if header.size > cluster.value(request.broker, topic, "max.message.bytes"):
        return MESSAGE_TOO_LARGE, None
    ahead = 0 if cluster.stamps(request.broker, topic) else header.max_timestamp - request.now
    if ahead > cluster.value(request.broker, topic, "message.timestamp.after.max.ms"):
        return INVALID_TIMESTAMP, f"a timestamp is {ahead} ms in the future"
    if header.compression > _LAST_CODEC:
        return UNKNOWN_SERVER_ERROR, f"there is no compression {header.compression}"
    wrong = _invalid(header)
    return (INVALID_RECORD, wrong) if wrong else (0, None)


def _invalid(header: BatchHeader) -> str | None:
    if header.count < 1 or header.count != header.last_offset_delta + 1:
        return f"{header.count} records with a last offset delta of {header.last_offset_delta}"
    if header.base_offset:
        return f"the first offset is {header.base_offset}; clients count from 0"
    if header.control:
        return "clients write no control batches"
    if header.transactional and header.producer_id < 0:
        return "a batch of a transaction without a producer"
    if header.producer_id >= 0 and header.base_sequence < 0:
        return f"producer {header.producer_id} without a sequence"
    return None


def _admit(request: Request, producer_id: int) -> tuple[int, str | None]:
    """KIP-936: may this user bring this producer ID? Asked last, so that only what is written counts as used."""
    limits, user, now = request.cluster.quotas, request.session.user, request.now
    if producer_id < 0 or not limits.enabled(PRODUCER_IDS_RATE):
        return 0, None
    delay = request.broker.producer_ids.admit(user, producer_id, limits.find(PRODUCER_IDS_RATE, user, None).value, now)
    request.throttle_ms = max(request.throttle_ms, delay)
    return (THROTTLING_QUOTA_EXCEEDED, f"{user} brings too many new producer IDs") if delay else (0, None)


def _append(request: Request, topic: Topic, partition: Partition, batch: ProducedBatch) -> Appended:
    cluster, stamps = request.cluster, request.cluster.stamps(request.broker, topic)
    stored = batch.stamped(request.now) if stamps else batch
    header, stamp = stored.header, stored.header.max_timestamp if stamps else -1
    if header.producer_id < 0:
        return Appended(0, cluster.append(topic, partition, header, stored.data), False, stamp)
    sequence = Sequence(header.producer_id, header.epoch, header.base_sequence, header.last_sequence)
    leader = cluster.producers(partition, request.broker)
    from_zero = cluster.rules.kafka == "4.5" and not partition.log.end_offset
    decision, copy = leader.decide(sequence, cluster.retain(request.broker, topic), from_zero)
    if copy is not None:
        return Appended(0, copy.offset, True, copy.timestamp)  # Kafka tells it whatever kind of time the topic has
    if decision is not Decision.APPEND:
        return Appended(decision.value)
    offset = cluster.append(topic, partition, header, stored.data)
    for replica in partition.replicas:
        broker = cluster.brokers[replica]
        states = cluster.producers(partition, broker)
        states.append(sequence, offset, header.max_timestamp, cluster.retain(broker, topic))
    if header.transactional:
        partition.transactions.append(header.producer_id, header.epoch, offset)
    return Appended(0, offset, False, stamp)


def describe_producers(request: Request) -> Body:
    """The producers that this replica remembers, leader or follower."""

    def answer(topic: Body, index: int) -> Body:
        _, partition, error = request.find_led(topic["name"], None, index)
        if not is_topic_name(topic["name"]):
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
                "last_timestamp": entry.timestamp,
                "coordinator_epoch": entry.coordinator_epoch,
                "current_txn_start_offset": partition.transactions.first_offset(producer_id),
            }
            for producer_id, entry in request.cluster.producers(partition, request.broker).entries().items()
        ]
        return {"partition_index": index, "error_code": 0, "active_producers": active}

    return {"topics": by_partition(request.body["topics"], answer, "partition_indexes")}
