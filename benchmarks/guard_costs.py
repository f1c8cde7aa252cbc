"""Measures how much the guard on producer IDs and `reuse` add to a constructor and to a first record.

Producers one after another, in runs of some of a kind, in random order: with the guard, by the default policy and a
ledger of two copies; the same code with the guard's calls cut out; and confluent_kafka's. The bars were set by
such runs. A sum of the parts would miss what the guard's code does to the caches of the CPU, and add what reading the
clock costs.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from confluent_kafka import Producer

from benchmarks import permit_costs
from benchmarks.interleaved import show
from benchmarks.table import Bar
from safeproducer import SafeProducer
from safeproducer.pipeline import assembly
from safeproducer.pipeline.reuse import Key
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids.lane_permits import LanePermits
from safeproducer.producer_ids.permit import Claim
from safeproducer.records import CallSite
from safeproducer.settings import id_settings

ROUNDS, QUICK = 600, 60
RUN = 5
"""Producers of one kind, one after another: few, for the machine's pace changes."""
STOCK_US = 140
"""The time of confluent_kafka's constructor where the bars of 20 us and 200 us were set."""
GUARDED, BARE, STOCK = "guarded", "bare", "stock"
_NO_LANES = LanePermits(None, Claim(Kind.LANE, 1, False, CallSite("", 0, "")))
_DEFAULTS = id_settings.IdSettings()


class _NoGate:
    """Lets everything through, as if nobody counted."""

    hold = None
    waits = wrote = False
    used = 0
    ask_at = opened_at = unsent_at = 0.0

    def lane_permits(self) -> LanePermits:
        return _NO_LANES

    def _nothing(self, *_: Any) -> bool:
        return False

    look = is_too_late = heard = end = enter = _nothing


_NO_GATE = _NoGate()
_CUT: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (id_settings, "take", lambda *_: _DEFAULTS),
    (assembly, "gate_of", lambda *_: _NO_GATE),
    (Key, "of", lambda *_: None),
)


@dataclass
class Costs:
    """Microseconds. The guard's part is the median over rounds; the others are what a call takes with it."""

    constructor: float
    first_record: float
    constructor_with: float
    constructor_of_stock: float
    first_record_with: float
    second_record_is_as_before: bool

    @property
    def pace(self) -> float:
        """How many times as long everything takes here as where the bars were set."""
        return self.constructor_of_stock / STOCK_US

    def judged(self) -> list[Bar]:
        constructor, first_record = self.constructor / self.pace, self.first_record / self.pace
        return [
            Bar("constructor, microseconds more, at the pace of the bars", constructor, 20, at_least=False),
            Bar("first record, microseconds more, at the pace of the bars", first_record, 200, at_least=False),
            Bar("what takes the second record is what took it before", self.second_record_is_as_before, 1, True),
        ]

    def __str__(self) -> str:
        return (
            f"the guard adds {self.constructor:.0f} us to a constructor, which takes {self.constructor_with:.0f} then "
            f"(confluent_kafka's {self.constructor_of_stock:.0f}), and {self.first_record:.0f} us to a first record, "
            f"which takes {self.first_record_with:.0f}\n"
            f"this machine takes {self.pace:.2f} times as long as where the bars were set"
        )


class _Switch:
    """Both ways go through it, so it costs both the same."""

    guarded = True

    @contextmanager
    def connected(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, cut in _CUT:
                stack.enter_context(mock.patch.object(owner, name, self._either(getattr(owner, name), cut)))
            yield

    def _either(self, real: Callable[..., Any], cut: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: real(*args) if self.guarded else cut(*args)


def measured(config: dict[str, Any], topic: str, rounds: int) -> Costs:
    """With brokers that are there: a producer that can connect to nobody has other work."""
    made: dict[str, list[float]] = {GUARDED: [], BARE: [], STOCK: []}
    entered: dict[str, list[float]] = {GUARDED: [], BARE: []}
    as_before = True
    switch, dice, ours = _Switch(), random.Random(1), {**config, "safeproducer.producer.ids.per.hour": 100_000_000}
    with permit_costs.ledgers(), switch.connected():
        for number in range(rounds):
            show(f"costs: round {number + 1} of {rounds}")
            for kind in dice.sample((GUARDED, BARE, STOCK), 3):
                switch.guarded = kind == GUARDED
                constructors, first_records = [], []
                for _ in range(RUN):
                    began = time.perf_counter()
                    producer: Any = Producer(config) if kind == STOCK else SafeProducer(ours)
                    constructors.append(time.perf_counter() - began)
                    if kind != STOCK:
                        first_records.append(_first_record(producer, topic))
                        as_before = as_before and _is_as_before(producer)
                        producer.purge()
                        producer.close()
                    del producer  # it ends here, not inside the next constructor
                made[kind].append(statistics.median(constructors))
                if kind != STOCK:
                    entered[kind].append(statistics.median(first_records))
    show("")
    more = _added(made), _added(entered)
    return Costs(*more, _median(made[GUARDED]), _median(made[STOCK]), _median(entered[GUARDED]), as_before)


def _first_record(producer: Any, topic: str) -> float:
    began = time.perf_counter()
    producer.produce(topic, b"x")
    return time.perf_counter() - began


def _added(taken: dict[str, list[float]]) -> float:
    """By the guard."""
    return _median([guarded - bare for guarded, bare in zip(taken[GUARDED], taken[BARE], strict=True)])


def _is_as_before(producer: Any) -> bool:
    """Whether the second record goes at once to what took it when there was no guard."""
    engine = producer._SafeProducer__engine
    return bool(engine.route.send == engine.dispatcher.intake.send)


def _median(seconds: list[float]) -> float:
    return 1e6 * statistics.median(seconds)
