"""A ledger: what the processes of a host count permits in, in one or two copies of which the later time counts.

Each round opens, locks, reads, writes and closes them. Nothing stays open between rounds: a process may close all of
its descriptors when it becomes a daemon.
"""

from __future__ import annotations

import os
from hashlib import blake2b

from safeproducer.producer_ids import (
    ledger_cleanup,
    ledger_file,
    ledger_header,
    ledger_places,
    permit_log,
    permit_record,
)
from safeproducer.producer_ids.ledger_file import RING_AT, LedgerCopy, LedgerError, LockedError, Patience
from safeproducer.producer_ids.ledger_header import Header, Unreadable
from safeproducer.producer_ids.ledger_places import Place
from safeproducer.producer_ids.ledger_transaction import LedgerRound
from safeproducer.producer_ids.permit_record import IdRecord, Times
from safeproducer.runtime import clock

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
                copy = ledger_file.made(path, Header(_generation(), permit_record.boot_id(), Times(0.0, 0.0), 0))
            except OSError as error:
                problems.append(str(error))
                continue
            if copy is None:
                return False
            copies.append(copy)
            ledger_cleanup.sweep(os.path.dirname(path), keep=self._name)
        return True


def _generation() -> int:
    return int.from_bytes(os.urandom(8), "little") or 1
