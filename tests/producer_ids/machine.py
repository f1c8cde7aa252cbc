"""Processes of a host that start, ask, wait, die and reboot, beside an exact model of the hour they share."""

import shutil
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from safeproducer.producer_ids import ledger, permit_record
from safeproducer.producer_ids.guard import Answer, Claim, Guard, Kind, Permit
from safeproducer.producer_ids.ledger import Header, LedgerRound
from tests.producer_ids.host import SITE, Host

HOUR = Fraction(3600)
SLACK = Fraction(1, 1000)
RATES = st.sampled_from([1, 2, 3, 5, 20, 720])
KINDS = st.sampled_from([Kind.FIRST, Kind.FIRST, Kind.FURTHER, Kind.LANE, Kind.FIXED_LANE])
SECONDS = st.one_of(st.integers(1, 200), st.integers(1, 8000))


class RuleError(AssertionError):
    """A rule of permits is broken."""


def check(holds: bool, text: str) -> None:
    if not holds:
        raise RuleError(text)


class Model:
    """Exact: seconds of the hour in use now."""

    def __init__(self) -> None:
        self.used = Fraction(0)
        self.count = 0

    def pass_time(self, seconds: int) -> None:
        self.used = max(self.used - seconds, Fraction(0))

    def allows(self, kind: Kind, rate: int) -> bool:
        if kind is Kind.FURTHER:
            return True
        fits = self.used + HOUR / rate <= HOUR + SLACK
        return fits and (kind is not Kind.LANE or HOUR - self.used > HOUR / 2 + SLACK)

    def take(self, rate: int) -> Fraction:
        before = self.used
        self.used = min(self.used + HOUR / rate, 2 * HOUR)
        self.count += 1
        return self.used - before


class Process:
    """A guard, and what it holds: each permit with when it was granted, and how many seconds of the hour it used."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.permits: list[tuple[Permit, Fraction, Fraction, int]] = []


class PermitMachine(RuleBasedStateMachine):
    """All processes share one ledger in two copies; the clocks move as told."""

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.patch = pytest.MonkeyPatch()
        self.host = Host(self.root, self.patch)
        self.host.stop_clocks()
        self.model, self.elapsed = Model(), 0
        self.processes: list[Process] = []
        self.numbers: list[int] = []
        self.inside: Callable[[], Any] | None = None
        self.whole = True
        self.patch.setattr("safeproducer.producer_ids.ledger.WAITS", 0.0)
        real = LedgerRound.write

        def write(round_: LedgerRound, *arguments: Any, **more: Any) -> None:
            work, self.inside = self.inside, None
            if work is not None:
                work()
            real(round_, *arguments, **more)

        self.patch.setattr(LedgerRound, "write", write)

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.undo()
            shutil.rmtree(self.root)

    @rule()
    def start(self) -> None:
        if len(self.processes) < 6:
            self.processes.append(Process(self.host.start()))

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, 5), kind=KINDS, rate=RATES, times=st.integers(1, 12))
    def ask(self, which: int, kind: Kind, rate: int, times: int) -> None:
        process = self.processes[which % len(self.processes)]
        for _ in range(times):
            before = self.model.used
            expected, self.whole = self.model.allows(kind, rate), True
            answer = process.guard.ask(Claim(kind, rate, True, SITE))
            check((answer.permit is not None) == expected, f"{kind} at {rate}: {answer}, {float(before)} s in use")
            if answer.permit is None:
                check(answer.retry_after > 0, "a refusal says for how long")
                return
            self.granted(process, answer, before, rate)

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, 5), rate=RATES)
    def warn(self, which: int, rate: int) -> None:
        """A policy that only tells counts."""
        process, before = self.processes[which % len(self.processes)], self.model.used
        answer = process.guard.ask(Claim(Kind.FIRST, rate, False, SITE))
        check(answer.permit is not None, "it never refuses")
        self.granted(process, answer, before, rate)

    def granted(self, process: Process, answer: Answer, before: Fraction, rate: int) -> None:
        check(answer.permit is not None, f"granted by the model, {float(before)} s in use")
        assert answer.permit is not None
        self.whole = True
        seconds = self.model.take(rate)
        process.permits.append((answer.permit, self.elapsed, seconds, len(self.numbers)))
        check(answer.permit.number is not None, "the ledger can be used")
        self.numbers.append(answer.permit.number or 0)

    @precondition(lambda self: any(process.permits for process in self.processes))
    @rule(which=st.integers(0, 5), newest=st.booleans())
    def give_back(self, which: int, newest: bool) -> None:
        holding = [process for process in self.processes if process.permits]
        process = holding[which % len(holding)]
        permit, at, seconds, _ = process.permits.pop(-1 if newest else 0)
        process.guard.give_back(permit)
        self.whole = True
        self.model.used -= max(seconds - (self.elapsed - at), Fraction(0))  # the rest may have come back by the clock
        self.model.used = max(self.model.used, Fraction(0))

    @precondition(lambda self: len(self.processes) > 1)
    @rule(rate=RATES, other_rate=RATES)
    def ask_at_once(self, rate: int, other_rate: int) -> None:
        """The second one in the middle of the first one's round: it must not read what the first is about to write."""
        first, second = self.processes[0], self.processes[1]
        answers: list[Answer] = []
        if not self.model.allows(Kind.FIRST, rate):
            return
        self.inside = lambda: answers.append(second.guard.ask(Claim(Kind.FIRST, other_rate, True, SITE)))
        before = self.model.used
        answer = first.guard.ask(Claim(Kind.FIRST, rate, True, SITE))
        self.granted(first, answer, before, rate)
        if answers[0].permit is not None:
            check(answers[0].permit.number is None, "two processes have the same permit")
            self.model.take(other_rate)
        before = self.model.used  # the second one adds what it granted alone
        settled = second.guard.ask(Claim(Kind.FURTHER, 720, True, SITE))
        if answers[0].permit is not None:
            self.numbers.append(self.numbers[-1] + 1)
        self.granted(second, settled, before, 720)

    @rule(seconds=SECONDS)
    def wait(self, seconds: int) -> None:
        self.host.pass_time(seconds)
        self.elapsed += seconds
        self.model.pass_time(seconds)

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, 5))
    def die(self, which: int) -> None:
        del self.processes[which % len(self.processes)]

    @rule(step=st.sampled_from([-86_400, 86_400, -31_536_000, 31_536_000]))
    def set_clock(self, step: int) -> None:
        """Only the clock of the day; it is right again before another boot."""
        self.host.wall += step
        self.look()
        self.host.wall -= step

    @precondition(lambda self: self.whole and len(self.host.files) == 2)
    @rule(seconds=st.integers(1, 300))
    def reboot(self, seconds: int) -> None:
        self.host.reboot(seconds)
        self.processes.clear()
        self.elapsed += seconds
        self.model.pass_time(seconds)

    @precondition(lambda self: self.whole and len(self.host.files) == 2)
    @rule(which=st.integers(0, 1), how=st.sampled_from(["delete", "damage", "truncate"]))
    def lose_a_copy(self, which: int, how: str) -> None:
        file, self.whole = self.host.files[which], False
        if how == "delete":
            file.unlink()
        elif how == "damage":
            file.write_bytes(bytes(64) + file.read_bytes()[64:])
        else:
            file.write_bytes(file.read_bytes()[:40])

    def look(self) -> Header | None:
        found = [ledger.decode(file.read_bytes()) for file in self.host.files]
        headers = [one for one in found if isinstance(one, Header)]
        return max(headers, key=lambda one: one.count, default=None)

    @invariant()
    def counts(self) -> None:
        """Each permit once; as much of the hour in use as the model says."""
        if not hasattr(self, "model"):
            return
        check(len(set(self.numbers)) == len(self.numbers), "two processes have the same permit")
        found = self.look()
        if found is not None and found.count:
            check(found.count == self.model.count, f"{found.count} counted, {self.model.count} granted")
            used = max(found.used_until(permit_record.now(), permit_record.boot_id()) - self.host.now, 0.0)
            check(abs(used - float(self.model.used)) < 0.01, f"{used} s in use, {float(self.model.used)} in the model")
