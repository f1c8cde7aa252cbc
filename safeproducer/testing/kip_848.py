"""ConsumerGroupHeartbeat, how consumers join a group since KIP-848: kafka-python has no schema of it."""

from typing import Any

__all__ = ["API_KEYS", "SCHEMAS"]

_KEY = 68
API_KEYS = {"ConsumerGroupHeartbeat": _KEY}


def _field(name: str, kind: str, versions: str = "0+", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "versions": versions, **more}


def _nullable(name: str, kind: str, versions: str = "0+", **more: Any) -> dict[str, Any]:
    return _field(name, kind, versions, nullableVersions=versions, default="null", **more)


_PARTITIONS = [_field("TopicId", "uuid"), _field("Partitions", "[]int32")]
_HEAD = {"apiKey": _KEY, "validVersions": "0-1", "flexibleVersions": "0+"}

SCHEMAS: dict[str, dict[str, Any]] = {
    "ConsumerGroupHeartbeatRequest": {
        "name": "ConsumerGroupHeartbeatRequest",
        **_HEAD,
        "fields": [
            _field("GroupId", "string"),
            _field("MemberId", "string"),
            _field("MemberEpoch", "int32"),
            _nullable("InstanceId", "string"),
            _nullable("RackId", "string"),
            _field("RebalanceTimeoutMs", "int32", default="-1"),
            _nullable("SubscribedTopicNames", "[]string"),
            _nullable("SubscribedTopicRegex", "string", "1+"),
            _nullable("ServerAssignor", "string"),
            _nullable("TopicPartitions", "[]TopicPartitions", fields=_PARTITIONS),
        ],
    },
    "ConsumerGroupHeartbeatResponse": {
        "name": "ConsumerGroupHeartbeatResponse",
        **_HEAD,
        "fields": [
            _field("ThrottleTimeMs", "int32"),
            _field("ErrorCode", "int16"),
            _nullable("ErrorMessage", "string"),
            _nullable("MemberId", "string"),
            _field("MemberEpoch", "int32"),
            _field("HeartbeatIntervalMs", "int32"),
            _nullable(
                "Assignment", "Assignment", fields=[_field("TopicPartitions", "[]TopicPartitions", fields=_PARTITIONS)]
            ),
        ],
    },
}
"""As the files of Kafka spell them, by the name of such a file."""
