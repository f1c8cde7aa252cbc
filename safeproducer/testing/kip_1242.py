"""KIP-1242's fields of ApiVersions: a client says which cluster and broker it means (version 5, Kafka 4.4).

kafka-python has no schema of it.
"""

from typing import Any

__all__ = ["extend_schema"]

_VERSION = 5


def extend_schema(schema: dict[str, Any]) -> None:
    """Teach a schema of ApiVersions the version of this KIP, whose answer has nothing new; others are left alone."""
    first, _, last = schema["validVersions"].partition("-")
    if schema["name"] not in ("ApiVersionsRequest", "ApiVersionsResponse") or int(last or first) >= _VERSION:
        return
    schema["validVersions"] = f"{first}-{_VERSION}"
    if schema["name"] == "ApiVersionsRequest":
        versions = f"{_VERSION}+"
        cluster = {"name": "ClusterId", "type": "string", "versions": versions, "nullableVersions": versions}
        node = {"name": "NodeId", "type": "int32", "versions": versions, "default": "-1"}
        schema["fields"] += [{**cluster, "default": "null"}, node]
