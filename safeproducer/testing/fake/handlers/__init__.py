"""Which APIs a broker serves, in which versions (those of Kafka 4.4.0, and KIP-1269's), and who answers them."""

import re

from safeproducer.testing.fake.handlers.coordinator import find_coordinator
from safeproducer.testing.fake.handlers.groups import heartbeat, join_group, offset_commit, offset_fetch
from safeproducer.testing.fake.handlers.log_in import sasl_authenticate, sasl_handshake
from safeproducer.testing.fake.handlers.manage_configs import alter_configs, describe_configs
from safeproducer.testing.fake.handlers.manage_quotas import alter_client_quotas, describe_client_quotas
from safeproducer.testing.fake.handlers.manage_topics import create_partitions, create_topics, delete_topics
from safeproducer.testing.fake.handlers.metadata import describe_cluster, describe_topic_partitions, metadata
from safeproducer.testing.fake.handlers.producers import describe_producers, init_producer_id
from safeproducer.testing.fake.handlers.read import fetch, list_offsets, offset_for_leader_epoch
from safeproducer.testing.fake.handlers.request import Handler, Request
from safeproducer.testing.fake.handlers.write import produce
from safeproducer.testing.fake.state.cluster_state import BrokerState
from safeproducer.testing.kip_1269 import PRODUCE_VERSION
from safeproducer.testing.wire import Body, api_key

__all__ = ["SERVED", "Handler", "Request", "api_versions", "served"]

UNSUPPORTED_VERSION, INVALID_REQUEST, REBOOTSTRAP_REQUIRED = 35, 42, 129
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
# Brokers say that they serve these although they do not: older librdkafka wants it (KAFKA-18659).
_ADVERTISED_FROM = {"Produce": 0}


def served(api: str, broker: BrokerState) -> tuple[int, int]:
    """The first and last version this broker answers."""
    first, last, _ = SERVED.get(api, (1, 0, None))
    if api == "Produce" and not broker.kip_1269:
        last = min(last, PRODUCE_VERSION - 1)
    return first, last


def api_versions(request: Request) -> Body:
    """The APIs that are served, for clients that say properly what they are (KIP-511) and mean this broker (KIP-1242).

    A client that asks in an unknown version is told the known ones of ApiVersions, to ask again.
    """
    if not request.error:
        if refusal := _refusal(request):
            return {"error_code": refusal, "api_keys": []}
        request.session.versions_told()
    keys = []
    for api in () if request.error else SERVED:
        first, last = served(api, request.broker)
        first = _ADVERTISED_FROM.get(api, first)
        keys.append({"api_key": api_key(api), "min_version": first, "max_version": last})
    if request.error == UNSUPPORTED_VERSION:
        first, last, _ = SERVED["ApiVersions"]
        keys.append({"api_key": api_key("ApiVersions"), "min_version": first, "max_version": last})
    return {"error_code": request.error, "api_keys": sorted(keys, key=lambda entry: entry["api_key"])}


def _refusal(request: Request) -> int:
    told = [request.body.get(f"client_software_{part}", "") for part in ("name", "version")]
    if request.header.version >= 3 and not all(_SOFTWARE.fullmatch(text) for text in told):
        return INVALID_REQUEST
    cluster, node = request.body.get("cluster_id"), request.body.get("node_id", -1)
    if (cluster is None) != (node == -1):
        return INVALID_REQUEST
    meant = cluster is None or (cluster, node) == (request.cluster.id, request.broker.id)
    return 0 if meant else REBOOTSTRAP_REQUIRED


SERVED: dict[str, tuple[int, int, Handler]] = {
    "AlterClientQuotas": (0, 1, alter_client_quotas),
    "ApiVersions": (0, 5, api_versions),
    "ConsumerGroupHeartbeat": (0, 1, heartbeat),
    "CreatePartitions": (0, 3, create_partitions),
    "CreateTopics": (2, 7, create_topics),
    "DeleteTopics": (1, 6, delete_topics),
    "DescribeClientQuotas": (0, 1, describe_client_quotas),
    "DescribeCluster": (0, 2, describe_cluster),
    "DescribeConfigs": (1, 4, describe_configs),
    "DescribeProducers": (0, 0, describe_producers),
    "DescribeTopicPartitions": (0, 0, describe_topic_partitions),
    "Fetch": (4, 18, fetch),
    "FindCoordinator": (0, 6, find_coordinator),
    "IncrementalAlterConfigs": (0, 1, alter_configs),
    "InitProducerId": (0, 5, init_producer_id),
    "JoinGroup": (0, 9, join_group),
    "ListOffsets": (1, 11, list_offsets),
    "Metadata": (0, 13, metadata),
    "OffsetCommit": (2, 10, offset_commit),
    "OffsetFetch": (1, 10, offset_fetch),
    "OffsetForLeaderEpoch": (2, 4, offset_for_leader_epoch),
    "Produce": (3, PRODUCE_VERSION, produce),
    "SaslAuthenticate": (0, 2, sasl_authenticate),
    "SaslHandshake": (0, 1, sasl_handshake),
}
