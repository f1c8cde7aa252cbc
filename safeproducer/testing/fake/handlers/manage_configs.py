"""DescribeConfigs and IncrementalAlterConfigs, of topics and brokers."""

from safeproducer.testing.fake.handlers.request import Request
from safeproducer.testing.fake.rules import configs
from safeproducer.testing.fake.rules.configs import ConfigError, ConfigValue, Definition
from safeproducer.testing.fake.state.topic_changes import INVALID_TOPIC, is_topic_name
from safeproducer.testing.wire import Body

__all__ = ["alter_configs", "describe_configs"]

UNKNOWN_SERVER_ERROR = -1
INVALID_CONFIG = 40
INVALID_REQUEST = 42
_TOPIC, _BROKER = 2, 4
_READ_ONLY = [name for name, definition in configs.BROKER.items() if not definition.dynamic]
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


class RefusedError(Exception):
    """A change that is refused; carries the error code and a text."""

    def __init__(self, error_code: int, text: str | None) -> None:
        super().__init__(text)
        self.error_code = error_code
        self.text = text


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
                _alter(request, *name, resource["configs"])
        except RefusedError as refusal:
            answer = {"error_code": refusal.error_code, "error_message": refusal.text}
        answers.append({**answer, "resource_type": name[0], "resource_name": name[1]})
    return {"responses": answers}


def _alter(request: Request, kind: int, name: str, changes: list[Body]) -> None:
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
        for broker in request.cluster.brokers.values():
            request.cluster.expire_producers(broker)
        for key, value in changed.items():
            values.pop(key, None)
            if value is not None:
                values[key] = value
        request.cluster.changed()


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
