"""What KIP-1269 adds to the wire format of Kafka 4.3; its names and numbers are in safeproducer.policy.kip_1269."""

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
    """Teach a schema of Kafka 4.3's Produce request or answer the version of this KIP; others are left alone."""
    if schema["name"] not in ("ProduceRequest", "ProduceResponse"):
        return
    first, _, last = schema["validVersions"].partition("-")
    schema["validVersions"] = f"{first}-{max(int(last), PRODUCE_VERSION)}"
    if schema["name"] == "ProduceResponse":
        topics = next(field for field in schema["fields"] if field["name"] == "Responses")
        partitions = next(field for field in topics["fields"] if field["name"] == "PartitionResponses")
        versions = f"{PRODUCE_VERSION}+"
        field = {"name": _SCHEMA_NAME, "type": "int32", "versions": versions, "taggedVersions": versions, "tag": TAG}
        partitions["fields"].append({**field, "default": str(DEFAULT)})
