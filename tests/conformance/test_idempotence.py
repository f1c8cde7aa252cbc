"""What a broker decides about a batch with a sequence: the rules of Kafka 2.5 to 4.4 (KIP-98, KIP-360)."""

from typing import Any

import pytest

from tests.conformance.target import Target, end_offset
from tests.testing.raw import RawClient, make_batch

OUT_OF_ORDER, FENCED = 45, 47
HIGHEST = 2**31 - 1
MANY_BATCHES = 9


def batch(first: int, count: int = 1, epoch: int = 0, producer: int = 7) -> bytes:
    """`count` records from sequence `first` on."""
    return make_batch([b"v"] * count, producer_id=producer, epoch=epoch, sequence=first)


def write(client: RawClient, topic: str, *batches: bytes) -> list[tuple[int, int]]:
    answers = [client.produce(topic, one) for one in batches]
    return [(answer["error_code"], answer["base_offset"]) for answer in answers]


REFUSED = (OUT_OF_ORDER, -1)
FENCED_OFF = (FENCED, -1)


@pytest.mark.parametrize(
    ("before", "sent", "answer"),
    [
        pytest.param([], batch(0), (0, 0), id="unknown, sequence 0"),
        pytest.param([], batch(5), (0, 0), id="unknown, sequence above 0, log never written"),
        pytest.param([batch(0, producer=8)], batch(5), (0, 1), id="unknown, sequence above 0, log of others"),
        pytest.param([batch(0)], batch(1), (0, 1), id="next"),
        pytest.param([batch(0, 3)], batch(3, 2), (0, 3), id="next after several records"),
        pytest.param([batch(0)], batch(2), REFUSED, id="gap"),
        pytest.param([batch(0)], batch(0), (0, 0), id="duplicate"),
        pytest.param([batch(0, 3), batch(3)], batch(0, 3), (0, 0), id="duplicate of several records"),
        pytest.param([batch(0, 3)], batch(0, 2), REFUSED, id="part of an earlier batch, its beginning"),
        pytest.param([batch(0, 3)], batch(1, 2), REFUSED, id="part of an earlier batch, its end"),
        pytest.param([batch(0), batch(1)], batch(0, 2), REFUSED, id="two earlier batches in one"),
        pytest.param([batch(0)], batch(0, 2), REFUSED, id="an earlier batch and more"),
        pytest.param([*map(batch, range(MANY_BATCHES))], batch(MANY_BATCHES - 5), (0, 4), id="fifth last"),
        pytest.param([*map(batch, range(MANY_BATCHES))], batch(MANY_BATCHES - 6), REFUSED, id="sixth last"),
        pytest.param([batch(HIGHEST)], batch(0), (0, 1), id="wrap-around"),
        pytest.param([batch(HIGHEST)], batch(1), REFUSED, id="gap behind the wrap-around"),
        pytest.param([batch(HIGHEST - 1, 3)], batch(1), (0, 3), id="next after a batch across the wrap-around"),
        pytest.param([batch(HIGHEST - 1, 3)], batch(HIGHEST - 1, 3), (0, 0), id="duplicate across the wrap-around"),
        pytest.param([batch(HIGHEST)], batch(HIGHEST), (0, 0), id="duplicate at the highest sequence"),
        pytest.param([batch(5)], batch(0, epoch=1), (0, 1), id="higher epoch, sequence 0"),
        pytest.param([batch(5)], batch(6, epoch=1), REFUSED, id="higher epoch, sequence above 0"),
        pytest.param([batch(0, epoch=3)], batch(1, epoch=2), FENCED_OFF, id="lower epoch"),
        pytest.param([batch(0), batch(0, epoch=1)], batch(0), FENCED_OFF, id="duplicate of a lower epoch"),
        pytest.param([batch(0), batch(0, epoch=1)], batch(0, epoch=1), (0, 1), id="duplicate at the new epoch"),
        pytest.param([batch(5), batch(0, epoch=9)], batch(1, epoch=9), (0, 2), id="epochs may leave out some"),
        pytest.param([batch(0, epoch=32_767)], batch(1, epoch=32_767), (0, 1), id="highest epoch"),
        pytest.param([batch(0), batch(0, producer=8)], batch(1, producer=8), (0, 2), id="producers are apart"),
        pytest.param([batch(0)], batch(1, producer=8), (0, 1), id="another producer in the middle"),
        pytest.param([batch(0, epoch=-1)], batch(7, epoch=0), (0, 1), id="after a batch without an epoch"),
    ],
)
def test_decisions(client: RawClient, before: list[bytes], sent: bytes, answer: Any, name: str) -> None:
    """Error code and offset of the last batch; only what is appended makes the log longer."""
    assert all(error == 0 for error, _ in write(client, name, *before))
    end = end_offset(client, name)
    assert write(client, name, sent) == [answer]
    error, offset = answer
    grown = end_offset(client, name) > end
    assert grown == (error == 0 and offset == end)


def test_a_refused_batch_changes_nothing(client: RawClient, name: str) -> None:
    """After out of order and fenced ones the next batch in line is taken."""
    sent = [batch(0, epoch=1), batch(5, epoch=1), batch(1), batch(4, epoch=2), batch(1, epoch=1)]
    assert write(client, name, *sent) == [(0, 0), REFUSED, FENCED_OFF, REFUSED, (0, 1)]


def test_partitions_are_apart(cluster: Target, client: RawClient) -> None:
    """A producer's sequences count for each partition by themselves."""
    name = cluster.topic(2)
    for partition in (0, 1):
        for sequence in (0, 1):
            assert client.produce(name, batch(sequence), partition=partition)["error_code"] == 0
    assert client.produce(name, batch(3), partition=1)["error_code"] == OUT_OF_ORDER


def test_a_new_leader_goes_on(cluster3: Target) -> None:
    """What the old leader appended, a follower that becomes leader recognises; the leader epoch has grown."""
    name = cluster3.topic(replication=3)
    leader, epoch = cluster3.leader(name)
    with cluster3.connect(leader) as client:
        assert write(client, name, *map(batch, range(7))) == [(0, offset) for offset in range(7)]
    other = cluster3.move(name)
    assert cluster3.leader(name)[1] > epoch
    with cluster3.connect(other) as client:
        assert write(client, name, batch(2), batch(1), batch(8), batch(7)) == [(0, 2), REFUSED, REFUSED, (0, 7)]
