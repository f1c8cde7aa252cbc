"""What a broker of FakeCluster answers to a producer with a sequence, asked by raw requests."""

from safeproducer.testing import FakeCluster
from tests.testing.raw import RawClient, make_batch

OUT_OF_ORDER, NOT_LEADER = 45, 6
N = "producer.state.batches.to.retain"


def one(sequence: int, epoch: int = 0) -> bytes:
    return make_batch([b"v%d" % sequence], producer_id=7, epoch=epoch, sequence=sequence)


def write(client: RawClient, *sequences: int) -> None:
    for sequence in sequences:
        assert client.produce("t", one(sequence))["error_code"] == 0


def test_the_topics_config_wins_over_the_brokers(cluster: FakeCluster) -> None:
    """KIP-1269: N is the topic's value, else the broker's; the twentieth batch back is a duplicate, one more is not."""
    cluster.create_topic("t", config={N: "20"})
    cluster.set_broker_config(1, "log." + N, "7")
    with RawClient(cluster.bootstrap) as client:
        write(client, *range(1, 41))
        assert client.produce("t", one(21))["error_code"] == 0
        assert client.produce("t", one(20))["error_code"] == OUT_OF_ORDER
        cluster.set_topic_config("t", N, None)
        assert client.produce("t", one(34))["error_code"] == 0
        assert client.produce("t", one(33))["error_code"] == OUT_OF_ORDER


def test_an_old_broker_remembers_five_whatever_the_topic_says(cluster: FakeCluster) -> None:
    """A broker without KIP-1269 ignores the topic's value; upgraded, it remembers from then on."""
    cluster.create_topic("t", config={N: "20"})
    cluster.set_kip_1269(1, False)
    with RawClient(cluster.bootstrap) as client:
        write(client, *range(1, 21))
        assert client.produce("t", one(16))["error_code"] == 0
        assert client.produce("t", one(15))["error_code"] == OUT_OF_ORDER
        cluster.set_kip_1269(1, True)
        write(client, 21)
        assert client.produce("t", one(16))["error_code"] == 0


def test_a_follower_remembers_by_its_own_n(cluster: FakeCluster) -> None:
    """After a move from a new to an old broker only the last five are recognised, on the way back twenty are."""
    cluster.create_topic("t", config={N: "20"})
    cluster.set_kip_1269(2, False)
    with RawClient(cluster.bootstrap) as first, RawClient(cluster.bootstrap, 2) as second:
        write(first, *range(1, 21))
        assert cluster.move_leader("t", to=2) == 2
        assert first.produce("t", one(20))["error_code"] == NOT_LEADER
        assert second.produce("t", one(16))["error_code"] == 0
        assert second.produce("t", one(15))["error_code"] == OUT_OF_ORDER
        cluster.move_leader("t", to=1)
        assert first.produce("t", one(1))["error_code"] == 0
    assert len(cluster.log("t")) == 20


def test_a_new_follower_of_an_old_leader_remembers_more(cluster: FakeCluster) -> None:
    """What a follower keeps does not depend on the leader it copies from."""
    cluster.create_topic("t", config={N: "20"})
    cluster.set_kip_1269(1, False)
    with RawClient(cluster.bootstrap) as first, RawClient(cluster.bootstrap, 2) as second:
        write(first, *range(1, 21))
        assert first.produce("t", one(15))["error_code"] == OUT_OF_ORDER
        cluster.move_leader("t", to=2)
        assert second.produce("t", one(1))["error_code"] == 0
    assert len(cluster.log("t")) == 20


def test_a_restart_leaves_the_last_batch(cluster: FakeCluster) -> None:
    """A restarted broker recognises the last batch only, and what came while it was down."""
    cluster.create_topic("t")
    with RawClient(cluster.bootstrap) as client:
        write(client, 1, 2, 3)
    cluster.stop(1)
    leader, epoch = cluster.leader("t")
    assert (leader, epoch) == (2, 1)
    with RawClient(cluster.bootstrap, leader) as client:
        write(client, 4)
        assert client.produce("t", one(2))["error_code"] == 0
    cluster.start(1)
    cluster.move_leader("t", to=1)
    with RawClient(cluster.bootstrap) as client:
        assert [client.produce("t", one(n))["error_code"] for n in (2, 3, 4)] == [OUT_OF_ORDER, 0, 0]


def test_the_state_is_what_each_replica_remembers(cluster: FakeCluster, client: RawClient) -> None:
    batch = make_batch([b"a", b"b"], producer_id=7, epoch=3, sequence=2**31 - 1)
    assert client.produce("t", batch)["error_code"] == 0
    assert {broker: cluster.producer_state("t", broker=broker)[7].last_sequence for broker in (1, 3)} == {1: 0, 3: 0}
