"""What FakeCluster says to requests that no well-behaved client sends, and to those few clients send."""

import pytest

from safeproducer.testing import FakeCluster
from safeproducer.testing.wire import versions
from tests.conformance.test_configs import BROKER, TOPIC, describe
from tests.conformance.test_versions import SERVED
from tests.testing.raw import RawClient

RETAIN = "producer.state.batches.to.retain"


ASKED = (
    "ApiVersions CreatePartitions CreateTopics DeleteTopics DescribeCluster DescribeConfigs DescribeProducers "
    "DescribeTopicPartitions Fetch FindCoordinator IncrementalAlterConfigs InitProducerId ListOffsets Metadata "
    "OffsetForLeaderEpoch Produce"
)


@pytest.mark.parametrize(("known", "last"), [(True, 14), (False, 13)])
def test_the_last_version_of_produce_is_advertised(cluster: FakeCluster, known: bool, last: int) -> None:
    cluster.set_kip_1269(1, known)
    with RawClient(cluster.bootstrap) as client:
        keys = client.ask("ApiVersions", 4, client_software_name="raw", client_software_version="1")["api_keys"]
    assert [key["max_version"] for key in keys if key["api_key"] == 0] == [last]


@pytest.mark.parametrize("api", ASKED.split())
def test_every_version_is_answered(cluster: FakeCluster, api: str) -> None:
    """An empty request of each advertised version gets an answer that can be read, and leaves no byte over."""
    first, last = SERVED.get(api, (0, 13))
    with RawClient(cluster.bootstrap) as client:
        for version in range(max(first, versions(api)[0]), last + 1):
            client.ask(api, version, key_type=0, transactional_id=None, acks=1)
    assert {entry.outcome for entry in cluster.journal()} == {"answered"}


def test_an_old_broker_lists_an_unknown_override_without_its_value(cluster: FakeCluster) -> None:
    """Brokers without KIP-1269 list neither config; an override on the topic is there, sensitive and empty."""
    cluster.create_topic("t", config={RETAIN: "20"})
    cluster.create_topic("plain")
    cluster.set_kip_1269(1, False)
    with RawClient(cluster.bootstrap) as client:
        places = ((TOPIC, "t"), (TOPIC, "plain"), (BROKER, "1"))
        topic, plain, broker = (describe(client, *place)[1] for place in places)
    assert (topic[RETAIN]["value"], topic[RETAIN]["is_sensitive"]) == (None, True)
    assert RETAIN not in plain
    assert "min.insync.replicas" in plain
    assert "log." + RETAIN not in broker
