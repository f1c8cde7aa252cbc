"""Histories of senders, cancellations, withdrawals and lost loops in virtual time, on a core that is a model.

The core accepts, holds, hands over and answers when the history says so; it runs in the one thread there is.
"""

import asyncio
import random
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from safeproducer import DeliveryError, Outcome, QueueFullError
from safeproducer.aio import room as room_module
from safeproducer.aio import settling as settling_module
from safeproducer.aio.delivery import Delivery
from safeproducer.aio.room import Room
from safeproducer.aio.settling import Settling
from safeproducer.aio.threads import LoopCalls
from safeproducer.policy.types import Lack

PARTITIONS = 2
HISTORIES, STEPS = 60, 120


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes when nothing is to be done, and at once."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__()
        select = self._selector.select

        def skip(timeout: float | None = None) -> Any:
            self.now += timeout or 0.0
            return select(0)

        self._selector.select = skip  # type: ignore[method-assign]

    def time(self) -> float:
        return self.now


class Held:
    """A record in the core, from acceptance to its report."""

    def __init__(self, callback: Any, value: int, partition: int) -> None:
        self.callback, self.value, self.partition = callback, value, partition
        self.outcome = "pending"


class Core:
    """What the engine does for Settling: with room for `capacity` records."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held = deque[Held]()
        self.handed = deque[Held]()
        self.accepted = list[Held]()
        self.asked = deque[tuple[Any, Any, Callable[[bool], object]]]()
        self.reports = deque[tuple[Held, Any]]()
        self.told = list[tuple[int, str]]()  # of abandoned records: partition and outcome
        self.abandoned = 0
        self.wake: Callable[[], object] | None = None
        self.failures = SimpleNamespace(abandon=self._abandon)
        self.notifications = SimpleNamespace(
            abandoned=lambda topic, partition, outcome: self.told.append((partition, outcome))
        )

    def _abandon(self, count: int) -> None:
        self.abandoned += count

    @property
    def size(self) -> int:
        return len(self.held) + len(self.handed) + len(self.reports)

    def accept(self, callback: Any, value: int, partition: int) -> Held:
        if self.size >= self.capacity:
            raise QueueFullError("full")
        self.held.append(record := Held(callback, value, partition))
        self.accepted.append(record)
        return record

    def withdraw_soon(self, ticket: Any, callback: Any, told: Callable[[bool], object]) -> None:
        self.asked.append((ticket, callback, told))

    def sender(self) -> None:
        """A turn: what is asked back and still waits ends."""
        while self.asked:
            ticket, _, told = self.asked.popleft()
            if found := ticket in self.held:
                self.held.remove(ticket)
                self.end(ticket, "not_written")
            told(found)

    def end(self, record: Held, outcome: str) -> None:
        record.outcome = outcome
        error = None
        if outcome != "delivered":
            error = DeliveryError(KafkaError(KafkaError._PURGE_QUEUE), Outcome(outcome), "t", record.partition)
        was_empty = not self.reports
        self.reports.append((record, error))
        if was_empty and self.wake is not None:
            self.wake()

    def run_reports(self, most: int) -> bool:
        for _ in range(min(most, len(self.reports))):
            record, error = self.reports.popleft()
            record.callback(
                error, Message(topic="t", partition=record.partition, offset=0, timestamp=(1, 0), latency=0.1)
            )
        return bool(self.reports)


def lack(core: Core, *_: Any) -> Lack:
    return Lack.OF_ALL if core.size >= core.capacity else Lack.NONE


class History:
    """Senders, and what is done to them; `check()` says what is wrong."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.core = Core(self.dice.choice([1, 3, 8]))
        self.calls = LoopCalls()
        self.settling = Settling(self.core, self.calls, self.fill)  # type: ignore[arg-type]
        self.core.wake = self.settling.waker()
        self.number = 0
        self.loop = self._next_loop()
        self.tasks = list[tuple[int, int, asyncio.Task[Any]]]()
        self.deliveries = dict[int, Delivery]()
        self.ended = dict[int, str]()

    def _next_loop(self) -> VirtualLoop:
        loop = VirtualLoop()
        self.calls.bind(loop)
        self.settling.bind()
        self.room = Room(self.core)  # type: ignore[arg-type]
        loop.call_soon(self.settling.run_queued)
        return loop

    def fill(self) -> None:
        while self.room.lines and self.room.fill():
            pass

    async def send(self, value: int, partition: int, limit: float | None) -> None:
        record = "t", value, None, partition, 0, None
        place = "t", partition
        try:
            async with asyncio.timeout(limit):
                if place in self.room.lines or lack(self.core):
                    future = self.room.join(place, self.settling.accept, record)
                    try:
                        delivery = await future
                    except asyncio.CancelledError:
                        if future.done() and not future.cancelled():
                            self.deliveries[value] = future.result()
                            future.result().cancel()
                        raise
                else:
                    delivery = self.settling.accept(*record)  # type: ignore[arg-type]
                self.deliveries[value] = delivery
                await delivery
            self.ended[value] = "delivered"
        except (asyncio.CancelledError, TimeoutError):
            self.ended[value] = "cancelled"
        except Exception as error:
            self.ended[value] = str(getattr(error, "outcome", error))

    def step(self) -> None:
        """One thing happens, and the loop may run a little."""
        core, dice = self.core, self.dice
        kind = dice.randrange(9)
        if kind <= 2:
            partition, limit = dice.randrange(PARTITIONS), dice.choice([None, None, 0.5])
            task = self.loop.create_task(self.send(self.number, partition, limit))
            self.tasks.append((self.number, partition, task))
            self.number += 1
        elif kind == 3 and self.tasks:
            dice.choice(self.tasks)[2].cancel()
        elif kind == 4 and core.held:
            for _ in range(dice.randrange(1, 4)):
                if core.held:
                    core.handed.append(core.held.popleft())
        elif kind == 5:
            for _ in range(min(dice.randrange(1, 4), len(core.handed))):
                core.end(core.handed.popleft(), dice.choice(["delivered", "delivered", "not_written", "unknown"]))
        elif kind == 6:
            core.sender()
        elif kind == 7 and self.deliveries:
            delivery = dice.choice([*self.deliveries.values()])
            if delivery.get_loop() is self.loop:
                self.loop.create_task(delivery.withdraw())
        elif kind == 8 and dice.random() < 0.1:
            self.lose()
        for _ in range(dice.randrange(3)):
            self.turn()

    def turn(self) -> None:
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def lose(self) -> None:
        """The loop is closed; the next one takes over."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.turn()
        self.turn()
        self.loop.close()
        for _ in range(self.dice.randrange(len(self.core.handed) + 1)):
            self.core.end(self.core.handed.popleft(), "delivered")
        self.core.run_reports(self.core.size)  # the serving thread takes over
        self.loop = self._next_loop()

    def finish(self) -> None:
        """All that is under way ends."""
        for _ in range(10 * STEPS):
            self.core.sender()
            self.core.handed.extend(self.core.held)
            self.core.held.clear()
            while self.core.handed:
                self.core.end(self.core.handed.popleft(), "delivered")
            self.turn()
            if not (asyncio.all_tasks(self.loop) or self.core.size or self.room.lines):
                break
        for _ in range(3):
            self.turn()
        self.loop.close()

    def check(self) -> list[str]:
        wrong = []
        by_value = {record.value: record for record in self.core.accepted}
        for value, delivery in self.deliveries.items():
            if delivery.outcome != by_value[value].outcome:
                wrong.append(f"{value}: {delivery.outcome} is told, {by_value[value].outcome} is true")
        for value, end in self.ended.items():
            if end not in ("cancelled", by_value[value].outcome if value in by_value else ""):
                wrong.append(f"{value}: its task ended with {end}")
        for value, _, task in self.tasks:
            if not task.done():
                wrong.append(f"{value}: its task goes on")
        for partition in range(PARTITIONS):
            order = [record.value for record in self.core.accepted if record.partition == partition]
            if order != sorted(order):
                wrong.append(f"accepted in the order {order}")
        if len(self.core.accepted) != len(by_value):
            wrong.append("a record was accepted twice")
        if self.core.abandoned:
            wrong.append(f"{self.core.abandoned} records are abandoned at the end")
        return wrong


@pytest.fixture(autouse=True)
def _modelled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def accept(core: Core, callback: Any, topic: str, value: int, key: Any, partition: int, *_: Any) -> Held:
        return core.accept(callback, value, partition)

    monkeypatch.setattr(settling_module, "accept", accept)
    monkeypatch.setattr(room_module, "lack_for", lack)
    monkeypatch.setattr(room_module, "is_empty", lambda core: not core.size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def found(histories: int = HISTORIES) -> list[str]:
    """What the first wrong history tells."""
    for seed in range(histories):
        history = History(seed)
        for _ in range(STEPS):
            history.step()
        history.finish()
        if wrong := history.check():
            return [f"seed {seed}", *wrong]
    return []


def test_all_histories_end_as_they_are_told() -> None:
    assert found() == []


def _last_first(room: Room) -> bool:
    for queue in room.lines.values():
        queue.reverse()
    return _fill(room)


_fill = Room.fill
BUGS: dict[str, tuple[type, str, Any]] = {
    "the last in a line is the first": (Room, "fill", _last_first),
    "a future that was cancelled counts as not written": (
        Delivery,
        "outcome",
        property(lambda self: "not_written" if self.cancelled() else _outcome(self)),
    ),
    "an abandoned record is counted for ever": (Settling, "_tell_abandoned", lambda self, delivery: None),
    "futures of a closed loop are forgotten": (Settling, "_tell_lost", lambda self: self.ended.clear()),
    "a report wakes nobody": (Settling, "_settle", lambda self: setattr(self, "_called", False)),
}
_outcome: Any = Delivery.outcome.fget  # type: ignore[attr-defined]


@pytest.mark.parametrize("bug", BUGS)
def test_each_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, planted = BUGS[bug]
    monkeypatch.setattr(owner, name, planted)
    assert found() != []
