"""What a leader is asked about its window (KIP-1269), and what is made of the answers of FakeCluster's brokers."""

import time
from typing import Any

import pytest

from safeproducer.kafka.admin import Admin
from safeproducer.kafka.native import KafkaException
from safeproducer.policy.cluster_metadata import MANY
from safeproducer.policy.window import Announcement, Source
from safeproducer.testing import FakeCluster
from tests.clusters import cluster_of, fake_cluster

TOPIC_RETAINS = "producer.state.batches.to.retain"
BROKER_RETAINS = "log." + TOPIC_RETAINS
REQUEST_TIMED_OUT = 7


running = fake_cluster({}, brokers=2, scope="module")


@pytest.fixture
def cluster(running: FakeCluster) -> FakeCluster:
    """Two brokers that know KIP-1269, and a topic "t"."""
    running.reset()
    running.create_topic("t")
    return running


@pytest.fixture
def asks(cluster: FakeCluster) -> Admin:
    return Admin({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5, "on_delivery": print})


def set_up(cluster: FakeCluster, *brokers: str, topic: str | None = None, old: bool = False) -> None:
    """Values of the brokers, and the topic's; broker 1 may not know KIP-1269."""
    for number, value in enumerate(brokers, 1):
        cluster.set_broker_config(number, BROKER_RETAINS, value)
    if topic is not None:
        cluster.set_topic_config("t", TOPIC_RETAINS, topic)
    cluster.set_kip_1269(1, not old)


@pytest.mark.parametrize(
    ("brokers", "more", "value", "source"),
    [
        pytest.param((), {}, 5, Source.LEADER, id="as it is"),
        pytest.param(("9",), {"topic": "20"}, 20, Source.TOPIC, id="the topic's own is more"),
        pytest.param(("30",), {"topic": "6"}, 6, Source.TOPIC, id="the topic's own is less"),
        pytest.param(("9", "12"), {}, 9, Source.LEADER, id="inherited"),
        pytest.param((), {"old": True}, None, Source.ASSUMED, id="old"),
        # The override is listed, sensitive and without a value; the other broker would tell it.
        pytest.param((), {"topic": "20", "old": True}, None, Source.ASSUMED, id="old, with a topic of 20"),
        # As a key in a properties file that this broker's version does not know: listed without a value.
        pytest.param(("9", "12"), {"old": True}, None, Source.ASSUMED, id="old, with an unknown config of its own"),
    ],
)
def test_broker_1_is_asked_by_one_request(
    cluster: FakeCluster, asks: Admin, brokers: tuple[str, ...], more: Any, value: int | None, source: Source
) -> None:
    """For itself and the topic; what is taken back does not count any more."""
    set_up(cluster, *brokers, **more)
    said = asks.window(1, "t")
    assert (said.value, said.source) == (value, source)
    assert [(entry.broker, entry.outcome) for entry in cluster.journal("DescribeConfigs")] == [(1, "answered")]
    if source is Source.TOPIC:
        cluster.set_topic_config("t", TOPIC_RETAINS, None)
        assert (asks.window(1, "t").value, asks.window(1, "t").source) == (int(brokers[0]), Source.LEADER)


def test_each_broker_answers_for_itself(cluster: FakeCluster, asks: Admin) -> None:
    """What a topic inherits is the answering broker's own value."""
    set_up(cluster, "9", "12")
    assert [asks.window(node, "t").value for node in (1, 2, 1)] == [9, 12, 9]
    assert [entry.broker for entry in cluster.journal("DescribeConfigs")] == [1, 2, 1]


def test_an_upgraded_broker_is_heard(cluster: FakeCluster, asks: Admin) -> None:
    """Nothing of an earlier answer is kept."""
    set_up(cluster, topic="20", old=True)
    assert asks.window(1, "t").value is None
    cluster.set_kip_1269(1, True)
    assert asks.window(1, "t") == Announcement(20, Source.TOPIC, "the topic's producer.state.batches.to.retain is 20")
    cluster.set_topic_config("t", TOPIC_RETAINS, "8")
    assert asks.window(1, "t").value == 8


@pytest.mark.parametrize(("code", "name"), [(29, "TOPIC_AUTHORIZATION_FAILED"), (31, "CLUSTER_AUTHORIZATION_FAILED")])
def test_without_rights_it_asks_once_and_says_why(cluster: FakeCluster, asks: Admin, code: int, name: str) -> None:
    """Rights do not come back within a second."""
    cluster.fail_next("DescribeConfigs", code, 9)
    said = asks.window(1, "t")
    assert (said.value, said.source) == (None, Source.ASSUMED)
    assert said.reason.startswith(f"broker 1 did not tell: {name}: ")
    assert len(cluster.journal("DescribeConfigs")) == 1


def test_a_topic_that_is_not_there_is_asked_for_once(cluster: FakeCluster, asks: Admin) -> None:
    """It has just been deleted, say."""
    said = asks.window(1, "gone")
    assert said.value is None
    assert "UNKNOWN_TOPIC_OR_PART" in said.reason
    assert len(cluster.journal("DescribeConfigs")) == 1


def test_an_error_that_may_pass_is_raised(cluster: FakeCluster, asks: Admin) -> None:
    """The caller asks again after a pause."""
    cluster.set_topic_config("t", TOPIC_RETAINS, "20")
    cluster.fail_next("DescribeConfigs", REQUEST_TIMED_OUT, 1)
    with pytest.raises(KafkaException, match="REQUEST_TIMED_OUT"):
        asks.window(1, "t")
    assert asks.window(1, "t").value == 20


@pytest.mark.parametrize("node", [2, 7], ids=["stopped", "not in the cluster"])
def test_a_broker_that_cannot_be_reached_says_nothing(cluster: FakeCluster, node: int) -> None:
    """After a bounded time; no other broker is asked in its place."""
    cluster.stop(2)
    began = time.monotonic()
    with pytest.raises(KafkaException, match="_T"):
        Admin({"bootstrap.servers": cluster.bootstrap}, 0.3).window(node, "t")
    assert time.monotonic() - began < 5
    assert cluster.journal("DescribeConfigs") == []


def test_the_admin_client_logs_in_as_the_producer_does() -> None:
    """With its SASL settings, and none that only a producer understands."""
    with cluster_of({"t": 1}, users={"alice": "secret"}) as cluster:
        config = {
            "bootstrap.servers": cluster.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "secret",
            "enable.idempotence": True,
        }
        assert Admin(config).window(1, "t").value == 5
        assert [entry.user for entry in cluster.journal("DescribeConfigs")] == ["alice"]
        with pytest.raises(KafkaException) as raised:
            Admin({**config, "sasl.password": "wrong"}, 0.3).window(1, "t")
        assert "secret" not in str(raised.value)
        assert len(cluster.journal("DescribeConfigs")) == 1


# --- replicas ---------------------------------------------------------------------------------------------------------


def test_many_topics_are_one_question(cluster: FakeCluster, asks: Admin) -> None:
    """What list_topics() says of each; a topic that is not there, or may not be described, is not among them."""
    for number in range(100):
        cluster.create_topic(f"many-{number}", partitions=2, replication_factor=2)
    names = [f"many-{number}" for number in range(100)]
    before = len(cluster.journal("Metadata"))
    found = asks.replicas(["gone", *names, "no such name!"])
    assert len(cluster.journal("Metadata")) - before <= 3  # two of them are librdkafka's own, to connect
    assert sorted(found) == sorted(names)
    (first,) = asks.replicas(["many-7"]).values()
    assert found["many-7"] == first
    cluster.stop(2)
    assert asks.replicas(names)["many-7"][0].alive.keys() == {1}
    assert asks.replicas(names)["many-7"][0].replicas == first[0].replicas


def test_a_broker_that_hangs_is_no_reason_to_know_nothing(cluster: FakeCluster, asks: Admin) -> None:
    """Metadata call it the controller, to which that question goes: the one that the client knows is asked."""
    names = [f"t-{number}" for number in range(MANY + 5)]
    for name in names:
        cluster.create_topic(name)
    first, second = cluster.bootstrap.split(",")
    for hangs, address in ((1, second), (2, first)):
        cluster.pause(hangs)
        found = asks.at(address).replicas(names)
        assert list(found) in (names[:MANY], names)
        cluster.resume(hangs)


def test_a_text_that_no_topic_can_have_is_not_asked_for(asks: Admin, cluster: FakeCluster) -> None:
    """A lone surrogate ended the process in describe_topics()."""
    cluster.create_topic("u")
    assert asks.replicas(["t", "\ud800", "a b", "u"]).keys() == {"t", "u"}
