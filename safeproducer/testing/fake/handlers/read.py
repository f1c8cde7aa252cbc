"""Fetch and ListOffsets, for consumers with assigned partitions. No fetch sessions: each fetch names all it wants."""

import asyncio

from safeproducer.testing.codec import Body, WireError
from safeproducer.testing.fake.handlers.request import Request, by_partition
from safeproducer.testing.fake.state import markers
from safeproducer.testing.fake.state.topics import Partition
from safeproducer.testing.produce import read_records

OFFSET_OUT_OF_RANGE, UNSUPPORTED_VERSION, FETCH_SESSION_ID_NOT_FOUND = 1, 35, 70
_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING = range(-1, -7, -1)
_NO_LIMIT = 1 << 30
_READ_COMMITTED = 1


async def fetch(request: Request) -> Body:
    """Batches, cut at the limit; waits as long as the client allows for as many bytes as it wants."""
    body = request.body
    if request.error or body.get("session_id", 0):
        return {"error_code": request.error or FETCH_SESSION_ID_NOT_FOUND, "responses": []}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + body["max_wait_ms"] / 1000
    while True:
        markers.pass_time(request.cluster)
        answer, size, failed = _read_all(request)
        left = deadline - loop.time()
        if failed or size >= min(body["min_bytes"], body.get("max_bytes", _NO_LIMIT)) or left <= 0:
            return answer
        began = loop.time()
        await request.cluster.wait_for_change(left)
        request.idle += loop.time() - began


def _read_all(request: Request) -> tuple[Body, int, bool]:
    """The answer, the bytes of its records, and whether a partition has an error, which nobody waits for."""
    responses, size, failed, hints = [], 0, False, []
    left = request.body.get("max_bytes", _NO_LIMIT)
    for topic in request.body["topics"]:
        answers = []
        for wanted in topic["partitions"]:
            answer = _read_one(request, topic, wanted, left, at_least_one=size == 0)
            size += len(answer["records"])
            left -= len(answer["records"])
            failed = failed or bool(answer["error_code"])
            answers.append(answer)
        hints += answers
        responses.append({"topic": topic.get("topic"), "topic_id": topic.get("topic_id"), "partitions": answers})
    return {"responses": responses, **request.endpoints(hints)}, size, failed


def _read_one(request: Request, topic: Body, wanted: Body, left: int, *, at_least_one: bool) -> Body:
    _, partition, error = request.find_led(
        topic.get("topic"), topic.get("topic_id"), wanted["partition"], wanted.get("current_leader_epoch", -1)
    )
    end, stable, records, aborted = -1, -1, b"", None
    committed = request.body.get("isolation_level", 0) == _READ_COMMITTED
    if partition is not None and not error:
        log, offset = partition.log, wanted["fetch_offset"]
        if not log.start_offset <= offset <= log.end_offset:
            error = OFFSET_OUT_OF_RANGE
        else:
            end, stable = partition.high_watermark, partition.last_stable_offset
            most = max(min(left, wanted["partition_max_bytes"]), 0)
            records = log.read(offset, most, stable if committed else end, at_least_one=at_least_one)
            if committed:
                found = partition.transactions.aborted(offset, stable)
                aborted = [{"producer_id": a.producer_id, "first_offset": a.first} for a in found]
    return {
        "partition_index": wanted["partition"],
        "error_code": error,
        "high_watermark": end,
        "last_stable_offset": stable,
        "log_start_offset": -1 if error or partition is None else partition.log.start_offset,
        "aborted_transactions": aborted,
        "preferred_read_replica": -1,
        "records": records,
        **request.leader_hint(partition, error),
    }


def offset_for_leader_epoch(request: Request) -> Body:
    """Where a leader epoch ended, so that a consumer finds out whether its position was truncated (KIP-320)."""

    def answer(topic: Body, wanted: Body) -> Body:
        index = wanted["partition"]
        _, partition, error = request.find_led(topic["topic"], None, index, wanted["current_leader_epoch"])
        error = request.error or error
        epoch, end = (-1, -1) if partition is None or error else partition.end_of_epoch(wanted["leader_epoch"])
        return {"partition": index, "error_code": error, "leader_epoch": epoch, "end_offset": end}

    return {"topics": by_partition(request.body["topics"], answer)}


def list_offsets(request: Request) -> Body:
    """Earliest, latest, that of the newest timestamp, or the first record at or after a timestamp."""

    markers.pass_time(request.cluster)
    committed = request.body.get("isolation_level", 0) == _READ_COMMITTED

    def answer(topic: Body, wanted: Body) -> Body:
        index, asked = wanted["partition_index"], wanted["timestamp"]
        _, partition, error = request.find_led(topic["name"], None, index, wanted.get("current_leader_epoch", -1))
        error = request.error or error or (UNSUPPORTED_VERSION if asked < _EARLIEST_PENDING else 0)
        timestamp, offset = (-1, -1) if partition is None or error else _find(partition, asked)
        if asked == _LATEST and partition is not None and not error and committed:
            offset = partition.last_stable_offset
        epoch = partition.leader_epoch if partition is not None and offset >= 0 else -1
        found = {"timestamp": timestamp, "offset": offset, "leader_epoch": epoch}
        return {"partition_index": index, "error_code": error, **found}

    return {"topics": by_partition(request.body["topics"], answer)}


def _find(partition: Partition, timestamp: int) -> tuple[int, int]:
    log = partition.log
    if timestamp == _LATEST:
        return -1, partition.high_watermark
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return -1, log.start_offset
    if timestamp in (_LATEST_TIERED, _EARLIEST_PENDING):
        return -1, -1  # no log has a part on remote storage
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
