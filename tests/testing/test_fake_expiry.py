"""KIP-854: a broker forgets producer IDs, and idempotence is lost without a word."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.testing import FakeCluster
from safeproducer.testing.fake.rules.producer_state import ProducerStates, Sequence
from tests.conformance.test_configs import BROKER, INVALID_REQUEST, SET, alter, describe
from tests.testing.raw import RawClient, make_batch

DAY, CHECK = 86_400, 600
AGE = "producer.id.expiration.ms"


def write(client: RawClient, sequence: int, *, epoch: int = 0, timestamp: int | None = None) -> tuple[int, int]:
    """Error code and offset of a batch of one record."""
    batch = make_batch([b"v"], producer_id=7, epoch=epoch, sequence=sequence, timestamp=timestamp)
    answer = client.produce("t", batch)
    return answer["error_code"], answer["base_offset"]


def test_expiry_happens_at_a_check_not_at_the_border(cluster: FakeCluster, client: RawClient) -> None:
    """Checks come every ten minutes from the first use of the partition on; in between nothing is forgotten."""
    assert write(client, 0) == (0, 0)
    cluster.advance(CHECK // 2)
    assert write(client, 1, timestamp=int(cluster.now() * 1000)) == (0, 1)
    cluster.advance(DAY)
    assert write(client, 1) == (0, 1)
    assert list(cluster.producer_state("t")) == [7]
    cluster.advance(CHECK // 2)
    assert cluster.producer_state("t") == {}
    assert write(client, 1) == (0, 2)


def test_the_age_can_be_changed_at_run_time(cluster: FakeCluster, client: RawClient) -> None:
    """By control and by IncrementalAlterConfigs, from the next check on; what was due before goes by the old age."""
    write(client, 0)
    cluster.set_broker_config(1, AGE, "1000")
    assert list(cluster.producer_state("t")) == [7]
    cluster.advance(CHECK)
    cluster.set_broker_config(1, AGE, str(DAY * 1000))
    assert cluster.producer_state("t") == {}
    cluster.set_broker_config(1, AGE, "1000")
    write(client, 0)
    cluster.advance(CHECK)
    assert alter(client, BROKER, "1", (AGE, SET, str(DAY * 1000))) == 0
    assert cluster.producer_state("t") == {}
    write(client, 0, timestamp=int(cluster.now() * 1000))
    cluster.advance(CHECK)
    assert list(cluster.producer_state("t")) == [7]


def test_the_check_interval_is_for_the_properties_file(cluster: FakeCluster) -> None:
    """Internal in Kafka: not listed, and not to be changed while the broker runs."""
    with pytest.raises(ValueError, match="broker_config"):
        cluster.set_broker_config(1, "producer.id.expiration.check.interval.ms", "5")
    with RawClient(cluster.bootstrap) as client:
        _, listed = describe(client, BROKER, "1")
        assert listed[AGE]["value"] == "86400000"
        assert "producer.id.expiration.check.interval.ms" not in listed
        assert alter(client, BROKER, "1", ("quota.window.num", SET, "5")) == INVALID_REQUEST


def test_a_start_takes_no_expired_id_over(cluster: FakeCluster, client: RawClient) -> None:
    """A reload needs no check: who has expired while the broker was down is gone at once."""
    write(client, 0)
    cluster.stop(1)
    cluster.advance(DAY - 60)
    cluster.start(1)
    assert list(cluster.producer_state("t", broker=1)) == [7]
    cluster.stop(1)
    cluster.advance(60)
    cluster.start(1)
    assert cluster.producer_state("t", broker=1) == {}
    assert list(cluster.producer_state("t", broker=2)) == []  # its own check was due by then
    assert cluster.leader("t")[0] == 2


def test_each_replica_forgets_by_its_own_config(cluster: FakeCluster, client: RawClient) -> None:
    """A leader that remembers hands over to one that does not: the retry is written twice."""
    cluster.set_broker_config(2, AGE, "1000")
    assert write(client, 0) == (0, 0)
    cluster.advance(CHECK)
    assert write(client, 0) == (0, 0)
    cluster.move_leader("t", to=2)
    with RawClient(cluster.bootstrap, 2) as other:
        assert write(other, 0) == (0, 1)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3), st.integers(0, 40)), max_size=60))
def test_lazy_checks_are_as_good_as_punctual_ones(steps: list[tuple[int, int, int]]) -> None:
    """Against a model that checks at every tick: whenever one looks, the same IDs are left."""
    age, interval, now, checked = 25, 10, 1000, 1000
    states, model = ProducerStates(), dict[int, int]()
    states.expire(now, age, interval)
    for gap, producer_id, lag in steps:
        now += gap
        while checked + interval <= now:
            checked += interval
            model = {one: newest for one, newest in model.items() if checked - newest < age}
        states.expire(now, age, interval)
        assert {one: entry.batches[-1].timestamp for one, entry in states.entries().items()} == model
        states.append(Sequence(producer_id, 0, 0, 0), 0, now - lag, 5)
        model[producer_id] = now - lag
