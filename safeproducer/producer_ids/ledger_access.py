"""The rounds that one process has in a ledger, and what waits for the next one.

Nothing that waits is lost: it stays until a round has done it, also if a signal handler raises there. It may therefore
be done again, and must change nothing then.
"""

from __future__ import annotations

import _thread
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from traceback import clear_frames
from typing import TypeVar

from safeproducer.producer_ids import permit_record
from safeproducer.producer_ids.ledger import Ledger
from safeproducer.producer_ids.ledger_file import LedgerError, LockedError
from safeproducer.producer_ids.ledger_transaction import LedgerRound
from safeproducer.producer_ids.local_permits import Alone
from safeproducer.runtime.log import logger

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
