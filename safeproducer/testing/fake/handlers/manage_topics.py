"""CreateTopics, CreatePartitions and DeleteTopics. Any broker answers; there is no controller of its own."""

import uuid
from collections import Counter

from safeproducer.testing.fake.handlers.request import Request
from safeproducer.testing.fake.rules import configs
from safeproducer.testing.fake.state import topic_changes
from safeproducer.testing.fake.state.topic_changes import INVALID_CONFIG, INVALID_REPLICA_ASSIGNMENT, TopicRefusedError
from safeproducer.testing.wire import Body

__all__ = ["create_partitions", "create_topics", "delete_topics"]

INVALID_REQUEST = 42
_NO_ID = uuid.UUID(int=0)
_DEFAULT_PARTITIONS = 1
_DEFAULT_REPLICATION = 1


def create_topics(request: Request) -> Body:
    """One answer for each topic; what is refused leaves the others alone."""
    often = Counter(wanted["name"] for wanted in request.body["topics"])
    answers = [{"name": name, **_once(INVALID_REQUEST, name)} for name, times in often.items() if times > 1]
    answers += [_create(request, wanted) for wanted in request.body["topics"] if often[wanted["name"]] == 1]
    return {"topics": answers}


def _assignment(wanted: Body) -> list[list[int]] | None:
    if not wanted["assignments"]:
        return None
    if (wanted["num_partitions"], wanted["replication_factor"]) != (-1, -1):
        text = "an assignment says how many partitions and replicas there are: give both numbers as -1"
        raise TopicRefusedError(INVALID_REQUEST, text)
    given = {entry["partition_index"]: entry["broker_ids"] for entry in wanted["assignments"]}
    if sorted(given) != list(range(len(wanted["assignments"]))):
        raise TopicRefusedError(INVALID_REPLICA_ASSIGNMENT, f"partitions {sorted(given)} do not count up from 0")
    return [given[index] for index in sorted(given)]


def _create(request: Request, wanted: Body) -> Body:
    name, config = wanted["name"], {entry["name"]: entry["value"] for entry in wanted["configs"]}
    partitions = _DEFAULT_PARTITIONS if wanted["num_partitions"] == -1 else wanted["num_partitions"]
    factor = _DEFAULT_REPLICATION if wanted["replication_factor"] == -1 else wanted["replication_factor"]
    knows_kip = request.cluster.controller_knows_kip_1269
    if request.error:
        return {"name": name, "error_code": request.error, "error_message": None}
    try:
        unknown = [key for key in config if not configs.knows(configs.TOPIC, key, kip_1269=knows_kip)]
        if unknown:
            raise TopicRefusedError(INVALID_CONFIG, f"unknown topic config {unknown[0]}")
        topic = topic_changes.create_topic(
            request.cluster,
            name,
            partitions,
            factor,
            config,
            assignment=_assignment(wanted),
            validate_only=request.body["validate_only"],
        )
    except TopicRefusedError as refusal:
        return {"name": name, "error_code": refusal.error_code, "error_message": str(refusal)}
    described = configs.describe_topic(topic.config, request.broker.layers, kip_1269=request.broker.kip_1269)
    return {
        "name": name,
        "topic_id": topic.id,
        "error_code": 0,
        "error_message": None,
        "num_partitions": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas),
        "configs": [
            {"name": c.name, "value": c.value, "config_source": c.source, "is_sensitive": c.sensitive}
            for c in described
        ],
    }


def create_partitions(request: Request) -> Body:
    """More partitions for topics there are; the new ones are empty and led at epoch 0."""
    often = Counter(wanted["name"] for wanted in request.body["topics"])
    answers = [{"name": name, **_once(INVALID_REQUEST, name)} for name, times in often.items() if times > 1]
    answers += [_grow(request, wanted) for wanted in request.body["topics"] if often[wanted["name"]] == 1]
    return {"results": answers}


def _once(error_code: int, name: str) -> Body:
    return {"error_code": error_code, "error_message": f"{name!r} is named more than once"}


def _grow(request: Request, wanted: Body) -> Body:
    name, given = wanted["name"], wanted["assignments"]
    answer = {"name": name, "error_code": request.error, "error_message": None}
    if not request.error:
        try:
            topic_changes.create_partitions(
                request.cluster,
                name,
                wanted["count"],
                assignment=None if given is None else [entry["broker_ids"] for entry in given],
                validate_only=request.body["validate_only"],
            )
        except TopicRefusedError as refusal:
            answer.update(error_code=refusal.error_code, error_message=str(refusal))
    return answer


def delete_topics(request: Request) -> Body:
    """By name, or from version 6 on by ID."""
    body = request.body
    wanted = body["topics"] if "topics" in body else [{"name": name} for name in body["topic_names"]]
    found = [_named(request, entry.get("name"), entry.get("topic_id", _NO_ID)) for entry in wanted]
    often = Counter(answer["name"] for answer in found if answer["name"])
    answers = []
    for answer in found:
        if often[answer["name"]] > 1:
            answer.update(_once(INVALID_REQUEST, answer["name"]))
        elif not answer["error_code"]:
            topic_changes.delete_topic(request.cluster, request.cluster.topics[answer["name"]])
        if answer not in answers:
            answers.append(answer)
    return {"responses": answers}


def _named(request: Request, name: str | None, topic_id: uuid.UUID) -> Body:
    topic, error = request.find_topic(name, topic_id)
    text = None
    if name is not None and topic_id != _NO_ID:
        error, text = INVALID_REQUEST, "a topic is named or identified, not both"
    elif name is None and topic_id == _NO_ID:
        error, text = INVALID_REQUEST, "neither name nor topic ID is given"
    if topic is not None and not error:
        name, topic_id = topic.name, topic.id
    return {"name": name, "topic_id": topic_id, "error_code": request.error or error, "error_message": text}
