"""KIP-1269 on the wire and in configs, all in one place: to be changed here when the KIP changes.

A broker that knows the KIP remembers as many batches of a producer in a partition as the topic's config says, or else
its own, instead of 5. It tells so in a tagged field of each partition of a Produce answer, from version 14 on; the
request of that version is that of version 13. The default, 5, is not sent: absent and 5 mean the same.
"""

from typing import Any

__all__ = ["BROKER_CONFIG", "DEFAULT", "FIELD", "MINIMUM", "PRODUCE_VERSION", "TAG", "TOPIC_CONFIG", "extend_schema"]

TOPIC_CONFIG = "producer.state.batches.to.retain"
BROKER_CONFIG = "log.producer.state.batches.to.retain"
DEFAULT = 5
MINIMUM = 5
"""Of both configs: clients of today count on five."""

PRODUCE_VERSION = 14
TAG = 1
FIELD = "producer_state_batches_to_retain"
"""The tagged field's name in a decoded answer."""

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
