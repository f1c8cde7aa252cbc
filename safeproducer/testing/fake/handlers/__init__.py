"""A broker serves these APIs, in these versions (those of Kafka 4.4.0, and KIP-1269's). Here clients log in, too."""

import re

from safeproducer.testing.codec import Body
from safeproducer.testing.fake.handlers import admin, groups, metadata, read, transactions, write
from safeproducer.testing.fake.handlers.request import Handler, Request
from safeproducer.testing.fake.state.cluster_state import BrokerState
from safeproducer.testing.fake.state.sasl import SaslError
from safeproducer.testing.wire import PRODUCE_VERSION, api_key

UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED = 33, 34, 58
UNSUPPORTED_VERSION, INVALID_REQUEST, REBOOTSTRAP_REQUIRED = 35, 42, 129
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
# Brokers say that they serve these although they do not: older librdkafka wants it (KAFKA-18659).
_ADVERTISED_FROM = {"Produce": 0}
_FEATURES_SINCE = 3


def sasl_handshake(request: Request) -> Body:
    """Which mechanisms there are. Where nobody needs to log in, or somebody has already, it is out of place."""
    session = request.session
    if session.open and (request.error or not session.renew()):
        return {"error_code": request.error or ILLEGAL_SASL_STATE, "mechanisms": []}
    if session.logging_in or request.error:  # a second handshake, or one that is to fail
        session.fail()
        return {"error_code": request.error or ILLEGAL_SASL_STATE, "mechanisms": []}
    known = session.choose(request.body["mechanism"], request.header.version)
    return {"error_code": 0 if known else UNSUPPORTED_SASL_MECHANISM, "mechanisms": session.mechanisms}


def sasl_authenticate(request: Request) -> Body:
    """One message of the log-in. A failure is told in words that do not say what was wrong, and ends the connection."""
    session = request.session
    if session.open:
        text = "there is no log-in in progress"
        return {"error_code": request.error or ILLEGAL_SASL_STATE, "error_message": text, "auth_bytes": b""}
    if request.error:
        session.fail()
        return {"error_code": request.error, "error_message": None, "auth_bytes": b""}
    try:
        answer = session.step(bytes(request.body["auth_bytes"]))
    except SaslError as problem:
        return {"error_code": SASL_AUTHENTICATION_FAILED, "error_message": str(problem), "auth_bytes": b""}
    return {"error_code": 0, "auth_bytes": answer, "session_lifetime_ms": session.lifetime_ms if session.open else 0}


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
    answer = {"error_code": request.error, "api_keys": sorted(keys, key=lambda entry: entry["api_key"])}
    return answer if request.error or request.header.version < _FEATURES_SINCE else {**answer, **_features(request)}


def _features(request: Request) -> Body:
    """The version of transactions (KIP-890), by which clients choose versions of other APIs."""
    name, level = "transaction.version", request.cluster.rules.transaction_version
    return {
        "supported_features": [{"name": name, "min_version": 0, "max_version": 2}],
        "finalized_features_epoch": 1,
        "finalized_features": [{"name": name, "min_version_level": level, "max_version_level": level}],
    }


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
    "AddOffsetsToTxn": (0, 4, transactions.add_offsets),
    "AddPartitionsToTxn": (0, 5, transactions.add_partitions),
    "AlterClientQuotas": (0, 1, admin.alter_client_quotas),
    "AlterPartitionReassignments": (0, 1, metadata.alter_reassignments),
    "ApiVersions": (0, 5, api_versions),
    "ConsumerGroupHeartbeat": (0, 1, groups.heartbeat_anew),
    "CreatePartitions": (0, 3, admin.create_partitions),
    "CreateTopics": (2, 7, admin.create_topics),
    "DeleteGroups": (0, 2, groups.delete_groups),
    "DeleteTopics": (1, 6, admin.delete_topics),
    "DescribeClientQuotas": (0, 1, admin.describe_client_quotas),
    "DescribeCluster": (0, 2, metadata.describe_cluster),
    "DescribeConfigs": (1, 4, admin.describe_configs),
    "DescribeGroups": (0, 6, groups.describe_groups),
    "DescribeLogDirs": (1, 5, metadata.describe_log_dirs),
    "DescribeProducers": (0, 0, write.describe_producers),
    "DescribeTopicPartitions": (0, 0, metadata.describe_topic_partitions),
    "DescribeTransactions": (0, 0, transactions.describe_transactions),
    "EndTxn": (0, 5, transactions.end_txn),
    "Fetch": (4, 18, read.fetch),
    "FindCoordinator": (0, 6, groups.find_coordinator),
    "Heartbeat": (0, 4, groups.heartbeat),
    "IncrementalAlterConfigs": (0, 1, admin.alter_configs),
    "InitProducerId": (0, 5, transactions.init_producer_id),
    "JoinGroup": (0, 9, groups.join_group),
    "LeaveGroup": (0, 5, groups.leave_group),
    "ListGroups": (0, 5, groups.list_groups),
    "ListOffsets": (1, 11, read.list_offsets),
    "ListPartitionReassignments": (0, 0, metadata.list_reassignments),
    "ListTransactions": (0, 2, transactions.list_transactions),
    "Metadata": (0, 13, metadata.metadata),
    "OffsetCommit": (2, 10, groups.offset_commit),
    "OffsetFetch": (1, 10, groups.offset_fetch),
    "OffsetForLeaderEpoch": (2, 4, read.offset_for_leader_epoch),
    "Produce": (3, PRODUCE_VERSION, write.produce),
    "SaslAuthenticate": (0, 2, sasl_authenticate),
    "SaslHandshake": (0, 1, sasl_handshake),
    "SyncGroup": (0, 5, groups.sync_group),
    "TxnOffsetCommit": (0, 5, transactions.txn_offset_commit),
    "WriteTxnMarkers": (1, 2, transactions.write_txn_markers),
}
