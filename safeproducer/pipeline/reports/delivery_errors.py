"""The error that a failed record's callback is told: as librdkafka gave it, with the outcome and what is known.

Reports of records that a purge took out of librdkafka: which of them were in no request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from safeproducer.errors import DeliveryError
from safeproducer.kafka.advice import advice_to
from safeproducer.kafka.callback_errors import PURGED, Refusals
from safeproducer.kafka.native import OF_PRODUCER_ID, WITHOUT_OFFSET, KafkaError, Message
from safeproducer.kafka.statistics import Statistics
from safeproducer.pipeline.record import ACCEPTED_AT, DeliveryCallback, HeldRecord
from safeproducer.pipeline.reports.losses import Losses
from safeproducer.pipeline.reports.report_queue import DatedError, Deferred
from safeproducer.policy.outcome import Outcome, Purged, is_first_attempt, never_sent, outcome_of
from safeproducer.policy.types import NEVER, TopicPartition
from safeproducer.runtime import clock
from safeproducer.settings.delivery import SendConfig

Ended = tuple[Outcome, int | None]
"""(outcome, how often it was sent). What is not known is None, here and below."""
Place = tuple[str | None, int | None]
Times = tuple[float | None, float | None]  # (accepted at, handed over at)


def proven(reports: Sequence[Deferred], counts: Mapping[TopicPartition, int]) -> Iterator[tuple[Deferred, bool]]:
    """Each report, and whether its record was in no request. `counts`: records of a partition that were in none."""
    rows: dict[tuple[str | None, int | None], list[Purged]] = defaultdict(list)
    for kept in reports:
        rows[kept.message.topic(), kept.message.partition()].append(_purged(kept))
    proofs = {
        (topic, partition): iter(
            # Without a partition it was in no request.
            [True] * len(row)
            if topic is None or partition is None
            else never_sent(row, counts.get((topic, partition), 0))
        )
        for (topic, partition), row in rows.items()
    }
    for kept in reports:
        yield kept, next(proofs[kept.message.topic(), kept.message.partition()])


def purged_tps(reports: Sequence[Deferred]) -> set[TopicPartition]:
    """The partitions of the records that a purge took out of librdkafka."""
    tps = {(kept.message.topic(), kept.message.partition()) for kept in reports if kept.error.code() in PURGED}
    return {(topic, partition) for topic, partition in tps if topic is not None and partition is not None}


def _purged(kept: Deferred) -> Purged:
    elapsed = kept.message.latency()
    queued = kept.error.code() == KafkaError._PURGE_QUEUE
    if elapsed is None:
        return Purged(queued, -NEVER, NEVER)
    return Purged(queued, kept.since - elapsed, kept.by - elapsed)


class Failed(NamedTuple):
    """The key by which failed records are counted. None while not known; `unsent`: it was in no request."""

    topic: str | None
    partition: int | None
    error: str
    outcome: str
    unsent: bool


class Failures:
    """Makes DeliveryErrors and counts them by outcome. Any thread."""

    def __init__(self, delivery: SendConfig) -> None:
        self.not_written = 0
        self.unknown = 0
        self.cancelled = [0, 0]  # records that were taken back; cancelled too late for that, and not ended yet
        self.fenced = 0  # records that were refused for their producer ID
        self.without_offset = 0  # records that librdkafka took for delivered, and which nobody has acknowledged
        self.counts: defaultdict[Failed, int] = defaultdict(int)
        self.last: dict[str, str] = {}
        """Topic -> the name of the error of its last record that failed, and why, if nothing else tells that."""
        self.refusals = Refusals()
        self.many_lanes = False  # whether there are lanes whose producer ID no statistics tell
        self._identities: dict[int, int | None] = {}
        self.failed_at = 0.0  # when a report of a failed record was last run
        self.round_trip = 0.0  # the quickest round trip to any broker, by the last statistics
        self.losses = Losses(delivery.timeout)
        self._retry_backoff = delivery.retry_backoff
        self._forgotten_after = NEVER

    def reported(self, error: KafkaError, message: Message) -> KafkaError:
        """`error` of a delivery report, as the application gets it."""
        if isinstance(error, DeliveryError):
            return error
        self.failed_at = clock.monotonic()
        if error.code() in OF_PRODUCER_ID:
            self.fenced += 1
        if error is WITHOUT_OFFSET:
            self.without_offset += 1
        # Without a partition it was in no request.
        sent = message.partition() is not None and not self.refusals.never_sent()
        outcome = outcome_of(error.name(), message.latency(), self._retry_backoff, self.round_trip, sent)
        attempts = int(sent) if outcome is Outcome.NOT_WRITTEN else None
        return self._of_message(error, error, (outcome, attempts), message, self.refusals.fatal)

    def take_back(self, count: int) -> None:
        """Count records that were taken back. The sender calls."""
        self.cancelled[0] += count

    def abandon(self, count: int) -> None:
        """Count records that were cancelled too late; below zero, those of them that have ended."""
        self.cancelled[1] += count

    @property
    def unsent(self) -> int:
        """How many of those that are not written were in no request."""
        return sum(count for failed, count in self.counts.copy().items() if failed.unsent)

    @property
    def in_requests(self) -> int:
        """Records of unknown outcome that may be in a request. Those that a purge took out of a queue are in none."""
        counts = self.counts.copy().items() if self.unknown else ()
        unknown = Outcome.UNKNOWN.value
        return sum(n for failed, n in counts if failed.outcome == unknown and failed.error != "_PURGE_QUEUE")

    @property
    def identities(self) -> set[int]:
        """Producer IDs that statistics told of."""
        return set(self._identities.copy())

    @property
    def _identity(self) -> tuple[int | None, int | None]:
        """Producer ID and epoch, when there has been only one: a report does not say which lane it comes from."""
        identities = list(self._identities.copy().items())
        return identities[0] if len(identities) == 1 and not self.many_lanes else (None, None)

    def sent_by_many(self) -> None:
        """There are lanes whose producer ID no statistics tell."""
        self.many_lanes = True

    def heard(self, statistics: Statistics) -> None:
        """Take note of who sends, and how long round trips are."""
        if statistics.producer_id is not None:
            self._identities[statistics.producer_id] = statistics.producer_epoch
        if any(broker.state == "UP" for broker in statistics.brokers.values()):
            self.refusals.login = ""
        floors = [broker.rtt_floor for broker in statistics.brokers.values() if broker.rtt_floor is not None]
        if floors:
            self.round_trip = min(floors)

    def retries_beyond(self, seconds: float) -> None:
        """Retries go on, though a leader may have forgotten the producer ID after so many seconds (KIP-854)."""
        self._forgotten_after = seconds

    def proves_rejection(self, message: Message) -> bool:
        """Whether the rejection in this report answered the record's only attempt."""
        elapsed = message.latency()
        return elapsed is not None and is_first_attempt(elapsed, self._retry_backoff, self.round_trip)

    def expired(
        self, reports: Sequence[Deferred], counts: Mapping[TopicPartition, int], within: str | KafkaError
    ) -> Iterator[tuple[DeliveryCallback, KafkaError, Message]]:
        """The reports of a lane that was purged at a deadline, as the application gets them.

        `counts`: how many of a partition's records were certainly in no request. `within` what nothing was answered, or
        by which error the native producer failed.
        """
        for kept, unsent in proven(reports, counts):
            yield kept.run, self._purged(kept.error, unsent, kept.message, within), kept.message

    def _purged(self, error: KafkaError, never_sent: bool, message: Message, within: str | KafkaError) -> KafkaError:
        if error.code() not in PURGED:
            return self.reported(error, message)
        ended: Ended = (Outcome.NOT_WRITTEN, 0) if never_sent else (Outcome.UNKNOWN, None)
        if isinstance(within, KafkaError):
            return self._of_message(error, error, ended, message, within)
        why = "it was not sent" if never_sent else "no broker acknowledged it"
        late = KafkaError(KafkaError._MSG_TIMED_OUT, f"Local: Message timed out: {why} within {within}")
        return self._of_message(error, late, ended, message)

    def _of_message(
        self, error: KafkaError, told: KafkaError, ended: Ended, message: Message, cause: KafkaError | None = None
    ) -> KafkaError:
        """`told`: as the application gets it; `cause`: the fatal error, if there was one."""
        elapsed = message.latency()
        served_at, accepted_at = clock.time(), None
        if isinstance(error, DatedError):
            served_at, accepted_at = error.served_at, error.accepted_at
        handed_over_at = None if elapsed is None else served_at - elapsed
        times = (handed_over_at if accepted_at is None else accepted_at), handed_over_at
        made = self._made(told, ended, (message.topic(), message.partition()), times, cause)
        message.set_error(made)
        return made

    def in_process(
        self, topic: str, partition: int, record: HeldRecord, code: int, reason: str, handed_over: bool
    ) -> KafkaError:
        """The error of a record that this library fails."""
        ended: Ended = (Outcome.UNKNOWN, None) if handed_over else (Outcome.NOT_WRITTEN, 0)
        place, accepted_at = (topic, partition if partition >= 0 else None), clock.time()
        accepted_at -= clock.monotonic() - record[ACCEPTED_AT]
        return self._made(KafkaError(code, reason), ended, place, (accepted_at, None), self.refusals.fatal)

    def _made(
        self, error: KafkaError, ended: Ended, place: Place, times: Times, fatal: KafkaError | None
    ) -> DeliveryError:
        # Each failed record comes here once, on any thread. Why it failed is told by what is known of its partition,
        # else of the producer, else by the code. Its producer ID is for who looks for the record in the log.
        outcome, attempts, topic, partition = *ended, *place
        if outcome is Outcome.NOT_WRITTEN:
            self.not_written += 1
        else:
            self.unknown += 1
        failed = Failed(topic, partition, error.name(), outcome.value, attempts == 0)
        self.counts[failed] += 1
        since = next((at for at in times[::-1] if at is not None), NEVER)
        producer_id, epoch = self._identity if outcome is Outcome.UNKNOWN else (None, None)
        why = self.refusals.why(error.code(), fatal) or advice_to(failed.error, error.str())
        if topic is not None:
            late, code = error.code() == KafkaError._MSG_TIMED_OUT, error.code()
            of_broker = code >= KafkaError.UNKNOWN and code != KafkaError.NO_ERROR  # which librdkafka may tell ahead
            refused = failed.error if of_broker or code == KafkaError._UNKNOWN_PARTITION else ""
            why = self.losses.cause(topic, partition, late, refused, error.str()) or why
            self.last[topic] = failed.error if late or refused or not why else f"{failed.error}: {why}"
        if why:
            reason, aborts = f"{error.str()}: {why}", error.txn_requires_abort()
            error = KafkaError(error.code(), reason, txn_requires_abort=aborts)
        twice = outcome is Outcome.UNKNOWN and clock.time() - since >= self._forgotten_after
        return DeliveryError(error, outcome, *place, producer_id, epoch, *times, attempts, twice)
