"""A ledger: what the processes of a host count permits in, in one or two copies of which the later time counts.

Each round opens, locks, reads, writes and closes them. Nothing stays open between rounds: a process may close all of
its descriptors when it becomes a daemon.
"""

from __future__ import annotations

import _thread
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from traceback import clear_frames
from typing import TypeVar

from safeproducer.producer_ids import ledger_file, ledger_header, ledger_places, permit_log, permit_record
from safeproducer.producer_ids.ledger_file import RING_AT, LedgerCopy, LedgerError, LockedError, Patience
from safeproducer.producer_ids.ledger_header import Header, Unreadable
from safeproducer.producer_ids.ledger_places import Place
from safeproducer.producer_ids.ledger_transaction import LedgerRound
from safeproducer.producer_ids.local_permits import Alone
from safeproducer.producer_ids.permit_record import IdRecord, Times
from safeproducer.runtime import clock
from safeproducer.runtime.log import logger

WAITS = 0.05
"""Seconds for which a round waits for another one, at most."""
_RESTS, _SHORTLY = 1.0, 0.005
"""After it was in vain a round waits for so many seconds at most, for so long: a stopped process may hold the lock for
hours."""


def name_of(identity: tuple[str, str]) -> str:
    """The file for a cluster and principal: a hash, because the name is content."""
    return (
        blake2b("\0".join(identity).encode(errors="surrogatepass"), digest_size=16).hexdigest() + ledger_places.SUFFIX
    )


class Ledger:
    """Where one is, and whether it is worth waiting for. Thread-safe."""

    def __init__(self, identity: tuple[str, str], place: Place) -> None:
        self._name = name_of(identity)
        self._place = place
        self._directories: list[str] = []
        self._paths: list[str] = []
        self._impatient_until = 0.0

    def round(self) -> LedgerRound:
        """`with ledger.round() as round:` Entering it raises LedgerError when no copy can be used."""
        return LedgerRound(self.copies)

    def records(self) -> list[IdRecord]:
        """The latest permits, in order. Waits for nobody: what is just being written is left out."""
        for path in self._known_paths():
            found = permit_log.records(ledger_file.content_of(path)[RING_AT:])
            if found:  # copies are equal, but for what is damaged
                return found
        return []

    def peek(self, now: Times) -> float | None:
        """Up to when the hour is used, as it was a moment ago, without the lock; None when no copy tells."""
        found = (ledger_header.decode(ledger_file.content_of(path, ledger_header.SIZE)) for path in self._known_paths())
        return max(
            (one.used_until(now, permit_record.boot_id()) for one in found if isinstance(one, Header)), default=None
        )

    def _known_paths(self) -> list[str]:
        """Those of the last round, or where the first one will look."""
        return self._paths or [
            os.path.join(directory, self._name) for directory in ledger_places.directories(self._place)
        ]

    def copies(self) -> list[LedgerCopy]:
        """All that can be used, open and locked."""
        patience = Patience(_SHORTLY if clock.real() < self._impatient_until else WAITS)
        while True:
            found = self._attempt(patience)
            if found is not None:
                return found

    def _attempt(self, patience: Patience) -> list[LedgerCopy] | None:
        """None when another process made a copy at the same time."""
        directories, problems = ledger_places.prepared(self._place)
        if directories != self._directories:
            self._paths = [os.path.join(directory, self._name) for directory in directories]
            self._directories = directories
        copies: list[LedgerCopy] = []
        whole = False
        try:
            missing = self._opened(copies, problems, patience)
            for copy in copies:
                if copy.content is Unreadable.NEWER:
                    raise LedgerError(f"{copy.path} was written by a newer version of safeproducer")
            whole = not missing or self._made(missing, copies, problems)
            if whole and not copies:
                raise LedgerError("; ".join(problems) or "there is no directory for it")
            return copies if whole else None
        finally:
            if not whole:
                for copy in copies:
                    copy.close()

    def _opened(self, copies: list[LedgerCopy], problems: list[str], patience: Patience) -> list[str]:
        """Add those that are there to `copies`; the paths of the missing ones."""
        missing = []
        for path in self._paths:
            try:
                copy = ledger_file.opened(path, patience)
                if copy is None:
                    missing.append(path)
                else:
                    copies.append(copy)
            except LockedError as error:
                if clock.real() >= self._impatient_until:
                    self._impatient_until = clock.real() + _RESTS
                if not copies:  # who waits for the same one would decide by the other copy, too
                    raise
                problems.append(str(error))
            except (OSError, LedgerError) as error:
                problems.append(str(error))
        return missing

    def _made(self, missing: list[str], copies: list[LedgerCopy], problems: list[str]) -> bool:
        """Add new ones to `copies`; False when another process did the same."""
        for path in missing:
            try:
                header = Header(permit_record.some_id(), permit_record.boot_id(), Times(0.0, 0.0), 0)
                copy = ledger_file.made(path, header)
            except OSError as error:
                problems.append(str(error))
                continue
            if copy is None:
                return False
            copies.append(copy)
            ledger_file.sweep(os.path.dirname(path), keep=self._name)
        return True


_Result = TypeVar("_Result")
_LATER = 1000
"""What waits for a ledger at most: remarks for people, and permits to give back."""


class Rounds:
    """Any thread, signal handlers and destructors. `later`: what the next round is to do."""

    def __init__(self, ledger: Ledger | None) -> None:
        self._ledger = ledger
        self._rounds: dict[int, weakref.ref[LedgerRound]] = {}
        self._problem: str | None = None
        self.later: list[Callable[[LedgerRound], object]] = []

    def renew(self) -> None:
        """In a child: a round of its parent is not its own."""
        for round_ in [reference() for reference in self._rounds.values()]:
            if round_ is not None:
                round_.close()
        self._rounds.clear()
        self.later = []
        self._problem = None

    def run(self, act: Callable[[LedgerRound], _Result], alone: Alone, reserved: float = 0.0) -> _Result | None:
        """None without a ledger, where it cannot be used, and inside a round of this thread."""
        thread, round_ = threading.get_ident(), None
        if self._ledger is None or (thread in self._rounds and self.inside() is not None):
            return None
        try:
            with permit_record.work().lock:  # a fork waits for it
                round_ = LedgerRound(self._ledger.copies)
                round_.reserved = reserved
                self._rounds[thread] = weakref.ref(round_)
                with round_:
                    while self.later:
                        due = self.later[0]
                        due(round_)
                        self.later.remove(due)
                    return act(round_)
        except (LedgerError, OSError, ValueError) as error:
            if isinstance(error, LockedError):
                alone.read(self._ledger.peek(permit_record.now()) or 0.0)
            self._problem = str(error) if self._problem is None else self._problem
            return None
        except BaseException as error:
            round_ = None
            clear_frames(error.__traceback__)  # who keeps a time limit would keep the lock
            raise
        finally:
            self._rounds.pop(thread, None)

    def put_off(self, act: Callable[[LedgerRound], object]) -> None:
        """Have it done by the next round."""
        if self._ledger is not None and len(self.later) < _LATER:
            self.later.append(act)

    def inside(self) -> LedgerRound | None:
        """The round of this thread that a signal handler or a destructor has interrupted."""
        reference = self._rounds.get(threading.get_ident())
        round_ = None if reference is None else reference()
        return None if round_ is None or round_.closed else round_

    def tell_problem(self) -> None:
        """On a thread of its own: who asks may hold locks, which a log handler may wait for."""
        if self._problem and self.inside() is None:
            problem, self._problem = self._problem, ""
            with suppress(RuntimeError):  # the interpreter ends
                _thread.start_new_thread(_warn, (problem,))


def _warn(problem: str) -> None:
    with permit_record.work():  # a fork waits for it
        logger.warning(
            "producer IDs (KIP-936) are counted by this process alone, until a ledger of this host can be used: %s",
            problem,
        )
