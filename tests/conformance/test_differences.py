"""Where FakeCluster differs from Kafka 4.4.0 on purpose; docs/test/conformance.md says why, test by test.

Each test states both halves, so that a change of either is noticed.
"""

import re
import time
from pathlib import Path
from typing import Any

import pytest

from safeproducer.testing import FakeCluster, FakeClusterWarning
from safeproducer.testing.wire import api_key
from tests.conformance.target import Target, fetch, fresh, part, produce, until
from tests.conformance.test_configs import (
    BROKER,
    DEFAULT,
    INVALID_CONFIG,
    OF_ALL_BROKERS,
    SET,
    TOPIC,
    describe,
    synonyms,
    value,
)
from tests.conformance.test_configs import alter as alter_config
from tests.conformance.test_produce import INVALID_RECORD, patched
from tests.conformance.test_quotas import alter as alter_quota
from tests.conformance.test_quotas import entity
from tests.conformance.test_topics import create
from tests.conformance.test_transactions import Tx
from tests.conformance.test_versions import SERVED, ranges
from tests.testing.raw import RawClient, hung_up, make_batch

ROOT = Path(__file__).resolve().parents[2]
INVALID_REQUEST = 42
OUT_OF_ORDER = 45
KAFKA_ONLY = {
    *(47, 69, 76, 77, 78, 79, 88, 89, 90, 91, 92, 93),  # offsets deleted, groups of other kinds
    *(29, 30, 31, 38, 39, 40, 41, 50, 51),  # rights, tokens and passwords
    *(21, 33, 34, 43, 74),  # records, configs and replicas
    *(55, 57, 64, 80, 81, 94),  # controllers
    *(83, 84, 85, 86, 87),  # state of share groups
}
"""API keys that FakeCluster does not serve."""


def test_each_difference_has_its_line() -> None:
    """The table of docs/test/conformance.md and this file name each other completely."""
    tests = set(re.findall(r"^def (test_\w+)", Path(__file__).read_text(encoding="utf-8"), re.MULTILINE))
    table = (ROOT / "docs/test/conformance.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\|.*\| `(test_\w+)` \|$", table, re.MULTILINE)
    assert sorted(listed) == sorted(tests - {"test_each_difference_has_its_line"})


def test_apis_that_are_not_served(cluster: Target, client: RawClient) -> None:
    """Nothing else is missing, and nothing is served that Kafka does not serve."""
    common = {api_key(api) for api in (*SERVED, "DeleteGroups", "Produce", "TxnOffsetCommit")}
    assert ranges(cluster).keys() == common | cluster.differs(fake=set(), kafka=KAFKA_ONLY)
    asked = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    if cluster.kind == "fake":
        with hung_up():
            client.ask("DescribeAcls", 1, **asked)
    else:
        assert "resources" in client.ask("DescribeAcls", 1, **asked)


def test_produce_reaches_version_14(cluster: Target) -> None:
    """KIP-1269's version is advertised; confluent_kafka clients do not know it and are not in its way."""
    assert ranges(cluster)[api_key("Produce")] == (0, cluster.differs(fake=14, kafka=13))


def test_the_first_sequence_of_kafka_4_5(cluster: Target, client: RawClient) -> None:
    """Only a partition that never had a record is particular: not one of others' records, nor one emptied since."""
    zero, five = (make_batch([b"v"], producer_id=8, epoch=0, sequence=first) for first in (0, 5))
    assert client.produce(cluster.topic(), five)["error_code"] == 0
    with FakeCluster(1, kafka="4.5") as newer, RawClient(newer.bootstrap) as newer_client:
        for name, sent, answers in (
            ("refused", [five, zero, five], [OUT_OF_ORDER, 0, OUT_OF_ORDER]),
            ("others", [make_batch([b"v"], producer_id=7, epoch=0, sequence=0), five], [0, 0]),
            ("without idempotence", [make_batch([b"v"])], [0]),
        ):
            newer.create_topic(name.replace(" ", "-"))
            found = [newer_client.produce(name.replace(" ", "-"), batch)["error_code"] for batch in sent]
            assert found == answers, name
        newer.create_topic("emptied", config={"retention.ms": "1"})
        old = make_batch([b"v"], producer_id=7, epoch=0, sequence=0, timestamp=1)
        assert newer_client.produce("emptied", old)["error_code"] == 0
        assert newer.apply_retention() == 1
        assert newer_client.produce("emptied", five)["error_code"] == 0


def test_the_first_epoch(client: RawClient) -> None:
    """Each ID is new all the same."""

    def initialised(to: RawClient) -> tuple[int, int]:
        answer = to.ask("InitProducerId", 1, transactional_id=None, transaction_timeout_ms=1000)
        return answer["producer_id"], answer["producer_epoch"]

    assert initialised(client)[1] == 0
    with FakeCluster(1, first_epoch=32_766) as late, RawClient(late.bootstrap) as late_client:
        (first, epoch), (second, again) = initialised(late_client), initialised(late_client)
        assert first != second
        assert epoch == again == 32_766


def test_both_configs_of_kip_1269(cluster: Target, client: RawClient, name: str) -> None:
    topic_key, broker_key = "producer.state.batches.to.retain", "log.producer.state.batches.to.retain"
    known = cluster.differs(fake=True, kafka=False)
    assert (topic_key in describe(client, TOPIC, name)[1]) == known
    assert (broker_key in describe(client, BROKER, "1")[1]) == known
    error = alter_config(client, TOPIC, name, (topic_key, SET, "20"), validate=True)
    assert error == cluster.differs(fake=0, kafka=INVALID_CONFIG)


def test_both_configs_of_kip_936(cluster: Target, client: RawClient) -> None:
    """A window of an hour."""
    _, found = describe(client, BROKER, "1")
    for name, default in (("window.num", "1"), ("window.size.seconds", "3600")):
        told = found.get(f"producer.id.quota.{name}")
        assert (told is not None) == cluster.differs(fake=True, kafka=False)
        assert told is None or (told["value"], told["config_source"], told["read_only"]) == (default, DEFAULT, True)


def test_one_feature_is_told(client: RawClient, cluster: Target) -> None:
    """`transaction.version`, by which clients choose their kind of transactions; the others are taken for 0."""
    told = client.ask("ApiVersions", 4, client_software_name="suite", client_software_version="1")
    finalized = {feature["name"]: feature["max_version_level"] for feature in told["finalized_features"]}
    assert finalized["transaction.version"] == 2
    assert ("metadata.version" in finalized) == cluster.differs(fake=False, kafka=True)


def test_the_newest_versions_of_two_apis(cluster: Target) -> None:
    """Kafka has one version more of each."""
    told = ranges(cluster)
    assert told[api_key("TxnOffsetCommit")] == (0, cluster.differs(fake=5, kafka=6))
    assert told[api_key("DeleteGroups")] == (0, cluster.differs(fake=2, kafka=3))


def test_ends_are_written_at_once(cluster: Target, client: RawClient) -> None:
    """Nothing is in progress after the answer to EndTxn, where all partitions have a leader."""
    if cluster.kind == "fake":
        tx = Tx(client, cluster.topic())
        tx.in_state("Ongoing")
        assert tx.try_end(True)["error_code"] == 0
        assert tx.described()["transaction_state"] == "CompleteCommit"


def test_no_fetch_sessions(cluster: Target, client: RawClient) -> None:
    """A client that asks for a session is given none, and names all its partitions each time."""
    answer = fetch(client, 12, cluster.topic(), session_id=0, session_epoch=0)
    assert (answer["error_code"], answer["session_id"] > 0) == (0, cluster.differs(fake=False, kafka=True))


def test_no_groups_of_the_new_protocol(cluster: Target, client: RawClient) -> None:
    """Members of KIP-848 get error 42, at which no client tries again; the test is warned."""

    def join() -> int:
        who = {"group_id": "new", "member_id": fresh("member"), "rebalance_timeout_ms": 6000}
        what = {"subscribed_topic_names": [cluster.topic()], "topic_partitions": []}
        return int(client.ask("ConsumerGroupHeartbeat", 1, **who, **what)["error_code"])

    if cluster.kind == "fake":
        with pytest.warns(FakeClusterWarning, match="set group.protocol to classic"):
            assert join() == INVALID_REQUEST
    else:
        until(lambda: join() == 0, "there is a group of the new protocol to join")


@pytest.mark.parametrize(
    ("batch", "kafka"),
    [
        pytest.param(patched(make_batch([b"a"]), 61, ">b", -1), 87, id="no records"),
        pytest.param(patched(make_batch([b"a"]), 21, ">h", 1), -1, id="not gzip"),
        pytest.param(patched(patched(make_batch([b"a", b"b"]), 57, ">i", 3), 23, ">i", 2), 87, id="fewer than told"),
    ],
)
def test_records_are_not_unpacked(cluster: Target, client: RawClient, batch: bytes, kafka: int) -> None:
    """A batch whose header and checksum are right is appended, whatever is in it."""
    assert part(produce(client, 9, cluster.topic(), batch))["error_code"] == cluster.differs(fake=0, kafka=kafka)


def test_the_wrong_record_is_not_told(cluster: Target, client: RawClient) -> None:
    """`record_errors` is empty, and the beginning of the log is not told with an error."""
    batch = make_batch([b"a"], timestamp=int(time.time() * 1000) + 7_200_000)
    found = part(produce(client, 9, cluster.topic(), batch))
    expected: tuple[list[int], int] = cluster.differs(fake=([], -1), kafka=([0], 0))
    assert ([one["batch_index"] for one in found["record_errors"]], found["log_start_offset"]) == expected


def test_null_instead_of_records(cluster: Target, client: RawClient, name: str) -> None:
    """Kafka never answers, FakeCluster does: a client that hangs tells nobody anything."""
    client.set_timeout(0.5)
    if cluster.kind == "fake":
        assert part(produce(client, 9, name, None))["error_code"] == INVALID_RECORD
    else:
        with pytest.raises(TimeoutError):
            produce(client, 9, name, None)


@pytest.mark.parametrize("change", [("segment.bytes", "1048576"), ("cleanup.policy", "compact")])
def test_configs_that_would_not_act_are_refused(
    cluster: Target, client: RawClient, untouched: str, change: tuple[str, str]
) -> None:
    key, new = change
    error = alter_config(client, TOPIC, untouched, (key, SET, new), validate=True)
    assert error == cluster.differs(fake=INVALID_CONFIG, kafka=0)


def test_few_configs_are_described(cluster: Target, client: RawClient) -> None:
    """Those that act, and a few that clients look for; in no words."""
    _, of_topic = describe(client, TOPIC, cluster.topic())
    _, of_broker = describe(client, BROKER, "1")
    assert (len(of_topic) < 12, len(of_broker) < 20) == cluster.differs(fake=(True, True), kafka=(False, False))
    resources = [{"resource_type": BROKER, "resource_name": "1", "configuration_keys": ["message.max.bytes"]}]
    answer = client.ask("DescribeConfigs", 4, resources=resources, include_documentation=True)
    (config,) = answer["results"][0]["configs"]
    assert bool(config["documentation"]) == cluster.differs(fake=False, kafka=True)


def test_the_source_of_min_insync_replicas(cluster: Target, client: RawClient) -> None:
    """With eligible leader replicas (KIP-966) Kafka's controller sets it for all brokers at its first start."""
    source = cluster.differs(fake=DEFAULT, kafka=OF_ALL_BROKERS)
    assert value(client, TOPIC, cluster.topic(), "min.insync.replicas") == ("1", source)
    assert value(client, BROKER, "1", "min.insync.replicas") == ("1", source)


def test_the_synonyms_of_retention_ms(cluster: Target, client: RawClient) -> None:
    """Kafka's default comes from `log.retention.hours`, which no topic lists; here from `log.retention.ms`."""
    _, found = describe(client, TOPIC, cluster.topic(), ["retention.ms"])
    behind: list[Any] = cluster.differs(fake=[("log.retention.ms", "604800000", DEFAULT)], kafka=[])
    assert (found["retention.ms"]["value"], synonyms(found["retention.ms"])) == ("604800000", behind)
    _, of_broker = describe(client, BROKER, "1", ["log.retention.ms"])
    assert of_broker["log.retention.ms"]["value"] == cluster.differs(fake="604800000", kafka=None)


@pytest.mark.parametrize(
    ("who", "quota", "fake", "kafka"),
    [
        ({"user": "a"}, "producer_ids_rate", 0, INVALID_REQUEST),
        ({"user": "a"}, "controller_mutation_rate", INVALID_REQUEST, 0),
        ({"ip": "127.0.0.1"}, "connection_creation_rate", INVALID_REQUEST, 0),
    ],
)
def test_the_quotas_that_there_are(
    cluster: Target, client: RawClient, who: dict[str, str | None], quota: str, fake: int, kafka: int
) -> None:
    """KIP-936's is there; those that would not act are refused."""
    error = alter_quota(client, entity(**who), validate_only=True, **{quota: 5.0})
    assert error == cluster.differs(fake=fake, kafka=kafka)


def test_very_many_partitions(cluster: Target, client: RawClient) -> None:
    """More than 10 000 of a topic are refused, by Kafka for one request only and with other errors."""
    answer = create(client, fresh("large"), validate_only=True, num_partitions=10_001)
    assert answer["error_code"] == cluster.differs(fake=37, kafka=44)
    for count, fake, kafka in ((10_001, 37, 0), (10_002, 37, 44)):
        topics = [{"name": cluster.topic(), "count": count, "assignments": None}]
        (grown,) = client.ask("CreatePartitions", 3, topics=topics, timeout_ms=9000, validate_only=True)["results"]
        assert grown["error_code"] == cluster.differs(fake=fake, kafka=kafka)
