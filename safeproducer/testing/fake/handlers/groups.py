"""Consumer groups of the classic protocol: FindCoordinator, members, offsets, and what admin clients ask.

ConsumerGroupHeartbeat: members of the new protocol (KIP-848) are refused, by error 42, which no client tries again;
were it not served they would wait for ever. So are share groups, when their coordinator is looked for.
"""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

from safeproducer.testing.codec import Body, RefusedError
from safeproducer.testing.fake.handlers.request import LOOPBACK, UNKNOWN_TOPIC_OR_PARTITION, Request, by_partition
from safeproducer.testing.fake.rules import groups as rules

OFFSET_METADATA_TOO_LARGE, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_GROUP_ID = 12, 15, 16, 24
INVALID_REQUEST, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, UNSTABLE_OFFSET_COMMIT = 42, 68, 69, 88
_MOST_METADATA = 4096
_GROUP, _TRANSACTION, _SHARE = range(3)
_NULL_NAMES, _MEMBERS, _TOLD_BY_ERROR, _TOP_LEVEL, _MANY, _NOT_FOUND = 7, 3, 6, 2, 8, 9
"""Versions: JoinGroup with nulls, LeaveGroup of many, DescribeGroups with errors, OffsetFetch with one, of many.

OffsetCommit that tells a group that is not there from one of another generation.
"""
_ALL_OPERATIONS = 0b1_0001_0100_1000
_CLASSIC = "classic"


def find_coordinator(request: Request) -> Body:
    """The broker of each key, or an error that no client retries."""
    kind, keys = request.body.get("key_type", _GROUP), request.body.get("coordinator_keys", ())
    found = [{"key": key, **_coordinator(request, kind, key)} for key in keys]
    return {**_coordinator(request, kind, request.body.get("key", "")), "coordinators": found}


def _coordinator(request: Request, kind: int, key: str) -> Body:
    answer = {"error_code": request.error, "error_message": None, "node_id": -1, "host": "", "port": -1}
    if request.error:
        return answer
    if kind in (_GROUP, _TRANSACTION):
        brokers, found = request.cluster.brokers, request.cluster.coordinator(key)
        if found not in brokers:
            return {**answer, "error_code": COORDINATOR_NOT_AVAILABLE}
        broker = brokers[found]
        return {**answer, "node_id": broker.id, "host": LOOPBACK, "port": broker.port}
    what = "share groups" if kind == _SHARE else f"coordinators of kind {kind}"
    request.warn(what, "use a real broker")
    return {**answer, "error_code": INVALID_REQUEST, "error_message": f"FakeCluster has no {what}: use a real broker"}


def heartbeat_anew(request: Request) -> Body:
    """How a member of the new protocol joins (KIP-848)."""
    what, way_out = "consumer groups of the protocol of KIP-848", "set group.protocol to classic"
    if not request.error:
        request.warn(what, way_out)
    text = f"FakeCluster has no {what}: {way_out}"
    error = request.error or INVALID_REQUEST
    return {"error_code": error, "error_message": text, "member_epoch": -1, "heartbeat_interval_ms": 0}


def find(request: Request, group_id: str, missing: int = 0) -> rules.Group:
    """The group, as it is now; ``missing``: the error if there is none, else it is made. Raises RefusedError."""
    if request.error:
        raise RefusedError(request.error)
    if request.cluster.coordinator(group_id) != request.broker.id:
        raise RefusedError(NOT_COORDINATOR)
    groups = request.cluster.groups
    group = groups.get(group_id)
    if group is None:
        if missing:
            raise RefusedError(missing)
        group = groups[group_id] = rules.Group(group_id)
    group.pass_time(request.now)
    return group


def _named(request: Request) -> str:
    if not request.body["group_id"] and not request.error:
        raise RefusedError(INVALID_GROUP_ID)
    return str(request.body["group_id"])


async def join_group(request: Request) -> Body:
    """Answered when all members have joined, or when the time for it is over."""
    body, version, client = request.body, request.header.version, request.header.client_id or ""
    new_id = f"{body.get('group_instance_id') or client}-{uuid.uuid4()}"

    def join() -> tuple[rules.Group, rules.Reply]:
        group = find(request, _named(request), rules.UNKNOWN_MEMBER_ID if body["member_id"] else 0)
        return group, group.join(body, version, client, new_id, request.now)

    answer = await _when_told(request, join)
    if version < _NULL_NAMES:
        answer = {**answer, "protocol_name": answer["protocol_name"] or ""}
    return answer


async def sync_group(request: Request) -> Body:
    """Answered when the leader has brought the assignment."""

    def sync() -> tuple[rules.Group, rules.Reply]:
        group = find(request, _named(request), rules.UNKNOWN_MEMBER_ID)
        return group, group.sync(request.body, request.now)

    return await _when_told(request, sync)


async def _when_told(request: Request, ask: Callable[[], tuple[rules.Group, rules.Reply]]) -> Body:
    cluster, loop = request.cluster, asyncio.get_running_loop()
    try:
        group, reply = ask()
        cluster.changed()
        while (answer := _answered(request, group, reply)) is None:
            began, due = loop.time(), group.due
            await cluster.wait_for_change(1.0 if due is None else max(due - request.now, 1) / 1000)
            request.idle += loop.time() - began
    except RefusedError as error:
        return rules.refusal(error.error_code, request.body["member_id"])
    return answer


def _answered(request: Request, group: rules.Group, reply: rules.Reply) -> Body | None:
    """The answer, if there is one by now; others may have one, too. Raises RefusedError if the coordinator moved."""
    waited = reply.answer is None
    group.pass_time(request.now)
    answer = reply.answer
    if answer is None and request.cluster.coordinator(group.id) != request.broker.id:
        raise RefusedError(NOT_COORDINATOR)
    if waited and answer is not None:
        request.cluster.changed()
    return answer


def heartbeat(request: Request) -> Body:
    try:
        group = find(request, _named(request), rules.UNKNOWN_MEMBER_ID)
        return {"error_code": group.heartbeat(request.body, request.now)}
    except RefusedError as error:
        return {"error_code": error.error_code}


def leave_group(request: Request) -> Body:
    """One answer for each member; before version 3 there is one member, and one error."""
    body, members = request.body, []
    named = body.get("members", [{"member_id": body.get("member_id", ""), "group_instance_id": None}])
    try:
        group = find(request, _named(request), rules.UNKNOWN_MEMBER_ID)
        for member in named:
            error = 0
            try:
                group.leave(member["member_id"], member["group_instance_id"], request.now)
            except RefusedError as refusal:
                error = refusal.error_code
            members.append({**member, "error_code": error})
    except RefusedError as error:
        if error.error_code != rules.UNKNOWN_MEMBER_ID:
            return {"error_code": error.error_code, "members": []}
        members = [{**member, "error_code": error.error_code} for member in named]
    request.cluster.changed()
    alone = request.header.version < _MEMBERS
    return {"error_code": members[0]["error_code"] if alone else 0, "members": members}


def offset_commit(request: Request) -> Body:
    """One answer for each partition. An unknown one fails alone."""
    body, error, group = request.body, 0, None
    generation = body["generation_id_or_member_epoch"]
    unknown = GROUP_ID_NOT_FOUND if request.header.version >= _NOT_FOUND else rules.ILLEGAL_GENERATION
    try:
        group = find(request, body["group_id"], unknown if generation >= 0 else 0)
        group.may_commit(body, generation, request.now)
    except RefusedError as refusal:
        error = refusal.error_code
    return {"topics": commit(request, error, group.offsets if group is not None else {})}


def commit(request: Request, error: int, into: dict[tuple[str, int], rules.Offset]) -> list[Body]:
    """The answers to a commit, which fails with this error, or else is done."""

    def answer(topic: Body, wanted: Body) -> Body:
        found, wrong = request.find_topic(topic.get("name"), topic.get("topic_id"))
        index, metadata = wanted["partition_index"], wanted["committed_metadata"] or ""
        if found is not None and not 0 <= index < len(found.partitions):
            wrong = UNKNOWN_TOPIC_OR_PARTITION
        wrong = wrong or error or (OFFSET_METADATA_TOO_LARGE if len(metadata) > _MOST_METADATA else 0)
        if found is not None and not wrong:
            epoch = wanted.get("committed_leader_epoch", -1)
            into[found.name, index] = rules.Offset(wanted["committed_offset"], epoch, metadata)
        return {"partition_index": index, "error_code": wrong}

    return by_partition(request.body["topics"], answer)


def offset_fetch(request: Request) -> Body:
    """Committed offsets of some partitions, or of all that have one; -1 where there is none."""
    if request.header.version >= _MANY:
        return {"groups": [_offsets(request, wanted) for wanted in request.body["groups"]]}
    answer = _offsets(request, request.body)
    if answer["error_code"] and request.header.version < _TOP_LEVEL:
        failed = {"committed_offset": -1, "metadata": "", "error_code": answer["error_code"]}
        answer["topics"] = by_partition(
            request.body["topics"], lambda _, index: {"partition_index": index, **failed}, "partition_indexes"
        )
    return answer


def _offsets(request: Request, wanted: Body) -> Body:
    group_id, cluster = wanted["group_id"], request.cluster
    try:
        group = find(request, group_id, GROUP_ID_NOT_FOUND)
        known, open_ones = group.offsets, {place for places in group.uncommitted.values() for place in places}
    except RefusedError as error:
        if error.error_code != GROUP_ID_NOT_FOUND:
            return {"group_id": group_id, "error_code": error.error_code, "topics": []}
        known, open_ones = {}, set()
    topics = wanted["topics"]
    if topics is None:
        topics = [
            {
                "name": name,
                "topic_id": topic.id if (topic := cluster.find_topic(name, None)) else uuid.UUID(int=0),
                "partition_indexes": sorted(index for one, index in known if one == name),
            }
            for name in sorted({name for name, _ in known})
        ]

    def answer(topic: Body, index: int) -> Body:
        found, error = request.find_topic(topic.get("name"), topic.get("topic_id"))
        error = 0 if topic.get("name") else error
        place = found.name if found else topic.get("name", ""), index
        offset, epoch, metadata = known.get(place, rules.Offset(-1))
        if place in open_ones and request.body.get("require_stable"):
            error, (offset, epoch, metadata) = UNSTABLE_OFFSET_COMMIT, rules.Offset(-1)
        told = {"committed_offset": offset, "committed_leader_epoch": epoch, "metadata": metadata}
        return {"partition_index": index, "error_code": error, **told}

    return {"group_id": group_id, "error_code": 0, "topics": by_partition(topics, answer, "partition_indexes")}


def describe_groups(request: Request) -> Body:
    """Members with what they said and got, once the group is stable."""
    return {"groups": [_description(request, group_id) for group_id in request.body["groups"]]}


def _description(request: Request, group_id: str) -> Body:
    nothing = {"group_id": group_id, "protocol_type": "", "protocol_data": "", "members": []}
    try:
        group = find(request, group_id, GROUP_ID_NOT_FOUND)
    except RefusedError as error:
        if error.error_code != GROUP_ID_NOT_FOUND:
            return {**nothing, "error_code": error.error_code, "group_state": ""}
        told = error.error_code if request.header.version >= _TOLD_BY_ERROR else 0
        text = f"Group {group_id} not found."
        return {**nothing, "error_code": told, "error_message": text, "group_state": "Dead"}
    stable = group.state is rules.State.STABLE
    members = [
        {
            "member_id": member.id,
            "group_instance_id": member.instance,
            "client_id": member.client,
            "client_host": f"/{LOOPBACK}",
            "member_metadata": member.metadata(group.protocol) if stable else b"",
            "member_assignment": member.assignment,
        }
        for member in group.members.values()
    ]
    return {
        **nothing,
        **({"authorized_operations": _ALL_OPERATIONS} if request.body.get("include_authorized_operations") else {}),
        "error_code": 0,
        "group_state": group.state.value,
        "protocol_type": group.type,
        "protocol_data": group.protocol or "" if stable else "",
        "members": members,
    }


def list_groups(request: Request) -> Body:
    if request.error:
        return {"error_code": request.error, "groups": []}
    states = {state.lower() for state in request.body.get("states_filter", ())}
    types = {kind.lower() for kind in request.body.get("types_filter", ())}
    listed: list[Any] = []
    for group_id in [*request.cluster.groups]:
        if request.cluster.coordinator(group_id) == request.broker.id and (not types or _CLASSIC in types):
            group = find(request, group_id)
            state = group.state.value
            if not states or state.lower() in states:
                told = {"protocol_type": group.type, "group_state": state, "group_type": _CLASSIC}
                listed.append({"group_id": group_id, **told})
    return {"error_code": 0, "groups": listed}


def delete_groups(request: Request) -> Body:
    """Groups without members, and their offsets."""
    results = []
    for group_id in request.body["groups_names"]:
        error = 0
        try:
            if find(request, group_id, GROUP_ID_NOT_FOUND).state is not rules.State.EMPTY:
                raise RefusedError(NON_EMPTY_GROUP)
            del request.cluster.groups[group_id]
        except RefusedError as refusal:
            error = refusal.error_code
        results.append({"group_id": group_id, "error_code": error})
    return {"results": results}
