"""A native producer that is needed later and cannot be made: an event, never an exception of somebody's call.

Files that the configuration names may be gone by then, or open files and threads used up.
"""

import logging
import time
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka.cimpl import KafkaError, KafkaException

from safeproducer import SafeProducer
from safeproducer.pipeline.lanes import native_producers
from safeproducer.testing import FakeCluster
from tests.contract.support import noting, send_one, wait_until

BATCH = 10


class Cannot:
    """Stands for the class of native producers."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, config: Any) -> Any:
        self.times.append(time.monotonic())
        reason = "ssl.ca.location failed: No such file or directory"
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, reason))


@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_a_quota_is_waited_out_without_it(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ordering: str
) -> None:
    """What is held back goes by the lanes there are. No call raises, and each record is written once."""
    cluster.create_topic("t", 1)
    errors = noting("client_error")
    producer = SafeProducer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "safeproducer.ordering": ordering,
            "batch.num.messages": BATCH,
            "log_level": 0,
        },
        hooks=[errors],
    )
    send_one(producer, "t", b"warm", partition=0)
    real = native_producers.NativeProducer
    cannot = Cannot()
    monkeypatch.setattr(native_producers, "NativeProducer", cannot)
    cluster.set_throttle(300)
    told: Counter[bytes] = Counter()

    def report(error: Any, message: Any) -> None:
        assert error is None, error
        told[message.value()] += 1

    def produce(number: int) -> None:
        producer.produce("t", b"%d" % number, b"%d" % number, 0, on_delivery=report)
        producer.poll(0.002)

    with caplog.at_level(logging.WARNING, logger="safeproducer"):
        for number in range(300):
            produce(number)
        cluster.set_throttle(0)
        assert producer.flush(20) == 0
    assert told == Counter({b"%d" % number: 1 for number in range(300)})
    assert Counter(record.value for record in cluster.log("t", 0)) == told + Counter({b"warm": 1})
    account = producer.snapshot()
    assert (account.accepted, account.delivered, account.unresolved) == (301, 301, 0)
    wait_until(lambda: errors.told)
    assert "another native producer could not be made (ssl.ca.location failed" in errors.told[0]
    assert len([text for text in caplog.messages if "could not be made" in text]) == 1, "told once"
    assert all(after - before > 0.9 for before, after in pairwise(cannot.times)), "tried again after a second or more"
    monkeypatch.setattr(native_producers, "NativeProducer", real)
    send_one(producer, "t", b"after", partition=0, on_delivery=report)
    producer.close()
