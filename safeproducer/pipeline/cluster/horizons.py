"""For how long the leaders in use remember this producer's ID (KIP-854): asked by a thread of its own, told once.

Nobody is asked before the producer has lived for a minute, so that a crash loop asks nobody; then hourly, and new
leaders at once. What the thread for windows hears counts, too (see `windows`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from safeproducer import clock
from safeproducer.announcements import Announcements
from safeproducer.delivery import Delivery
from safeproducer.own_settings import EXPIRY_MS
from safeproducer.pipeline.cluster.old_timestamps import OldTimestamps
from safeproducer.pipeline.process.flag import Flag
from safeproducer.pipeline.process.helper import Helper
from safeproducer.policy import expiry
from safeproducer.policy.expiry import Horizon, Told, Unsafe
from safeproducer.policy.never import NEVER

NOT_BEFORE = 60.0
"""Seconds that a producer has lived before anybody is asked."""
_REFRESH = 3600.0
_AFTER_FAILURE = 60.0
_LOOK_EVERY = 0.5


class Asks(Protocol):
    """Who can be asked; see Expirations. `told()`: (what a broker says, whether asking again soon is of no use)."""

    def told(self, node: int) -> tuple[Told, bool]: ...
    def takes_create_time(self, topic: str) -> bool: ...
    def close(self) -> None: ...


class Horizons:
    """`look()` on the sender's thread; `heard()`, `notes()`, `stop()` and `join()` from any. It takes no lock.

    - `current`: None before anything is known, without idempotence, and with safeproducer.expiry=off.
    - `timestamps`: those that applications gave.
    - `leaders()`: the brokers that lead a partition of a topic in use.
    """

    def __init__(
        self,
        delivery: Delivery,
        make: Callable[[Callable[[float], object]], Asks],
        leaders: Callable[[], set[int]],
        announcements: Announcements,
    ) -> None:
        own = delivery.own
        self._delivery = delivery
        self._make = make
        self._leaders = leaders
        self._announcements = announcements
        self.current: Horizon | None = None
        self.timestamps = OldTimestamps()
        self._answers: dict[int, Told] = {}
        self._due: dict[int, float] = {}
        """By broker, when it is asked again."""
        self._wanted: set[int] = set()
        self._too_old: dict[str, float] = {}
        """By topic that keeps such timestamps, the age of one, which the sender is to tell of."""
        self._look_at = 0.0 if delivery.idempotent and own.expiry != "off" else NEVER
        self._not_before = clock.monotonic() + NOT_BEFORE if own.expiry_ms is None else NEVER
        self._helper = Helper("safeproducer-expiry", self._serve, announcements.trouble)
        self._stopped = Flag()
        if own.expiry_ms is not None and self._look_at != NEVER:
            self._set(expiry.given(own.expiry_ms / 1000, EXPIRY_MS))

    @property
    def unsafe(self) -> Unsafe | None:
        """Why a retry may outlive the horizon; None when it may not, or nothing is known.

        A leader forgets no ID with an open transaction.
        """
        if self.current is None or self._delivery.transactional:
            return None
        return expiry.unsafe(self._delivery.timeout, self._delivery.socket_timeout, self.current.seconds)

    def look(self, now: float) -> None:
        """Whether somebody has to be asked, and what follows from the answers."""
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_EVERY
        wanted: set[int] = set()
        if now >= self._not_before:
            leaders = self._leaders()
            wanted = {node for node in leaders if self._due.get(node, 0.0) <= now}
            self._judge(leaders)
        while self._too_old and self.current is not None:
            self._tell_of(*self._too_old.popitem(), self.current)
        old = self.current is not None and self.timestamps.too_old(self.current.seconds)
        if (wanted or old) and not self._stopped.is_set():
            self._wanted = wanted
            self._helper.start()

    def _judge(self, leaders: set[int]) -> None:
        answers = [told for node, told in self._answers.copy().items() if node in leaders]
        if answers and (found := expiry.horizon(answers, self._delivery.transactional)) != self.current:
            self._set(found)

    def _set(self, found: Horizon) -> None:
        self.current = found
        if (unsafe := self.unsafe) is not None:
            sentence = f"{unsafe.sentence} ({found.said}). {unsafe.cure}. {self._meanwhile(found)}"
            self._announcements.once(f"expiry {found.seconds}", sentence)

    def _meanwhile(self, found: Horizon) -> str:
        own, delivery = self._delivery.own, self._delivery
        if own.expiry == "guard" and delivery.owns_timeout:
            return (
                f"Until then nothing is sent again {found.limit:g} s after it was handed over: it is reported as of "
                f"unknown outcome (safeproducer.expiry=guard)"
            )
        setting = f"safeproducer.expiry={own.expiry}" if delivery.owns_timeout else f"safeproducer.mode={own.mode}"
        return f"Until then retries go on, and may write twice ({setting})"

    def heard(self, told: Told) -> None:
        """What a broker said when it was asked for something else."""
        if self._not_before != NEVER:
            self._learn(told, lasts=True)

    def _learn(self, told: Told, lasts: bool) -> None:
        self._due[told.node] = clock.monotonic() + (_REFRESH if lasts else _AFTER_FAILURE)
        self._answers[told.node] = told

    def _serve(self) -> None:
        asks = self._make(self._stopped.wait)
        try:
            for node in sorted(self._wanted):
                if not self._stopped.is_set():
                    self._learn(*asks.told(node))
            horizon = self.current
            for topic, age in ({} if horizon is None else self.timestamps.too_old(horizon.seconds)).items():
                if not self._stopped.is_set():
                    if asks.takes_create_time(topic):
                        self._too_old[topic] = age
                    self.timestamps.settle(topic)
        except Exception as error:  # whatever the client raises
            self._put_off(error)
        finally:
            asks.close()

    def _put_off(self, error: Exception) -> None:
        for node in self._wanted:
            self._due[node] = max(self._due.get(node, 0.0), clock.monotonic() + _AFTER_FAILURE)
        cause = f"{type(error).__name__}: {error}"
        self._announcements.trouble(
            "expiry", f"brokers cannot be asked for how long they remember a producer ID; again in a minute ({cause})"
        )
        self._stopped.wait(1.0)

    def _tell_of(self, topic: str, age: float, horizon: Horizon) -> None:
        self._announcements.once(
            f"timestamps {topic}",
            f"records for {topic} have timestamps of {age:.0f} s ago, and a leader counts the {horizon.seconds:g} s "
            f"for which it remembers a producer ID from them ({horizon.said}): it forgets the ID at its next look, and "
            f"a retry after that is written twice (KIP-854). Put the time of the event into a header or the value and "
            f"leave the timestamp out, or set message.timestamp.type=LogAppendTime on the topic",
        )

    def notes(self) -> list[str]:
        """For explain(): what is assumed, and what is not safe."""
        found, unsafe = self.current, self.unsafe
        notes = []
        if found is not None and found.unreadable:
            nodes = ", ".join(map(str, sorted(found.unreadable)))
            notes.append(
                f"For how long broker(s) {nodes} remember a producer ID could not be read "
                f"({next(iter(found.unreadable.values()))}): {found.said} (KIP-854). Grant DESCRIBE_CONFIGS on the "
                f"cluster, or say in {EXPIRY_MS} what it is."
            )
        if unsafe is not None:
            notes.append(f"Not safe: {unsafe.sentence}. {unsafe.cure}.")
        return notes

    def stop(self) -> None:
        self._stopped.set()

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended: at exit it must not be inside librdkafka."""
        self._helper.join(timeout)
