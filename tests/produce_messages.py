"""Produce requests and answers as typed values: what was written, and what the broker said about it."""

import uuid
from dataclasses import dataclass

from safeproducer.testing.codec import Body
from safeproducer.testing.produce import ProducedBatch, read_batch_headers
from safeproducer.testing.wire import BATCHES_TO_RETAIN, RequestHeader, decode_request, decode_response


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """A Produce request; ``acks`` 0 means that no answer will come."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    batches: tuple[ProducedBatch, ...]


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    """A broker's answer for one partition of a Produce request; ``error_code`` 0 is success.

    ``batches_to_retain`` is KIP-1269's field; None if it is missing, which means 5.
    """

    topic: str | None
    topic_id: uuid.UUID | None
    partition: int
    error_code: int
    base_offset: int
    error_message: str | None
    batches_to_retain: int | None = None


@dataclass(frozen=True, slots=True)
class ProduceAnswer:
    """A Produce answer. ``throttle_time_ms`` is how long the client is asked to stay silent (KIP-219)."""

    correlation_id: int
    throttle_time_ms: int
    partitions: tuple[PartitionAnswer, ...]


def _topic(topic: Body) -> tuple[str | None, uuid.UUID | None]:
    return topic.get("name"), topic.get("topic_id")


def read_produce(header: RequestHeader, frame: bytes) -> ProduceRequest:
    """The Produce request in this frame; ``header`` is the one read from it. Raises WireError."""
    body = decode_request(header, frame)
    batches = tuple(
        ProducedBatch(*_topic(topic), partition["index"], batch, data)
        for topic in body["topic_data"]
        for partition in topic["partition_data"]
        for batch, data in read_batch_headers(partition["records"] or memoryview(b""))
    )
    return ProduceRequest(body["transactional_id"], body["acks"], body["timeout_ms"], batches)


def read_produce_answer(version: int, frame: bytes) -> ProduceAnswer:
    """The answer to a Produce request of this version. Raises WireError."""
    correlation, body = decode_response("Produce", version, frame)
    partitions = tuple(
        PartitionAnswer(
            *_topic(topic),
            answer["index"],
            answer["error_code"],
            answer["base_offset"],
            answer.get("error_message"),
            answer.get(BATCHES_TO_RETAIN, topic.get(BATCHES_TO_RETAIN)),
        )
        for topic in body["responses"]
        for answer in topic["partition_responses"]
    )
    return ProduceAnswer(correlation, body["throttle_time_ms"], partitions)
