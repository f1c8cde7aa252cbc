"""Asks the cluster who leads the partitions of topics: one thread a producer, while there is something to ask.

A native producer is asked for one topic at a time, and what it hears it knows. Many topics are asked for in bunches, by
an admin client. Replicas come behind all that records wait for.

It also has the first record of an idempotent producer acknowledged half a second sooner. librdkafka asks for its
producer ID with each answer for metadata, and every 500 ms. The first such answer comes over the connection to a
bootstrap server, which ends in the same moment, and no other one is up yet. Therefore one more question is asked as
soon as there is a connection that stays.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from safeproducer.kafka.lane_client import NEAR, cause_of, is_asked, load_answers, measured
from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.policy.cluster_metadata import BUNCH, MANY, TopicMetadata, partitions_of
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.types import NEVER
from safeproducer.runtime import clock, forks, lifetime
from safeproducer.runtime.threads import BackgroundThread, InterruptSafeEvent, Trouble, wait_while

if TYPE_CHECKING:
    from safeproducer.kafka.admin import Admin

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0
_ASK_FOR = 0.3  # seconds of one question: how long closing the producer may have to wait for it
_ASK_FOR_MANY = 1.0  # seconds of one question for many topics, by a client that has to connect
_UNCONNECTED = 0.02
"""Seconds behind one that found no broker connected: librdkafka tries to connect every 50 ms as long as one waits."""
_SLICE = 0.1  # seconds of one wait for a connection, of which two may follow: close() and the exit wait for them
_DELAY = 0.01  # librdkafka connects to a broker it has heard of no sooner than 50 ms after it was made
_LOOKS_AGAIN = 0.15  # seconds from one question for a topic that may be made just now to the next
_CREATED_WITHIN = 0.85  # seconds that brokers take to create a topic (auto.create.topics.enable), or to tell of it
_LOOK, NO_LANE = -3, -2  # in place of the number of a lane: the first one, for replicas only; none of them
_PATIENCE = 10.0  # seconds; brokers that were away for longer may take half a second more
_all: weakref.WeakSet[FirstQuestion] = weakref.WeakSet()


@dataclass(eq=False)
class FirstQuestion:
    """`look()` on the sender's thread, `ask()` on that of Metadata. No caller waits for the answer.

    - `native()`: the native producer that is to get its ID, None when it needs it no more or is gone.
    - `wanted`: whether there is one that waits for its ID.
    - `topic`: while it is to be asked; `asking`: while a thread is inside librdkafka.
    """

    _native: Callable[[], Any]
    _wanted: bool
    _due: float | None = None
    _give_up_at: float = 0.0
    _answered_at: float = -NEVER
    _reached: bool = False
    topic: str | None = None
    asking: bool = False

    def look(self, topic: str | None, now: float) -> float:
        """Have metadata of `topic`, where records go, asked for soon after the first of them; when to look again."""
        if not self._wanted or topic is None or sys.is_finalizing():
            return NEVER
        if self._due is None:
            self._due = now + _DELAY
        if now < self._due:
            return self._due
        self._wanted, self._give_up_at, self.topic = False, clock.real() + _PATIENCE, topic
        _all.add(self)
        return NEVER

    def again(self) -> None:
        """Another native producer waits for its ID."""
        self._wanted, self._due, self._reached = True, None, False

    @property
    def unreached(self) -> bool:
        """Whether no broker has answered, so that there is no producer ID."""
        return not self._reached and (self._wanted or self.topic is not None)

    def _reach(self, heard: Callable[[None], None]) -> None:
        self._reached = True
        load_answers()
        heard(None)  # or batches on probation would gather for as long as the sender sleeps

    def end(self) -> None:
        self._wanted, self.topic = False, None

    @property
    def open(self) -> bool:
        """Whether the distance is still to be heard of: what is acknowledged at once after the answer is near."""
        return self.topic is not None and clock.real() >= self._answered_at + NEAR

    def ask(self, heard: Callable[[float | None], None]) -> None:
        """Wait for a connection once; when there is one, measure for how long an answer takes, or longer."""
        topic, native = self.topic, self._native()
        over, distance = True, None
        self.asking = True
        try:
            if topic is not None and native is not None and clock.real() < self._give_up_at:
                over = is_asked(native, topic, _SLICE, partial(self._reach, heard))
                if over:
                    self._answered_at = clock.real()
                    distance = measured(native, topic, _SLICE, lambda: self.topic is not None)
        except KafkaException:
            over = False  # once more, over a connection that stays
        finally:
            self.asking = False
            over = over and self._native() in (None, native)  # else another one waits for its ID by now
            if over:
                self.topic = None
        if over:
            heard(distance)


@dataclass(eq=False)
class Metadata(BackgroundThread):
    """`want(topic)` and `tell(topic, lanes)` from any thread, `look()` on the sender's.

    - `lanes()`: by number, the direct lane first if there is one, an object whose `list_topics(topic, timeout)` asks by
      the native producer of that lane, which hears the answer, too.
    - `heard(topic, lane, asked at, by partition)` is called with what the cluster said, lane None for the first one; no
      partitions when it does not know the topic: librdkafka decides what that means. The lane is asked again unless
      that returns True.
    - `make()` makes an admin client, which asks for many topics at once.
    - `answered(seconds)` is called when the first question has its answer, with how long that took, or has none.
    - `missing`: written here, see Partitions. `trouble` is told of a topic that is not there.
    """

    _lanes: Callable[[], Mapping[int, Any]]
    _heard: Callable[[str, int | None, float, TopicMetadata], bool]
    _answered: Callable[[float | None], None]
    first: FirstQuestion
    _make: Callable[[], Admin]
    _trouble: Trouble = lambda kind, what: None
    _missing: MutableMapping[str, str] = field(default_factory=dict)
    _missed: dict[str, float] = field(default_factory=dict)  # topic -> when it was first not there
    _wanted: dict[tuple[str, int | None], float] = field(default_factory=dict)
    """Topic and lane, None for the first one -> since when."""
    _alone: set[str] = field(default_factory=set)  # topics that no bunch is to have
    _hurries: bool = False
    _patience: float = _ASK_FOR
    _stopped: InterruptSafeEvent = field(default_factory=InterruptSafeEvent)

    def __post_init__(self) -> None:
        super().__init__("safeproducer-metadata", self._ask, self._trouble)

    def want(self, topic: str) -> None:
        """Records wait for this topic to be known, by the first lane; an answer that is under way tells them, too."""
        if (topic, None) not in self._wanted:
            self._wanted[topic, None], self._hurries = clock.real(), True
        self._start()

    def tell(self, topic: str, lanes: Iterable[int]) -> None:
        """Let these lanes ask who leads the partitions of this topic."""
        now = clock.real()
        for lane in lanes:
            self._wanted[topic, lane] = now
        self._start()

    def look_at(self, topic: str, gone: bool = False) -> None:
        """Let the first lane ask for the replicas of this topic, behind all that records wait for. `gone`: another
        client, which asked as a leader acknowledges nothing, was told that it is not there: it was not made just now.
        """
        if gone:
            self._missed[topic] = clock.real() - _CREATED_WITHIN
        self._wanted.setdefault((topic, _LOOK), clock.real())
        self._start()

    def look(self, topic: str | None, now: float) -> float:
        """Let the first question be asked when it is time; when to look again."""
        due = self.first.look(topic, now)
        if self.first.topic is not None:
            self._start()
        return due

    def _start(self) -> None:
        if not self._stopped.is_set():
            self.start()

    def stop(self) -> None:
        self._stopped.set()
        self.first.end()

    def _ask(self) -> None:
        pause = _FIRST_PAUSE
        while (self._wanted or self.first.topic is not None) and not self._stopped.is_set():
            if asked_first := self.first.topic is not None:
                self.first.ask(self._answered)
                if self.first.topic is not None:  # no broker is connected yet
                    continue
            answered = self._ask_once()
            longest = _LOOKS_AGAIN if self._missed.keys() - self._missing.keys() else _LONGEST_PAUSE
            pause = _FIRST_PAUSE if answered else min(2 * pause, longest)
            if not (answered or asked_first):  # the broker that a lane asks may be the one that hangs
                self._stopped.wait(pause)

    def _ask_once(self) -> bool:
        """Ask for all that is wanted, what records wait for first; whether there was an answer."""
        answered, mute, self._hurries = False, set[int | None](), False
        wanted = sorted(self._wanted.items(), key=lambda it: (it[0][1] is not None) + (it[0][1] == _LOOK))
        unknown = [topic for (topic, lane), _ in wanted if lane is None and topic not in self._alone]
        for (topic, number), since in wanted:
            if answered and len(unknown) > MANY:  # there is a connection, and no need to ask for each
                self._describe([topic for topic in unknown if (topic, None) in self._wanted])
                break
            # A lane that gave no answer gives none for the next topic, which would be another time-out.
            if number not in mute and not self._stopped.is_set():
                answered = self._ask_lane(topic, number, since, mute) or answered
                if self._hurries and number is not None:  # what came meanwhile goes first
                    break
        return answered

    def _ask_lane(self, topic: str, number: int | None, since: float, mute: set[int | None]) -> bool:
        # The native call may take seconds, and a younger wish may come meanwhile. It must not be taken for answered:
        # only the wish from before the call (`since`) is dropped.
        lanes, lane_of = self._lanes(), None if number == _LOOK else number
        lane = next(iter(lanes.values()), None) if lane_of is None else lanes.get(lane_of)
        if lane is None:
            self._wanted.pop((topic, number), None)
            return False
        asked_at = clock.real()
        found, code = _answer(lane, topic, self._patience)
        self._patience = _UNCONNECTED if code == KafkaError._TRANSPORT else _ASK_FOR
        settled = code != KafkaError.UNKNOWN_TOPIC_OR_PART or self._miss(topic, asked_at, lane)
        del lanes, lane  # a producer nobody refers to is to be freed at once
        if code in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
            mute.add(number)
        if found is None:
            return False
        if found:
            self._missed.pop(topic, None)
        settled = settled and (self._heard(topic, lane_of, asked_at, found) or lane_of is None)
        if settled and self._wanted.get((topic, number)) == since:  # else it is to ask again
            self._wanted.pop((topic, number), None)
            self._alone.discard(topic)
        return settled

    def _describe(self, topics: list[str]) -> None:
        """Ask for them by a client made for that, in bunches: no lane hears of it. The others are asked for alone."""
        self._alone.update(topics)
        with suppress(Exception):  # whatever the client raises: a lane tells what is wrong
            admin = self._make()
            for begin in range(0, len(topics), BUNCH):
                asked_at = clock.real()
                for topic, told in admin.replicas(topics[begin : begin + BUNCH], _ASK_FOR_MANY).items():
                    if told and not self._stopped.is_set():
                        self._heard(topic, NO_LANE, asked_at, told)
                        self._wanted.pop((topic, None), None)
                        self._alone.discard(topic)

    def _miss(self, topic: str, asked_at: float, lane: Any) -> bool:
        """The topic is not there; whether that is certain, and told."""
        if asked_at < self._missed.setdefault(topic, asked_at) + _CREATED_WITHIN:
            return False
        if topic not in self._missing:
            near = f" (nearest name: '{nearest}')" if (nearest := _most_like(lane, topic)) else ""
            self._missing[topic] = clause = f"topic '{topic}' is not there{near}"
            self._trouble(f"no topic {topic}", f"{clause}. {HoldReason.UNKNOWN_TOPIC.cure}")
        return True


def _answer(lane: Any, topic: str, patience: float) -> tuple[TopicMetadata | None, int | None]:
    """The metadata of a topic, and the code of its error."""
    load_answers()
    try:
        answer = lane.list_topics(topic, patience)
    except Exception as error:  # none, or it is closed by now; what is wrong with it is told where records need it
        return None, cause_of(error).code()
    entry = answer.topics.get(topic)
    code = None if entry is None or entry.error is None else entry.error.code()
    if entry is None or code == KafkaError.LEADER_NOT_AVAILABLE:
        return None, code
    return partitions_of(answer, topic), code


def _most_like(lane: Any, topic: str) -> str:
    with forks.loading.lock:
        from difflib import get_close_matches  # noqa: PLC0415 - for a topic that does not exist

    try:
        names = lane.list_topics(None, _ASK_FOR).topics
    except Exception:  # as above
        return ""
    return next(iter(get_close_matches(topic, [name for name in names if name != topic], 1)), "")


def _at_exit() -> None:
    # A thread inside librdkafka would keep its producer from being destroyed before the C library's own end.
    questions = list(_all)
    for question in questions:
        question.end()
    wait_while(lambda: any(question.asking for question in questions), 3 * _SLICE)


lifetime.at_end(_at_exit)
