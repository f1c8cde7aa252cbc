"""Configs of topics and brokers, topics themselves, and quotas of clients (KIP-546, 599, and that of 936).

Any broker answers; there is no controller of its own.
"""

import uuid
from collections import Counter
from collections.abc import Callable

from safeproducer.testing.codec import Body, RefusedError
from safeproducer.testing.fake.handlers.request import Request
from safeproducer.testing.fake.rules import configs
from safeproducer.testing.fake.rules.configs import ConfigError, ConfigValue, Definition
from safeproducer.testing.fake.rules.quotas import CLIENT_ID, USER, Entity, QuotaRefusedError
from safeproducer.testing.fake.state import topic_changes
from safeproducer.testing.fake.state.topic_changes import INVALID_CONFIG, INVALID_TOPIC, is_topic_name

UNKNOWN_SERVER_ERROR, UNSUPPORTED_VERSION, INVALID_REQUEST = -1, 35, 42
_TOPIC, _BROKER = 2, 4
_READ_ONLY = [name for name, definition in configs.BROKER.items() if not definition.dynamic]
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_NO_ID = uuid.UUID(int=0)
_EXACT, _DEFAULT, _ANY = 0, 1, 2
_KNOWN = (USER, CLIENT_ID, "ip")


def describe_configs(request: Request) -> Body:
    """Topics are described by any broker, with its own defaults; a broker by itself only."""
    return {"results": [_describe(request, wanted) for wanted in request.body["resources"]]}


def _describe(request: Request, wanted: Body) -> Body:
    kind, name = wanted["resource_type"], wanted["resource_name"]
    error, text, found = _find(request, kind, name)
    keys = wanted["configuration_keys"]
    synonyms = request.body.get("include_synonyms", False)
    return {
        "error_code": error,
        "error_message": text,
        "resource_type": kind,
        "resource_name": name,
        "configs": [_entry(value, kind, synonyms) for value in found if not keys or value.name in keys],
    }


def _find(request: Request, kind: int, name: str) -> tuple[int, str | None, list[ConfigValue]]:
    broker = request.broker
    if request.error:
        return request.error, None, []
    if kind == _TOPIC:
        topic, error = request.find_topic(name, None)
        if topic is None:
            return error if is_topic_name(name) else INVALID_TOPIC, None, []
        return 0, None, configs.describe_topic(topic.config, broker.layers, kip_1269=broker.kip_1269)
    if kind == _BROKER and name == str(broker.id):
        return 0, None, configs.describe_broker(broker.layers, kip_1269=broker.kip_1269)
    if kind == _BROKER and not name:
        defaults = ((request.cluster.broker_defaults, configs.DYNAMIC_DEFAULT_BROKER_CONFIG),)
        everything = configs.describe_broker(defaults, kip_1269=broker.kip_1269)
        return 0, None, [value for value in everything if value.source != configs.DEFAULT_CONFIG]
    return INVALID_REQUEST, f"broker {broker.id} describes topics and itself, not type {kind}, name {name!r}", []


def _entry(value: ConfigValue, kind: int, synonyms: bool) -> Body:
    return {
        "name": value.name,
        "value": value.value,
        "read_only": kind == _BROKER and value.name in _READ_ONLY,
        "config_source": value.source,
        "is_sensitive": value.sensitive,
        "synonyms": [{"name": n, "value": v, "source": s} for n, v, s in value.synonyms] if synonyms else [],
        "config_type": value.type,
    }


def alter_configs(request: Request) -> Body:
    """Changes act at once. All of a resource's changes are made, or none."""
    resources = request.body["resources"]
    names = [(resource["resource_type"], resource["resource_name"]) for resource in resources]
    answers = []
    for resource, name in zip(resources, names, strict=True):
        answer: Body = {"error_code": request.error, "error_message": None}
        try:
            if names.count(name) > 1:
                raise RefusedError(INVALID_REQUEST, "each resource may appear once only")
            if not request.error:
                _alter_configs(request, *name, resource["configs"])
        except RefusedError as refusal:
            answer = {"error_code": refusal.error_code, "error_message": str(refusal)}
        answers.append({**answer, "resource_type": name[0], "resource_name": name[1]})
    return {"responses": answers}


def _alter_configs(request: Request, kind: int, name: str, changes: list[Body]) -> None:
    keys = [change["name"] for change in changes]
    if len({*keys}) != len(keys):
        raise RefusedError(INVALID_REQUEST, "each config may appear once only")
    values = _topic_values(request, name) if kind == _TOPIC else _broker_values(request, kind, name)
    changed = {}
    for change in changes:
        key = change["name"]
        if change["value"] is None and change["config_operation"] != _DELETE:
            raise RefusedError(INVALID_REQUEST, f"{key}: null is no value")
        if kind == _BROKER and key in _READ_ONLY:
            raise RefusedError(INVALID_REQUEST, f"{key} cannot be changed while the broker runs")
        changed[key] = _new_value(request, kind, values, change)
    if not request.body["validate_only"]:
        request.cluster.configure(values, changed)


def _topic_values(request: Request, name: str) -> dict[str, str]:
    if not name:
        raise RefusedError(INVALID_REQUEST, "there are no defaults of all topics")
    topic, error = request.find_topic(name, None)
    if topic is None:
        raise RefusedError(error, f"there is no topic {name!r}")
    return topic.config


def _broker_values(request: Request, kind: int, name: str) -> dict[str, str]:
    """A broker changes itself, or with an empty name the defaults of all brokers."""
    if kind != _BROKER:
        raise RefusedError(INVALID_REQUEST, f"resource type {kind} has no configs here")
    if name not in ("", str(request.broker.id)):
        raise RefusedError(INVALID_REQUEST, f"broker {request.broker.id} was asked to change broker {name!r}")
    return request.broker.dynamic if name else request.cluster.broker_defaults


def _new_value(request: Request, kind: int, values: dict[str, str], change: Body) -> str | None:
    key, operation, value = change["name"], change["config_operation"], change["value"]
    definitions = configs.TOPIC if kind == _TOPIC else configs.BROKER
    decides = request.cluster.controller_knows_kip_1269 if kind == _TOPIC else request.broker.kip_1269
    definition = definitions.get(key) if configs.knows(definitions, key, kip_1269=decides) else None
    if operation == _DELETE:
        return None
    if operation in (_APPEND, _SUBTRACT):
        value = _changed_list(key, definition, values, operation, value)
    elif operation != _SET:
        raise RefusedError(UNKNOWN_SERVER_ERROR, f"config operation {operation} is unknown")
    if definition is not None:
        try:
            configs.check(definitions, key, value)
        except ConfigError as error:
            raise RefusedError(INVALID_CONFIG if kind == _TOPIC else INVALID_REQUEST, str(error)) from error
    elif kind == _TOPIC:
        raise RefusedError(INVALID_CONFIG, f"unknown topic config {key}")
    # What a broker has no definition of it stores unseen: a plug-in may know it.
    return str(value)


def _changed_list(key: str, definition: Definition | None, values: dict[str, str], operation: int, value: str) -> str:
    if definition is None or definition.type != configs.LIST:
        raise RefusedError(INVALID_CONFIG, f"{key} is no list: nothing can be appended or taken away")
    old = [entry for entry in values.get(key, definition.default).split(",") if entry]
    given = value.split(",")
    if operation == _SUBTRACT:
        return ",".join(entry for entry in old if entry not in given)
    return ",".join([*old, *(entry for entry in given if entry not in old)])


def create_topics(request: Request) -> Body:
    """One answer for each topic; what is refused leaves the others alone."""
    return {"topics": _each(request, _create)}


def _each(request: Request, act: Callable[[Request, Body], Body]) -> list[Body]:
    often = Counter(wanted["name"] for wanted in request.body["topics"])
    refused = [{"name": name, **_once(name)} for name, times in often.items() if times > 1]
    return refused + [act(request, wanted) for wanted in request.body["topics"] if often[wanted["name"]] == 1]


def _assignment(wanted: Body) -> list[list[int]] | None:
    if not wanted["assignments"]:
        return None
    if (wanted["num_partitions"], wanted["replication_factor"]) != (-1, -1):
        text = "an assignment says how many partitions and replicas there are: give both numbers as -1"
        raise RefusedError(INVALID_REQUEST, text)
    given = {entry["partition_index"]: entry["broker_ids"] for entry in wanted["assignments"]}
    if sorted(given) != list(range(len(wanted["assignments"]))):
        text = f"partitions {sorted(given)} do not count up from 0"
        raise RefusedError(topic_changes.INVALID_REPLICA_ASSIGNMENT, text)
    return [given[index] for index in sorted(given)]


def _create(request: Request, wanted: Body) -> Body:
    name, config = wanted["name"], {entry["name"]: entry["value"] for entry in wanted["configs"]}
    partitions = 1 if wanted["num_partitions"] == -1 else wanted["num_partitions"]
    factor = 1 if wanted["replication_factor"] == -1 else wanted["replication_factor"]
    knows_kip = request.cluster.controller_knows_kip_1269
    if request.error:
        return {"name": name, "error_code": request.error, "error_message": None}
    try:
        unknown = [key for key in config if not configs.knows(configs.TOPIC, key, kip_1269=knows_kip)]
        if unknown:
            raise RefusedError(INVALID_CONFIG, f"unknown topic config {unknown[0]}")
        given, only = _assignment(wanted), request.body["validate_only"]
        topic = topic_changes.create_topic(
            request.cluster, name, partitions, factor, config, assignment=given, validate_only=only
        )
    except RefusedError as refusal:
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
    return {"results": _each(request, _grow)}


def _once(name: str) -> Body:
    return {"error_code": INVALID_REQUEST, "error_message": f"{name!r} is named more than once"}


def _grow(request: Request, wanted: Body) -> Body:
    name, given, only = wanted["name"], wanted["assignments"], request.body["validate_only"]
    new = None if given is None else [entry["broker_ids"] for entry in given]
    answer = {"name": name, "error_code": request.error, "error_message": None}
    if not request.error:
        try:
            topic_changes.create_partitions(request.cluster, name, wanted["count"], assignment=new, validate_only=only)
        except RefusedError as refusal:
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
            answer.update(_once(answer["name"]))
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


def alter_client_quotas(request: Request) -> Body:
    """One answer for each entity; a refused one leaves the others alone. The last of two names of a type counts.

    An entity named twice has the first of its changes made, and is told of the error only.
    """
    answers: dict[Entity, Body] = {}
    for entry in request.body["entries"]:
        entity = frozenset({part["entity_type"]: part["entity_name"] for part in entry["entity"]}.items())
        error, text = _alter_quotas(request, entry, entity, again=entity in answers)
        names = [{"entity_type": kind, "entity_name": name} for kind, name in entity]
        answers[entity] = {"error_code": error, "error_message": text, "entity": names}
    return {"entries": [*answers.values()]}


def _alter_quotas(request: Request, entry: Body, entity: Entity, *, again: bool) -> tuple[int, str | None]:
    if request.error:
        return request.error, None
    names = [change["key"] for change in entry["ops"]]
    if again or len({*names}) != len(names):
        return INVALID_REQUEST, "an entity and a quota may each be named once only"
    changes = {change["key"]: None if change["remove"] else change["value"] for change in entry["ops"]}
    try:
        request.cluster.quotas.set(entity, changes, validate_only=request.body["validate_only"])
    except QuotaRefusedError as refusal:
        return INVALID_REQUEST, str(refusal)
    return 0, None


def describe_client_quotas(request: Request) -> Body:
    """The entities that match every component; a strict filter wants no other component in them."""
    components = request.body["components"]
    error, text = (request.error, None) if request.error else _check(components)
    if error:
        return {"error_code": error, "error_message": text, "entries": None}
    strict = len(components) if request.body["strict"] else None
    return {
        "error_code": 0,
        "error_message": None,
        "entries": [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in sorted(entity, reverse=True)],
                "values": [{"key": name, "value": value} for name, value in limits.items()],
            }
            for entity, limits in request.cluster.quotas.entities()
            if strict in (None, len(entity)) and all(_matches(dict(entity), component) for component in components)
        ],
    }


def _check(components: list[Body]) -> tuple[int, str | None]:
    kinds = [component["entity_type"] for component in components]
    if len({*kinds}) != len(kinds) or "" in kinds:
        return INVALID_REQUEST, "an entity type has a name and may be named once only"
    for component in components:
        kind, how, name = component["entity_type"], component["match_type"], component["match"]
        if kind not in _KNOWN:
            return UNSUPPORTED_VERSION, f"there is no entity type {kind!r}"
        if how not in (_EXACT, _DEFAULT, _ANY) or (how == _EXACT) != (name is not None):
            return INVALID_REQUEST, f"{kind}: match type {how} with the name {name!r}"
    if "ip" in kinds and len(kinds) > 1:
        return INVALID_REQUEST, "ip goes with no other entity type"
    return 0, None


def _matches(entity: dict[str, str | None], component: Body) -> bool:
    kind = component["entity_type"]
    return kind in entity and (component["match_type"] == _ANY or entity[kind] == component["match"])
