"""What an account of many partitions costs."""

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tests.pipeline.rig import rigged

CONFIG = {"message.timeout.ms": 300_000, "linger.ms": 5}
FEW, FOUR_TIMES = 50, 200


def lines_of(call: Callable[[], object]) -> int:
    """How many lines of Python it runs: comprehensions are among them."""
    found: Counter[str] = Counter()

    def count(frame: FrameType, event: str, arg: Any) -> Any:
        found[event] += 1
        return count

    sys.settrace(count)
    try:
        call()
    finally:
        sys.settrace(None)
    return found["line"]


def costs(partitions: int, named: bool) -> dict[str, int]:
    """Of records of so many partitions that no leader acknowledges."""
    with rigged(CONFIG, {1: 0.002, 2: 0.002, 3: 0.002}, {"a": partitions, "b": partitions}) as rig:
        for _ in range(2):
            for number in range(partitions):
                for topic in "ab":
                    assert rig.produce(topic, number if named else -1, b"%d" % number)
            rig.report_queue(1)
            rig.poll(0)
            for broker in rig.cluster.brokers.values():
                broker.silent = True
        rig.report_queue(10)
        producer = rig.producer
        assert "acknowledges nothing of" in producer.explain()
        assert not producer.health(unresolved_for=0.0).ok
        calls: dict[str, Callable[[], object]] = {
            "snapshot": producer.snapshot,
            "explain": producer.explain,
            "health": producer.health,
            "health of old records": lambda: producer.health(unresolved_for=0.0),
        }
        found = {name: lines_of(call) for name, call in calls.items()}
        for broker in rig.cluster.brokers.values():
            broker.silent = False
        rig.cluster.heal()
        rig.close()
        return found


@pytest.mark.parametrize("named", [True, False])
def test_an_account_costs_as_much_as_there_are_partitions(named: bool) -> None:
    """Each partition was looked up among all of them, several times: 7 s for 5 000."""
    few, many = costs(FEW, named), costs(FOUR_TIMES, named)
    assert {name: many[name] / few[name] for name in few if many[name] > 5.5 * few[name]} == {}
