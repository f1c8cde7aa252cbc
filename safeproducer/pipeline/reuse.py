"""Native producers that change their owner (KIP-936): what a SafeProducer leaves, and the next one takes over.

A producer ID costs brokers memory for a day, and closing frees nothing. With safeproducer.producer.ids.policy=reuse the
native producers of a closed SafeProducer stay open for a while, without an owner. The next SafeProducer of an equal
configuration writes on with the same ID, over the same connections. One in use is never shared.
"""

from __future__ import annotations

import atexit
import sys
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from safeproducer.kafka.native import KafkaError
from safeproducer.pipeline.cluster import id_expirations
from safeproducer.pipeline.engine import Engine
from safeproducer.pipeline.lanes.batch_lane import LaneLog
from safeproducer.pipeline.lanes.direct_lane import DirectLaneCounts
from safeproducer.pipeline.lanes.native_producers import NOBODY
from safeproducer.policy.types import NEVER
from safeproducer.runtime import clock, forks
from safeproducer.runtime.log import logger
from safeproducer.runtime.patience import Patience, until
from safeproducer.runtime.threads import allocate_lock, start_new_thread
from safeproducer.settings.config import Settings

MOST = 16  # closed producers whose native producers are kept in one process
SERVE_EVERY = 0.1  # seconds: statistics pile up in what nobody serves, and tokens expire
_PATIENCE = 0.5
"""Seconds that a constructor waits for the threads of the former owner, and for the one that serves what is parked.
More than any of them stays inside librdkafka, unless the machine is so busy that they are not run: see Patience."""
_STARVED = 20  # times as long at most, on a machine so busy that the threads concerned get no processor
_NO_PATIENCE = 0.001
_EXIT = 0.5
_SERVED_WITHIN, _LOOKS = 0.5, 5
"""Seconds to take what is to be told, and calls at least: with a callback that blocks it is of no use to anybody. On a
busy machine one call alone may take so long."""
_PLAIN = (str, int, float, bool, type(None))


@dataclass(frozen=True, repr=False)
class Key:
    """Keys of equal configurations are equal: values are equal, and objects, by setting and identity, the same.

    It has no repr(): passwords are among the values. `_alive`: those objects, whose identities are theirs for so long.
    """

    values: Hashable
    objects: frozenset[tuple[str, int]] = frozenset()
    _alive: tuple[object, ...] = field(default=(), compare=False)

    @staticmethod
    def of(settings: Settings) -> Key:
        values = frozenset((name, str(value)) for name, value in settings.lane.items() if type(value) in _PLAIN)
        objects = {name: value for name, value in settings.lane.items() if type(value) not in _PLAIN}
        delivery, identities = settings.delivery, frozenset((name, id(value)) for name, value in objects.items())
        own = delivery.own.mode, delivery.own.ordering, delivery.own.lanes, delivery.statistics_ms
        return Key((*own, values), identities, tuple(objects.values()))


@dataclass(eq=False)
class ParkedProducers:
    """The native producers of one SafeProducer while nobody owns them. One thread at a time, which holds `served`.

    - `lanes`: native producers, each with its log if it has one. The first is the direct lane's if there is one.
    - `distance`: round trip to brokers, in seconds, 0 where it is not long for sure, as on a busy machine.
    - `id_expiration`: for how long brokers remember their producer IDs.
    - `counts`: of what the direct lane has been given.
    - `seconds`: for how long it is kept, `until` then.
    - `patience`: for how long a constructor waits for it. One that was waited for in vain delays no other one.
    """

    key: Key
    cluster: str
    seconds: float
    lanes: list[tuple[Any, LaneLog | None]]
    distance: float
    id_expiration: id_expirations.Known | None
    _ended: Callable[[float], bool] | None
    counts: DirectLaneCounts | None
    until: float = NEVER
    patience: float = _PATIENCE
    served: Any = None
    _failed: list[KafkaError] = field(default_factory=list)

    @property
    def natives(self) -> list[Any]:
        return [native for native, _ in self.lanes]

    def park(self) -> bool:
        """Keep them for another producer; False when they are to be closed. The former owner is told nothing more."""
        nobody = NOBODY._replace(error=partial(_note_fatal, self._failed))  # not self: the relay would refer to it
        for native, _ in self.lanes:
            native.relay.belong_to(nobody)
        self.until, self.served, self.patience = clock.monotonic() + self.seconds, allocate_lock(), _PATIENCE
        return self.seconds > 0 and parking.park(self)

    def freed(self) -> bool:
        """Wait until nobody is inside, and have it served no more; False when somebody is for longer."""
        if until(lambda: bool(self.served.acquire(False)), Patience(self.patience, _STARVED)):
            if self.settled(self.patience):
                return True
            self.served.release()
        self.patience = _NO_PATIENCE
        return False

    def settled(self, timeout: float) -> bool:
        """Wait until no thread of the former owner is inside; False when one is for longer. It is released then."""
        if self._ended is not None and self._ended(timeout):
            self._ended = None
        return self._ended is None

    def serve(self) -> bool:
        """Take what they have to tell, which nobody hears; whether they are still of use."""
        give_up_at = clock.monotonic() + _SERVED_WITHIN
        try:
            for native in self.natives:
                native.poll(0)  # raises if the former owner has closed it: it was one lane too many
                looks = 0
                while len(native):
                    if looks >= _LOOKS and clock.monotonic() > give_up_at:
                        return False
                    native.poll(0)
                    looks += 1
        except:  # noqa: E722 - a fatal error can be raised as a KafkaError, which is no BaseException
            raised: Any = sys.exc_info()[1]
            if isinstance(raised, BaseException) and not isinstance(raised, Exception):  # a signal handler's
                raise
            return False
        return not self._failed

    def close(self) -> None:
        for native in self.natives:
            native.close()


def _note_fatal(failed: list[KafkaError], error: KafkaError) -> None:
    if error.fatal() or error.code() == KafkaError._FATAL:
        failed.append(error)


class Parking:
    """Any thread, signal handlers and destructors: there is no lock that two of them could wait for.

    Whoever takes an entry out of the dictionary, in one step, owns what is in it. A thread of its own serves the rest,
    and closes what is released; it lives while there is something to do.
    """

    def __init__(self) -> None:
        self._told = self._over = False
        self._begin()

    def _begin(self) -> None:
        self._parked: dict[int, ParkedProducers] = {}  # by identity, the oldest first
        self._leaving: deque[ParkedProducers] = deque()
        self._running = allocate_lock()
        self._work = forks.Work()

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, producers: ParkedProducers) -> bool:
        """Keep it; False when nothing is kept any more, and the caller is to close it."""
        if self._over:
            return False
        self._parked[id(producers)] = producers
        for oldest in list(self._parked)[:-MOST]:
            self._release(oldest)
        self._serve_on_a_thread()
        return True

    def take(self, key: Key) -> ParkedProducers | None:
        """The entry of a producer of an equal configuration, which nobody else gets; None if there is none."""
        found = list(self._parked.values())
        for producers in reversed(found):  # the newest: its connections are
            if producers.key != key or self._parked.pop(id(producers), None) is None:
                continue
            if not producers.freed():
                self._parked[id(producers)] = producers  # for the next constructor
                if self._over:
                    self._release(id(producers))
            elif producers.serve():
                return producers
            else:
                self._leaving.append(producers)
            self._serve_on_a_thread()
        self._tell_of_new_objects(key, found)
        return None

    def _tell_of_new_objects(self, key: Key, found: list[ParkedProducers]) -> None:
        """Warn once: nothing is ever taken over where a callback is made anew for each producer."""
        for producers in found:
            if not self._told and producers.key.values == key.values and producers.key.objects != key.objects:
                self._told = True
                names = " and ".join(sorted({name for name, _ in producers.key.objects ^ key.objects}))
                logger.warning(
                    "safeproducer.producer.ids.policy=reuse: a producer with the same settings was closed, and is not "
                    "taken over because %s is another object. Make it once, and give each producer the same one",
                    names,
                )

    def release(self, cluster: str) -> None:
        """Credentials for this cluster have changed: what is parked has those from before."""
        for producers in list(self._parked.values()):
            if producers.cluster == cluster:
                self._release(id(producers))
        self._serve_on_a_thread()

    def _release(self, identity: int) -> None:
        if (producers := self._parked.pop(identity, None)) is not None:
            self._leaving.append(producers)

    def end(self) -> None:
        """The interpreter ends: close everything, and keep nothing any more."""
        self._over = True
        for identity in list(self._parked):
            self._release(identity)
        if self._running.acquire(True, _EXIT):  # its thread must not be inside librdkafka then
            self._close_leaving()

    def renew(self) -> None:
        """In a forked child: librdkafka's threads are not there, and touching anything would hang."""
        self._begin()

    # --- its thread --------------------------------------------------------------------------------------------------

    def _serve_on_a_thread(self) -> None:
        if not self._running.locked() and (self._parked or self._leaving):
            with suppress(RuntimeError):  # too many threads: whoever parks next tries again
                start_new_thread(self._serve_all, (self._running,))

    def _serve_all(self, running: Any) -> None:
        pause = allocate_lock()
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
        for producers in list(self._parked.values()):
            served = producers.served
            if not served.acquire(False):
                continue  # somebody takes it
            try:
                if self._parked.get(id(producers)) is not producers:
                    continue
                if producers.until <= now or (producers.settled(_NO_PATIENCE) and not producers.serve()):
                    self._release(id(producers))
            finally:
                served.release()

    def _close_leaving(self) -> None:
        while self._leaving:
            try:
                producers = self._leaving.popleft()
            except IndexError:
                return
            if producers.settled(_PATIENCE):  # else the last one that refers to it destroys it
                producers.close()


parking = Parking()
forks.in_child(parking.renew)
atexit.register(parking.end)


def release(cluster: str) -> None:
    """Credentials for this cluster have changed: what is parked has those from before."""
    parking.release(cluster)


def take(settings: Settings) -> ParkedProducers | None:
    """The entry of a former producer with an equal configuration, None if there is none."""
    parked = parking.take(Key.of(settings)) if settings.reuses else None
    if parked is not None and parked.counts is not None:
        parked.counts.taken_over(clock.monotonic())
    return parked


def parkable(engine: Engine) -> ParkedProducers | None:
    """The parts that an open engine leaves, None when that is of no use to others. Its threads may still be inside.

    Only what is beyond doubt goes over: each record has its report, none has failed inside librdkafka, and nothing was
    purged. Therefore no report of a former owner can come any more, librdkafka has acknowledged all that it has
    counted, and sequence numbers have no gap. And the credentials are those of the construction.
    """
    holds, producers = engine.holds, engine.native_producers
    direct, settings = holds.direct, producers.settings
    if not (producers.reusable and _all_delivered(engine)):
        return None
    # A lane that never wrote has no permit yet, which the next owner would not ask for.
    wrote = [lane for lane in engine.dispatcher.lanes if lane.counts.batches or producers.took(lane.client.native)]
    lanes: list[tuple[Any, LaneLog | None]] = [] if direct is None else [(engine.native, None)]
    lanes += [(lane.client.native, lane.log) for lane in wrote]
    if not (lanes and all(lane.is_sound for lane in (direct, *wrote) if lane is not None)):
        return None
    expirations, ended, round_trip = engine.questions.expirations, _ended(engine), holds.round_trip
    distance = round_trip.seconds if round_trip.long else 0.0
    known, counts = expirations.known, None if direct is None else direct.counts
    return ParkedProducers(
        Key.of(settings), settings.cluster, settings.ids.reuse, lanes, distance, known, ended, counts
    )


def _ended(engine: Engine) -> Callable[[float], bool]:
    """Waits until no thread is inside a native producer, of ours or of the application; False when one is for longer.

    The application's are those that serve now: once the engine is retired, others find no native producer.
    """
    ours = engine.sender, engine.questions.metadata
    serving = engine.route.threads

    def ended(timeout: float) -> bool:
        return until(lambda: not serving and all(thread.join(0.0) for thread in ours), Patience(timeout, _STARVED))

    return ended


def _all_delivered(engine: Engine) -> bool:
    """Whether it wrote something, and each record has had its report, which no failure inside librdkafka caused."""
    route, failures, report_queue = engine.route, engine.failures, engine.counters.report_queue
    if route.state != "open" or failures.unknown:
        return False
    if failures.failed_at or report_queue.failed_at or report_queue.records:
        return False
    rejected = engine.dispatcher.quota_retry.rejections.count
    accepted, delivered, failed = engine.counters.totals()
    return delivered > 0 and accepted == delivered + failed and not rejected
