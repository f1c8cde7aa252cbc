"""Transactions: InitProducerId, their parts, their ends, and what admin clients ask and do."""

import re

from safeproducer.testing.codec import Body, RefusedError
from safeproducer.testing.fake.handlers.groups import INVALID_GROUP_ID, INVALID_REQUEST, NOT_COORDINATOR, commit, find
from safeproducer.testing.fake.handlers.request import UNKNOWN_TOPIC_OR_PARTITION, Request, by_partition
from safeproducer.testing.fake.rules import transactions as rules
from safeproducer.testing.fake.state import markers
from safeproducer.testing.fake.state.topics import Partition, Topic
from safeproducer.testing.produce import BatchHeader

NOT_ENOUGH_REPLICAS, INVALID_PRODUCER_EPOCH, INVALID_TRANSACTION_TIMEOUT = 19, 47, 50
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, OPERATION_NOT_ATTEMPTED = 53, 55
TRANSACTIONAL_ID_NOT_FOUND, TRANSACTION_ABORTABLE, INVALID_REGULAR_EXPRESSION = 105, 120, 128
_TIMEOUTS = range(1, 900_001)
_FENCED_SINCE = {"InitProducerId": 4, "AddPartitionsToTxn": 2, "AddOffsetsToTxn": 2, "EndTxn": 2}
_MANY, _ABORTABLE_SINCE, _RAISES_SINCE = 4, {"Produce": 11, "TxnOffsetCommit": 4}, {"EndTxn": 5, "TxnOffsetCommit": 5}
_ADDS_SINCE = 12
"""The version of Produce from which on a batch makes its partition part of the transaction."""


def init_producer_id(request: Request) -> Body:
    """A new ID for each call, or with a transactional ID that of its transactions, in a new epoch."""
    body, cluster = request.body, request.cluster
    wanted = body["transactional_id"]
    try:
        if request.error or wanted is not None:
            return _begun(request, wanted)
    except RefusedError as error:
        return {"error_code": _told(request, error.error_code), "producer_id": -1, "producer_epoch": -1}
    return {"producer_id": cluster.new_producer_id(), "producer_epoch": cluster.rules.first_epoch}


def _begun(request: Request, wanted: str | None) -> Body:
    body, cluster = request.body, request.cluster
    _check(request, wanted)
    if body["transaction_timeout_ms"] not in _TIMEOUTS:
        raise RefusedError(INVALID_TRANSACTION_TIMEOUT)
    said = body.get("producer_id", -1), body.get("producer_epoch", -1)
    if (said[0] == -1) != (said[1] == -1):
        raise RefusedError(INVALID_REQUEST)
    known = request.transactions
    found = known.get(wanted or "")
    if found is None:
        first = cluster.rules.first_epoch - 1
        found = known[wanted or ""] = rules.Transaction(wanted or "", cluster.new_producer_id(), first)
    try:
        found.begin(body["transaction_timeout_ms"], None if said[0] == -1 else said, cluster.new_producer_id)
    finally:
        if found.prepared:
            markers.complete(cluster, found)
    return {"error_code": 0, "producer_id": found.producer_id, "producer_epoch": found.epoch}


def _told(request: Request, code: int) -> int:
    """Older clients know a fence by another name."""
    old = request.header.version < _FENCED_SINCE.get(request.header.api, 0)
    return INVALID_PRODUCER_EPOCH if old and code == rules.PRODUCER_FENCED else code


def _check(request: Request, wanted: str | None) -> None:
    if request.error:
        raise RefusedError(request.error)
    if not wanted:
        raise RefusedError(INVALID_REQUEST)
    markers.pass_time(request.cluster)
    if request.cluster.coordinator(wanted) != request.broker.id:
        raise RefusedError(NOT_COORDINATOR)


def _find(request: Request, wanted: str) -> rules.Transaction:
    _check(request, wanted)
    return _known(request, wanted)


def _known(request: Request, wanted: str | None) -> rules.Transaction:
    known = request.transactions
    if wanted not in known:
        raise RefusedError(rules.INVALID_PRODUCER_ID_MAPPING)
    return known[wanted]


def add_partitions(request: Request) -> Body:
    """From version 4 on for many transactions; such a request may only ask whether the partitions are part of them."""
    body = request.body
    if request.header.version < _MANY:
        prefix = "v3_and_below_"
        asked = {name.removeprefix(prefix): value for name, value in body.items()}
        return {"results_by_topic_v3_and_below": _added(request, asked)}
    results = [
        {"transactional_id": asked["transactional_id"], "topic_results": _added(request, asked)}
        for asked in body["transactions"]
    ]
    return {"error_code": request.error, "results_by_transaction": results}


def _added(request: Request, asked: Body) -> list[Body]:
    topics = request.cluster.topics
    places = [(topic["name"], index) for topic in asked["topics"] for index in topic["partitions"]]
    known = {place for place in places if place[0] in topics and 0 <= place[1] < len(topics[place[0]].partitions)}
    error, outside = 0, set()
    try:
        found = _find(request, asked["transactional_id"])
        if len(known) == len({*places}):
            found.check(asked["producer_id"], asked["producer_epoch"])
            if asked.get("verify_only"):
                outside = known - (found.partitions if found.state is rules.State.ONGOING else set())
            else:
                found.add(places, (), request.now)
        else:
            error = OPERATION_NOT_ATTEMPTED
    except RefusedError as refusal:
        error = _told(request, refusal.error_code)

    def code(place: tuple[str, int]) -> int:
        if place not in known and error in (0, OPERATION_NOT_ATTEMPTED):
            return UNKNOWN_TOPIC_OR_PARTITION
        return error or (TRANSACTION_ABORTABLE if place in outside else 0)

    return [
        {
            "name": topic["name"],
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": code((topic["name"], index))}
                for index in topic["partitions"]
            ],
        }
        for topic in asked["topics"]
    ]


def add_offsets(request: Request) -> Body:
    """Let the offsets of a group be part of the transaction."""
    body = request.body
    try:
        found = _find(request, body["transactional_id"])
        found.check(body["producer_id"], body["producer_epoch"])
        found.add((), [body["group_id"]], request.now)
    except RefusedError as error:
        return {"error_code": _told(request, error.error_code)}
    return {"error_code": 0}


def txn_offset_commit(request: Request) -> Body:
    """Offsets that count once the transaction is committed. The group's coordinator answers."""
    body, version = request.body, request.header.version
    error, into = 0, {}
    try:
        group = find(request, body["group_id"])
        if not body["group_id"]:
            raise RefusedError(INVALID_GROUP_ID)
        group.may_commit(
            {"member_id": "", **body}, body.get("generation_id_or_member_epoch", -1), request.now, transactional=True
        )
        found = _member(request, body["transactional_id"], body["producer_id"], body["producer_epoch"])
        if version >= _RAISES_SINCE["TxnOffsetCommit"]:
            found.add((), [group.id], request.now)
        elif group.id not in found.groups or found.state is not rules.State.ONGOING:
            raise RefusedError(_outside(request))
        into = group.uncommitted.setdefault(body["producer_id"], {})
    except RefusedError as refusal:
        error = refusal.error_code
    return {"topics": commit(request, error, into)}


def _outside(request: Request) -> int:
    """The error code for a request that would not be part of the transaction."""
    since = _ABORTABLE_SINCE[request.header.api]
    return TRANSACTION_ABORTABLE if request.header.version >= since else rules.INVALID_TXN_STATE


def _member(request: Request, wanted: str | None, producer_id: int, epoch: int) -> rules.Transaction:
    """The transaction to which something is to belong, asked by another broker than its coordinator."""
    found = _known(request, wanted)
    try:
        found.check(producer_id, epoch)
    except RefusedError as error:
        raise RefusedError(
            INVALID_PRODUCER_EPOCH if error.error_code == rules.PRODUCER_FENCED else error.error_code
        ) from None
    return found


def admit(request: Request, topic: Topic, partition: Partition, header: BatchHeader) -> int:
    """The error of a batch that would not be part of its transaction (KIP-890), or 0."""
    markers.pass_time(request.cluster)
    wanted, version = request.body["transactional_id"], request.header.version
    if wanted is None:
        return TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if partition.transactions.is_open(header.producer_id, header.epoch):
        return 0
    try:
        found = _member(request, wanted, header.producer_id, header.epoch)
    except RefusedError as error:
        old = version < _ABORTABLE_SINCE["Produce"] and error.error_code == rules.CONCURRENT_TRANSACTIONS
        return NOT_ENOUGH_REPLICAS if old else error.error_code
    place = topic.name, partition.index
    if version >= _ADDS_SINCE:
        found.add([place], (), request.now)
    elif place not in found.partitions or found.state is not rules.State.ONGOING:
        return _outside(request)
    return 0


def end_txn(request: Request) -> Body:
    """Commit or abort. From version 5 on the epoch is raised, and the answer has the new one."""
    body, raises = request.body, request.header.version >= _RAISES_SINCE["EndTxn"]
    try:
        found = _find(request, body["transactional_id"])
        if found.end(body["producer_id"], body["producer_epoch"], commit=body["committed"], raises=raises):
            markers.complete(request.cluster, found)
    except RefusedError as error:
        return {"error_code": _told(request, error.error_code), "producer_id": -1, "producer_epoch": -1}
    return {"error_code": 0, "producer_id": found.producer_id, "producer_epoch": found.epoch}


def write_txn_markers(request: Request) -> Body:
    """End what hangs in partitions, whatever the coordinator knows of it."""

    def written(marker: Body, topic: Body, index: int) -> Body:
        found, partition, error = request.find_led(topic["name"], None, index)
        error = request.error or error
        if found is not None and partition is not None and not error:
            producer = marker["producer_id"], marker["producer_epoch"]
            known = request.cluster.producers(partition, request.broker).entries().get(producer[0])
            if known is not None and known.epoch > producer[1]:
                error = INVALID_PRODUCER_EPOCH
            else:
                commits, epoch = marker["transaction_result"], marker["coordinator_epoch"]
                markers.write(request.cluster, found, partition, producer, epoch, commit=commits)
        return {"partition_index": index, "error_code": error}

    def answer(marker: Body) -> Body:
        topics = by_partition(marker["topics"], lambda topic, index: written(marker, topic, index), "partition_indexes")
        return {"producer_id": marker["producer_id"], "topics": topics}

    return {"markers": [answer(marker) for marker in request.body["markers"]]}


def list_transactions(request: Request) -> Body:
    """The transactions that this broker coordinates: by state, producer ID, age and name."""
    body, states = request.body, {state.value for state in rules.State}
    unknown = [name for name in body["state_filters"] if name not in states]
    pattern = body.get("transactional_id_pattern") or ".*"
    try:
        named = re.compile(pattern)
    except re.error:
        return {"error_code": request.error or INVALID_REGULAR_EXPRESSION, "transaction_states": []}
    markers.pass_time(request.cluster)
    wanted, ids, age = {*body["state_filters"]}, body["producer_id_filters"], body.get("duration_filter", -1)
    listed = [
        {"transactional_id": one.id, "producer_id": one.producer_id, "transaction_state": one.state.value}
        for one in (() if request.error else request.transactions.values())
        if request.cluster.coordinator(one.id) == request.broker.id
        and (not wanted or one.state.value in wanted)
        and (not ids or one.producer_id in ids)
        and (age < 0 or (one.due is not None and request.now - one.since > age))
        and named.fullmatch(one.id)
    ]
    return {"error_code": request.error, "unknown_state_filters": unknown, "transaction_states": listed}


def describe_transactions(request: Request) -> Body:
    return {"transaction_states": [_description(request, wanted) for wanted in request.body["transactional_ids"]]}


def _description(request: Request, wanted: str) -> Body:
    nothing = {"transactional_id": wanted, "transaction_state": "", "topics": []}
    try:
        found = _find(request, wanted)
    except RefusedError as error:
        code = TRANSACTIONAL_ID_NOT_FOUND if error.error_code == rules.INVALID_PRODUCER_ID_MAPPING else error.error_code
        return {**nothing, "error_code": code}
    named: dict[str, list[int]] = {}
    for name, index in sorted(found.partitions):
        named.setdefault(name, []).append(index)
    return {
        "error_code": 0,
        "transactional_id": wanted,
        "transaction_state": found.state.value,
        "transaction_timeout_ms": found.timeout,
        "transaction_start_time_ms": found.since,
        "producer_id": found.producer_id,
        "producer_epoch": found.epoch,
        "topics": [{"topic": name, "partitions": indexes} for name, indexes in named.items()],
    }
