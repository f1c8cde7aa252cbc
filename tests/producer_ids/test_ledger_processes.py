"""A ledger that several processes use at once: killed and stopped writers, forks and signals in a round."""

import os
import random
import signal
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from safeproducer.producer_ids import ledger, permit_log
from safeproducer.producer_ids.guard import OFF, Guard, Place, guard_of
from safeproducer.producer_ids.ledger import SIZE, Header, LedgerRound
from safeproducer.producer_ids.ledger_places import AUTO
from safeproducer.runtime import forks
from tests.contract.support import handling
from tests.hammer import hammer
from tests.producer_ids.host import IDENTITY, Host, first, forked, killed, locked, result, taken

GRANT = struct.Struct("<Q")


def content(host: Host) -> Header:
    found = ledger.decode(host.files[0].read_bytes())
    assert isinstance(found, Header)
    return found


def test_killed_writers_never_share_a_permit(host: Host) -> None:
    """Eight at once, each killed after some milliseconds: what was granted was counted, and each once."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    def work() -> int:
        guard = host.start()
        while True:
            permit = guard.ask(first(1e6)).permit
            os.write(writing, GRANT.pack(permit.number or 0))

    source, grants = random.Random(8), b""
    alive: dict[int, float] = {}
    end = time.monotonic() + 60
    starts = 0
    while (now := time.monotonic()) < end and (starts < 100 or len(grants) < 600 * GRANT.size):
        while len(alive) < 8:
            alive[forked(work)] = now + source.uniform(0.002, 0.05)
            starts += 1
        for child in [child for child, until in alive.items() if now >= until]:
            del alive[child]
            killed(child)
        try:
            grants += os.read(reading, 1 << 20)
        except BlockingIOError:
            time.sleep(0.001)
    for child in alive:
        killed(child)
    os.close(writing)
    os.set_blocking(reading, True)
    while chunk := os.read(reading, 1 << 20):
        grants += chunk
    os.close(reading)
    found = [number for (number,) in GRANT.iter_unpack(grants[: len(grants) // GRANT.size * GRANT.size]) if number]
    alone = len(grants) // GRANT.size - len(found)
    assert len(found) > 500
    assert starts > 40
    assert len(set(found)) == len(found), "two processes have the same permit"
    assert content(host).count >= len(found)
    assert alone <= len(found) / 5, "who gets no processor for 50 ms counts alone; that is no rule"


def stopped_in_a_round() -> int:
    """A child that holds the locks and does not run."""
    reading, writing = os.pipe()

    def work() -> int:
        with locked():
            os.write(writing, b"!")
            os.kill(os.getpid(), signal.SIGSTOP)
        return 0

    child = forked(work)
    assert os.read(reading, 1) == b"!"
    os.waitpid(child, os.WUNTRACED)
    os.close(reading)
    os.close(writing)
    return child


def test_others_go_on_when_a_holder_is_stopped(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 0.1 s, alone; what they granted is added when it runs again. A busy machine sleeps longer than asked."""
    guard = host.start()
    assert guard.ask(first()).permit
    child, slept = stopped_in_a_round(), list[float]()
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: (slept.append(seconds), sleep(seconds)))
    try:
        for _ in range(3):
            slept.clear()
            assert guard.ask(first()).permit
            assert 0 < sum(slept) < 0.1
        assert content(host).count == 1
    finally:
        os.kill(child, signal.SIGCONT)
        assert result(child) == 0
    assert guard.ask(first()).permit
    assert content(host).count == 5
    assert taken(host.start()) == 15


Interrupts = list[Callable[[], Any]]
"""What is put here runs in the middle of the next round, between reading and writing, on the same thread."""


@pytest.fixture
def interrupts(monkeypatch: pytest.MonkeyPatch) -> Interrupts:
    works: Interrupts = []
    real = LedgerRound.write

    def write(round_: LedgerRound, *arguments: Any, **more: Any) -> None:
        if works:
            works.pop()()
        real(round_, *arguments, **more)

    monkeypatch.setattr(LedgerRound, "write", write)
    return works


def test_a_signal_handler_may_ask_in_a_round(host: Host, interrupts: Interrupts) -> None:
    """It finds the ledger locked, and decides alone: without a permit too many."""
    guard = host.start()
    answers = []

    def handler(*_: object) -> None:
        answers.append(guard.ask(first(2)))

    with handling(signal.SIGUSR1, handler):
        for _ in range(2):
            interrupts.append(lambda: os.kill(os.getpid(), signal.SIGUSR1))
            answers.append(guard.ask(first(2)))
    assert sum(answer.permit is not None for answer in answers) == 2
    assert content(host).count == 2
    assert host.start().ask(first(2)).permit is None


def test_a_destructor_may_give_back_in_a_round(host: Host, interrupts: Interrupts) -> None:
    """The permit is free for the next producer of this process, and with its round for all."""
    guard = host.start()
    permit = guard.ask(first(3)).permit
    assert permit is not None
    interrupts.append(lambda: guard.give_back(permit))
    assert taken(guard, 3) == 3
    assert taken(host.start(), 3) == 0
    ends = [record.ended for record in permit_log.records(host.files[0].read_bytes()[SIZE:])]
    assert ends == ["unsent", "", "", ""]


@pytest.mark.parametrize("parent", ["goes on", "dies"])
def test_a_child_forked_in_a_round_keeps_no_lock(host: Host, interrupts: Interrupts, parent: str) -> None:
    """By a signal handler, on the thread of the round. The child counts its own ones."""
    guard = guard_of((f"{IDENTITY[0]}{parent}", ""), AUTO)
    guard.ask(first())
    reading, writing = os.pipe()

    def middle() -> int:
        def fork() -> None:
            child = os.fork()
            if child:
                if parent == "dies":
                    os._exit(0)
                return
            os.write(writing, b"!")
            time.sleep(1.0)
            os._exit(0)

        interrupts.append(fork)
        guard.ask(first())
        return 0

    child = forked(middle)
    assert os.read(reading, 1) == b"!"
    assert result(child) == 0
    began = time.monotonic()
    permit = guard.ask(first()).permit
    assert permit.number is not None, "the ledger can be locked"
    assert time.monotonic() - began < 0.5
    os.close(reading)
    os.close(writing)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_a_fork_waits_for_the_round_of_another_thread(
    host: Host, interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the child would begin with the locks of a thread that it does not have."""
    monkeypatch.setattr(forks, "_WAITS", 30.0)
    guard = guard_of(("a-fork-waits", ""), AUTO)
    guard.ask(first())
    inside, forked_now, early = threading.Event(), threading.Event(), list[bool]()

    def pause() -> None:
        inside.set()
        early.append(
            any(forked_now.wait(0.005) for _ in range(60))
        )  # nothing runs beside the fork, which may take long

    interrupts.append(pause)
    other = threading.Thread(target=lambda: guard.ask(first()))
    other.start()
    assert inside.wait(10)
    child = forked(lambda: getattr(guard.ask(first()).permit, "number", None) or 0)
    forked_now.set()
    other.join()
    assert early == [False], "the fork came in the middle of the round"
    assert result(child) == 3, "the child counts in the ledger behind both"


def test_the_round_in_a_forked_child_goes_on_alone(host: Host, interrupts: Interrupts) -> None:
    """It has no lock, so it must not write what its parent is about to write."""
    guard = guard_of(("in-a-child", ""), AUTO)
    guard.ask(first())
    children = []

    def middle() -> None:
        child = os.fork()
        if not child:
            return
        children.append(child)

    interrupts.append(middle)
    permit = None
    try:
        permit = guard.ask(first()).permit
    finally:
        if not children:  # the child, in the round of its parent: it must not run the tests that follow
            os._exit(permit is not None and permit.number is None)
    assert result(children[0]) == 1
    assert permit.number == 2


@pytest.mark.parametrize("place", [AUTO, OFF])
def test_threads_of_one_process_share_it(host: Host, place: Place) -> None:
    """Eight threads and one guard: twenty permits, not one more, with and without a ledger."""
    for number in range(10):
        guard = Guard((f"threads-{number}", ""), place)
        granted: list[int] = []

        def ask(_: int, guard: Guard = guard, granted: list[int] = granted) -> None:
            answers = [guard.ask(first()) for _ in range(10)]
            granted.extend(answer.permit.serial for answer in answers if answer.permit is not None)

        hammer(ask, 8)
        assert len(granted) == len(set(granted)) == 20


def test_descriptors_are_closed(host: Host) -> None:
    """A process may close all it has between two rounds, and finds none more afterwards."""
    guard = Guard(IDENTITY, AUTO)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        guard.ask(first())
    assert len(os.listdir("/proc/self/fd")) == before
