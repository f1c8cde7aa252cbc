"""Pairs of value and key are accounted for as by produce(), though that is not called for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from safeproducer import SafeProducer
from safeproducer.pairs import produce_pairs
from tests.inside import engine_of

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "queue.buffering.max.messages": 10}
PAIRS = [(b"v%d" % number, b"k%d" % number) for number in range(15)]


@pytest.fixture
def producer() -> Iterator[SafeProducer]:
    """Nothing leaves it, and there is room for ten."""
    with SafeProducer({**NOWHERE, "safeproducer.max.block.ms": 0}) as made:
        yield made
        made.purge()


def forget(producer: SafeProducer, count: int) -> None:
    """As many records went nowhere, because the test took them."""
    counters = engine_of(producer).counters
    counters.topics["t"].accepted -= count
    counters.interrupts = 0


def ignored(*_: Any) -> None:
    """Nobody asks for these reports."""


def test_refused_records_are_told_and_not_counted(producer: SafeProducer) -> None:
    """Those that found room are accepted; the others are named one by one, in their order."""
    refused: list[tuple[Any, ...]] = []
    produce_pairs(producer, "t", PAIRS, ignored, lambda *record: refused.append(record))
    assert refused == [("t", value, key) for value, key in PAIRS[10:]]
    account = producer.snapshot()
    assert (account.accepted, account.unresolved, account.interrupted) == (10, 10, 0)


def test_what_a_refusal_raises_ends_the_loop(producer: SafeProducer) -> None:
    """Nothing behind a record that stays refused is accepted."""
    taken = iter(PAIRS)

    def refused(*_: Any) -> None:
        raise BufferError("as planned")

    with pytest.raises(BufferError, match="as planned"):
        produce_pairs(producer, "t", taken, ignored, refused)
    assert list(taken) == PAIRS[11:]


def test_a_route_that_changes_is_taken_at_once(producer: SafeProducer) -> None:
    """A throttle time that arrives in the middle holds back the very next record."""
    held: list[Any] = []

    def pairs() -> Iterator[tuple[bytes, bytes]]:
        yield from PAIRS[:3]
        engine_of(producer).route.send = lambda *record: held.append(record[1])
        yield from PAIRS[3:6]

    produce_pairs(producer, "t", pairs(), ignored, ignored)
    forget(producer, 3)
    assert held == [value for value, _ in PAIRS[3:6]]


def test_a_record_counts_before_it_is_handed_over(producer: SafeProducer) -> None:
    """Its report may arrive on another thread before that returns."""
    counted: list[int] = []
    engine_of(producer).route.send = lambda *_: counted.append(producer.snapshot().accepted)
    produce_pairs(producer, "t", PAIRS[:3], ignored, ignored)
    forget(producer, 3)
    assert counted == [1, 2, 3]


@pytest.mark.parametrize("raised", [KeyboardInterrupt, ValueError])
def test_what_a_signal_handler_raises_goes_on(producer: SafeProducer, raised: type[BaseException]) -> None:
    """Whether the record was accepted is not known then: it is no refusal, and nothing is sent again."""

    def interrupted(*_: Any) -> None:
        raise raised

    engine_of(producer).route.send = interrupted
    refused: list[Any] = []
    with pytest.raises(raised):
        produce_pairs(producer, "t", PAIRS, ignored, lambda *record: refused.append(record))
    counted = producer.snapshot().accepted, engine_of(producer).counters.interrupts
    forget(producer, 1)
    assert not refused
    assert counted == (1, 1)
