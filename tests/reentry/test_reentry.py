"""Every public method, called inside the producer's own calls: it works or answers at once, and harms nothing.

A signal handler is no callback: there flush(), poll(), produce() and close() do their work. confluent_kafka takes no
part: poll(), flush(), list_topics(), cluster_id() and set_sasl_credentials() in a callback, and list_topics() in a
signal handler, abort the process as soon as another callback runs; close() never returns (tests/contract).
"""

import json
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.ahead import Ahead, ahead
from tests.reentry.scenes import CALLS, HANDLERS, MODES, PLACES, in_files

FORKS = multiprocessing.get_context("forkserver")
"""Each process is a fork of one that has imported all: that took more than half of a scene's CPU."""
FORKS.set_forkserver_preload(["__main__", "tests.reentry.scenes"])

AT_ONCE = 5.0
"""Seconds that a call may take on a busy machine; one that waits for what cannot come takes far longer."""
HELD = [mode for mode in MODES if mode != "auto"]


def modes(number: int) -> list[str]:
    """A scene is played with the direct path, and by turns with one of the two ways to hold back."""
    return ["auto", HELD[number % len(HELD)]]


METHODS = {
    *("len", "purge", "produce", "produce_batch"),
    *("list_topics", "cluster_id", "set_sasl_credentials", "poll", "flush", "snapshot", "explain", "repr"),
    *("init_transactions", "begin_transaction", "send_offsets_to_transaction", "commit_transaction"),
    *("abort_transaction", "close"),
}


def play(*arguments: str) -> list[dict[str, Any]]:
    """What the scene said, in its own process, which must end well."""
    with TemporaryDirectory() as folder:
        files = Path(folder, "said"), Path(folder, "errors")
        process = FORKS.Process(target=in_files, args=(*map(str, files), *arguments))
        process.start()
        process.join(120)
        process.kill()
        out, errors = (file.read_text() for file in files)
    said = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert process.exitcode == 0, f"after {said[-2:]}: {errors[-6000:]}"
    return said


@pytest.fixture(scope="module")
def plays(request: pytest.FixtureRequest) -> Iterator[Ahead]:
    with ahead(request, "scene", play) as found:
        yield found


@pytest.mark.parametrize(
    "scene",
    [("inside", tp, mode) for number, tp in enumerate(PLACES) for mode in modes(number)],
    ids="-".join,
)
def test_every_method_called_inside(plays: Ahead, scene: tuple[str, ...]) -> None:
    """In callbacks, hooks, log handlers and destructors: an answer at once, and each record has its one report."""
    said = plays(*scene)
    _, tp, _ = scene
    called = {entry["called"]: entry for entry in said if "called" in entry}
    assert set(called) == METHODS - ({"close"} if tp == "in_a_hook_of_produce" else set())
    assert {name: entry["seconds"] for name, entry in called.items() if entry["seconds"] > AT_ONCE} == {}
    assert (called["produce"]["answer"], called["produce_batch"]["answer"]) == ("None", "1")
    end = said[-1]
    assert (end["called_everything"], end["missing"], end["twice"]) == (True, [], [])
    if not end["closed"]:
        assert said[-2] == {"left": 0, "after": 1}


@pytest.mark.parametrize(
    "scene",
    [
        ("signal", f"{call}-{handler}", mode)
        for place, call in enumerate(CALLS)
        for number, handler in enumerate(HANDLERS)
        for mode in modes(place + number)
    ],
    ids="-".join,
)
def test_signal_handlers_do_their_work(plays: Ahead, scene: tuple[str, ...]) -> None:
    """A real signal, while the main thread is inside poll(), flush(), close() or produce()."""
    said = plays(*scene)
    handler = scene[1].partition("-")[2]
    handled, end = said[0], said[-1]
    assert "raised" not in handled, handled
    if handler in ("flush", "close"):
        # The record that the signal met on its way may be served, too, though produce() has not returned yet. In a
        # callback, where it lands on a slow machine, the call that it interrupted has the other reports.
        assert handled["served"] >= handled["of"] or handled["in_report"], "the handler did not wait for every report"
    elif handler == "poll":
        assert handled["served"] > 0
    elif handler == "produce":
        assert handled["accepted"] == 1
    assert end["ended"] == "returned" or handler == "close"
    assert {name: end[name] for name in ("left", "never_told", "told_twice", "failed")} == dict.fromkeys(
        ("left", "never_told", "told_twice", "failed"), 0
    )
    assert (end["not_written"], end["written_twice"]) == (0, 0)
