"""Native producers without an owner, kept for the next SafeProducer with an equal configuration (KIP-936).

A producer ID costs brokers memory for a day, and closing frees nothing. So what a closed producer leaves is not closed
for a while: whoever comes next writes on with the same ID, over the same connections. One in use is never shared.
"""

from __future__ import annotations

import _thread
import atexit
import itertools
import sys
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from safeproducer import clock, forks, frames
from safeproducer.log import logger
from safeproducer.producer_ids.patience import Patience, until

MOST = 16
"""Closed producers whose native producers are kept in one process."""
SERVE_EVERY = 0.1
"""Seconds: statistics pile up in what nobody serves, and tokens expire."""
_PATIENCE = 0.5
"""Seconds that a constructor waits for the threads of the former owner, and for the one that serves what is parked.
More than any of them stays inside librdkafka, unless the machine is so busy that they are not run: see Patience."""
STARVED = 20
"""Times as long at most, on a machine so busy that who waits, and whom it waits for, are not given the processor."""
_EXIT = 0.5
_NO_PATIENCE = 0.001


class Leavings(Protocol):
    """The native producers of one SafeProducer, which nobody owns. One thread at a time."""

    @property
    def natives(self) -> list[Any]: ...
    def settled(self, timeout: float) -> bool:
        """Wait until no thread of the former owner is inside them; False when one is for longer."""
        ...

    def serve(self) -> bool:
        """Take what they have to tell, which nobody hears; whether they are still of use."""
        ...

    def close(self) -> None: ...


class Key(NamedTuple):
    """Of an equal configuration: `values` are equal, `objects` (setting, object) are the same objects."""

    values: Hashable
    objects: frozenset[tuple[str, Same]]

    def __repr__(self) -> str:
        return "Key()"  # passwords are among the values


class Same:
    """An object that is equal to nothing but itself."""

    __slots__ = ("_it",)

    def __init__(self, it: object) -> None:
        self._it = it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other._it is self._it

    def __hash__(self) -> int:
        return id(self._it)


def _original(name: str) -> Any:
    """Of the module _thread: a greenlet would serve only while others let it."""
    monkey = sys.modules.get("gevent.monkey")
    return getattr(_thread, name) if monkey is None else monkey.get_original("_thread", name)


def _lock() -> Any:
    return _original("allocate_lock")()


@dataclass(eq=False, slots=True)
class _Parked:
    """`served`: held while its natives are served; whoever takes them keeps it for ever.

    `patience`: for how long a constructor waits for it. One that was waited for in vain delays no other one.
    """

    number: int
    key: Key
    cluster: str
    what: Leavings
    until: float
    served: Any = field(default_factory=_lock)
    patience: float = _PATIENCE


class Parking:
    """Any thread, signal handlers and destructors: there is no lock that two of them could wait for.

    Whoever takes an entry out of the dictionary, in one step, owns what is in it. A thread of its own serves the rest,
    and closes what is released; it lives while there is something to do.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._told = False
        self._over = False
        self._begin()

    def _begin(self) -> None:
        self._parked: dict[int, _Parked] = {}
        self._leaving: deque[Leavings] = deque()
        self._running = _lock()
        self._work = forks.Work()

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, key: Key, cluster: str, what: Leavings, seconds: float) -> bool:
        """Keep it for so long; False when nothing is kept any more, and the caller is to close it."""
        if self._over or seconds <= 0:
            return False
        entry = _Parked(next(self._numbers), key, cluster, what, clock.monotonic() + seconds)
        self._parked[entry.number] = entry
        for oldest in sorted(self._parked)[:-MOST]:
            self._release(oldest)
        self._serve_on_a_thread()
        return True

    def take(self, key: Key) -> Leavings | None:
        """What was left by a producer of an equal configuration; nobody else gets it. None: there is nothing."""
        found = list(self._parked.values())
        for entry in reversed(found):  # the newest: its connections are
            if entry.key != key or self._parked.pop(entry.number, None) is None:
                continue
            if not self._is_free(entry):
                continue
            if entry.what.serve():
                return entry.what
            self._leaving.append(entry.what)
            self._serve_on_a_thread()
        self._tell_of_new_objects(key, found)
        return None

    def _is_free(self, entry: _Parked) -> bool:
        """Whether nobody is inside what was taken out; else it is put back, for the next constructor."""
        acquired = until(lambda: bool(entry.served.acquire(False)), Patience(entry.patience, STARVED))
        if acquired and entry.what.settled(entry.patience):
            return True
        if acquired:
            entry.served.release()
        entry.patience = _NO_PATIENCE
        self._parked[entry.number] = entry
        if self._over:
            self._release(entry.number)
        self._serve_on_a_thread()
        return False

    def _tell_of_new_objects(self, key: Key, found: list[_Parked]) -> None:
        """Once: nothing is ever taken over where a callback is made anew for each producer."""
        for entry in found:
            if not self._told and entry.key.values == key.values and entry.key.objects != key.objects:
                self._told = True
                names = " and ".join(sorted({name for name, _ in entry.key.objects ^ key.objects}))
                logger.warning(
                    "safeproducer.producer.ids.policy=reuse: a producer with the same settings was closed, and is not "
                    "taken over because %s is another object. Make it once, and give each producer the same one",
                    names,
                )

    def release(self, cluster: str) -> None:
        """Credentials for this cluster have changed: what is parked has those from before."""
        for entry in list(self._parked.values()):
            if entry.cluster == cluster:
                self._release(entry.number)
        self._serve_on_a_thread()

    def _release(self, number: int) -> None:
        if (entry := self._parked.pop(number, None)) is not None:
            self._leaving.append(entry.what)

    def end(self) -> None:
        """The interpreter ends: close everything, and keep nothing any more."""
        self._over = True
        for number in list(self._parked):
            self._release(number)
        if self._running.acquire(True, _EXIT):  # its thread must not be inside librdkafka then
            self._close_leaving()

    def renew(self) -> None:
        """In a forked child: librdkafka's threads are not there, and touching anything would hang."""
        for what in [*(entry.what for entry in list(self._parked.values())), *list(self._leaving)]:
            for native in what.natives:
                forks.make_immortal(native)
        self._begin()

    # --- its thread --------------------------------------------------------------------------------------------------

    def _serve_on_a_thread(self) -> None:
        if not self._running.locked() and (self._parked or self._leaving):
            with frames.without_a_thread():  # too many threads: whoever parks next tries again
                _original("start_new_thread")(self._serve_all, (self._running,))

    def _serve_all(self, running: Any) -> None:
        pause = _lock()
        pause.acquire()
        while self._parked or self._leaving:  # again: somebody may have parked while this thread was about to end
            if not running.acquire(False):
                return
            try:
                while self._parked or self._leaving:
                    with self._work:
                        self._close_leaving()
                        self._serve_parked()
                    if not self._over:
                        pause.acquire(True, SERVE_EVERY)
            finally:
                running.release()

    def _serve_parked(self) -> None:
        now = clock.monotonic()
        for entry in list(self._parked.values()):
            if not entry.served.acquire(False):
                continue  # somebody takes it
            try:
                if self._parked.get(entry.number) is not entry:
                    continue
                if entry.until <= now or (entry.what.settled(_NO_PATIENCE) and not entry.what.serve()):
                    self._release(entry.number)
            finally:
                entry.served.release()

    def _close_leaving(self) -> None:
        while self._leaving:
            try:
                what = self._leaving.popleft()
            except IndexError:
                return
            if what.settled(_PATIENCE):  # else the last one that refers to it destroys it
                what.close()


parking = Parking()
forks.in_child(parking.renew)
atexit.register(parking.end)
