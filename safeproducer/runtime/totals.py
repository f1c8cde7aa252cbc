"""Sums over what there is in this process and what is gone."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

Key = TypeVar("Key")


class Totals(Generic[Key]):
    """Counts of the producers of this process, by key; what one counted stays when it is gone.

    Any thread; destructors and signal handlers that interrupt a call of it: what is known is replaced whole, with no
    lock. A child of a fork begins at zero. `read(source)` is called a last time when a source leaves.
    """

    def __init__(self, read: Callable[[Any], Mapping[Key, float]]) -> None:
        self._read = read
        self._renew()

    def _renew(self) -> None:
        self.told: dict[Key, float] = {}  # the most that each sum has been
        self._known: tuple[dict[int, weakref.ref[Any]], dict[Key, float]] = {}, {}
        self._process = os.getpid()

    def _here(self) -> tuple[dict[int, weakref.ref[Any]], dict[Key, float]]:
        if self._process != os.getpid():
            self._renew()
        return self._known

    def join(self, source: Any) -> None:
        """The source counts from now on: once, however often it joins."""
        while True:
            known = self._here()
            after = {**known[0], id(source): weakref.ref(source)}, known[1]
            # One step under the interpreter lock: it switches only at calls and at jumps backwards.
            if self._known is known:
                self._known = after
                return

    def leave(self, source: Any) -> None:
        """The source is gone, and counts no more. The garbage collector may have cleared all references to it."""
        if id(source) not in self._here()[0]:
            return
        counts = self._read(source)
        while True:
            known = self._here()
            left = {number: other for number, other in known[0].items() if number != id(source)}
            after = left, added(dict(known[1]), counts)
            if self._known is known:  # as in join()
                self._known = after
                return

    def known(self) -> tuple[list[Any], dict[Key, float]]:
        """(the sources there are, the counts of those that are gone), as they were at one moment."""
        sources, gone = self._here()
        return [source for each in sources.values() if (source := each()) is not None], dict(gone)

    def now(self) -> dict[Key, float]:
        sources, sums = self.known()
        for source in sources:
            added(sums, self._read(source))
        return sums

    def risen(self, key: Key, value: float) -> float:
        """`value`, or what was told before if that is more: while a source leaves, it may be seen nowhere."""
        self.told[key] = value = max(value, self.told.get(key, value))
        return value


def added(sums: dict[Key, float], counts: Mapping[Key, float]) -> dict[Key, float]:
    for key, count in counts.items():
        sums[key] = sums.get(key, 0) + count
    return sums
