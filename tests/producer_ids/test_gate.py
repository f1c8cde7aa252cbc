"""A producer's permit for its first ID: asked for once, refused or waited for, given back if nothing was sent."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from safeproducer import ProducerIdLimitError
from safeproducer.kafka.native import KafkaError
from safeproducer.kafka.statistics import PartitionStatistics, Statistics
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids.gate import Gate, Terms
from safeproducer.producer_ids.permit import Answer, Claim, Permit
from safeproducer.records import ProducerInfo
from safeproducer.runtime import clock
from tests.producer_ids.host import SITE

INFO = ProducerInfo("client", "kafka-1:9092", "User:ann", None, True, SITE)
RATE = 20
FORBIDDEN = Answer(None, 180.0, True, 20, 3)


class ScriptedGuard:
    """Answers as it was told to, else grants; remembers what it was told."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.granted: list[Permit] = []
        self.back: list[Permit] = []
        self.notes: list[tuple[Permit, int | None, str | None]] = []
        self.asked = 0
        self.meanwhile: Callable[[], object] | None = None

    def ask(self, request: Claim) -> Answer:
        self.asked += 1
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        answer = self.answers.pop(0) if self.answers else Answer(Permit(self.asked, request.kind, request.site, 0, 1))
        if answer.permit is not None:
            self.granted.append(answer.permit)
        return answer

    def give_back(self, permit: Permit) -> None:
        self.back.append(permit)

    def note(self, permit: Permit, producer_id: int | None = None, ended: str | None = None) -> None:
        self.notes.append((permit, producer_id, ended))


class Told:
    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.limited: list[Any] = []
        self.meanwhile: Callable[[], object] = int

    def producer_churn(self, _: Any, sentence: str) -> None:
        self.sentences.append(sentence)
        self.meanwhile()

    def producer_id_limited(self, event: Any) -> None:
        self.limited.append(event)
        self.meanwhile()


def statistics(producer_id: int | None, sent: int = 0, at: float = 5.0) -> Statistics:
    partition = PartitionStatistics(1, 0, 0, 0, sent, sent, 0)
    return Statistics(at, producer_id, None if producer_id is None else 0, 0, 0, {}, {("t", 0): partition})


@pytest.fixture
def told() -> Told:
    return Told()


def gate_for(
    guard: ScriptedGuard | None, told: Told, policy: str = "refuse", may_hold: bool = True, name: str | None = None
) -> Gate:
    request = Claim(Kind.FIRST, RATE, policy in ("delay", "refuse"), SITE, name)
    terms = Terms(guard, request, Kind.LANE, INFO, "kafka-1:9092", policy, may_hold, 120.0)  # type: ignore[arg-type]
    return Gate(guard is not None, lambda: terms, told)


def guarded(told: Told, *answers: Answer, policy: str = "refuse") -> tuple[ScriptedGuard, Gate]:
    guard = ScriptedGuard(*answers)
    return guard, gate_for(guard, told, policy)


def test_the_gate_asks_once_and_not_before_the_first_record(told: Told) -> None:
    """A producer that never produces takes nothing."""
    guard, gate = guarded(told)
    assert (guard.asked, gate.used) == (0, 0)
    gate.enter()
    gate.enter()
    assert (guard.asked, gate.used, gate.hold) == (1, 1, None)


def test_without_a_guard_everybody_passes(told: Told) -> None:
    """There is nothing to guard without idempotence."""
    gate = gate_for(None, told)
    gate.enter()
    gate.end("closed", unsent=True)
    assert (gate.used, gate.hold) == (0, None)


def test_a_refusal_says_who_and_for_how_long(told: Told) -> None:
    """And the next call asks again."""
    _, gate = guarded(told, FORBIDDEN)
    with pytest.raises(ProducerIdLimitError, match=r"app\.py:7") as refused:
        gate.enter()
    assert refused.value.args[0].code() == KafkaError.THROTTLING_QUOTA_EXCEEDED
    assert (refused.value.retry_after, refused.value.site) == (180.0, SITE)
    assert all(part in str(refused.value) for part in ("180.0 s", "limit 20", "keep it for the life of the process"))
    assert (gate.used, gate.hold) == (0, None)
    gate.enter()
    assert gate.used == 1


def test_delay_waits_and_asks_when_a_permit_may_be_there(told: Told) -> None:
    """Not sooner, and after each refusal anew: nothing was reserved for it."""
    guard, gate = guarded(told, FORBIDDEN, Answer(None, 12.0, True, 20, 3), policy="delay")
    gate.enter()
    now = clock.monotonic()
    assert gate.hold is not None
    assert gate.hold.reason is HoldReason.PRODUCER_ID_LIMIT
    assert gate.hold.until == pytest.approx(now + 180, abs=0.5)
    assert gate.ask_at <= now + 31, "the guard tells nobody that another process has given one back"
    assert gate.is_too_late(100.0, now)
    assert not gate.is_too_late(200.0, now)
    assert not gate.is_too_late(None, now)
    assert not gate.look(now)
    assert guard.asked == 1
    assert gate.look(gate.ask_at), "whoever waits is to be looked at again"
    assert gate.hold is not None
    assert gate.hold.until == pytest.approx(now + 12, abs=0.5)
    assert gate.look(gate.ask_at)
    assert (gate.hold, gate.used, guard.asked) == (None, 1, 3)
    assert not gate.look(gate.ask_at + 1000)


def test_two_threads_take_one_permit(told: Told) -> None:
    guard, gate = guarded(told)
    other = threading.Thread(target=gate.enter)
    guard.meanwhile = other.start
    gate.enter()
    other.join()
    assert (guard.asked, gate.used, guard.back) == (1, 1, [])


def test_a_signal_handler_that_produces_in_the_middle_takes_none_for_itself(told: Told) -> None:
    """It does not wait for the thread that it interrupted, and one permit of the two goes back."""
    guard, gate = guarded(told)
    guard.meanwhile = gate.enter
    gate.enter()
    assert (guard.asked, gate.used, len(guard.granted), len(guard.back)) == (2, 1, 2, 1)


def test_a_thread_that_never_ends_asking_stops_nobody(told: Told) -> None:
    """A debugger may have stopped it."""
    guard, gate = guarded(told)
    stopped = threading.Event()
    guard.meanwhile = lambda: stopped.wait(10)
    thread = threading.Thread(target=gate.enter)
    thread.start()
    while not guard.asked:
        pass
    began = clock.monotonic()
    gate.enter()
    assert clock.monotonic() - began < 1
    stopped.set()
    thread.join()
    assert (gate.used, len(guard.granted), len(guard.back)) == (1, 2, 1)


def test_a_producer_closed_in_the_middle_keeps_nothing(told: Told) -> None:
    """A handler closes it while the guard is asked."""
    guard, gate = guarded(told)
    guard.meanwhile = lambda: gate.end("closed", unsent=True)
    gate.enter()
    assert guard.back == guard.granted
    assert gate.used == 0


@pytest.mark.parametrize("unsent", [True, False])
def test_an_unused_permit_goes_back_once(told: Told, unsent: bool) -> None:
    """People see how it ended either way."""
    guard, gate = guarded(told)
    gate.enter()
    gate.heard(statistics(None))
    gate.heard(statistics(1001))
    gate.heard(statistics(1001))
    gate.end("closed", unsent)
    gate.end("collected", unsent=True)
    (permit,) = guard.granted
    assert guard.notes == [(permit, 1001, None), (permit, 1001, "closed")]
    assert guard.back == ([permit] if unsent else [])
    assert gate.used == int(not unsent)


def test_an_end_that_was_interrupted_is_the_one_that_counts(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one finishes it, and knows less."""
    guard, gate = guarded(told)
    gate.enter()
    with monkeypatch.context() as patch:
        patch.setattr(guard, "note", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            gate.end("closed", unsent=False)
    gate.end("collected", unsent=True)
    assert guard.notes == [(guard.granted[0], None, "closed")]
    assert guard.back == []


def test_statistics_tell_whether_it_ever_wrote(told: Told) -> None:
    """Counts of librdkafka may begin anew."""
    gate = gate_for(ScriptedGuard(), told)
    gate.enter()
    gate.heard(statistics(7, at=5.0))
    assert (gate.wrote, gate.unsent_at) == (False, 5.0)
    gate.heard(statistics(7, sent=1, at=6.0))
    gate.heard(statistics(7, sent=0, at=7.0))
    assert (gate.wrote, gate.unsent_at) == (True, 0.0)


def test_a_line_is_told_once_and_a_refusal_each_time(told: Told) -> None:
    """Of the second answer the guard knows that it told this line before."""
    again = Answer(None, 170.0, True, 20, 3, None, told_before=True)
    for answer in (FORBIDDEN, again):
        with pytest.raises(ProducerIdLimitError):
            gate_for(ScriptedGuard(answer), told).enter()
    assert len(told.sentences) == 1
    assert [event.retry_after for event in told.limited] == [180.0, 170.0]
    assert told.limited[0].churn.site == SITE


@pytest.mark.parametrize(("policy", "told_of"), [("off", 0), ("warn", 1)])
def test_off_and_warn_let_pass_and_warn_tells(told: Told, policy: str, told_of: int) -> None:
    guard, gate = guarded(told, Answer(Permit(1, Kind.FIRST, SITE, 0, 1), 0.0, True, 21, 3), policy=policy)
    gate.enter()
    assert (guard.asked, gate.used, len(told.sentences), told.limited) == (1, 1, told_of, [])
    assert all(str(SITE) in sentence for sentence in told.sentences)


def test_a_hook_that_produces_is_not_told_of_that(told: Told) -> None:
    """It would be told for ever."""
    _, gate = guarded(told, *[FORBIDDEN] * 9)

    def enter_again() -> None:
        with pytest.raises(ProducerIdLimitError):
            gate.enter()

    told.meanwhile = enter_again
    with pytest.raises(ProducerIdLimitError):
        gate.enter()
    assert (len(told.sentences), len(told.limited)) == (1, 1)


def test_no_lock_is_held_while_a_hook_runs(told: Told) -> None:
    """Another thread gets its answer meanwhile."""
    _, gate = guarded(told, FORBIDDEN)
    seconds: list[float] = []

    def enter_elsewhere() -> None:
        began = clock.monotonic()
        thread = threading.Thread(target=gate.enter)
        thread.start()
        thread.join()
        seconds.append(clock.monotonic() - began)

    told.meanwhile = enter_elsewhere
    gate.enter()  # the other thread has got the permit by now
    assert gate.used == 1
    assert max(seconds) < 0.09, "it waits for a lock for 0.1 s"


def test_init_transactions_waits_as_long_as_it_may(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the policy `delay`; its records cannot wait here."""
    slept: list[float] = []
    monkeypatch.setattr(clock, "monotonic", lambda: 1000.0 + sum(slept))
    monkeypatch.setattr(clock, "sleep", slept.append)
    gate = gate_for(ScriptedGuard(FORBIDDEN), told, "delay", may_hold=False, name="t")
    with pytest.raises(ProducerIdLimitError):
        gate.enter_by(100, lambda: True)
    assert slept == []
    soon = Answer(None, 20.0, True, 20, 3, None, told_before=True)
    gate = gate_for(ScriptedGuard(soon), told, "delay", may_hold=False, name="t")
    gate.enter_by(100, lambda: True)
    assert gate.used == 1
    assert 20 <= sum(slept) < 22


def test_init_transactions_ends_with_its_producer(told: Told) -> None:
    """Another thread has closed it."""
    gate = gate_for(ScriptedGuard(FORBIDDEN), told, "delay", may_hold=False, name="t")
    lives = iter([True, True, False])
    gate.enter_by(1000, lambda: next(lives, False))
    assert gate.used == 0


def test_init_transactions_is_refused_at_once_by_that_policy(told: Told) -> None:
    gate = gate_for(ScriptedGuard(Answer(None, 0.1, True, 20, 3)), told, "refuse", may_hold=False, name="t")
    with pytest.raises(ProducerIdLimitError):
        gate.enter_by(-1, lambda: True)
