"""Exceptions that are nobody's refusal: a time limit that another thread sets, and a stack that is full."""

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from safeproducer import SafeProducer
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.inside import engine_of

HELD = {"safeproducer.mode": "held"}
MODES = {"auto": {}, "held": HELD}
DEEPEST = 25
"""Levels of the stack that produce() needs, and some more."""


class TimeLimitError(Exception):
    """As rq and stopit raise it: by PyThreadState_SetAsyncExc, at any instruction of a thread."""


brokers = fake_cluster({"t": 1})


def start(brokers: FakeCluster, **settings: Any) -> SafeProducer:
    producer = SafeProducer({"bootstrap.servers": brokers.bootstrap, "log_level": 0, "linger.ms": 50} | settings)
    producer.produce("t", b"warm")
    assert producer.flush(10) == 0
    return producer


@pytest.mark.parametrize("error", [TimeLimitError, TimeoutError])
def test_a_time_limit_behind_the_acceptance_is_no_refusal(
    brokers: FakeCluster, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """The record was taken off the counters, and written: more were delivered than accepted."""
    producer = start(brokers, **HELD)
    schedule = engine_of(producer).dispatcher.schedule
    with monkeypatch.context() as patch:
        patch.setattr(schedule, "begin", Mock(side_effect=error))
        with pytest.raises(error):
            producer.produce("t", b"v")
    assert producer.flush(10) == 0
    assert [record.value for record in brokers.log("t")] == [b"warm", b"v"]
    account = producer.snapshot()
    assert (account.accepted, account.delivered, account.unresolved) == (2, 2, 0)
    assert producer.close(10)


def test_a_time_limit_before_acceptance_is_counted_apart(brokers: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = start(brokers, **HELD)
    with monkeypatch.context() as patch:
        patch.setattr(engine_of(producer).dispatcher.record_buffer, "refuse_excess", Mock(side_effect=TimeLimitError))
        with pytest.raises(TimeLimitError):
            producer.produce("t", b"v")
    account = producer.snapshot()
    assert (account.accepted, account.delivered, account.interrupted, account.unresolved) == (2, 1, 1, 0)
    assert producer.close(10)


def at_depth(left: int, call: Callable[[], object]) -> None:
    """`call` it with room for so many levels of the stack."""
    frame: Any = sys._getframe()
    depth = 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1

    def go(levels: int) -> None:
        if levels > 0:
            go(levels - 1)
        else:
            call()

    go(sys.getrecursionlimit() - depth - left)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("batch", [1, 10_000])
def test_a_record_that_raises_near_the_end_of_stack_is_not_written(brokers: FakeCluster, mode: str, batch: int) -> None:
    """produce() raised RecursionError for records that it had accepted, and they were written all the same."""
    producer = start(brokers, **MODES[mode], **{"batch.num.messages": batch})
    returned, raised, told = [b"warm"], [], Counter[bytes | None]()

    def report(_: object, message: Any) -> None:
        told[message.value()] += 1

    for left in range(DEEPEST):
        for number in range(3):
            value = b"%d %d" % (left, number)
            try:
                at_depth(left, lambda value=value: producer.produce("t", value, b"k", 0, report))  # type: ignore[misc]
            except RecursionError:
                raised.append(value)
            else:
                returned.append(value)
        assert producer.flush(10) == 0
    assert len(raised) > 3
    assert len(returned) > 3
    assert sorted(record.value or b"" for record in brokers.log("t")) == sorted(returned)
    assert told == Counter(returned[1:])
    account = producer.snapshot()
    assert (account.delivered, account.unresolved, account.failed) == (len(returned), 0, 0)
    assert producer.close(10)
