"""What the limit on rejected batches in docs/operate/limits.md rests on: librdkafka writes another partition's twice.

When this fails, librdkafka has stopped to start a new producer epoch there, and the limit can go.
"""

import confluent_kafka
import pytest
from confluent_kafka import Producer

from safeproducer import SafeProducer
from tests.clusters import cluster_of

NOT_ENOUGH_REPLICAS = 19
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
LATE = 0.4
"""Seconds until an answer arrives: time enough for the next record to be sent."""


@pytest.mark.parametrize("producer_class", [confluent_kafka.Producer, SafeProducer])
def test_a_batch_rejected_for_now_has_another_partition_written_twice(producer_class: type[Producer]) -> None:
    with cluster_of({"t": 2}) as cluster:
        config = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        extra = {"safeproducer.mode": "passthrough"} if producer_class is SafeProducer else {}
        producer = producer_class({**config, **extra})

        def send(value: bytes, partition: int) -> None:
            sent = len(cluster.journal("Produce"))
            producer.produce("t", value, partition=partition)
            cluster.wait(lambda found: len(found.journal("Produce")) > sent)

        for partition in (0, 1):
            send(b"first", partition)
        assert producer.flush(10) == 0
        cluster.delay(LATE, api="Produce")
        cluster.fail_next("Produce", NOT_ENOUGH_REPLICAS, topic="t", partition=0)
        for value in (b"rejected", b"behind it"):
            send(value, 0)
        cluster.lose_acks(1, topic="t", partition=1)
        send(b"other", 1)
        assert producer.flush(10) == 0
        producer.close()
        codes = [batch.error_code for entry in cluster.journal("Produce") for batch in entry.batches]
        assert codes[2:4] == [NOT_ENOUGH_REPLICAS, OUT_OF_ORDER_SEQUENCE_NUMBER]
        values = [[record.value for record in cluster.log("t", partition)] for partition in (0, 1)]
        assert values == [[b"first", b"rejected", b"behind it"], [b"first", b"other", b"other"]]
