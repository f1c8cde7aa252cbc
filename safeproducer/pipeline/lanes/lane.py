"""A lane is a native producer with one producer ID: its epochs, gaps and failure, and when another one follows it.

Threads of the application produce into the direct lane, whose batches librdkafka makes; the sender into batch lanes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from safeproducer.kafka.native import KafkaError
from safeproducer.policy.permits import LONGEST_WAIT
from safeproducer.policy.renewals import Epochs, Renewals
from safeproducer.policy.sequence_gaps import SequenceGaps
from safeproducer.policy.types import NEVER, UNPLACED, TopicPartition
from safeproducer.producer_ids.lane_permits import LanePermit, LanePermits
from safeproducer.runtime import clock
from safeproducer.settings.own_settings import DEFAULT_PRODUCER_IDS_PER_HOUR

USED_UP = KafkaError(KafkaError.INVALID_PRODUCER_EPOCH, "brokers refuse its producer ID, or its epochs are used up")
_SERVED_WITHIN = 1.0  # seconds until poll() serves a fatal error that a call has told of; then the call's word is taken
_OF_BATCH = re.compile(r"ProduceRequest for (\S+) \[(\d+)\] ")


class LaneFailure:
    """A native producer failed, and its records end as this says.

    `not_written` and `unknown`: how many of them failed so. `number`: of the renewal, 0 before. `due`: until when the
    other one waits, None while it does not.
    """

    def __init__(self, error: KafkaError) -> None:
        self.error = error
        self.at = clock.monotonic()
        self.number = self.not_written = self.unknown = 0
        self.ended = False
        self.due: float | None = None

    @property
    def tp(self) -> TopicPartition | None:
        """The partition of the batch that met the error, if it says so."""
        found = _OF_BATCH.search(self.error.str())
        return found and (found[1], int(found[2]))

    def waits(self, due: float | None) -> float | None:
        self.due = due
        return due

    def count(self, unknown: int, not_written: int = 0) -> None:
        self.unknown += unknown
        self.not_written += not_written

    def end(self, error: KafkaError | None = None) -> None:
        """The failed lane is empty. `error`: the cause, where a better one is known by now."""
        self.error, self.ended = error or self.error, True


class Lane:
    """The sender changes it; any thread may ask.

    - `number`: DIRECT_LANE, or from 0 on. `epochs`: of its producer ID.
    - `gaps`: in sequence numbers, since it was purged. `draining`: it is about to be purged, and takes nothing.
    - `failure`: it takes nothing more, and another one comes in its place.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.epochs = Epochs()
        self.gaps = SequenceGaps()
        self.draining = False
        self.failure: LaneFailure | None = None
        self._fatal_at = NEVER

    def met_fatal(self, error: KafkaError) -> None:
        """A native call of it met this. Any thread.

        Most calls tell only that there is a fatal error, which poll() serves soon. A signal handler that raises in that
        poll() takes the error away, and nothing tells of it again: then what the calls tell has to do.
        """
        now = clock.monotonic()
        self._fatal_at = min(self._fatal_at, now)
        if error.fatal() or now >= self._fatal_at + _SERVED_WITHIN:
            self.fail(error)

    def fail(self, error: KafkaError) -> None:
        """The lane takes nothing more, and another one comes in its place. Any thread."""
        if self.failure is None or (self.failure.error is USED_UP and error is not USED_UP):
            self.failure = LaneFailure(error)

    def look_at_epoch(self, epoch: int | None) -> None:
        """Look at the epoch of its producer ID, by statistics."""
        if self.epochs.used_up(epoch):
            self.fail(USED_UP)

    @property
    def is_sound(self) -> bool:
        """Whether it has not failed, and was never purged."""
        return not (self.failure or self.draining) and self.gaps.purged_at == -NEVER


@dataclass(eq=False)
class Renewing:
    """The sender's thread calls; any thread may ask for `count` and `due`.

    - `permits()`: of the producer IDs that lanes take.
    - `on`: whether a fatal error is followed by another native producer. Else only used-up epochs are.
    - `refuses`: the policy on producer IDs is to refuse. Then there is an `end`: nothing follows this error any more.
    - `delivered()`: records so far, of a partition or of all. `apart`: see HoldFacts.
    - `tell(failure, seconds)` is called once for each renewal.
    - `due`: until when the next one waits, None while none does.
    - `causes`: how many there were, by the error's name.
    """

    permits: Callable[[], LanePermits]
    on: bool = False
    refuses: bool = False
    _limit: Renewals = field(default_factory=lambda: Renewals(DEFAULT_PRODUCER_IDS_PER_HOUR))
    _delivered: Callable[[TopicPartition | None], int] = lambda tp: 0
    _tell: Callable[[LaneFailure, float], object] = lambda failure, seconds: None
    _apart: dict[TopicPartition, float] = field(default_factory=dict)
    _rows: dict[str, tuple[int, dict[TopicPartition, int]]] = field(default_factory=dict)
    """By topic, the number of the row of failures that goes on, and its partitions, none delivered since."""
    count: int = 0
    due: float | None = None
    end: KafkaError | None = None
    waiting: list[LaneFailure] = field(default_factory=list)  # failures whose native producer is not replaced yet
    causes: Counter[str] = field(default_factory=Counter)
    _granted: LanePermit | None = None
    _ask_at: float = 0.0

    def permit(self, failure: LaneFailure, now: float) -> LanePermit | None:
        """For the native producer that comes in its place, None while it is not to be made. It is kept until then."""
        due = self._limit.due(now, *self._row(failure.tp))
        if self._granted is None and max(due, self._ask_at) <= now:
            permit, again = self.permits().renewal(now)
            if permit.denied:
                self._ask_at, due = min(again, now + LONGEST_WAIT), again
                self.end = failure.error if self.refuses and failure.error is not USED_UP else None
            else:
                self._granted = permit
        self.due = failure.waits(due if self._granted is None else None)
        return self._granted

    @property
    def began(self) -> bool:
        """Whether a native producer failed."""
        return bool(self.count or self.waiting)

    def replaces(self, error: KafkaError) -> bool:
        """Whether another native producer comes before the one with this error is empty."""
        return self.on or error is USED_UP

    def used(self, failure: LaneFailure, now: float) -> None:
        """A native producer was made with the permit."""
        self._granted, tp = None, failure.tp
        until = self._limit.made(now, *self._row(tp))
        if tp is not None and until > now:
            alone = len(self._rows[tp[0]][1]) == 1  # its neighbours work; else the topic is sick
            self._apart[tp if alone else (tp[0], UNPLACED)] = until

    def _row(self, tp: TopicPartition | None) -> tuple[int, str | None]:
        """The key of a row of failures, and the topic: a row ends once all that failed in it had deliveries."""
        if tp is None:
            return self._delivered(None), None
        number, failed = self._rows.get(tp[0], (0, {}))
        failed = {one: count for one, count in failed.items() if self._delivered(one) == count}
        number += not failed
        self._rows[tp[0]] = number, failed | {tp: self._delivered(tp)}
        return number, tp[0]

    def replaced(self, failure: LaneFailure) -> None:
        """Another native producer is there."""
        self.count += 1
        self.causes[failure.error.name()] += 1
        failure.number = self.count
        self.waiting = [other for other in self.waiting if other is not failure]
        self.settle(failure)

    def settle(self, failure: LaneFailure) -> None:
        """Tell of it once it is over: another one is there, and the failed one is empty."""
        if failure.number and failure.ended:
            self._tell(failure, clock.monotonic() - failure.at)
