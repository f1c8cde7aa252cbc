"""Bytes of what librdkafka sends in one request: of a batch with headers, and of two that missed flush triggers
merged."""

import time
from typing import Any
from unittest import mock

from safeproducer import SafeProducer
from safeproducer.kafka.lane_client import LaneClient
from safeproducer.pipeline.lanes.batch_lane import BatchLane
from safeproducer.testing import FakeCluster
from tests.clusters import cluster_of
from tests.contract.support import poll_until

ROUND_TRIP = 0.06
"""Far enough for a batch to follow one that was flushed three times and is taken for gone."""
WARM = 10
"""The first answers take longer, and what takes long is not followed."""
VALUE = bytes(1_000)
RECORDS = 2_500
FOLLOWED_WITHIN = 1.0
"""A machine that is too busy shows no steady round trip, and then no batch follows one that is not answered."""
ATTEMPTS = 5
CONFIG = {"linger.ms": 5, "safeproducer.mode": "held", "enable.idempotence": True, "log_level": 0}


def test_merged_batches_are_not_more_than_a_topic_takes() -> None:
    """Each is full by its bytes, and a request would take what fits into it of the second along."""
    assert any(merges() for _ in range(ATTEMPTS)), "nothing was merged"


def merges() -> bool:
    """Whether two batches were merged, as the first one missed its flush triggers; all records must be in the log."""
    trigger_flush, hand_over = LaneClient.trigger_flush, BatchLane.hand_over
    handed_over: list[tuple[float, int]] = []

    def missed(self: LaneClient, many: bool = False) -> None:
        if len(handed_over) != 1 or time.monotonic() > handed_over[0][0] + FOLLOWED_WITHIN:
            trigger_flush(self, many)

    def counted(self: BatchLane, buffer: Any, records: list[Any], *rest: Any) -> Any:
        batch = hand_over(self, buffer, records, *rest)
        if len(records) > 1:
            handed_over.append((time.monotonic(), len(records)))
        return batch

    failed: list[Any] = []
    with (
        mock.patch.object(LaneClient, "trigger_flush", missed),
        mock.patch.object(BatchLane, "hand_over", counted),
        FakeCluster(brokers=1) as cluster,
    ):
        cluster.create_topic("t")  # max.message.bytes is 1 048 588, as everywhere
        cluster.delay(ROUND_TRIP, api="Produce")
        with SafeProducer({"bootstrap.servers": cluster.bootstrap, **CONFIG}) as producer:
            for _ in range(WARM):
                producer.produce("t", b"x", partition=0)
                assert producer.flush(10) == 0
            for _ in range(RECORDS):
                producer.produce("t", VALUE, partition=0, on_delivery=lambda error, _: error and failed.append(error))
            poll_until(producer, lambda: not len(producer), 20)
        sent = [batch.records for entry in cluster.journal("Produce") for batch in entry.batches]
        log = cluster.log("t")
    assert failed == []
    assert len(log) == WARM + RECORDS
    return sent[WARM] > handed_over[0][1]


def test_a_batch_of_many_headers_is_sent_in_one() -> None:
    """Each header takes bytes of its own beside name and value, and a character may be several."""
    headers: list[tuple[str, bytes | None]] = [*((f"h{number}", b"") for number in range(60)), ("ключ" * 20, None)]
    with cluster_of({"t": 1}) as cluster:
        config = {**CONFIG, "bootstrap.servers": cluster.bootstrap, "linger.ms": 60_000, "batch.size": 100_000}
        with SafeProducer(config) as producer:
            for _ in range(2_000):
                producer.produce("t", b"x", partition=0, headers=headers)
            assert producer.flush(20) == 0
            snapshot = producer.snapshot()
        sent = [batch.records for entry in cluster.journal("Produce") for batch in entry.batches]
    assert len(sent) == snapshot.handed_over, sent
    assert len(sent) < 12, "room was left"
