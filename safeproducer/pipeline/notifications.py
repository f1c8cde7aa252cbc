"""Tells people of a producer: log lines, and hooks for what concerns no single record."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from safeproducer.hooks import (
    Hooks,
    LanesChanged,
    ProducerChurn,
    ProducerIdLimited,
    ProducerRenewed,
    RecordAbandoned,
    ReplicationChanged,
    Throttled,
    TransactionEnded,
    WindowChanged,
)
from safeproducer.kafka.advice import joined, told_apart
from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.policy.types import TopicPartition
from safeproducer.policy.window import Window
from safeproducer.records import ProducerInfo
from safeproducer.runtime.log import logger
from safeproducer.runtime.threads import Notices
from safeproducer.snapshot import ReplicationSnapshot


class NativeFailure(Protocol):
    error: KafkaError
    number: int
    not_written: int
    unknown: int


class Notifications:
    """Any thread. `last_error`: the newest trouble, as a sentence without secrets.

    `meanwhile`: what becomes of the records for a broker that throttles.
    """

    def __init__(
        self, info: ProducerInfo, hooks: Hooks, notices: Notices, scrub: Callable[[str], str], meanwhile: str
    ) -> None:
        self.info = info
        self._name = "".join(char if char.isprintable() else repr(char)[1:-1] for char in info.client_id)
        self._hooks = hooks
        self._notices = notices
        self.scrub = scrub
        self._meanwhile = meanwhile
        self._told: set[int | str] = set()
        self.last_error: str | None = None

    def _log(self, log: Callable[..., Any], text: str, *args: object) -> None:
        self._notices.tell(log, f"%s: {text}", self._name, *args)

    def _call(self, event: str, *args: object) -> None:
        self._notices.tell(self._hooks.call, event, *args)

    def _advised(self, error: KafkaError) -> str:
        """The text of an error, and what to do where that is known."""
        meaning, cure = told_apart(error.name(), error.str())
        return self.scrub(f"{error.str()}. {joined(meaning, cure)}" if cure else error.str())

    def error(self, error: KafkaError, sentence: str, last: str) -> None:
        """librdkafka tells of an error. The first of each kind is logged. `last`: what snapshot() shows."""
        self.last_error = last
        if error.code() not in self._told:
            self._told.add(error.code())
            self._log(logger.warning, "%s", sentence)
        self._call("client_error", self.info, error, sentence)

    def abandoned(self, topic: str, partition: int | None, outcome: str) -> None:
        """A record that nobody awaited any more has ended."""
        self._call("record_abandoned", RecordAbandoned(self.info, topic, partition, outcome))

    def throttled(self, broker: int, name: str, seconds: float, first: bool) -> None:
        """A broker throttles; `first`: a log line is due."""
        if first:
            text = "broker %s (%s) throttles this client for %.3f s because it exceeds a quota; %s"
            self._log(logger.warning, text, broker, name, seconds, self._meanwhile)
        self._call("throttled", Throttled(self.info, broker, name, seconds))

    def fatal(self, error: KafkaError, first: bool) -> None:
        """Tell of a fatal error; not the `first` time: only now it is known which one it was."""
        self._log(logger.critical, "fatal error %s: %s", error.name(), self._advised(error))
        if first:
            self._call("fatal_error", self.info, error)

    def renewed(self, failure: NativeFailure, seconds: float) -> None:
        """Another native producer has taken the place of one that failed."""
        event = ProducerRenewed(self.info, failure.error, failure.number, failure.not_written, failure.unknown, seconds)
        text = "a native producer failed (%s: %s), and another one took its place after %.2f s; %d record(s) failed"
        count = failure.not_written + failure.unknown
        self._log(logger.error, text, failure.error.name(), self._advised(failure.error), seconds, count)
        self._call("producer_renewed", event)

    def transaction_ended(self, outcome: str, seconds: float, doubt: str) -> None:
        self._call("transaction_ended", TransactionEnded(self.info, outcome, seconds, doubt))

    def new_epoch(self, why: str) -> None:
        """A transactional producer goes on in a new epoch."""
        text = "%s: the next transaction has a new producer epoch, so that brokers refuse what may still come late"
        self._log(logger.warning, text, why)

    def trouble(self, kind: str, what: str) -> None:
        """Something beside the way of records does not work and is tried again. The first of each kind is logged."""
        self.last_error = what = self.scrub(what)
        if kind not in self._told:
            self._told.add(kind)
            self._notices.later(logger.warning, "%s: %s", self._name, what)

    def once(self, kind: str, sentence: str) -> None:
        """Tell of something that is no failure. The first of each kind is logged."""
        if kind not in self._told:
            self._told.add(kind)
            self.warn(sentence)

    def lane_not_made(self, error: Exception, seconds: float) -> None:
        """One more native producer was needed, and could not be made."""
        cause = error.args[0] if isinstance(error, KafkaException) and error.args else None
        known = cause if isinstance(cause, KafkaError) else KafkaError(KafkaError._FAIL, str(error))
        sentence = self.scrub(
            f"another native producer could not be made ({known.str()}). Records go on by those there are, and it is "
            f"tried again in {seconds:.0f} s. Check that the files which the configuration names are still there and "
            f"readable, and how many open files and threads this process may have"
        )
        self.last_error = sentence
        if seconds <= 1:
            self._log(logger.warning, "%s", sentence)
        self._call("client_error", self.info, known, sentence)

    def turn_failed(self, error: object) -> None:
        """Something that must not fail did. It is tried again; records wait meanwhile."""
        self._log(
            partial(logger.error, exc_info=error if isinstance(error, BaseException) else None),
            "the thread that sends failed and goes on: %s. This is a defect of safeproducer: report it, and set "
            "safeproducer.mode=passthrough until it is mended",
            self.scrub(repr(error)),
        )

    def split(self, count: int) -> None:
        """librdkafka cut batches that were to be one request each."""
        self._log(
            logger.warning,
            "%d batch(es) left as more than one request each: handing over took longer than the guard, or a batch "
            "was larger than librdkafka allows",
            count,
        )

    def window(self, tp: TopicPartition, before: Window, after: Window) -> None:
        """A partition's leader announced another window, or what it announced is not to be relied on any more."""
        text, sizes = "%s: %s [%d]: window %d instead of %d, because %s", (after.size, before.size)
        self._notices.later(logger.info, text, self._name, *tp, *sizes, after.reason)
        change = WindowChanged(self.info, *tp, before.size, after.size, after.reason)
        self._notices.later(self._hooks.call, "window_changed", change)

    def replication(self, tp: TopicPartition, before: ReplicationSnapshot | None, after: ReplicationSnapshot) -> None:
        """How far a partition's replicas are, or what limits them, changed."""
        self._call("replication_changed", ReplicationChanged(self.info, *tp, before, after))

    def warn(self, sentence: str) -> None:
        self._log(logger.warning, "%s", self.scrub(sentence))

    def lanes(self, before: int, after: int, reason: str) -> None:
        """The number of lanes changed."""
        self._log(logger.info, "%d lanes instead of %d: %s", after, before, reason)
        self._call("lanes_changed", LanesChanged(self.info, before, after, reason))

    def producer_churn(self, event: ProducerChurn, sentence: str) -> None:
        """More producer IDs were taken within the hour than are allowed."""
        self._log(logger.warning, "%s", sentence)
        self._call("producer_churn", event)

    def producer_id_limited(self, event: ProducerIdLimited) -> None:
        """The producer waits for its ID, or is refused."""
        self._call("producer_id_limited", event)

    def limited(self, topic: str, partition: int) -> None:
        """Round trips limit a partition, and another ordering would cure it. Called once."""
        self._log(
            logger.warning,
            "%s [%d] is limited by the round trip to its leader: one batch of it is under way at a time, which "
            "keeps the order of the whole partition. If the order of each key is enough, set "
            "safeproducer.ordering=key: then as many batches are under way as the leader remembers",
            topic,
            partition,
        )
