"""The first seconds far from a broker: what comes behind the first record does not keep its partition on one lane."""

from collections import Counter

import pytest
from confluent_kafka import KafkaError

from safeproducer import SafeProducer
from tests.clusters import cluster_of

BATCH = 100
BATCHES = 60
KEYS = 700
ROUND_TRIP = 0.1


@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_a_burst_behind_the_first_record_leaves_by_the_lanes_for_far_brokers(ordering: str) -> None:
    """Only as much goes directly as is acknowledged until those are ready: some seconds' worth on a slow machine."""
    delivered: Counter[bytes] = Counter()
    with cluster_of({"t": 1}) as cluster:
        cluster.delay(ROUND_TRIP)
        producer = SafeProducer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "batch.num.messages": BATCH,
                "linger.ms": 5,
                "log_level": 0,
                "safeproducer.ordering": ordering,
                "safeproducer.window": 20,
            }
        )
        producer.produce("t", b"first", b"first", partition=0)
        assert producer.flush(20) == 0
        for number in range(BATCHES * BATCH):
            producer.produce(
                "t",
                b"%d" % number,
                b"%d" % (number % KEYS),
                partition=0,
                on_delivery=lambda error, message: delivered.update([message.value()] if error is None else []),
            )
        assert producer.flush(60) == 0
        snapshot = producer.snapshot()
        producer.close()
        sent = [batch for entry in cluster.journal("Produce") for batch in entry.batches]
        log = [record.value for record in cluster.log("t", 0)][1:]
    direct = sum(batch.records for batch in sent if batch.producer_id == sent[0].producer_id)
    assert direct <= BATCHES * BATCH / 2, f"{direct} records went straight"
    assert snapshot.handed_over >= BATCHES / 2
    assert len(delivered) == len(log) == BATCHES * BATCH
    numbers = [int(value) for value in log if value is not None]
    keys = range(KEYS) if ordering == "key" else (None,)
    for key in keys:
        of_key = [number for number in numbers if key is None or number % KEYS == key]
        assert of_key == sorted(of_key)


@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_a_record_that_waited_and_is_refused_holds_nobody_up(ordering: str) -> None:
    """It goes directly, and its key was never bound to a lane: the sender failed at that, turn after turn."""
    codes: Counter[int | None] = Counter()

    def report(error: KafkaError | None, _: object) -> None:
        codes[None if error is None else error.code()] += 1

    with cluster_of({"t": 1}) as cluster:
        cluster.pause(1)
        settings = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "safeproducer.ordering": ordering}
        producer = SafeProducer(settings)
        for _ in range(BATCHES * BATCH):  # more than may go before the first acknowledgement
            producer.produce("t", b"v" * 900, b"k", partition=0, on_delivery=report)
        producer.produce("t", b"v", b"other", partition=7, on_delivery=report)
        producer.produce("t", b"v", b"k", partition=0, on_delivery=report)
        cluster.resume(1)
        assert producer.flush(20) == 0
        assert codes == {None: BATCHES * BATCH + 1, KafkaError._UNKNOWN_PARTITION: 1}
        assert producer.close(10)
