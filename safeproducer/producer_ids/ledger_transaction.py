"""One round of a ledger: read, decide and write while its copies are locked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from safeproducer.policy.permits import HOUR
from safeproducer.producer_ids import permit_log, permit_record, transactional_ids
from safeproducer.producer_ids.ledger_file import KNOWN_AT, RING_AT, WHOLE, LedgerCopy, LedgerError
from safeproducer.producer_ids.ledger_header import Header, encode, nanoseconds
from safeproducer.producer_ids.permit_record import IdRecord, Times

_Result = TypeVar("_Result")


class LedgerRound:
    """The present content of the ledger, and a way to change it. One thread; every method may raise LedgerError.

    `reserved`: seconds of the hour that this round may be about to use, for a round inside it.
    """

    now = Times(0.0, 0.0)
    until = reserved = 0.0
    count = generation = 0
    closed = False

    def __init__(self, copies: Callable[[], list[LedgerCopy]]) -> None:
        self._open = copies
        self._copies: list[LedgerCopy] = []
        self.boot_id = permit_record.boot_id()

    def __enter__(self) -> Self:
        self._copies = self._open()
        self.now = permit_record.now()
        self._read()
        return self

    def __exit__(self, kind: object, error: object, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Also in a forked child, which must not keep the lock of its parent."""
        self.closed = True
        for copy in self._copies:
            copy.close()

    def record(self, number: int) -> IdRecord | None:
        """The permit with this number, if it is there."""
        at = _place_of(number)
        for copy in self._copies:
            found = permit_log.decode(self._tried(copy, lambda copy: copy.read(at, permit_log.SIZE)) or b"")
            if found is not None and found.number == number:
                return found
        return None

    def write(self, until: float, records: Sequence[IdRecord]) -> None:
        """Count the permits behind `count`, and replace the records of others: records first, what decides last.

        A signal handler that raises finds it undone or done, and `count` says which.
        """
        count, written = self.count, []
        for record in records[-permit_log.SLOTS :]:  # the last one is the newest
            written.append((_place_of(record.number), permit_log.encode(record)))
            count = max(count, record.number)
        written.append((0, encode(self._header(until, count))))
        try:
            self._write(written)
        except BaseException:
            with suppress(LedgerError):
                self._write(written)
                self.until, self.count = until, count
            raise
        self.until, self.count = until, count

    def _write(self, written: Sequence[tuple[int, bytes]]) -> None:
        def all_of_it(copy: LedgerCopy) -> None:
            for at, data in written:
                copy.write(at, data)

        self._all(all_of_it)

    def find(self, number: int | None, key: tuple[int, int]) -> IdRecord | None:
        """The record of a permit, if it was counted and is still there; without a number it is looked for."""
        if number is None:
            number = next((record.number for record in self._records() if record.key == key), None)
        found = None if number is None or number > self.count else self.record(number)
        return found if found is not None and found.key == key else None

    def amend(self, number: int | None, key: tuple[int, int], producer_id: int | None, ended: str | None) -> None:
        """Add to the record of a permit what is known by now, if it is still there."""
        found = self.find(number, key)
        if found is not None:
            data, at = permit_log.encode(found.amended(producer_id, ended)), _place_of(found.number)
            self._all(lambda copy: copy.write(at, data))

    def _records(self) -> list[IdRecord]:
        return (
            permit_log.records(self._copies[0].read(RING_AT, permit_log.SLOTS * permit_log.SIZE))
            if self._copies
            else []
        )

    def knows(self, known: int) -> bool:
        """Whether this hash of a transactional ID was learned. It is kept for longer then."""
        found = False
        for copy in self._copies:
            found |= transactional_ids.find(self._set(copy, known), known)[0]
        if found:
            self.learn(known)
        return found

    def learn(self, known: int) -> None:
        """Know it from now on."""
        data, at = (
            transactional_ids.encode(known, nanoseconds(self.now.wall)),
            transactional_ids.set_of(known) * transactional_ids.SET_SIZE,
        )

        def write(copy: LedgerCopy) -> None:
            place = transactional_ids.find(self._set(copy, known), known)[1]
            copy.write(KNOWN_AT + at + place * transactional_ids.SIZE, data)

        self._all(write)

    def forget(self, known: int) -> None:
        """What was learned with a permit that is given back: the next one is counted."""
        at = KNOWN_AT + transactional_ids.set_of(known) * transactional_ids.SET_SIZE

        def write(copy: LedgerCopy) -> None:
            found, place = transactional_ids.find(self._set(copy, known), known)
            if found:
                copy.write(at + place * transactional_ids.SIZE, transactional_ids.FORGOTTEN)

        self._all(write)

    def _set(self, copy: LedgerCopy, known: int) -> bytes:
        at = KNOWN_AT + transactional_ids.set_of(known) * transactional_ids.SET_SIZE
        return self._tried(copy, lambda copy: copy.read(at, transactional_ids.SET_SIZE)) or b""

    def _read(self) -> None:
        """Take the later time, and make copies that differ equal."""
        if self._agree():
            return
        whole = [copy for copy in self._copies if isinstance(copy.content, Header) and not copy.blank]
        damaged = [copy for copy in self._copies if not isinstance(copy.content, Header)]
        if whole:
            leader = max(whole, key=self._progress)
            self.until = max(self._progress(copy)[0] for copy in whole)
            self.count = max(self._progress(copy)[1] for copy in whole)
        elif damaged:
            leader = self._rebuild(damaged)
        else:
            leader, self.until = self._copies[0], self.now.boot
        if isinstance(leader.content, Header):
            self.generation = leader.content.generation
        self._all(lambda copy: self._equal(copy, leader))

    def _agree(self) -> bool:
        """As most rounds find it: each copy counted the same, and nothing is damaged. What they say is read then."""
        first = self._copies[0].content
        if not isinstance(first, Header) or first.count == 0:
            return False
        until = first.used_until(self.now, self.boot_id)
        for copy in self._copies[1:]:
            other = copy.content
            if not isinstance(other, Header) or (other.generation, other.count) != (first.generation, first.count):
                return False
            until = max(until, other.used_until(self.now, self.boot_id))
        self.until, self.count, self.generation = until, first.count, first.generation
        return True

    def _progress(self, copy: LedgerCopy) -> tuple[float, int]:
        content = copy.content
        return (content.used_until(self.now, self.boot_id), content.count) if isinstance(content, Header) else (0.0, 0)

    def _rebuild(self, damaged: list[LedgerCopy]) -> LedgerCopy:
        """No header is left: records may tell, else the hour counts as used up."""
        read = [
            (*permit_log.rebuilt(copy.read(RING_AT, permit_log.SLOTS * permit_log.SIZE), self.now, self.boot_id), copy)
            for copy in damaged
        ]
        told = [until for until, _, _ in read if until is not None]
        self.until = max(told) if told else self.now.boot + HOUR
        self.count = max(count for _, count, _ in read)
        self.generation = permit_record.some_id()
        return max(read, key=lambda found: (found[0] is not None, found[1]))[2]

    def _equal(self, copy: LedgerCopy, leader: LedgerCopy) -> None:
        content = copy.content
        if not isinstance(content, Header) or (content.generation, content.count) != (self.generation, self.count):
            if copy is not leader:
                copy.write(KNOWN_AT, leader.read(KNOWN_AT, WHOLE - KNOWN_AT).ljust(WHOLE - KNOWN_AT, b"\0"))
            copy.write_header(self._header(self.until, self.count))

    def _header(self, until: float, count: int) -> Header:
        wall = self.now.wall + (until - self.now.boot)
        return Header(self.generation, self.boot_id, Times(until, wall), count)

    def _all(self, act: Callable[[LedgerCopy], None]) -> None:
        for copy in list(self._copies):
            self._tried(copy, act)
        if not self._copies:
            raise LedgerError("no copy can be written")

    def _tried(self, copy: LedgerCopy, act: Callable[[LedgerCopy], _Result]) -> _Result | None:
        """None for a copy that cannot be used, which the rest of the round does without."""
        try:
            return act(copy)
        except (OSError, ValueError):  # ValueError: closed, in a child that a signal handler forked
            copy.close()
            self._copies.remove(copy)
            return None


def _place_of(number: int) -> int:
    """Of the record of this permit, in bytes."""
    return RING_AT + permit_log.slot(number) * permit_log.SIZE
