"""Records that never arrived are purged, and leave a gap in sequence numbers: nothing of others is written twice."""

import time
import uuid
from typing import Any

import pytest

from integration.kafka.cluster import KafkaCluster
from integration.lost_answers import settled
from integration.tap import Tap
from safeproducer import SafeProducer
from safeproducer.pipeline.lanes.batch_lane import BatchLane
from safeproducer.pipeline.lanes.direct_lane import DirectLane

DEADLINE, SOCKET_TIMEOUT = 1.5, 0.5
PURGED = DEADLINE + 2 * SOCKET_TIMEOUT + 1.5
"""Seconds after which a lane has been purged: as soon as nobody waits for what it has, see policy/expiry.py."""
SOON = 2.5
LEFT_OUT, OTHER = 0, 1
OUT_OF_ORDER_SEQUENCE = 45
MANY = 1_000
ATTEMPTS = 3
"""Of the story without the rule: now and then the lost answer's record is sent again before the gap is found."""


def play(cluster: KafkaCluster, tap: Tap, mode: str) -> tuple[list[list[bytes | None]], dict[bytes, str]]:
    """What the partitions hold in the end, and what was said of each record."""
    name = f"gap-{uuid.uuid4().hex[:8]}"
    cluster.admin.create_topic(name, 2)
    producer = SafeProducer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "safeproducer.mode": mode,
            "enable.idempotence": True,
            "linger.ms": 100,  # no answer takes longer, so nothing is held back because of a long round trip
            "message.timeout.ms": int(DEADLINE * 1000),
            "socket.timeout.ms": int(SOCKET_TIMEOUT * 1000),
            "retry.backoff.ms": 1_000,  # so that a purge finds what waits for another try, not what is on its way
            "retry.backoff.max.ms": 1_000,
            "log_level": 0,
            "error_cb": lambda error: None,
        }
    )
    told: dict[bytes, str] = {}

    def report(error: Any, message: Any) -> None:
        told[message.value()] = "delivered" if error is None else str(error.outcome)

    def produce(value: bytes, partition: int) -> None:
        producer.produce(name, value, partition=partition, on_delivery=report)

    def wait(seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            producer.poll(0.05)

    for number in range(3):
        produce(b"first %d" % number, LEFT_OUT)
        produce(b"first other %d" % number, OTHER)
        assert producer.flush(10) == 0
    tap.drop_requests(n=MANY, topic=name, partition=LEFT_OUT)
    produce(b"never arrives", LEFT_OUT)
    wait(PURGED)
    tap.heal()
    assert told[b"never arrives"] == "unknown"
    tap.drop_answers(n=1, keep_open=True, topic=name, partition=OTHER)
    produce(b"answer lost", OTHER)
    produce(b"finds the gap", LEFT_OUT)
    wait(SOON)
    produce(b"last", LEFT_OUT)
    produce(b"last other", OTHER)
    assert producer.flush(30) == 0
    codes = [answer.error_code for answer in tap.answers if answer.topic == name]
    assert OUT_OF_ORDER_SEQUENCE in codes, "the gap was to be found"
    producer.close()
    return settled(cluster, name), told


@pytest.mark.parametrize("mode", ["held", "auto"])
def test_records_of_other_partitions_are_written_once(kafka_tapped: KafkaCluster, tap: Tap, mode: str) -> None:
    log, told = play(kafka_tapped, tap, mode)
    values = [value for partition in log for value in partition]
    assert len(values) == len(set(values))
    assert {value for value, outcome in told.items() if outcome == "delivered"} <= set(values)
    assert not {value for value, outcome in told.items() if outcome == "not_written"} & set(values)
    assert (told[b"last"], told[b"last other"]) == ("delivered", "delivered")


def test_without_the_rule_it_is_written_twice(
    kafka_tapped: KafkaCluster, tap: Tap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With everything held back; tests/pipeline/test_sequence_gaps.py has the direct lane, too."""
    monkeypatch.setattr(BatchLane, "takes", lambda *_: True)
    monkeypatch.setattr(DirectLane, "purged", lambda *_: None)
    assert any(play(kafka_tapped, tap, "held")[0][OTHER].count(b"answer lost") == 2 for _ in range(ATTEMPTS))
