"""KIP-1269's fields in the wire format of Kafka 4.4; its names and numbers are in safeproducer.policy.kip_1269.

The KIP's prose has its field in each partition of an answer, its schema beside the partitions of a topic. Here both can
be read and written; FakeCluster's `kip_1269_field` chooses.
"""

from typing import Any

from safeproducer.policy.kip_1269 import (
    BROKER_CONFIG,
    DEFAULT,
    FIELD,
    MINIMUM,
    PRODUCE_VERSION,
    TAG,
    TOPIC_CONFIG,
)

__all__ = ["BROKER_CONFIG", "DEFAULT", "FIELD", "MINIMUM", "PRODUCE_VERSION", "TAG", "TOPIC_CONFIG", "extend_schema"]

_SCHEMA_NAME = "ProducerStateBatchesToRetain"


def extend_schema(schema: dict[str, Any]) -> None:
    """Teach a schema of Kafka 4.4's Produce request or answer the version of this KIP; others are left alone."""
    if schema["name"] not in ("ProduceRequest", "ProduceResponse"):
        return
    first, _, last = schema["validVersions"].partition("-")
    schema["validVersions"] = f"{first}-{max(int(last), PRODUCE_VERSION)}"
    if schema["name"] == "ProduceResponse":
        topics = next(field for field in schema["fields"] if field["name"] == "Responses")
        partitions = next(field for field in topics["fields"] if field["name"] == "PartitionResponses")
        versions = f"{PRODUCE_VERSION}+"
        field = {"name": _SCHEMA_NAME, "type": "int32", "versions": versions, "taggedVersions": versions, "tag": TAG}
        for fields in (partitions["fields"], topics["fields"]):
            fields.append({**field, "default": str(DEFAULT)})
