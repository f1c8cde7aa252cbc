"""JoinGroup, ConsumerGroupHeartbeat, OffsetCommit, OffsetFetch: there are no consumer groups, and who asks hears so.

Error 42 is none that a client retries. Were they not served, aiokafka and librdkafka's new protocol would wait for
ever, and what the others find out by themselves would warn nobody.
"""

from collections.abc import Iterable

from safeproducer.testing.fake.handlers.request import Request
from safeproducer.testing.wire import Body

__all__ = ["heartbeat", "join_group", "offset_commit", "offset_fetch"]

INVALID_REQUEST = 42
_WAY_OUT = "assign partitions with their offsets and set enable.auto.commit to false, or use a real broker"


def _refused(request: Request) -> int:
    if not request.error:
        request.warn(f"consumer groups ({request.header.api})", _WAY_OUT)
    return request.error or INVALID_REQUEST


def join_group(request: Request) -> Body:
    """Refuse the member."""
    nobody = {"generation_id": -1, "protocol_name": "", "leader": "", "member_id": "", "members": []}
    return {"error_code": _refused(request), **nobody}


def heartbeat(request: Request) -> Body:
    """How a member of the new protocol joins (KIP-848)."""
    error = _refused(request)
    text = f"FakeCluster has no consumer groups: {_WAY_OUT}"
    return {"error_code": error, "error_message": text, "member_epoch": -1, "heartbeat_interval_ms": 0}


def offset_commit(request: Request) -> Body:
    """Refuse the offsets."""
    error = _refused(request)
    return {
        "topics": [
            {
                "name": topic.get("name"),
                "topic_id": topic.get("topic_id"),
                "partitions": [
                    {"partition_index": partition["partition_index"], "error_code": error}
                    for partition in topic["partitions"]
                ],
            }
            for topic in request.body["topics"]
        ]
    }


def offset_fetch(request: Request) -> Body:
    """An error for the request, each group and each partition: by version clients look at one of them."""
    error = _refused(request)
    groups = [
        {"group_id": group["group_id"], "error_code": error, "topics": _failed(group["topics"], error)}
        for group in request.body.get("groups", ())
    ]
    return {"error_code": error, "topics": _failed(request.body.get("topics"), error), "groups": groups}


def _failed(topics: Iterable[Body] | None, error: int) -> list[Body]:
    nothing = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": "", "error_code": error}
    return [
        {
            "name": topic.get("name"),
            "topic_id": topic.get("topic_id"),
            "partitions": [{"partition_index": index, **nothing} for index in topic["partition_indexes"]],
        }
        for topic in topics or ()
    ]
