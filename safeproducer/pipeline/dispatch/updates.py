"""Events of native clients, turned into knowledge: throttle times, statistics, identity."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace

from safeproducer.kafka.native import KafkaError
from safeproducer.kafka.statistics import LibrdkafkaClock, Statistics, read
from safeproducer.pipeline.dispatch.hold_facts import HoldFacts
from safeproducer.pipeline.reports.counters import DeliveryCounters
from safeproducer.pipeline.reports.delivery_errors import Failures
from safeproducer.policy.cluster_metadata import TopicMetadata
from safeproducer.policy.diagnosis import ClientError
from safeproducer.policy.pacing import LATE
from safeproducer.policy.types import DIRECT_LANE, NEVER, UNPLACED, TopicPartition
from safeproducer.runtime import clock
from safeproducer.settings.delivery import SendConfig

_BATCH_LANE = 0
_IDLE_AFTER = 3  # statistics of an idle producer that are read before any is skipped
_IDLE_READS = 100_000  # then it pauses for so many times longer than it takes to read them
_READS = 99  # in use it pauses for so many times longer: to read costs 1 % of the time at most
_READS_IN_NEED, _QUICK = 9, 0.005
"""While records are held, have failed or are to be proven: a tenth of the time, beyond a reading of so many seconds."""
_LONGEST_PAUSE = 5.0
_PAUSE_SHARE = 1 / 8  # of message.timeout.ms: the age of records in the direct lane is known to a pause
_IDLE_READS_WITH_WINDOWS = 5_000  # where windows are asked for: what a leader said is known for a minute only


class ClientUpdates:
    """Written by the sender's thread; throttle times and texts come from the threads that serve.

    `changed` asks the sender to look again, at all; `heard`, at these topics. It holds no native producer.
    """

    def __init__(self, delivery: SendConfig, holds: HoldFacts, failures: Failures, counters: DeliveryCounters) -> None:
        self._counters = counters
        self.delivery = delivery
        self.holds = holds
        self.failures = failures
        self.changed = False
        self.heard: deque[str] = deque()
        self._hold: Callable[[], object] = bool
        self._arrived: dict[int, str] = {}  # by lane, the last statistics that wait to be read
        self._batch_statistics: Statistics | None = None
        self.skipped: tuple[int, str] | None = None
        self._idle = self._accepted = 0
        self._last_read = (0.0, 0.0)  # (when it ended, how long it took, that of both lanes together)
        self._clock = LibrdkafkaClock()

    def connect(self, hold: Callable[[], object]) -> None:
        """`hold()` is called as soon as a throttle time is known: a callback served next may produce."""
        self._hold = hold

    def client_error(self, told: ClientError, key: tuple[int | None, bool]) -> ClientError:
        """Note the error as one more of those before it."""
        errors, delivered = self.holds.cluster.errors, self.holds.round_trip.delivered
        errors[key] = told = replace(told, delivered=delivered).after(errors.get(key))
        return told

    def delivered_of(self, tp: TopicPartition) -> tuple[int, int]:
        """How many records of a partition were delivered, or of a topic with -1; how many of all, a while ago."""
        return self._counters.answers(tp)[0], self._counters.lately()[1]

    def open(self) -> tuple[Counter[TopicPartition], int]:
        """Records of each partition that may have no acknowledgement, beside those that are held; and how many of any
        there may be that no statistics have told of yet."""
        direct, owns, buffers = self.holds.direct, self.delivery.owns_timeout, self.holds.buffers.copy()
        left = Counter({tp: sum([len(each.records) for each in it.unresolved.copy()]) for tp, it in buffers.items()})
        if direct is None or not owns:
            return left, 0 if direct is None else self._counters.accepted
        return left + direct.backlogs.open(), self._counters.accepted - self._accepted

    @property
    def interval(self) -> float:
        """Seconds from one statistics event that is read to the next; 0 when none is read."""
        return 0.0 if self.delivery.mode == "passthrough" else self.delivery.ticks_ms / 1000

    def throttled(self, broker: int, name: str, seconds: float) -> bool:
        """Hold back what goes to this broker; whether that is to be told, once for each time that it throttles."""
        now = clock.monotonic()
        first = self.holds.cluster.throttle.announce(broker, seconds, now)
        if self.delivery.mode == "passthrough":
            return False
        if self.delivery.holds_back and self.holds.throttles_anew():
            self.changed = True
            self._hold()
        return first

    def fatal_error(self, error: KafkaError) -> None:
        """A native producer met this fatal error."""
        gate = self.holds.gate
        self.failures.refusals.fatal_error(error, lambda: bool(gate.used) and not gate.lane_permits().used)

    def login_refused(self, sentence: str) -> None:
        """Brokers refuse this user: records that fail before a broker is connected are told so."""
        self.failures.refusals.login = "" if self.holds.cluster.connected() else sentence

    def heard_leaders(self, topic: str, lane: int | None, asked_at: float, told: TopicMetadata) -> bool:
        """A lane has asked who leads the topic's partitions; whether it knows all of them now."""
        knows = self.holds.cluster.heard(topic, lane, asked_at, told)
        self.heard.append(topic)
        return knows

    def quota_rejected(self) -> None:
        """A broker rejected a record because of a quota on producer IDs. Inside a native call."""
        if (direct := self.holds.direct) is not None:
            direct.reject()
        self.changed = True
        self._hold()

    def take_changed(self) -> bool:
        """Whether the sender is to look again, once."""
        if changed := self.changed:
            self.changed = False  # before the look: what changes meanwhile is looked at again
        return changed

    def take_heard(self) -> list[str]:
        """Topics to look at again, once."""
        return [self.heard.popleft() for _ in range(len(self.heard))]

    def answered_within(self, seconds: float | None = None) -> None:
        """The first question was answered, or another one, or no broker answers."""
        if seconds is not None:
            self.holds.round_trip.guess(seconds)
        self.changed = True

    def hurry(self) -> None:
        """Somebody waits: statistics are read as of a producer in use. Any thread."""
        self._idle = 0

    def _skips(self, lane: int, text: str) -> bool:
        """Whether statistics need not be read: nothing is produced, and it takes a while with many partitions."""
        # Backlogs, silent leaders and proofs of what was not sent are known by statistics alone: of a pause that is too
        # long, healthy records would pay. What is skipped is kept, and read before records that wait are handed over.
        now = clock.monotonic()
        before, self._accepted = self._accepted, self._counters.accepted
        quiet = self._accepted == before and not self.holds.cluster.throttle.deadlines(now)
        if quiet and not self._idle:  # once nothing is under way, that can change only with what is accepted
            accepted, delivered, failed = self._counters.totals()
            quiet = accepted == delivered + failed
        self._idle = self._idle + 1 if quiet else 0
        (read_until, reading), direct = self._last_read, self.holds.direct
        # What was read last may be from before the end of what was under way: its backlog would reach its deadline.
        if idle := self._idle > _IDLE_AFTER and (direct is None or direct.backlogs.earliest() is None):
            pause = (_IDLE_READS_WITH_WINDOWS if self.delivery.spreads else _IDLE_READS) * reading
        else:
            pause = self._pause(now)
        if now < read_until + pause and lane not in self._arrived and not self.holds.cluster.calls:
            self.skipped = lane, text
            if idle and direct is not None:
                direct.backlogs.idle(now)
            return True
        self.skipped = None
        return False

    def _pause(self, now: float) -> float:
        """For how long statistics need not be read in use: not for long while records are held, fail or are proven."""
        timeout, failed = self.delivery.timeout or NEVER, self.failures.not_written + self.failures.unknown
        if failed or not (self.delivery.owns_timeout and self.holds.round_trip.seconds) or self.holds.any(now):
            return self._least_pause
        return max(self._least_pause, min(_READS * self._last_read[1], _LONGEST_PAUSE, timeout * _PAUSE_SHARE))

    @property
    def _least_pause(self) -> float:
        return min(_READS_IN_NEED * max(0.0, self._last_read[1] - _QUICK), _LONGEST_PAUSE)

    def catch_up(self, waiting: int) -> None:
        """Read what was skipped, before the first of the records that wait now is handed over."""
        skipped = self.skipped if waiting else None
        if skipped is not None and clock.monotonic() >= self._last_read[0] + self._least_pause:
            self.skipped, self._idle = None, 0
            self._arrive(*skipped)
            self.read_arrived()

    def statistics(self, text: str, beside: bool = False) -> None:
        """Statistics of the direct lane or the first batch lane, from any thread that serves: the sender reads them.

        `beside` a direct lane that one tells nothing new while those of the direct lane are skipped. A signal handler
        may come in anywhere here, and wait for the sender.
        """
        lane = _BATCH_LANE if beside or self.holds.direct is None else DIRECT_LANE
        if beside:
            skips = self.skipped is not None and self.holds.lane_ready
        else:
            skips = self.delivery.mode == "passthrough" or self._skips(lane, text)
        if not skips:
            self._arrive(lane, text)

    def _arrive(self, lane: int, text: str) -> None:
        self._arrived.pop(lane, None)  # to the end, or what is older would be learnt last
        self._arrived[lane] = text
        self.changed = True

    def read_arrived(self) -> None:
        """On the sender's thread, the only one that acts on statistics."""
        for lane in list(self._arrived):
            if (text := self._arrived.pop(lane, None)) is None:  # a newer one comes
                continue
            began, worked = clock.monotonic(), clock.thread_time()
            (self._of_direct_lane if lane == DIRECT_LANE else self._of_batch_lane)(text)
            ended = clock.monotonic()
            # On a busy machine the thread waits meanwhile, and nothing is spent.
            took = min(ended - began, clock.thread_time() - worked)
            more = 0.0 if self.holds.direct is None or lane == DIRECT_LANE else self._last_read[1]
            self._last_read = ended, took + more

    def _of_direct_lane(self, text: str) -> None:
        found, direct = self.read(text, self.holds.cluster.statistics.get(DIRECT_LANE)), self.holds.direct
        if found is None or direct is None or found.at < direct.counts.since:
            return  # or of the former one
        self._apply(found, DIRECT_LANE)
        if self.delivery.owns_timeout:
            direct.look_at_epochs(found, self.failures.fenced)
        refused = set(filter(self.failures.losses.refused, direct.backlogs.waiting()))
        if ended := self._not_in_lane({tp[0] for tp in refused}):
            direct.backlogs.forgive(ended)
        for tp in direct.update(found, self.holds.round_trip.seconds, self.holds.cluster.broker_info, refused):
            self.holds.cluster.outdated.answered_late(tp, DIRECT_LANE, found.at - LATE, found.at)
        self.changed = True

    def _not_in_lane(self, topics: set[str]) -> set[str]:
        """Topics of which the direct lane has no record. librdkafka's counts never tell that one was refused: its
        partition would count as silent for good, as long as others keep the lane from being empty."""
        elsewhere = Counter[str]()
        for tp, it in self.holds.buffers.copy().items() if topics else ():
            if tp[0] in topics:
                elsewhere.update({tp[0]: it.waiting + sum(len(batch.records) for batch in it.unresolved.copy())})
        ended = {topic: sum(self._counters.answers((topic, UNPLACED), now=True)) for topic in topics}
        rows = [(topic, self._counters.topics[topic]) for topic in topics]  # last: what is held may not be counted yet
        accepted = {topic: sum(it.accepted for it in (row, *row.partitions.copy().values())) for topic, row in rows}
        return {topic for topic in topics if accepted[topic] == ended[topic] + elsewhere[topic]}

    def _of_batch_lane(self, text: str) -> None:
        if (found := self.read(text, self.holds.cluster.statistics.get(_BATCH_LANE))) is not None:
            self._batch_statistics = found
            self._apply(found, _BATCH_LANE)
            if found.producer_id is not None and any(broker.state == "UP" for broker in found.brokers.values()):
                self.holds.lane_is_ready()
            self.changed = True

    def _apply(self, found: Statistics, lane: int) -> None:
        self.holds.round_trip.update(lane, found)
        self.failures.heard(found)
        if lane == DIRECT_LANE or self.holds.direct is None:
            self.holds.gate.heard(found)
        self.holds.cluster.update(lane, found)

    def read(self, text: str, before: Statistics | None = None) -> Statistics | None:
        """Statistics, by the clock of this process; None if the text is none. `before`: those of the lane."""
        if (found := read(text, before)) is None:
            return None
        at = self._clock.monotonic(found.at, clock.monotonic())
        return found if at == found.at else replace(found, at=at)

    def take_batch_statistics(self) -> Statistics | None:
        """The last statistics of the first batch lane, once."""
        found, self._batch_statistics = self._batch_statistics, None
        return found

    def sent_once(self, tp: TopicPartition, lane: int | None, since: float, late: int = 0) -> bool:
        """Whether statistics from after `since` prove that each record of a partition was in one request, if it ended;
        of `late` ones that they were in none.

        They count each attempt. The partition must have nothing under way, and no record may have failed unsent.
        """
        if late:
            return self.holds.cluster.never_sent(tp, lane, since, late)
        found = self.holds.cluster.statistics.get(DIRECT_LANE if lane is None else lane)
        if found is None or found.at <= since or self.failures.failed_at or self._counters.report_queue.failed_at:
            return False
        entry = found.partitions.get(tp)
        direct = self.holds.direct
        most, least = (0, 0) if direct is None else direct.counts.batches(found.at).get(tp, (0, 0))
        return entry is not None and most == least and entry.sent == entry.accepted + least
