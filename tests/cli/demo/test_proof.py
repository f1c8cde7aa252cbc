"""A step of the demonstration is shown only if it happened: each missing piece makes it "not shown"."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from safeproducer.cli.demo.experiment import Line
from safeproducer.cli.demo.steps import Proof, of_far_leader, of_flow, of_lost_answers, of_move, of_throttle
from safeproducer.testing.fake.state.cluster_state import JournalBatch, JournalEntry, Outcome

NOT_LEADER = 6
LED = [0, 1]


def request(
    broker: int,
    partition: int = 0,
    *,
    time: float = 0.0,
    error: int = 0,
    outcome: Outcome = "answered",
    duplicate: bool = False,
    throttled_ms: int = 0,
) -> JournalEntry:
    batch = JournalBatch("t", partition, 1000, 0, 7, 9, 3, error, 7, duplicate)
    return JournalEntry(time, broker, 1, "demo", "Produce", 10, 1, outcome, (batch,), throttled_ms=throttled_ms)


def test_flow_needs_every_broker() -> None:
    """A broker that acknowledged nothing, or answered with errors only, is missed."""
    entries = [request(1), request(2), request(3)]
    assert of_flow(entries, [1, 2, 3]).shown
    assert not of_flow(entries[:2], [1, 2, 3]).shown
    assert not of_flow([*entries[:2], request(3, error=NOT_LEADER)], [1, 2, 3]).shown


def moved(entries: Sequence[JournalEntry]) -> Proof:
    return of_move(entries, 0, 1, 2, 10.0)


def test_a_move_needs_records_at_both_leaders() -> None:
    """Before it at the old leader, after it at the new one; what was refused is counted."""
    before, refused, after = request(1, time=9), request(1, time=10.01, error=NOT_LEADER), request(2, time=10.1)
    assert moved([before, refused, after]).shown
    assert moved([before, refused, after]).facts["refused"] == 1
    assert moved([before, refused, after]).facts["gap_ms"] == 100.0
    assert not moved([refused, after]).shown
    assert not moved([before, refused]).shown
    assert not moved([before, refused, request(2, 5, time=10.1)]).shown
    assert not moved([before, refused, request(2, time=9.9)]).shown


TOLD = [request(2, throttled_ms=900), request(2, throttled_ms=5000)]
WAITING = {1.5: {0: 10, 1: 20}, 2.0: {0: 5}}


def reported(partition: int, latency: float, time: float) -> Line:
    return Line(0, b"", b"", accepted_at=time - latency, reported_at=time, partition=partition)


REPORTS = [reported(0, 1.0, 2.1), reported(5, 0.02, 1.7), reported(5, 0.03, 3.0)]


def test_a_throttle_needs_waiting_and_others_that_go_on() -> None:
    """What was told was waited for; the last one, after which nothing had to be sent, need not be."""
    found = of_throttle(TOLD, 2, LED, WAITING, REPORTS)
    assert found.shown
    assert found.facts["most_records_held"] == 30
    assert found.facts["acknowledged_by_others"] == 1
    assert found.facts["longest_throttle_ms"] == 900


@pytest.mark.parametrize(
    ("told", "waiting", "reports"),
    [
        ([], WAITING, REPORTS),
        ([*TOLD, request(3, throttled_ms=1)], WAITING, REPORTS),
        (TOLD, {}, REPORTS),
        (TOLD, WAITING | {2.5: {5: 1}}, REPORTS),
        (TOLD, WAITING, [reported(0, 0.5, 2.1), *REPORTS[1:]]),
        (TOLD, WAITING, [REPORTS[0], REPORTS[2]]),
        (TOLD, WAITING, [*REPORTS, reported(5, 1.1, 2.9)]),
    ],
    ids=[
        "nobody throttles",
        "another broker throttles too",
        "nothing waits",
        "a partition of another broker waits",
        "the wait was shorter than told",
        "nothing else went on meanwhile",
        "the others were as slow",
    ],
)
def test_a_throttle_without_one_of_them_is_not_shown(
    told: list[JournalEntry], waiting: Mapping[float, Mapping[int, int]], reports: list[Line]
) -> None:
    """Each of the seven makes the step prove nothing."""
    assert not of_throttle(told, 2, LED, waiting, reports).shown


def test_lost_answers_need_a_duplicate_that_was_recognised() -> None:
    """As many answers as ordered were lost after the write, and each of their batches came again."""
    lost, again = request(1, outcome="lost"), request(1, duplicate=True)
    found = of_lost_answers([lost, again], 1)
    assert found.shown
    assert found.facts == {"answers_lost": 1, "batches_lost": 1, "recognised": 1}
    assert not of_lost_answers([request(1)], 1).shown
    assert not of_lost_answers([lost], 1).shown
    twice = of_lost_answers([lost, request(1)], 1)
    assert not twice.shown
    assert twice.evidence.endswith("The other 1 were written twice.")
    assert not of_lost_answers([lost, request(1, 4, duplicate=True)], 1).shown, "another batch"
    assert not of_lost_answers([lost, again], 2).shown
    assert not of_lost_answers([request(1, outcome="lost", error=NOT_LEADER), again], 1).shown, "never written"


def test_a_far_leader_needs_its_window_and_an_exact_log() -> None:
    """The announced window, more lanes than every leader allows, and each record once in the order of its key."""
    total = Counter(accepted=90, delivered=90, in_log=90)
    found = of_far_leader(total, 20, "it told", 12, 2.0)
    assert found.shown
    assert found.facts["records_per_second"] == 45
    assert found.evidence.startswith("It told: 12 lanes carried 45 records a second over a round trip of 40 ms; 90 ")
    assert not of_far_leader(total, 5, "it told", 12, 2.0).shown
    assert not of_far_leader(total, 20, "it told", 5, 2.0).shown
    disordered = of_far_leader(total + Counter(reordered=2), 20, "it told", 12, 2.0)
    assert not disordered.shown
    assert disordered.evidence.endswith("2 out of order, 0 failed.")
    assert not of_far_leader(total + Counter(accepted=1, unknown=1), 20, "it told", 12, 2.0).shown
