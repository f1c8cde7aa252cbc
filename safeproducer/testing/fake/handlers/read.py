"""Fetch and ListOffsets, for consumers with assigned partitions. No fetch sessions: each fetch names all it wants."""

import asyncio

from safeproducer.testing.fake.handlers.request import Request
from safeproducer.testing.fake.log import PartitionLog
from safeproducer.testing.fake.records import read_records
from safeproducer.testing.wire import Body, WireError

__all__ = ["fetch", "list_offsets", "offset_for_leader_epoch"]

OFFSET_OUT_OF_RANGE = 1
FETCH_SESSION_ID_NOT_FOUND = 70
_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL = -1, -2, -3, -4


async def fetch(request: Request) -> Body:
    """Whole batches; waits as long as the client allows for as many bytes as it wants."""
    body = request.body
    if request.error or body.get("session_id", 0):
        return {"error_code": request.error or FETCH_SESSION_ID_NOT_FOUND, "responses": []}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + body["max_wait_ms"] / 1000
    while True:
        answer, size, complete = _read_all(request)
        left = deadline - loop.time()
        if complete or size >= body["min_bytes"] or left <= 0:
            return answer
        began = loop.time()
        await request.cluster.wait_for_change(left)
        request.idle += loop.time() - began


def _read_all(request: Request) -> tuple[Body, int, bool]:
    """The answer, the bytes of its records, and whether waiting is of no use: an error, or as much as fits."""
    responses, size, complete, hints = [], 0, False, []
    left = request.body.get("max_bytes", 1 << 30)
    for topic in request.body["topics"]:
        answers = []
        for wanted in topic["partitions"]:
            answer, more = _read_one(request, topic, wanted, left, at_least_one=size == 0)
            size += len(answer["records"])
            left -= len(answer["records"])
            complete = complete or more or bool(answer["error_code"])
            answers.append(answer)
        hints += answers
        responses.append({"topic": topic.get("topic"), "topic_id": topic.get("topic_id"), "partitions": answers})
    return {"responses": responses, **request.endpoints(hints)}, size, complete


def _read_one(request: Request, topic: Body, wanted: Body, left: int, *, at_least_one: bool) -> tuple[Body, bool]:
    _, partition, error = request.find_led(
        topic.get("topic"), topic.get("topic_id"), wanted["partition"], wanted.get("current_leader_epoch", -1)
    )
    end, records, more = -1, b"", False
    if partition is not None and not error:
        end, offset = partition.log.end_offset, wanted["fetch_offset"]
        if not partition.log.start_offset <= offset <= end:
            error = OFFSET_OUT_OF_RANGE
        else:
            most = min(left, wanted["partition_max_bytes"])
            records, more = partition.log.read(offset, most, at_least_one=at_least_one)
    answer = {
        "partition_index": wanted["partition"],
        "error_code": error,
        "high_watermark": end,
        "last_stable_offset": end,
        "log_start_offset": -1 if error or partition is None else partition.log.start_offset,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": records,
        **request.leader_hint(partition, error),
    }
    return answer, more


def offset_for_leader_epoch(request: Request) -> Body:
    """Where a leader epoch ended, so that a consumer finds out whether its position was truncated (KIP-320)."""
    topics = []
    for topic in request.body["topics"]:
        answers = []
        for wanted in topic["partitions"]:
            index = wanted["partition"]
            _, partition, error = request.find_led(topic["topic"], None, index, wanted["current_leader_epoch"])
            error = request.error or error
            epoch, end = (-1, -1) if partition is None or error else partition.end_of_epoch(wanted["leader_epoch"])
            answers.append({"partition": index, "error_code": error, "leader_epoch": epoch, "end_offset": end})
        topics.append({"topic": topic["topic"], "partitions": answers})
    return {"topics": topics}


def list_offsets(request: Request) -> Body:
    """Earliest, latest, that of the newest timestamp, or the first record at or after a timestamp."""
    topics = []
    for topic in request.body["topics"]:
        answers = []
        for wanted in topic["partitions"]:
            index = wanted["partition_index"]
            _, partition, error = request.find_led(topic["name"], None, index, wanted.get("current_leader_epoch", -1))
            error = request.error or error
            answer = {"partition_index": index, "error_code": error, "timestamp": -1, "offset": -1, "leader_epoch": -1}
            if partition is not None and not error:
                timestamp, offset = _find(partition.log, wanted["timestamp"])
                answer.update(timestamp=timestamp, offset=offset, leader_epoch=partition.leader_epoch)
            answers.append(answer)
        topics.append({"name": topic["name"], "partitions": answers})
    return {"topics": topics}


def _find(log: PartitionLog, timestamp: int) -> tuple[int, int]:
    if timestamp == _LATEST:
        return -1, log.end_offset
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return -1, log.start_offset
    batches = log.batches()
    if timestamp == _MAX_TIMESTAMP:
        timestamp = max((header.max_timestamp for header, _ in batches), default=0)
    for header, data in batches:
        if header.max_timestamp >= timestamp:
            try:
                found = next((r for r in read_records(header, data) if r.timestamp >= timestamp), None)
            except WireError:
                found = None
            # Inside a batch that cannot be unpacked here, its first record stands for all.
            return (found.timestamp, found.offset) if found else (header.base_timestamp, header.base_offset)
    return -1, -1
