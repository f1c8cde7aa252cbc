"""What the buffered path hands over as one batch is one batch on the wire, and stays it through retries."""

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from integration import held_back
from integration.kafka.cluster import KafkaCluster
from integration.kafka.poll import until
from integration.portions import Around, Case, Feeder, busy
from integration.tap import BatchSeen, Tap
from safeproducer import SafeProducer
from safeproducer.kafka.native import NativeProducer
from safeproducer.pipeline.lanes import native_producers
from safeproducer.settings import delivery

NewTopic = Callable[..., str]
GUARD, INTERRUPTION = 1, 1.5
"""Seconds. The real guard is a minute, for which no test should wait."""


SHORT = [
    Case(1, 10, batches=150, partitions=3),
    Case(1, 900_000, codec="zstd", partitions=3),
    Case(100, 100, batches=100, codec="lz4", partitions=10, around="busy main thread"),
    Case(100, 100, rtt=0.02, lost_answers=3),
    Case(1_000, 900, codec="lz4", partitions=3, in_one_call=True, rtt=0.005, lost_answers=2),
    Case(5_000, 100, batches=8, around="busy processes"),
    Case(5_000, 100, batches=10, codec="zstd", around="busy main thread", in_one_call=True),
    Case(20_000, 10, batches=6, codec="lz4", partitions=2, in_one_call=True),
    Case(20_000, 100, batches=8),
    Case(20_000, 100, batches=8, rtt=0.1, lost_answers=2),
    Case(20_000, 100, batches=4, rtt=0.1, around="busy processes"),
    Case(100_000, 10, batches=3, codec="lz4"),
]
SIZES = [(1, 10), (1, 100_000), (1, 900_000), (10, 90_000), (100, 100), (100, 9_000), (1_000, 100), (1_000, 900)]
SIZES += [(5_000, 100), (20_000, 10)]
SURROUNDINGS: list[tuple[int, Around, bool, float, int]] = [
    (1, "calm", False, 0.0, 0),
    (1, "busy processes", True, 0.0, 0),
    (1, "busy main thread", False, 0.005, 0),
    (10, "busy processes", False, 0.005, 4),
    (10, "busy main thread", True, 0.0, 0),
    (10, "calm", False, 0.1, 4),
]
"""Partitions, who else is busy, produce_batch(), round trip in seconds, answers lost."""
MATRIX = [
    Case(count, size, 60, codec, partitions, around, in_one_call, rtt, lost)
    for count, size in SIZES
    for codec in ("none", "lz4", "zstd")
    for partitions, around, in_one_call, rtt, lost in SURROUNDINGS
]
CASES = [*SHORT, *(pytest.param(case, marks=pytest.mark.full) for case in MATRIX)]


def disagreements(seen: list[BatchSeen], handed_over: int, splits: int, records: int, most: int) -> list[str]:
    """Every sentence is something that the tap and the producer's own account tell differently."""
    attempts: dict[object, list[BatchSeen]] = defaultdict(list)
    for batch in seen:
        attempts[batch.identity].append(batch)
    firsts = [same[0] for same in attempts.values()]
    found = []
    if len(firsts) != handed_over:
        found.append(f"{len(firsts)} batches for {handed_over} hand-overs")
    if splits:
        found.append(f"{splits} splits")
    if changed := [same for same in attempts.values() if len({(one.count, one.crc) for one in same}) > 1]:
        found.append(f"{len(changed)} batches were changed by a retry")
    if (counted := sum(first.count for first in firsts)) != records:
        found.append(f"{counted} records in batches, {records} produced")
    if large := [first.count for first in firsts if first.count > most]:
        found.append(f"{len(large)} batches of more than {most} records")
    return found


def held(bootstrap: str, count: int, codec: str, linger: float = 0.005) -> SafeProducer:
    """A producer that always holds back, with batches of `count` records."""
    return held_back.in_mode(
        "held",
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": linger * 1e3,
            "batch.num.messages": count,
            "compression.type": codec,
            "queue.buffering.max.messages": 2_000_000,
            "log_level": 0,
        },
    )


@held_back.needed
@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_hand_over_is_one_batch(tap: Tap, kafka_tapped: KafkaCluster, topic: NewTopic, case: Case) -> None:
    """Distinct batches at the tap are as many as in-flight batches; a retry is the same batch; nothing is split."""
    name = topic(partitions=case.partitions, on=kafka_tapped)
    kafka_tapped.admin.end_offsets(name)  # a broker that has not heard yet that it leads refuses a first batch
    tap.delay(case.rtt / 2)
    if case.lost_answers:
        tap.drop_answers(n=case.lost_answers, topic=name)
    with busy(case.around), held(kafka_tapped.bootstrap, case.count, case.codec) as producer:
        feeder = Feeder(producer, name, case)
        total = feeder.feed()
        account: Any = producer.snapshot()
    assert (feeder.delivered, feeder.errors) == (total, [])
    seen = [batch for batch in tap.batches if batch.topic == name]
    assert disagreements(seen, account.handed_over, account.splits, total, case.count) == []
    assert sum(kafka_tapped.admin.end_offsets(name)) == total
    refused = [answer for answer in tap.answers if answer.topic == name and answer.error_code]
    assert any(batch.attempt > 1 for batch in seen) == bool(case.lost_answers), refused
    assert tap.undecoded == []


@held_back.needed
def test_provoked_split_is_reported(
    tap: Tap, kafka_tapped: KafkaCluster, topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handing over that is interrupted for longer than the guard goes out in two, and the account says so."""
    monkeypatch.setattr(delivery, "GUARD_MS", GUARD * 1000)
    name = topic(on=kafka_tapped)
    count, calls = 100, Counter[int]()

    def told(producer: SafeProducer) -> Any:
        return producer.snapshot()

    class Interrupted(NativeProducer):
        def produce(self, *args: Any, **kwargs: Any) -> None:
            calls[id(self)] += 1
            if calls[id(self)] == count // 2:
                time.sleep(INTERRUPTION)
            super().produce(*args, **kwargs)

    monkeypatch.setattr(native_producers, "NativeProducer", Interrupted)
    with held(kafka_tapped.bootstrap, count, "none", linger=10.0) as producer:
        for number in range(count):
            producer.produce(name, b"%d" % number, partition=0, headers={"a": b"b"})
        assert producer.flush(30) == 0
        seen = [batch for batch in tap.batches if batch.topic == name]
        assert len(seen) > told(producer).handed_over, "the interruption was to split a hand-over"
        until(lambda: producer.poll(0.02) * 0 or told(producer).splits, "the split is reported", 15)


def batches(*counts: int) -> list[BatchSeen]:
    """What the tap would have seen of these batches."""
    starts = itertools.accumulate(counts, initial=0)
    base: dict[str, Any] = {
        "time": 0.0,
        "broker": 1,
        "connection": 1,
        "client_id": "c",
        "producer_id": 7,
        "epoch": 0,
        "topic": "t",
    }
    base |= {"partition": 0, "correlation_id": 1, "version": 10, "size": 99, "crc": 1, "attempt": 1}
    return [
        BatchSeen(**{**base, "base_sequence": start, "count": count, "transactional": False})
        for start, count in zip(starts, counts, strict=False)
    ]


HONEST = batches(100, 100, 50)


@pytest.mark.parametrize(
    ("seen", "splits", "noticed"),
    [
        (HONEST, 0, []),
        ([*HONEST, replace(HONEST[1], attempt=2)], 0, []),
        (batches(100, 60, 40, 50), 0, ["4 batches for 3 hand-overs"]),
        (batches(200, 50), 0, ["2 batches for 3 hand-overs", "1 batches of more than 100 records"]),
        ([*HONEST, replace(HONEST[1], attempt=2, count=90)], 0, ["1 batches were changed by a retry"]),
        ([*HONEST, replace(HONEST[1], attempt=2, crc=2)], 0, ["1 batches were changed by a retry"]),
        (
            [*HONEST, replace(HONEST[1], epoch=1)],
            0,
            ["4 batches for 3 hand-overs", "350 records in batches, 250 produced"],
        ),
        (batches(100, 100, 49), 0, ["249 records in batches, 250 produced"]),
        (HONEST, 1, ["1 splits"]),
    ],
)
def test_every_disagreement_is_noticed(seen: list[BatchSeen], splits: int, noticed: list[str]) -> None:
    """A split, a merge, a changed retry, a batch sent again as a new one: the comparison sees each."""
    assert disagreements(seen, handed_over=3, splits=splits, records=250, most=100) == noticed
