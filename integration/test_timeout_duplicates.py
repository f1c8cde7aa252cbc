"""A deadline that passes while answers are lost must not write other records twice."""

import uuid
from collections.abc import Iterable
from functools import partial

import pytest
from confluent_kafka import Producer

from integration import held_back
from integration.faults.oracle import Verdict
from integration.kafka.cluster import KafkaCluster
from integration.lost_answers import RECORDS_A_BATCH, Maker, Plan, play
from integration.tap import Tap

MAKERS: dict[str, Maker] = {"stock": Producer}
if held_back.EXISTS:
    MAKERS |= {mode: partial(held_back.in_mode, mode) for mode in ("auto", "held")}
MEASURED = [Plan.measured(streams, in_one_call=call) for streams in range(1, 11) for call in (False, True)]

Verdicts = dict[tuple[str, str], Verdict]


@pytest.fixture(scope="module")
def verdicts(kafka_tapped: KafkaCluster) -> Verdicts:
    """By side and plan."""
    return played(kafka_tapped, MAKERS)


def played(cluster: KafkaCluster, sides: Iterable[str]) -> Verdicts:
    """All plans at the same time, because each is nearly only waiting."""
    cast = [(side, plan) for side in sides for plan in MEASURED]
    with Tap(cluster) as tap:
        told = play([(plan, MAKERS[side]) for side, plan in cast], cluster, tap, f"t-{uuid.uuid4().hex[:8]}")
    return {(side, str(plan)): verdict for (side, plan), verdict in zip(cast, told, strict=True)}


def test_stock_writes_other_partitions_twice(kafka_tapped: KafkaCluster, verdicts: Verdicts) -> None:
    """The trap: the confluent_kafka producer duplicates records of partitions whose deadline had not passed.

    In half of the plans: librdkafka looks for expired records once a second, and may meet all of a producer's at once.
    On a busy machine it meets them so in nearly all, therefore up to three times.
    """
    told = {plan: verdict for (side, plan), verdict in verdicts.items() if side == "stock"}
    for _ in range(2):
        if traps(told) < len(told) / 2:
            told = {plan: verdict for (_, plan), verdict in played(kafka_tapped, ["stock"]).items()}
    assert traps(told) >= len(told) / 2, told
    assert [verdict for verdict in told.values() if set(verdict.broken) - {f"{verdict.duplicated} duplicated"}] == []


def traps(told: dict[str, Verdict]) -> int:
    """In how many plans a batch was written twice."""
    return sum(verdict.duplicated >= RECORDS_A_BATCH for verdict in told.values())


@held_back.needed
@pytest.mark.parametrize("mode", ["auto", "held"])
@pytest.mark.parametrize("plan", MEASURED, ids=str)
def test_no_record_is_written_twice(verdicts: Verdicts, plan: Plan, mode: str) -> None:
    """Delivered is once in the log, not written nowhere, unknown at most once, and the order is kept."""
    verdict = verdicts[mode, str(plan)]
    assert verdict.broken == [], verdict.examples
    # Stream 0 is past its deadline in every plan, and whether it was written nobody can tell the producer.
    assert verdict.unknown >= RECORDS_A_BATCH
