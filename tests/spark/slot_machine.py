"""A scripted coordinator with slots, drivers that die, attempts that overlap, and requests that arrive late.

`play(seed)` runs one story, and says what is wrong with the log in its end. Tests put wrong rules in the place of those
of safeproducer/spark/markers.py: the stories have to find each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from safeproducer.errors import ConfigurationError
from safeproducer.spark import markers
from safeproducer.spark.guarantee import ExactlyOnce
from safeproducer.spark.markers import Marker, Print, Step

BATCHES, ROWS, ATTEMPTS = 3, 5, 4
Row = tuple[int, int]


class FencedError(Exception):
    """Another one has registered the transactional.id."""


@dataclass
class Transactional:
    """What the coordinator knows of one transactional.id."""

    epoch: int = 0
    open: list[Row] = field(default_factory=list)


@dataclass
class Brokers:
    """What is in the log for readers of committed rows, and the markers, by group and slot."""

    ids: dict[str, Transactional] = field(default_factory=lambda: defaultdict(Transactional))
    log: Counter[Row] = field(default_factory=Counter)
    markers: dict[tuple[str, int], Marker] = field(default_factory=dict)
    late: list[Callable[[], None]] = field(default_factory=list)
    """Requests that are under way, and whose senders wait no more."""

    def init(self, name: str) -> int:
        one = self.ids[name]
        one.epoch, one.open = one.epoch + 1, []
        return one.epoch

    def produce(self, name: str, epoch: int, rows: list[Row]) -> None:
        self._fence(name, epoch).open += rows

    def end(self, name: str, epoch: int, place: tuple[str, int], marker: Marker | None) -> None:
        one = self._fence(name, epoch)
        self.log.update(one.open)
        one.open = []
        if marker is not None:
            self.markers[place] = marker

    def _fence(self, name: str, epoch: int) -> Transactional:
        if self.ids[name].epoch != epoch:
            raise FencedError
        return self.ids[name]


@dataclass
class Rules:
    """Those that are tested, or wrong ones."""

    steps: Any = markers.steps
    check_start: Callable[..., None] = markers.check_start
    group: Callable[[ExactlyOnce], str] = lambda sink: sink.group
    transactional_id: Callable[[ExactlyOnce, int, Random], str] = lambda sink, slot, _: sink.settings(slot)[
        "transactional.id"
    ]
    commits_again: bool = False
    """A session writes and commits anew when its commit has no answer."""
    claims: str = "fenced"
    """How a driver says how many slots there are."""
    check_former: Callable[..., None] = markers.check_former
    fences_former: bool = True


@dataclass
class Attempt:
    """One of a task."""

    brokers: Brokers
    sink: ExactlyOnce
    slot: int
    rows: list[Row]
    rules: Rules
    dice: Random
    protocol: Generator[Any, Any, Any]
    name: str = ""
    epoch: int = 0
    answer: Any = None
    state: str = "runs"

    def go_on(self) -> None:
        """One step; it may be killed in it, before or behind what it asks for, or the request arrives late."""
        try:
            command = self.protocol.send(self.answer)
        except StopIteration:
            self.state = "done"
            return
        except (ConfigurationError, RuntimeError):
            self.state = "failed"
            return
        fate = self.dice.random()
        if fate < 0.06:
            self.state = "failed"
            return
        request = self._request(command)
        if fate < 0.16:  # nobody hears the answer: of a broker, or of a worker that was killed
            self.state = "failed"
            if fate < 0.11:
                self.brokers.late.append(request)
                return
        try:
            request()
        except FencedError:
            self.state = "failed"
            return
        if self.state == "failed" and isinstance(command, Marker) and self.rules.commits_again:
            self.state = "runs"
            try:
                self.brokers.produce(self.name, self.epoch, self.rows)
                request()
            except FencedError:
                self.state = "failed"

    def _request(self, command: Any) -> Callable[[], None]:
        place = self.rules.group(self.sink), self.slot
        if command is Step.INIT:
            self.name = self.rules.transactional_id(self.sink, self.slot, self.dice)

            def init() -> None:
                epoch = self.brokers.init(self.name)
                if self.state == "runs":
                    self.epoch = epoch

            return init
        name, epoch, rows = self.name, self.epoch, self.rows
        print_ = Print(len(rows), sum(batch * ROWS + row for batch, row in rows))
        if command is Step.READ:
            self.answer = self.brokers.markers.get(place)
            return lambda: None
        if command is Step.COUNT:
            self.answer = print_
            return lambda: None
        if command is Step.WRITE:
            self.answer = print_
            return lambda: self.brokers.produce(name, epoch, rows)
        self.answer = None
        marker = command if isinstance(command, Marker) else None
        return lambda: self.brokers.end(name, epoch, place, marker)


@dataclass
class Driver:
    """Runs the micro-batches of the checkpoint; `last` is the one that the checkpoint has as done."""

    story: Story
    slots: int
    adopt_from: int | None = None
    batch: int = -1
    beginning: Iterator[None] = field(init=False)
    running: list[Attempt] = field(default_factory=list)
    todo: dict[int, int] = field(default_factory=dict)
    """Slot -> attempts that it has left."""
    state: str = "runs"

    def __post_init__(self) -> None:
        self.beginning = self._begin()

    @property
    def sink(self) -> ExactlyOnce:
        return ExactlyOnce("sink", self.slots, "markers", 60, self.adopt_from)

    def go_on(self) -> None:
        """One thing that it does."""
        story, brokers = self.story, self.story.brokers
        if self.batch < 0:
            try:
                next(self.beginning, None)
            except ConfigurationError:
                self.state = "refused"
            except FencedError:
                self.state = "fenced"
            return
        for attempt in [one for one in self.running if one.state != "runs"]:
            self.running.remove(attempt)
            if attempt.state == "done":
                self.todo.pop(attempt.slot, None)
        if not self.todo:
            if story.last != self.batch - 1:
                self.state = "another driver was there"
                return
            story.last, self.batch = self.batch, self.batch + 1
            if self.batch == BATCHES:
                self.state = "done"
                return
            self.todo, self.running = dict.fromkeys(range(self.slots), ATTEMPTS), []
        slot = story.dice.choice(list(self.todo))
        if any(one.slot == slot for one in self.running) and story.dice.random() < 0.9:
            return  # else it takes the executor for lost, and begins another attempt beside that one
        self.todo[slot] -= 1
        if self.todo[slot] < 0:
            self.state = "job failed"
            return
        rows = [(self.batch, row) for row in range(ROWS) if row % self.slots == slot]
        protocol = story.rules.steps(self.sink, slot, self.batch, "query")
        attempt = Attempt(brokers, self.sink, slot, rows, story.rules, story.dice, protocol)
        self.running.append(attempt)
        story.attempts.append(attempt)

    def _begin(self) -> Iterator[None]:
        """As run_start.begin() does; it may be stopped between any two requests."""
        story, brokers, rules, sink = self.story, self.story.brokers, self.story.rules, self.sink
        batch, claim = story.last + 1, (sink.claim, 0)
        if batch == BATCHES:
            self.state = "done"
            return
        owner = Owner(brokers, sink.claim)
        if rules.claims == "fenced":
            owner.init()
            yield
        before = brokers.markers.get(claim)
        yield
        if rules.claims == "read before init":
            owner.init()
            yield
        found = [brokers.markers.get((rules.group(sink), slot)) for slot in range(self.slots)]
        yield
        slots_before = before.batch if before is not None and rules.claims != "no" else self.slots
        rules.check_start(sink, slots_before, found, batch, "query")
        if slots_before != self.slots:
            yield from self._take_over(replace(sink, slots=slots_before), batch)
        said = Marker(self.slots, "slots", Print())
        request: Callable[[], None] = partial(owner.commit, claim, said)
        if rules.claims == "without a transaction":
            request = partial(brokers.markers.__setitem__, claim, said)
        if story.dice.random() < 0.1:  # nobody hears the answer
            brokers.late.append(request)
            raise FencedError
        request()
        self.batch, self.todo = batch, dict.fromkeys(range(self.slots), ATTEMPTS)

    def _take_over(self, former: ExactlyOnce, batch: int) -> Iterator[None]:
        """From a driver with another number of slots, which may be there still."""
        story, brokers, rules = self.story, self.story.brokers, self.story.rules
        names = [rules.transactional_id(former, slot, story.dice) for slot in range(former.slots)]
        owners = [Owner(brokers, name) for name in names]
        for owner in owners:
            if rules.fences_former:
                owner.init()
            yield
        rules.check_former(
            former, [brokers.markers.get((former.group, n)) for n in range(former.slots)], batch, "query"
        )
        for slot, owner in enumerate(owners):
            yield
            if not rules.fences_former:
                owner.init()
            owner.commit((former.group, slot), Marker.left(batch, self.slots))


@dataclass
class Owner:
    """A driver's producer. As long as it has not asked for an epoch it has the one that is there."""

    brokers: Brokers
    name: str
    epoch: int | None = None

    def init(self) -> None:
        self.epoch = self.brokers.init(self.name)

    def commit(self, place: tuple[str, int], marker: Marker) -> None:
        self.brokers.end(
            self.name, self.brokers.ids[self.name].epoch if self.epoch is None else self.epoch, place, marker
        )


@dataclass
class Story:
    """All of it. At most two drivers are there at once."""

    dice: Random
    rules: Rules
    expire: bool
    brokers: Brokers = field(default_factory=Brokers)
    drivers: list[Driver] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    last: int = -1
    ends: Counter[str] = field(default_factory=Counter)

    def play(self) -> str | None:
        """What is wrong in the end."""
        slots = self.dice.choice([1, 2, 3])
        for _ in range(400):
            if not self.drivers or (len(self.drivers) == 1 and self.dice.random() < 0.01):
                if self.last + 1 == BATCHES:
                    break
                if not self.drivers and self.expire and self.last >= 0 and self.dice.random() < 0.5:
                    self.attempts.clear()  # a day has passed, the least that is taken for offsets.retention.minutes
                    self.brokers.late.clear()
                    self.brokers.markers.clear()
                others = self.dice.random() < 0.2
                adopts = not self.expire and self.dice.random() < 0.5
                number = self.dice.choice([1, 2, 3]) if others else slots
                self.drivers.append(Driver(self, number, self.last + 1 if adopts else None))
            what = self.dice.random()
            if what < 0.35 and self.drivers:
                driver = self.dice.choice(self.drivers)
                driver.go_on()
                if driver.state != "runs" or self.dice.random() < 0.02:
                    self.ends[driver.state] += 1
                    self.drivers.remove(driver)  # its attempts go on: it may be dead, or its network
            elif what < 0.95:
                if running := [one for one in self.attempts if one.state == "runs"]:
                    self.dice.choice(running).go_on()
            elif self.brokers.late:
                self._deliver()
        while self.brokers.late:
            self._deliver()
        log = self.brokers.log
        if twice := [row for row, count in log.items() if count > 1]:
            return f"twice: {twice}"
        lost = [(batch, row) for batch in range(self.last + 1) for row in range(ROWS) if not log[batch, row]]
        return f"lost: {lost}" if lost else None

    def _deliver(self) -> None:
        request = self.brokers.late.pop(self.dice.randrange(len(self.brokers.late)))
        try:
            request()
        except FencedError:
            self.ends["late request fenced"] += 1


def play(seed: int, rules: Rules, ends: Counter[str] | None = None, expire: bool = False) -> str | None:
    """A story of this number; `ends` counts how drivers ended. `expire`: markers may, between two drivers."""
    story = Story(Random(seed), rules, expire)
    found = story.play()
    if ends is not None:
        ends.update(story.ends)
        ends["whole"] += story.last + 1 == BATCHES
    return found
