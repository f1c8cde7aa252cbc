"""Records of one topic keep their order, whether they name their partition or not."""

from collections.abc import Callable
from typing import Any

import pytest

from safeproducer.testing import FakeCluster
from tests.contract.ways import EVERY_WAY, TOPIC, Way


@EVERY_WAY
@pytest.mark.parametrize("named", [0, 1], ids=["named first", "named second"])
@pytest.mark.parametrize("batch", [1, 2, 10_000])
def test_records_with_and_without_a_partition_keep_their_order(
    brokers: FakeCluster, start: Callable[..., Any], way: Way, batch: int, named: int
) -> None:
    """A new topic: no broker has told yet that both kinds go to the same partition."""
    producer = start(way, {"batch.num.messages": batch})
    before = len(brokers.log(TOPIC, 0))
    for number in range(40):
        producer.produce(TOPIC, b"%d" % number, b"k", **({"partition": 0} if number % 2 == named else {}))
    assert producer.flush(30) == 0
    assert [int(record.value or b"") for record in brokers.log(TOPIC, 0)[before:]] == list(range(40))
