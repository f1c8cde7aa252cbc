"""A signal handler raises wherever it may while a permit is asked for, or goes back.

An interrupted round may count a permit that nobody has, or not count one. No lock stays behind.
"""

import gc
import random
import signal
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FunctionType, ModuleType

import pytest

from safeproducer.policy import permits
from safeproducer.policy.permits import HOUR, Kind
from safeproducer.producer_ids import gate, guard, lane_permits, ledger, ledger_places, permit_log, permit_record
from safeproducer.producer_ids.gate import Gate, Terms
from safeproducer.producer_ids.guard import OFF, Claim, Guard
from safeproducer.producer_ids.lane_permits import LanePermits
from safeproducer.producer_ids.ledger import SIZE, Header
from safeproducer.producer_ids.permit_record import UNSENT, Times
from tests.pipeline.interleaving import between
from tests.producer_ids.host import SITE, Clock, Host, first, locked, taken
from tests.producer_ids.test_gate import INFO, Told

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # closed by their destructors

Act = Callable[[Gate], object]
RATE = 20
REAL_SIGNALS = 1500


class LimitError(Exception):
    """What a time limit by SIGALRM raises."""


def interrupt(*_: object) -> None:
    raise LimitError


def codes(*modules: ModuleType) -> set[CodeType]:
    found: set[CodeType] = set()
    for module in modules:
        for member in vars(module).values():
            members = vars(member).values() if isinstance(member, type) else [member]
            for each in members:
                function = each.fget if isinstance(each, property) else each
                if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                    found |= set(nested(function.__code__))
    return found


def nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested(constant)


INSIDE = codes(gate, guard, lane_permits, ledger, permit_log, permit_record, permits)


def gate_of(asked: Guard, rate: float = RATE) -> Gate:
    request = first(rate)
    return Gate(True, lambda: Terms(asked, request, Kind.LANE, INFO, "kafka-1:9092", "refuse", False, 1.0), Told())


def used(host: Host) -> float:
    """What the ledger says of the hour, in permits: by both copies."""
    found = {ledger.decode(file.read_bytes()) for file in host.files}
    (head,) = found or {Header(0, Times(0.0, 0.0), 0)}
    assert isinstance(head, Header)
    now = permit_record.now()
    return round(max(head.used_until(now, permit_record.boot_id()) - now.boot, 0.0) / (HOUR / RATE), 3)


def check(host: Host, expected: int, came: bool, *guards: Guard) -> None:
    """As many permits are counted when each guard has added what it counted alone; one more or less when it came."""
    for each in guards:
        each.give_back(each.ask(first(1e9)).permit or pytest.fail("it is granted"))
    assert abs(used(host) - expected) <= came, (used(host), expected)


APART = 3


def everywhere(play: Callable[[int], bool]) -> int:
    """`play(step)` with a handler at every third place, until it says that none came; how many places there are."""
    step = 0
    while play(step):
        step += APART
    return step


def interrupted(
    work: Callable[[], object], step: int, come: Callable[[], object] = interrupt, inside: set[CodeType] = INSIDE
) -> bool:
    """Whether a handler came in it, at the given place, and raised."""
    try:
        with between(inside, step, come, raises=True):
            work()
    except LimitError:
        return True
    return False


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a ledger that is locked."""
    monkeypatch.setattr(ledger, "WAITS", 0.0)


def fresh(host: Host, others: int = 0, alone: int = 0) -> Guard:
    """Of a host that has granted so many to others, and of a process that has granted so many alone."""
    for file in host.files:
        file.unlink()
    assert all(host.start().ask(first()).permit for _ in range(others))
    found = host.start()
    if alone:
        with locked():
            assert all(found.ask(first()).permit for _ in range(alone))
    return found


def nothing(_: Gate) -> None:
    """Before the first record."""


def enter(made: Gate) -> None:
    made.enter()


def enter_alone(made: Gate) -> None:
    with locked():
        made.enter()


def end(made: Gate) -> None:
    made.end("closed", unsent=True)


def produce_and_raise(made: Gate) -> None:
    made.enter()
    raise LimitError


@pytest.mark.parametrize(
    ("others", "alone", "before", "work", "come", "after", "holds", "places"),
    [
        pytest.param(18, 0, nothing, enter, interrupt, enter, 1, 100, id="one of the last two of the hour"),
        pytest.param(3, 1, nothing, enter, interrupt, enter, 1, 100, id="what was counted alone is added"),
        pytest.param(3, 0, nothing, enter, produce_and_raise, enter, 1, 100, id="handler produces before it raises"),
        pytest.param(3, 1, nothing, enter, interrupt, end, 0, 100, id="record is never tried again"),
        pytest.param(3, 0, enter, end, interrupt, end, 0, 60, id="end"),
        pytest.param(3, 0, enter_alone, end, interrupt, end, 0, 10, id="end of one that was counted alone"),
    ],
)
def test_a_permit_is_counted_once_and_goes_back_once(
    still: Host, others: int, alone: int, before: Act, work: Act, come: Act, after: Act, holds: int, places: int
) -> None:
    """The next record asks again, the end of the producer gives it back, whatever was interrupted."""

    def play(step: int) -> bool:
        here = fresh(still, others, alone)
        made = gate_of(here)
        before(made)
        came = interrupted(lambda: work(made), step, lambda: come(made))
        after(made)
        after(made)
        assert made.used == holds
        check(still, others + alone + holds, came, here)
        return came

    assert everywhere(play) > places


def test_an_error_that_somebody_keeps_keeps_no_lock(still: Host) -> None:
    """Its traceback refers to the frames of the round, and so would one that waits for the garbage collector."""
    kept: list[Exception] = []

    def limit(*_: object) -> None:
        raise LimitError

    def play(step: int) -> bool:
        made, came = gate_of(fresh(still, 3)), len(kept)
        try:
            with between(INSIDE | codes(ledger_places, permit_record), step, limit, raises=True):
                made.enter()
        except LimitError as error:
            kept.append(error)
        permit = still.start().ask(first()).permit
        assert permit.number is not None, "the ledger can be locked"
        return len(kept) > came

    assert everywhere(play) > 100


def test_the_first_record_without_a_ledger(time: Clock) -> None:
    """The process counts one, and at most one that nobody has."""

    def play(step: int) -> bool:
        here = Guard(("step", str(step)), OFF)
        made = gate_of(here)
        came = interrupted(made.enter, step)
        made.enter()
        assert made.used == 1
        assert RATE - 1 - came <= taken(here) <= RATE - 1
        return came

    assert everywhere(play) > 20


def test_the_end_of_lanes(still: Host) -> None:
    def play(step: int) -> bool:
        here = fresh(still)
        lanes = LanePermits(here, Claim(Kind.FIXED_LANE, RATE, True, SITE))
        for _ in range(3):
            assert lanes.of_lane(Kind.FIXED_LANE).may_send()
        came = interrupted(lambda: lanes.end("closed", unsent=True), step, inside=codes(lane_permits))
        lanes.end("closed", unsent=True)
        assert lanes.used == 0
        check(still, 0, came, here)
        return came

    assert everywhere(play) > 10


def test_real_signals(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """At random moments, in asking and in the end: half of the producers have sent; no other permit has an owner."""
    source, came = random.Random(17), [0, 0]
    monkeypatch.setattr(permit_log, "MOST", 1 << 30)  # no line goes
    monkeypatch.setattr(ledger, "_MOST", 1 << 30)
    here = host.start()
    former = signal.signal(signal.SIGALRM, interrupt)
    gc.disable()  # what hypothesis has the collector call must not raise
    try:
        for number in range(REAL_SIGNALS):
            made = gate_of(here, rate=1e6)
            end = partial(made.end, "closed", unsent=not number % 2)
            for place, work in enumerate((made.enter, end)):
                came[place] += late(work, source.uniform(1e-6, 600e-6))
                work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
        gc.enable()
    here.ask(first(1e6))
    assert min(came) > REAL_SIGNALS / 20
    live = [record for record in permit_log.records(host.files[0].read_bytes()[SIZE:]) if record.ended != UNSENT]
    assert sum(record.ended == "closed" for record in live) == REAL_SIGNALS // 2, "each that did not go back has sent"
    assert sum(not record.ended for record in live) - 1 <= came[0], "what nobody has, a handler came for"


def late(work: Callable[[], object], after: float) -> bool:
    """Whether a signal handler has raised in it."""
    signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, after)
        work()
        signal.setitimer(signal.ITIMER_REAL, 0)
        # The kernel may have given it to a thread that has not run yet: it would come behind this call.
        signal.signal(signal.SIGALRM, lambda *_: None)
    except LimitError:
        return True
    return False
