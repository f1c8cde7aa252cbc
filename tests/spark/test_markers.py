"""Rules of slots and markers: stories of crashes find no row lost or twice, and each wrong rule is found by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import pytest

from safeproducer.errors import ConfigurationError
from safeproducer.spark.errors import NonDeterministicReplay
from safeproducer.spark.guarantee import ExactlyOnce
from safeproducer.spark.markers import EMPTY, THERE, WRITTEN, Marker, Print, Step, check_start, is_written, steps
from tests.spark.slot_machine import Rules, play

STORIES = 3_000
SINK = ExactlyOnce("sink", 2, "markers", 60)


def test_no_story_loses_a_row_or_writes_it_twice() -> None:
    """Attempts and drivers die at each step, overlap, and leave requests that arrive late; slots change, and markers
    expire between two runs."""
    ends: Counter[str] = Counter()
    wrong = {seed: found for seed in range(STORIES) if (found := play(seed, Rules(), ends, expire=seed % 2 == 1))}
    assert wrong == {}
    assert ends["whole"] > STORIES / 3
    for end in ("done", "refused", "fenced", "job failed", "another driver was there", "late request fenced"):
        assert ends[end] > 20, end


Steps = Generator[Any, Any, Any]


def in_order(*script: Any) -> Callable[..., Steps]:
    """An attempt in these steps; "leave" ends it where the marker says that it has nothing to do."""

    def attempt(sink: ExactlyOnce, slot: int, batch: int, query: str) -> Steps:
        found, rows = None, Print()
        for step in script:
            if step == "leave":
                if found is not None and is_written(found, sink, slot, batch, query):
                    return
            elif step is Step.READ:
                found = yield step
            elif step is Step.WRITE:
                rows = yield step
            else:
                yield Marker(batch, query, rows) if step is Marker else step

    return attempt


def takes_over_from_all(sink: ExactlyOnce, slot: int, batch: int, query: str) -> Steps:
    yield Step.INIT
    found = yield Step.READ
    if found is not None and found.query == query and is_written(found, sink, slot, batch, query):
        return
    if sink.adopt_from != batch:
        is_written(found, sink, slot, batch, query)
    yield Marker(batch, query, (yield Step.WRITE))


READ = (Step.INIT, Step.READ, "leave")
WRONG = {
    "the marker is read before init": Rules(steps=in_order(Step.READ, Step.INIT, "leave", Step.WRITE, Marker)),
    "no init": Rules(steps=in_order(Step.READ, "leave", Step.WRITE, Marker)),
    "no marker": Rules(steps=in_order(Step.INIT, Step.READ, Step.WRITE, "commit")),
    "the marker commits behind the rows": Rules(steps=in_order(*READ, Step.WRITE, "commit", Marker)),
    "the marker commits before the rows": Rules(steps=in_order(*READ, Marker, Step.WRITE, "commit")),
    "the marker is not read": Rules(steps=in_order(Step.INIT, Step.WRITE, Marker)),
    "a session commits again": Rules(commits_again=True),
    "one transactional.id for each worker": Rules(transactional_id=lambda _, slot, dice: f"worker-{dice.random()}"),
    "slots are not in the group": Rules(group=lambda sink: sink.sink_id, claims="no"),
    "slots of the first micro-batch are not claimed": Rules(claims="no"),
    "slots are claimed without a transaction": Rules(claims="without a transaction"),
    "the claim is read before its init": Rules(claims="read before init"),
    "nobody is fenced by a claim": Rules(claims="not fenced"),
    "a run begins unchecked": Rules(check_start=lambda *_: None, check_former=lambda *_: None),
    "slots of before are unchecked": Rules(check_former=lambda *_: None),
    "slots of before are not fenced": Rules(fences_former=False),
    "a task takes over from who took over its slots": Rules(steps=takes_over_from_all),
}


@pytest.mark.parametrize("rules", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_rule_is_found(rules: Rules) -> None:
    assert any(play(seed, rules, expire=seed % 2 == 1) for seed in range(STORIES))


# --- one by one ------------------------------------------------------------------------------------------------------


def ended(found: Marker | None, rows: Print, batch: int = 5) -> tuple[list[object], Any]:
    protocol, taken, answer = steps(SINK, 1, batch, "query"), list[object](), None
    while True:
        try:
            command = protocol.send(answer)
        except StopIteration as end:
            return taken, end.value
        taken.append(command)
        answer = found if command is Step.READ else rows if command in (Step.COUNT, Step.WRITE) else None  # type: ignore[assignment]


def test_the_steps_of_an_attempt() -> None:
    """In this order. An empty slot has a marker, too, or nobody could tell it from one that was forgotten."""
    head = [Step.INIT, Step.READ]
    before, marker = Marker(4, "query", Print(9, 9)), Marker(5, "query", Print(3, 7))
    assert ended(before, Print(3, 7)) == ([*head, Step.WRITE, marker], WRITTEN)
    assert ended(before, Print()) == ([*head, Step.WRITE, Marker(5, "query", Print())], EMPTY)
    there = Marker(5, "query", Print(3, 7))
    assert ended(there, Print(3, 7)) == ([*head, Step.COUNT], THERE)


@pytest.mark.parametrize("before", [None, Marker(3, "query", Print(9, 9))])
def test_a_slot_without_the_marker_before_does_not_write(before: Marker | None) -> None:
    """Somebody deleted it since the run began: an attempt may have committed the rows. The first micro-batch has
    none before it, and who takes over says that they are not written."""
    with pytest.raises(ConfigurationError, match=r"micro-batch 5, and slot 1 has .* take over once with .*from=5"):
        ended(before, Print(3, 7))
    assert not is_written(None, SINK, 1, 0, "query")
    assert not is_written(before, replace(SINK, adopt_from=5), 1, 5, "query")


def test_a_slot_that_others_took_over_at_this_micro_batch_does_not_take_over() -> None:
    """Two drivers were told to, each with another number of slots. At a later one it may."""
    sink, left = replace(SINK, adopt_from=5), Marker.left(5, 3)
    with pytest.raises(ConfigurationError, match=r"another query \(slots=3;"):
        is_written(left, sink, 1, 5, "query")
    assert not is_written(left, replace(SINK, adopt_from=6), 1, 6, "query")
    assert Marker.of(5, left.text(), SINK) == left


@pytest.mark.parametrize(("rows", "told"), [(Print(4, 7), "gives 4 rows"), (Print(3, 8), "with another content")])
def test_a_replay_that_differs_is_told_with_slot_batch_and_counts(rows: Print, told: str) -> None:
    with pytest.raises(NonDeterministicReplay, match=told) as raised:
        ended(Marker(5, "query", Print(3, 7)), rows)
    error = raised.value
    assert (error.slot, error.batch, error.rows_before, error.rows) == (1, 5, 3, rows.rows)


def test_a_marker_comes_back_from_its_text() -> None:
    marker = Marker(2**40, "a-b", Print(10**9, 2**64 - 1))
    assert Marker.of(marker.batch, marker.text(), SINK) == marker
    assert Marker.of(-1001, "", SINK) is None
    assert len(marker.text()) < 200


@pytest.mark.parametrize(
    "text", ["", None, "x", "{}", "1", "1 5", "1 5 q 1", "1 five q 1 1", "1 5 q 1 1 1", "1 5 q 1 x", "x 5 q 1 1", "  "]
)
def test_metadata_that_are_no_marker_are_refused(text: str | None) -> None:
    """Somebody else commits offsets of the group, and a second look would not help."""
    with pytest.raises(ConfigurationError, match="no marker"):
        Marker.of(5, text, SINK)


def test_a_marker_of_a_newer_version_is_refused() -> None:
    """It may mean something else by the same names."""
    with pytest.raises(ConfigurationError, match="newer version"):
        Marker.of(5, "2 5 q 1 1", SINK)


def mark(batch: int, query: str = "query") -> Marker:
    return Marker(batch, query, Print(1, 1))


GOOD = [
    (2, [None, None], 0),
    (2, [mark(0), None], 0),
    (2, [mark(4), mark(4)], 5),
    (2, [mark(5), mark(4)], 5),
    (2, [mark(5), mark(5)], 5),
]
BAD = [
    (2, [mark(7), mark(7)], 0, "older copy"),
    (2, [mark(6), mark(5)], 5, "older copy"),
    (2, [mark(0, "former"), mark(0, "former")], 0, "checkpoint was deleted"),
    (2, [mark(4, "former"), mark(4)], 5, "a second query"),
    (2, [None, mark(4)], 5, "expired"),
    (2, [mark(4), mark(3)], 5, "did not reach this sink"),
    (3, [None, None], 0, "has 3 slots"),
    (3, [None, None], 5, "has 3 slots"),
]


@pytest.mark.parametrize(("before", "found", "batch"), GOOD)
def test_a_run_begins_where_the_slots_are(before: int, found: list[Marker | None], batch: int) -> None:
    """Each is at this micro-batch or the one before."""
    check_start(SINK, before, found, batch, "query")


@pytest.mark.parametrize(("before", "found", "batch", "told"), BAD)
def test_a_run_that_cannot_know_is_refused(before: int, found: list[Marker | None], batch: int, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as raised:
        check_start(SINK, before, found, batch, "query")
    assert "adopt.from" in str(raised.value)


@pytest.mark.parametrize(("before", "found", "batch", "told"), BAD)
def test_adopting_takes_over_once(before: int, found: list[Marker | None], batch: int, told: str) -> None:
    """At the micro-batch that it names, and not over later ones of the same query. The task takes over, too."""
    sink = ExactlyOnce("sink", 2, "markers", 60, adopt_from=batch)
    if told == "older copy":
        with pytest.raises(ConfigurationError, match=told):
            check_start(sink, before, found, batch, "query")
        return
    check_start(sink, before, found, batch, "query")
    assert not any(one is not None and is_written(one, sink, 0, batch, "query") for one in found)
    with pytest.raises(ConfigurationError):
        check_start(sink, before, [mark(batch, "former")] * 2, batch + 1, "query")
