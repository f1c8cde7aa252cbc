"""KIP-936: a broker that limits how many new producer IDs a user may bring in an hour."""

import time
from collections.abc import Iterator

import pytest

from safeproducer.testing import DEFAULT, FakeCluster
from tests.clusters import cluster_of
from tests.conformance.target import part, produce
from tests.testing.raw import RawClient, make_batch, produce_body

THROTTLING_QUOTA_EXCEEDED = 89
HOUR = 3600
ANONYMOUS = "ANONYMOUS"
NAME = "producer_ids_rate"


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[RawClient]:
    cluster.create_topic("t", 2)
    with RawClient(cluster.bootstrap) as made:
        yield made


def write(client: RawClient, producer_id: int, *, sequence: int = 0, partition: int = 0) -> tuple[int, int]:
    """Error code and throttle time of a batch of this producer."""
    batch = make_batch([b"%d" % producer_id], producer_id=producer_id, epoch=0, sequence=sequence)
    answer = produce(client, 9, "t", batch, partition=partition)
    found = part(answer)
    assert (found["base_offset"] >= 0) == (found["error_code"] == 0)
    return found["error_code"], answer["throttle_time_ms"]


def test_ids_beyond_the_rate_are_refused_and_not_written(cluster: FakeCluster, client: RawClient) -> None:
    """At 100 an hour 101 pass at once; the next gets error 89 and 36 s, nothing of it is in the log."""
    cluster.set_quota(NAME, 100, user=ANONYMOUS)
    assert {write(client, producer_id) for producer_id in range(101)} == {(0, 0)}
    error, throttle = write(client, 101)
    assert error == THROTTLING_QUOTA_EXCEEDED
    assert 30_000 < throttle <= 36_000
    assert {record.producer_id for record in cluster.log("t")} == set(range(101))
    assert 101 not in cluster.producer_state("t")
    last = cluster.journal("Produce")[-1]
    assert (last.throttled_ms, last.batches[0].error_code) == (throttle, THROTTLING_QUOTA_EXCEEDED)


def test_the_refused_id_passes_when_its_time_has_come(cluster: FakeCluster, client: RawClient) -> None:
    """Asking again before does not help: a refused ID is not known. On another connection, since this one is muted."""
    cluster.set_quota(NAME, 1, user=DEFAULT)
    assert write(client, 1)[0] == write(client, 2)[0] == 0
    delays = []
    for _ in range(2):
        with RawClient(cluster.bootstrap) as other:
            error, delay = write(other, 3)
            assert error == THROTTLING_QUOTA_EXCEEDED
            delays.append(delay)
    assert HOUR * 1000 - 5000 < delays[1] <= delays[0] <= HOUR * 1000
    cluster.advance(HOUR)
    with RawClient(cluster.bootstrap) as other:
        assert write(other, 3) == (0, 0)
    assert [record.producer_id for record in cluster.log("t")] == [1, 2, 3]


def test_each_broker_counts_for_itself(cluster: FakeCluster, client: RawClient) -> None:
    """A leader that moves starts from zero, as the KIP says; so does a restarted broker."""
    cluster.set_quota(NAME, 1, user=ANONYMOUS)
    write(client, 1)
    write(client, 2)
    assert cluster.producer_id_usage(2) == {}
    cluster.move_leader("t", to=2)
    with RawClient(cluster.bootstrap, 2) as other:
        assert write(other, 3) == (0, 0)
    assert list(cluster.producer_id_usage(2)) == [ANONYMOUS]
    cluster.stop(2)
    cluster.start(2)
    assert cluster.producer_id_usage(2) == {}


def test_records_without_an_id_do_not_count(cluster: FakeCluster, client: RawClient) -> None:
    """Nor does what is refused for another reason: only what is written is used."""
    cluster.set_quota(NAME, 1, user=ANONYMOUS)
    for _ in range(5):
        assert client.produce("t", make_batch([b"x"]))["error_code"] == 0
        assert client.produce("unknown", make_batch([b"x"], producer_id=9, epoch=0, sequence=0))["error_code"] == 3
    assert cluster.producer_id_usage(1) == {}


def test_all_partitions_of_a_request_fare_alike(cluster: FakeCluster, client: RawClient) -> None:
    """One new ID in two partitions is one ID; refused, it is refused in both, and the request throttled once."""
    cluster.move_leader("t", 1, to=1)
    cluster.set_quota(NAME, 2, user=ANONYMOUS)

    def both(producer_id: int) -> list[int]:
        batch = make_batch([b"x"], producer_id=producer_id, epoch=0, sequence=0)
        answer = client.ask("Produce", 9, **produce_body("t", batch, 0, 1))
        return [partition["error_code"] for partition in answer["responses"][0]["partition_responses"]]

    assert [both(producer_id) for producer_id in (1, 2, 3)] == [[0, 0]] * 3
    assert both(4) == [THROTTLING_QUOTA_EXCEEDED] * 2
    assert len(cluster.log("t")) == len(cluster.log("t", 1)) == 3


def test_the_connection_is_muted_for_the_delay(cluster: FakeCluster) -> None:
    """In real time, whatever the cluster's clock says: windows of a second make it short."""
    settings = {"producer.id.quota.window.size.seconds": "1", "producer.id.quota.window.num": "5"}
    with cluster_of({"t": 1}, broker_config=settings) as own:
        own.set_quota(NAME, 2 * HOUR, user=DEFAULT)  # 2 in a second, and 10 at once
        with RawClient(own.bootstrap) as client:
            codes = [write(client, producer_id)[0] for producer_id in range(11)]
            began = time.monotonic()
            error, throttle = write(client, 11)
            own.advance(HOUR)
            client.ask("ApiVersions", 0)
            assert time.monotonic() - began >= throttle / 1000
        assert (codes, error, 0 < throttle <= 500) == ([0] * 11, THROTTLING_QUOTA_EXCEEDED, True)


def test_principals_have_quotas_of_their_own() -> None:
    """A user's own rate, else the default user's, which each has to himself; without either all may pass."""
    users = {"alice": "a", "bob": "b", "carol": "c"}
    with cluster_of({"t": 1}, users=users) as cluster:
        cluster.set_quota(NAME, 1, user=DEFAULT)
        cluster.set_quota(NAME, 3, user="alice")

        def admitted(user: str, first: int) -> int:
            with RawClient(cluster.bootstrap) as client:
                client.ask("SaslHandshake", 1, mechanism="PLAIN")
                client.ask("SaslAuthenticate", 2, auth_bytes=f"\0{user}\0{users[user]}".encode())
                ids = range(first, first + 10)
                return next((n for n, one in enumerate(ids) if write(client, one)[0]), len(ids))

        assert [admitted(user, 100 * n) for n, user in enumerate(users)] == [4, 2, 2]
        cluster.set_quota(NAME, None, user=DEFAULT)
        assert admitted("carol", 500) == 10
        assert list(cluster.producer_id_usage(1)) == ["alice", "bob"]
