"""For how long the leaders in use remember this producer's ID (KIP-854), and what follows from that.

No broker is asked before the native producer has lived for a minute, so that a crash loop asks none; then hourly, and
new leaders at once. Where statistics have told no leader yet, the cluster is asked who leads, every five minutes:
statistics are not read with safeproducer.mode=passthrough, and who takes native producers over may end before they
come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from safeproducer.kafka.native import KafkaException
from safeproducer.pipeline.cluster.asker import Asker, Question
from safeproducer.pipeline.cluster.cluster_view import ClusterView
from safeproducer.pipeline.notifications import Notifications
from safeproducer.policy import expiry
from safeproducer.policy.cluster_metadata import BUNCH
from safeproducer.policy.expiry import Horizon, Told, Unsafe, is_too_old, unreadable
from safeproducer.policy.types import NEVER, UNPLACED
from safeproducer.runtime import clock
from safeproducer.settings.delivery import SendConfig
from safeproducer.settings.own_settings import EXPIRY_MS

if TYPE_CHECKING:
    from safeproducer.kafka.admin import Admin

NOT_BEFORE = 60.0  # seconds that a native producer has lived before anybody is asked
_REFRESH = 3600.0
LEADERS_REFRESH = 300.0
"""Seconds, where statistics tell no leader: as often as librdkafka itself asks (topic.metadata.refresh.interval.ms)."""
_AFTER_FAILURE = 60.0
_LOOK_EVERY = 0.5
_MOST_TOPICS = 1000
_MOST_CONFIGS = 100  # topics whose configs are asked for at once: an answer has dozens for each
_SEEN_BY = 1.0  # seconds by which statistics have told of a record
EXPIRATION = "for how long it remembers producer IDs"
LEADERS = "who leads partitions of"
TIMESTAMPS = "for whose timestamps the records have in"


class OldTimestamps:
    """Record timestamps that have a leader forget the producer ID: it counts from them, not from arrival (KIP-854).

    `note()` on the threads of the application; the rest on the sender's and the asker's.
    """

    def __init__(self) -> None:
        self._ages: dict[str, float] = {}  # by topic, how old the oldest timestamp was when it was produced, in seconds
        self._settled: set[str] = set()  # topics that were told of, or that keep the broker's time
        self._broker_time: set[str] = set()
        self._last: dict[str, tuple[float, float]] = {}
        """By topic, when a timestamp of more than `age` came last, and the oldest of them."""
        self.age = NEVER

    def note(self, topic: Any, timestamp: Any) -> None:
        """A record of `topic` comes with a timestamp of its own, in milliseconds. Raises nothing."""
        if type(timestamp) is int and timestamp > 0 and isinstance(topic, str):
            age = clock.time() - timestamp / 1000
            if age > self.age and len(self._last) < _MOST_TOPICS:
                now = clock.monotonic()
                self._last[str.__str__(topic)] = now, min(now - age, self._last.get(topic, (0.0, NEVER))[1])
            if age > self._ages.get(topic, 1.0) and len(self._ages) < _MOST_TOPICS:
                self._ages[str.__str__(topic)] = age

    def too_old(self, horizon: float) -> dict[str, float]:
        """Topics that nothing was told of yet, and the age of their oldest timestamp, which is beyond the horizon."""
        ages = self._ages.copy()
        return {topic: age for topic, age in ages.items() if topic not in self._settled and is_too_old(age, horizon)}

    def __bool__(self) -> bool:
        return bool(self._last)

    def oldest(self, topic: str, given: float) -> float:
        """The oldest timestamp that a leader counts from of records that were given then; NEVER without an old one."""
        at, oldest = self._last.get(topic, (-NEVER, NEVER))
        return oldest if at + _SEEN_BY >= given and topic not in self._broker_time else NEVER

    def keeps(self, topic: str) -> bool:
        """Whether the topic keeps the timestamps of applications, as far as is known."""
        return topic not in self._broker_time

    def settle(self, topic: str, broker_time: bool = False) -> None:
        """The topic is told of no more; it may keep the broker's time."""
        self._settled.add(topic)
        if broker_time:
            self._broker_time.add(topic)


@dataclass(eq=False)
class Known:
    """Knowledge that goes over with native producers to their next owner.

    `since`: when the native producer was made. `answers`: what brokers have told. `due` and `topics_due`: when a
    broker, and who leads a topic, is asked for again. `leaders`: by topic, where statistics tell none. `warned`: of
    which horizons, in seconds. The asker of the former owner may still write: each step is one of a dictionary.
    """

    since: float
    answers: dict[int, Told] = field(default_factory=dict)
    due: dict[int, float] = field(default_factory=dict)
    leaders: dict[str, frozenset[int]] = field(default_factory=dict)
    topics_due: dict[str, float] = field(default_factory=dict)
    warned: set[float] = field(default_factory=set)


@dataclass(eq=False)
class IdExpirations:
    """`look()` on the sender's thread; `notes()` from any; the asker's thread admin. It takes no lock.

    - `current`: None before anything is known, without idempotence, and with safeproducer.expiry=off.
    - `timestamps`: those that applications gave.
    - `topics()`: the topics in use.
    - `known`: of a new native producer, or as its former owner has passed it on.
    """

    _delivery: SendConfig
    _cluster: ClusterView
    _asker: Asker
    _topics: Callable[[], Iterable[str]]
    _notifications: Notifications
    known: Known
    timestamps: OldTimestamps = field(default_factory=OldTimestamps)
    current: Horizon | None = None
    _too_old: dict[str, float] = field(default_factory=dict)
    """By topic that keeps such timestamps, the age of one, which the sender is to tell of."""

    def __post_init__(self) -> None:
        own = self._delivery.own
        self._look_at = 0.0 if self._delivery.idempotent and own.expiry != "off" else NEVER
        self._not_before = self.known.since + NOT_BEFORE if own.expiry_ms is None else NEVER
        if own.expiry_ms is not None and self._look_at != NEVER:
            self._set(expiry.given(own.expiry_ms / 1000, EXPIRY_MS))

    @property
    def unsafe(self) -> Unsafe | None:
        """Why a retry may outlive the horizon, if that is known. A leader forgets no ID with an open transaction."""
        if self.current is None or self._delivery.transactional:
            return None
        return expiry.unsafe(self._delivery.timeout, self._delivery.socket_timeout, self.current.seconds)

    def look(self, now: float) -> None:
        """Have asked who has to be, and draw what follows from the answers."""
        # Answers come on the asker's thread, and leaders change. Only those of leaders in use count, the shortest: by
        # what one has told that leads nothing any more, healthy records would be purged too early.
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_EVERY
        known = self.known
        if now >= self._not_before:
            leaders = self._cluster.partitions.nodes()
            if not leaders:
                topics = list(self._topics())
                if any(known.topics_due.get(topic, 0.0) <= now for topic in topics):
                    self._asker.want(Question(LEADERS, None, "the topics in use"), self._ask_leaders, now)
                leaders = set().union(*(known.leaders.get(topic, ()) for topic in topics))
            for node in leaders:
                if known.due.get(node, 0.0) <= now:
                    self._asker.want(Question(EXPIRATION, node, ""), self._ask_expiration, now)
            answers = [told for node, told in known.answers.copy().items() if node in leaders]
            if answers and (found := expiry.horizon(answers, self._delivery.transactional)) != self.current:
                self._set(found)
        while self._too_old and self.current is not None:
            self._tell_of(*self._too_old.popitem(), self.current)
        for topic in {} if self.current is None else self.timestamps.too_old(self.current.seconds):
            self._asker.want(Question(TIMESTAMPS, None, topic), self._ask_timestamps, now)

    def _set(self, found: Horizon) -> None:
        self.current = found
        self.timestamps.age = found.limit / 2
        if (unsafe := self.unsafe) is not None and found.seconds not in self.known.warned:
            self.known.warned.add(found.seconds)
            sentence = f"{unsafe.sentence} ({found.said}). {unsafe.cure}. {self._meanwhile(found)}"
            self._notifications.once(f"expiry {found.seconds}", sentence)

    def _meanwhile(self, found: Horizon) -> str:
        own, delivery = self._delivery.own, self._delivery
        if own.expiry == "guard" and delivery.owns_timeout:
            return (
                f"Until then nothing is sent again {found.limit:g} s after it was handed over: it is reported as of "
                f"unknown outcome (safeproducer.expiry=guard)"
            )
        setting = f"safeproducer.expiry={own.expiry}" if delivery.owns_timeout else f"safeproducer.mode={own.mode}"
        return f"Until then retries go on, and may write twice ({setting})"

    def _ask_expiration(self, admin: Admin, question: Question) -> float | None:
        node, at = cast("int", question.node), clock.monotonic()
        self._put_off(self.known.due, node)
        try:
            configs = admin.configs([node, *(topics := self._led_by(node, at))])
            self._cluster.read(configs, at)
            found = configs[node]
            told = unreadable(node, found) if isinstance(found, str) else expiry.told(node, found)
            self.known.answers[node], self.known.due[node] = told, clock.monotonic() + _REFRESH
        except KafkaException as error:
            cause, before = error.args[0], self.known.answers.get(node)
            if before is None or before.producer_id is None:  # else it is as before, as far as is known
                self.known.answers[node] = unreadable(node, f"{cause.name()}: {cause.str()}")
            return None
        return 0.0 if len(topics) == _MOST_CONFIGS else NEVER

    def _led_by(self, node: int, now: float) -> list[str]:
        """Some topics whose configs this broker is asked for beside its own: each topic's of one leader."""
        leaders, read = self._cluster.partitions.leaders, self._cluster.configs
        topics = self._topics() if self._delivery.own.replication == "auto" else ()
        old = (topic for topic in topics if topic not in read or read[topic][0] < now - _REFRESH / 2)
        led = (it for it in old if min(leaders(it, UNPLACED) or leaders(it, 0), default=None) == node)
        return list(islice(led, _MOST_CONFIGS))

    def _ask_leaders(self, admin: Admin, question: Question) -> float:
        known, now = self.known, clock.monotonic()
        due = [topic for topic in self._topics() if known.topics_due.get(topic, 0.0) <= now][:BUNCH]
        for topic in due:
            self._put_off(known.topics_due, topic)
        for topic, told in admin.replicas(due).items() if due else ():
            known.leaders[topic] = frozenset(one.leader for one in told.values() if one.leader >= 0)
            known.topics_due[topic] = clock.monotonic() + LEADERS_REFRESH
        return 0.0 if len(due) == BUNCH else NEVER

    def _ask_timestamps(self, admin: Admin, question: Question) -> float:
        topic, horizon = question.topic, self.current
        age = None if horizon is None else self.timestamps.too_old(horizon.seconds).get(topic)
        if age is not None:
            if create_time := admin.takes_create_time(topic):
                self._too_old[topic] = age
            self.timestamps.settle(topic, not create_time)
        return NEVER

    def _put_off(self, due: dict[Any, float], key: Any) -> None:
        """Ask about it again in a minute, whatever comes of it: the next owner shall not ask at once, too."""
        due[key] = max(due.get(key, 0.0), clock.monotonic() + _AFTER_FAILURE)

    def _tell_of(self, topic: str, age: float, horizon: Horizon) -> None:
        self._notifications.once(
            f"timestamps {topic}",
            f"records for {topic} have timestamps of {age:.0f} s ago, and a leader counts the {horizon.seconds:g} s "
            f"for which it remembers a producer ID from them ({horizon.said}): it forgets the ID at its next look, and "
            f"a retry after that is written twice (KIP-854). Put the time of the event into a header or the value and "
            f"leave the timestamp out, or set message.timestamp.type=LogAppendTime on the topic",
        )

    def tell_of_late_retries(self, age: float) -> None:
        """Records have had no acknowledgement for so long, and a leader has forgotten their producer."""
        seconds = age if self.current is None else self.current.seconds
        self._notifications.once(
            "possibly twice",
            f"records have had no acknowledgement for {age:g} s, and a leader forgets this producer after {seconds:g} "
            f"s: a retry after that is written twice, and yet reported as delivered, so these records are possibly "
            f"twice in the log (KIP-854). safeproducer.expiry=guard gives them up before",
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
