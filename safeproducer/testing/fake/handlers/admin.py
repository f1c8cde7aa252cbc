"""CreateTopics and DescribeConfigs. Any broker answers; there is no controller of its own."""

from safeproducer.testing.fake import configs
from safeproducer.testing.fake.configs import ConfigValue
from safeproducer.testing.fake.handlers.request import UNKNOWN_TOPIC_OR_PARTITION, Request
from safeproducer.testing.fake.state import INVALID_REPLICA_ASSIGNMENT, TopicRefusedError
from safeproducer.testing.wire import Body

__all__ = ["create_topics", "describe_configs"]

INVALID_REQUEST = 42
_TOPIC, _BROKER = 2, 4
_DEFAULT_PARTITIONS = 1
_DEFAULT_REPLICATION = 1


def create_topics(request: Request) -> Body:
    """One answer for each topic; what is refused leaves the others alone."""
    return {"topics": [_create(request, wanted) for wanted in request.body["topics"]]}


def _assignment(wanted: Body) -> list[list[int]] | None:
    if not wanted["assignments"]:
        return None
    given = {entry["partition_index"]: entry["broker_ids"] for entry in wanted["assignments"]}
    if sorted(given) != list(range(len(given))):
        raise TopicRefusedError(INVALID_REPLICA_ASSIGNMENT, f"partitions {sorted(given)} do not count up from 0")
    return [given[index] for index in sorted(given)]


def _create(request: Request, wanted: Body) -> Body:
    name, config = wanted["name"], {entry["name"]: entry["value"] for entry in wanted["configs"]}
    partitions = _DEFAULT_PARTITIONS if wanted["num_partitions"] == -1 else wanted["num_partitions"]
    factor = _DEFAULT_REPLICATION if wanted["replication_factor"] == -1 else wanted["replication_factor"]
    if request.error:
        return {"name": name, "error_code": request.error, "error_message": None}
    try:
        topic = request.cluster.create_topic(
            name,
            partitions,
            factor,
            config,
            assignment=_assignment(wanted),
            validate_only=request.body["validate_only"],
        )
    except TopicRefusedError as refusal:
        return {"name": name, "error_code": refusal.error_code, "error_message": str(refusal)}
    described = configs.describe_topic(topic.config, request.broker.overrides, kip_1269=request.broker.kip_1269)
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
        "configs": [_entry(value, kind, synonyms) for value in found if keys is None or value.name in keys],
    }


def _find(request: Request, kind: int, name: str) -> tuple[int, str | None, list[ConfigValue]]:
    broker = request.broker
    if request.error:
        return request.error, None, []
    if kind == _TOPIC:
        topic, error = request.find_topic(name or None, None)
        if topic is None:
            return error if name else UNKNOWN_TOPIC_OR_PARTITION, None, []
        return 0, None, configs.describe_topic(topic.config, broker.overrides, kip_1269=broker.kip_1269)
    if kind == _BROKER and name == str(broker.id):
        return 0, None, configs.describe_broker(broker.overrides, kip_1269=broker.kip_1269)
    return INVALID_REQUEST, f"broker {broker.id} describes topics and itself, not type {kind}, name {name!r}", []


def _entry(value: ConfigValue, kind: int, synonyms: bool) -> Body:
    return {
        "name": value.name,
        "value": value.value,
        "read_only": kind == _BROKER and value.name == "auto.create.topics.enable",
        "config_source": value.source,
        "is_sensitive": value.sensitive,
        "synonyms": [{"name": n, "value": v, "source": s} for n, v, s in value.synonyms] if synonyms else [],
        "config_type": value.type,
    }
