"""What a broker says it serves, and what it does when it is asked for something else."""

import pytest

from safeproducer.testing.wire import api_key, decode_response, encode_request
from tests.conformance.target import Target
from tests.testing.raw import RawClient

UNSUPPORTED_VERSION, INVALID_REQUEST, REBOOTSTRAP_REQUIRED = 35, 42, 129
SERVED = {
    "AddOffsetsToTxn": (0, 4),
    "AddPartitionsToTxn": (0, 5),
    "AlterClientQuotas": (0, 1),
    "AlterPartitionReassignments": (0, 1),
    "ApiVersions": (0, 5),
    "ConsumerGroupHeartbeat": (0, 1),
    "CreatePartitions": (0, 3),
    "CreateTopics": (2, 7),
    "DeleteTopics": (1, 6),
    "DescribeClientQuotas": (0, 1),
    "DescribeCluster": (0, 2),
    "DescribeConfigs": (1, 4),
    "DescribeGroups": (0, 6),
    "DescribeLogDirs": (1, 5),
    "DescribeProducers": (0, 0),
    "DescribeTopicPartitions": (0, 0),
    "DescribeTransactions": (0, 0),
    "EndTxn": (0, 5),
    "Fetch": (4, 18),
    "FindCoordinator": (0, 6),
    "Heartbeat": (0, 4),
    "IncrementalAlterConfigs": (0, 1),
    "InitProducerId": (0, 5),
    "JoinGroup": (0, 9),
    "LeaveGroup": (0, 5),
    "ListGroups": (0, 5),
    "ListOffsets": (1, 11),
    "ListPartitionReassignments": (0, 0),
    "ListTransactions": (0, 2),
    "Metadata": (0, 13),
    "OffsetCommit": (2, 10),
    "OffsetFetch": (1, 10),
    "OffsetForLeaderEpoch": (2, 4),
    "SaslAuthenticate": (0, 2),
    "SaslHandshake": (0, 1),
    "SyncGroup": (0, 5),
    "WriteTxnMarkers": (1, 2),
}
"""Of Kafka 4.4.0; DeleteGroups, Produce and TxnOffsetCommit are differences of their own."""


def ranges(cluster: Target, version: int = 4) -> dict[int, tuple[int, int]]:
    with cluster.connect() as client:
        told = client.ask("ApiVersions", version, client_software_name="suite", client_software_version="1")
    assert told["error_code"] == 0
    return {entry["api_key"]: (entry["min_version"], entry["max_version"]) for entry in told["api_keys"]}


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 5])
def test_the_same_versions_are_advertised(cluster: Target, version: int) -> None:
    """First and last version of each API that both serve, whatever version of ApiVersions asks."""
    told = ranges(cluster, version)
    assert {api: told[api_key(api)] for api in SERVED} == SERVED


def test_an_unknown_version_of_apiversions_is_answered_in_the_oldest(client: RawClient) -> None:
    """Error 35 and the versions of ApiVersions alone, so that the client can ask again; the connection stays."""
    newer = bytearray(encode_request("ApiVersions", 4, 1, "suite", {}))
    newer[2:4] = (99).to_bytes(2, "big")
    client.send(bytes(newer))
    _, answer = decode_response("ApiVersions", 0, client.receive())
    again = client.ask("ApiVersions", 0)
    assert answer["error_code"] == UNSUPPORTED_VERSION
    assert answer["api_keys"] == [{"api_key": api_key("ApiVersions"), "min_version": 0, "max_version": 5}]
    assert again["error_code"] == 0


@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("-", "1"), ("two words", "1"), ("suite", ""), ("suite", "ö")]
)
def test_a_client_that_does_not_say_what_it_is_gets_no_versions(name: str, version: str, client: RawClient) -> None:
    """KIP-511: name and version of the client's software are checked from version 3 on; it may ask again."""
    answer = client.ask("ApiVersions", 3, client_software_name=name, client_software_version=version)
    assert (answer["error_code"], answer["api_keys"]) == (INVALID_REQUEST, [])
    assert client.ask("ApiVersions", 2)["error_code"] == 0


@pytest.mark.parametrize(
    ("cluster_id", "node", "error"),
    [
        ("own", 1, 0),
        ("own", 2, REBOOTSTRAP_REQUIRED),
        ("own", -2, REBOOTSTRAP_REQUIRED),
        ("other", 1, REBOOTSTRAP_REQUIRED),
        ("", 1, REBOOTSTRAP_REQUIRED),
        ("own", -1, INVALID_REQUEST),
        ("other", -1, INVALID_REQUEST),
        (None, 1, INVALID_REQUEST),
        (None, -1, 0),
    ],
)
def test_a_client_that_means_another_broker_is_sent_away(
    cluster_id: str | None, node: int, error: int, client: RawClient
) -> None:
    """KIP-1242: a client may name the cluster and the broker that it means, both or neither; the connection stays."""
    own = client.ask("Metadata", 12, topics=[])["cluster_id"]
    meant = {"cluster_id": own if cluster_id == "own" else cluster_id, "node_id": node}
    answer = client.ask("ApiVersions", 5, client_software_name="suite", client_software_version="1", **meant)
    assert (answer["error_code"], bool(answer["api_keys"])) == (error, not error)
    assert client.ask("ApiVersions", 2)["error_code"] == 0


@pytest.mark.parametrize(("api", "version"), [("Metadata", 99), ("Produce", 2), ("Fetch", 3), ("ListOffsets", 0)])
def test_an_unsupported_version_ends_the_connection(api: str, version: int, client: RawClient) -> None:
    """There is no answer that the client would understand."""
    header = api_key(api).to_bytes(2, "big") + version.to_bytes(2, "big") + (1).to_bytes(4, "big") + b"\xff\xff"
    client.send(header)
    client.ends()


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 100 * 2**20 + 1])
def test_an_impossible_size_ends_the_connection(size: int, client: RawClient) -> None:
    """Nothing above 100 MB is read, and nothing of it is allocated."""
    client.send_raw(size.to_bytes(4, "big", signed=True))
    client.ends()


def test_a_request_that_ends_too_early_ends_the_connection(client: RawClient) -> None:
    whole = encode_request("Metadata", 12, 1, "suite", {"topics": [{"name": "a"}]})
    client.send(whole[:-4])
    client.ends()


def test_unknown_tags_are_skipped(client: RawClient) -> None:
    """A newer client may say more than a broker knows, in the body of any flexible version."""
    answer = client.ask("Metadata", 12, topics=[], _tags={77: b"whatever"})
    assert (answer["topics"], len(answer["brokers"])) == ([], 1)
