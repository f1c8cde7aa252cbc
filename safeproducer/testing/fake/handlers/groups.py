"""JoinGroup, ConsumerGroupHeartbeat, OffsetCommit, OffsetFetch: there are no consumer groups, and who asks hears so.

Error 42 is none that a client retries. Were they not served, aiokafka and librdkafka's new protocol would wait for
ever, and what the others find out by themselves would warn nobody.

FindCoordinator: each broker says that it coordinates all groups, and no transactions.

librdkafka lets also a consumer with assigned partitions ask for the coordinator of its group, and it finds nothing
wrong. :mod:`groups` refuses what it asks of the group itself. librdkafka packs with lz4 only if a broker offers this
API.
"""

from collections.abc import Iterable

from safeproducer.testing.codec import Body
from safeproducer.testing.fake.handlers.request import LOOPBACK, Request

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


TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
_GROUP = 0
_MISSING = {
    1: (TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions", "leave transactional.id away, or use a real broker"),
    2: (INVALID_REQUEST, "share groups", "use a real broker"),
}
"""By the kind of coordinator: the error, what is missing, and the way out."""


def find_coordinator(request: Request) -> Body:
    """This broker, or an error that no client retries; of a transaction librdkafka takes only one about rights so."""
    kind = request.body.get("key_type", _GROUP)
    answer = {"error_code": request.error, "error_message": None, "node_id": -1, "host": "", "port": -1}
    if not request.error and kind == _GROUP:
        answer.update(node_id=request.broker.id, host=LOOPBACK, port=request.broker.port)
    elif not request.error:
        error, what, way_out = _MISSING.get(kind, (INVALID_REQUEST, f"coordinators of kind {kind}", "there are none"))
        answer.update(error_code=error, error_message=f"FakeCluster has no {what}: {way_out}")
        request.warn(what, way_out)
    return {**answer, "coordinators": [{"key": key, **answer} for key in request.body.get("coordinator_keys", ())]}
