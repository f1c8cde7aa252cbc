"""The permits of lanes beside the producer IDs that brokers saw (KIP-936)."""

from pathlib import Path

import pytest

from safeproducer import ProducerIdLimitError, SafeProducer
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids.ledger_places import Place
from safeproducer.producer_ids.ledger_reader import read_ledgers
from safeproducer.testing import FakeCluster
from tests.clusters import cluster_of
from tests.lanes.conftest import BATCH, RETAIN, Make
from tests.lanes.traffic import Traffic
from tests.permit_count import Permits, permits_counted

BACKLOG = 40 * BATCH
POLICY = "safeproducer.producer.ids.policy"


def wrote(cluster: FakeCluster) -> set[int]:
    """The producer IDs that brokers remember."""
    return {batch.producer_id for entry in cluster.journal("Produce") for batch in entry.batches}


def check(cluster: FakeCluster, permits: Permits, producer: SafeProducer) -> None:
    """As many as wrote, and for each lane that sent again the ID is known."""
    ids = wrote(cluster)
    assert permits.held.total() == producer.snapshot().producer_ids == len(ids)
    assert permits.held[Kind.FIRST] == 1
    assert set(permits.ids.values()) <= ids
    assert len(permits.ids) == len(set(permits.ids.values()))


def in_the_ledger(place: Path) -> int:
    """How many permits it has counted and not got back."""
    (found,) = read_ledgers(Place(str(place)))
    return found.count - len(found.records) + len(found.in_hour)


def test_the_ledger_counts_as_many_ids_as_wrote(make: Make, cluster: FakeCluster, tmp_path: Path) -> None:
    """Of near producers, of one far from its brokers (the buffered path beside the direct lane), of lanes, of one that
    sent nothing, and of one that was refused: by the file alone, which other processes read."""
    ledger = {"safeproducer.producer.ids.ledger": str(tmp_path / "ledger")}
    own = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 5, "log_level": 0, **ledger}
    cluster.create_topic("t", config={RETAIN: "20"})
    for expected in (1, 2, 3):
        with SafeProducer(own) as near:
            near.produce("t", b"v")
            assert near.flush(10) == 0
        assert in_the_ledger(tmp_path / "ledger") == len(wrote(cluster)) == expected
    cluster.delay(0.1)
    with SafeProducer(own) as far:
        load = Traffic(far, "t", 200)
        load.send(1)
        load.until(lambda: far.snapshot().handed_over, backlog=BATCH)
        load.finish()
        assert in_the_ledger(tmp_path / "ledger") == len(wrote(cluster)) == 5
    producer = make(safeproducer_producer_ids_ledger=ledger["safeproducer.producer.ids.ledger"])
    load = Traffic(producer, "t", 200)
    load.until(lambda: producer.snapshot().lanes >= 8, backlog=BACKLOG)
    load.finish()
    assert in_the_ledger(tmp_path / "ledger") == len(wrote(cluster)) >= 5 + 8
    producer.close(5)
    with SafeProducer({**own, "message.timeout.ms": 200}) as unsent:
        unsent.produce("unknown" * 50, b"v")
        unsent.flush(10)
    refused = SafeProducer({**own, "safeproducer.producer.ids.per.hour": 1, POLICY: "refuse"})
    with refused, pytest.raises(ProducerIdLimitError):
        refused.produce("t", b"v")
    assert in_the_ledger(tmp_path / "ledger") == len(wrote(cluster))


@pytest.mark.parametrize("lanes", ["auto", 20])
def test_a_broker_with_the_same_limit_refuses_no_lane(lanes: object) -> None:
    """The guard is a token stricter than the broker's bucket (KIP-936)."""
    config = {
        "log_level": 0,
        "linger.ms": 5,
        "batch.num.messages": BATCH,
        "safeproducer.ordering": "key",
        "safeproducer.window": 20,
        "safeproducer.lanes": lanes,
        "safeproducer.producer.ids.per.hour": 12,
        "safeproducer.producer.ids.policy": "refuse",
        "safeproducer.producer.ids.ledger": "off",
    }
    with cluster_of({"t": 1}) as cluster, permits_counted() as permits:
        cluster.set_quota("producer_ids_rate", 12, user="ANONYMOUS")
        cluster.delay(0.1)
        with SafeProducer({"bootstrap.servers": cluster.bootstrap, **config}) as producer:
            load = Traffic(producer, "t", 200)
            load.send(1)
            load.until(lambda: len(wrote(cluster)) >= 6, backlog=BACKLOG)
            load.keep(1, BACKLOG)
            assert set(load.finish()) == {"delivered"}
            check(cluster, permits, producer)
        assert {batch.error_code for entry in cluster.journal("Produce") for batch in entry.batches} == {0}
        assert permits.held[Kind.FURTHER] == 1, "a direct lane, and the first batch lane"
        assert len(wrote(cluster)) in ((6, 7, 8) if lanes == "auto" else (12,))
