"""Everything this library raises.

Each class also derives from the class that confluent_kafka.Producer raises in the same situation, so handlers
written for it keep working, and where confluent_kafka carries a KafkaError in `args[0]`, so do we.
One class stands for one decision a caller can take.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn

from safeproducer.kafka.advice import advice, is_permanent
from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.policy.outcome import Outcome
from safeproducer.records import CallSite


class SafeProducerError(Exception):
    """Base of every error raised by this library; catch it to catch them all. All can be copied and pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Not through the constructor: what it takes is not what it leaves in `args`.
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[SafeProducerError], args: tuple[Any, ...], attributes: dict[str, Any]) -> SafeProducerError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class ConfigurationError(SafeProducerError, KafkaException):
    """A setting was refused when the producer was constructed.

    `setting` is its name, `value` the refused value as text (asterisks where it may be a secret), and the message ends
    with the way out. `args[0]` is the KafkaError with code _INVALID_ARG, as confluent_kafka raises.
    """

    def __init__(self, setting: str, value: str, problem: str, way_out: str) -> None:
        self.setting = setting
        self.value = value
        shown = f"setting {setting!r} = {value}: " if setting else ""
        self.message = f"{shown}{problem}. {way_out}"
        super().__init__(KafkaError(KafkaError._INVALID_ARG, self.message))

    def __str__(self) -> str:
        return self.message


class ConfigurationTypeError(ConfigurationError, TypeError):
    """A setting has a value of the wrong type, where confluent_kafka raises TypeError."""


class ConfigurationValueError(ConfigurationError, ValueError):
    """A setting has an unusable value, where confluent_kafka raises ValueError."""


class QueueFullError(SafeProducerError, BufferError):
    """The local queue is full; the record was not accepted. Call poll() and produce it again."""


class FatalError(SafeProducerError, KafkaException):
    """The producer met an error it cannot recover from and takes no more records.

    `args[0]` is librdkafka's KafkaError (its `fatal()` is true). `unresolved` is how many records have no delivery
    report yet. Records without a delivery report are of unknown outcome: they may or may not be in the log. The message
    says what to do.
    """

    def __init__(self, error: KafkaError, unresolved: int) -> None:
        self.unresolved = unresolved
        super().__init__(error)

    def __str__(self) -> str:
        error = self.args[0]
        mends = error.code() > 0 and is_permanent(error.name())
        left = (
            f"; {self.unresolved} accepted record(s) have no delivery report yet. Call poll() or flush() to receive "
            f"the reports that remain, each with its outcome, then"
        )
        return (
            f"fatal error {error.name()}: {error.str()}. {advice(error.name()) + ' ' if mends else ''}This producer "
            f"takes no more records{left if self.unresolved else ':'} close() it, and create one new producer "
            f"{'once that is mended ' if mends else ''}(not one per retry: each takes a new producer ID from the "
            f"brokers)."
        )


class ProducerIdLimitError(SafeProducerError, KafkaException):
    """This host has used up its producer IDs of the hour, and the policy refuses the record (KIP-936).

    The first produce() of a producer raises it, or init_transactions(). `retry_after`: seconds until the next producer
    ID, for whoever asks first then. `site`: the line that made this producer. `args[0]` is a KafkaError with code
    THROTTLING_QUOTA_EXCEEDED. The same producer may be asked again: it takes its ID then.
    """

    def __init__(self, problem: str, retry_after: float, site: CallSite) -> None:
        self.retry_after = retry_after
        self.site = site
        super().__init__(KafkaError(KafkaError.THROTTLING_QUOTA_EXCEEDED, problem, retriable=True))

    def __str__(self) -> str:
        return str(self.args[0].str())


class ProducerClosedError(SafeProducerError, RuntimeError):
    """The producer was used after close()."""


class ForkedProducerError(SafeProducerError, RuntimeError):
    """A producer made before a fork was used in the child process, where its threads do not exist."""


class CallbackReentryError(SafeProducerError, RuntimeError):
    """close() was called from inside a callback, where it could never finish."""


def _by_code(compare: Callable[[int, int], bool]) -> Callable[[KafkaError, object], Any]:
    def method(self: KafkaError, other: object) -> Any:
        try:
            code: int = other.code() if isinstance(other, KafkaError) else operator.index(other)  # type: ignore[arg-type]
        except TypeError:
            return NotImplemented
        return compare(self.code(), code)

    return method


def flags_of(error: KafkaError) -> dict[str, bool]:
    """The flags with which an error like it is made."""
    return {name: bool(getattr(error, name)()) for name in ("fatal", "retriable", "txn_requires_abort")}


class Renewed(Exception):  # noqa: N818 - no call of the application raises it
    """In place of a FatalError: another native producer comes, and the record is to be produced again."""


RENEWED = Renewed()

NOT_ACCEPTED = (SafeProducerError, KafkaException, BufferError, TypeError, ValueError, OverflowError)
"""A record is not accepted if produce(), of this library or of the client, raises one of these.

Of any other exception a signal handler may be the author, and whether the record was accepted is not known.
"""


class DeliveryError(KafkaError):
    """Why a record was not delivered, and its outcome: the error that a delivery callback gets.

    It is the KafkaError that confluent_kafka gives, with the same `code()`, `name()`, `str()` and `fatal()`, and like
    that no exception class: raise `KafkaException(error)`. It compares, sorts and hashes by its code, with KafkaErrors
    and with codes; beside anything else it is unequal, where confluent_kafka's comparison raises. It can be copied and
    pickled.

    `outcome` decides what to do:

    - NOT_WRITTEN: the record is nowhere in the log and never will be. Produce it again when the cause is gone; there is
      no duplicate.
    - UNKNOWN: it is in the log once, or not at all. If a duplicate does no harm, produce it again. Else look for it in
      the log before you do, by the record's own key or identifier; a copy that was on its way at the time of the
      report may arrive up to about twice `socket.timeout.ms` later. `producer_id` and `producer_epoch` say which
      batches of the partition can hold it.

    `topic` and `partition` are where it was to go, the partition None when none was chosen. `producer_id` and
    `producer_epoch` are those of handing over. `accepted_at` (produce() returned; for a record that was held back
    and then went directly, when it did) and `handed_over_at` (librdkafka accepted it) are seconds since the Unix epoch,
    whatever timestamp the record has; `attempts` is how often it was sent. Each is None when not known.
    `possibly_twice`: retries went on for longer than its leader remembers a producer ID (KIP-854), which
    safeproducer.expiry=guard rules out; then UNKNOWN may be twice as well.
    """

    def __init__(
        self,
        error: KafkaError,
        outcome: Outcome,
        topic: str | None = None,
        partition: int | None = None,
        producer_id: int | None = None,
        producer_epoch: int | None = None,
        accepted_at: float | None = None,
        handed_over_at: float | None = None,
        attempts: int | None = None,
        possibly_twice: bool = False,
    ) -> None:
        super().__init__(error.code(), error.str(), **flags_of(error))
        self.outcome = Outcome(outcome)
        self.topic = topic
        self.partition = None if partition == -1 else partition
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.accepted_at = accepted_at
        self.handed_over_at = handed_over_at
        self.attempts = attempts
        self.possibly_twice = possibly_twice

    # confluent_kafka's compares an instance of this class as it compares anything that is no KafkaError: it raises.
    __eq__ = _by_code(operator.eq)
    __ne__ = _by_code(operator.ne)
    __lt__ = _by_code(operator.lt)
    __le__ = _by_code(operator.le)
    __gt__ = _by_code(operator.gt)
    __ge__ = _by_code(operator.ge)
    __hash__ = KafkaError.__hash__

    def __str__(self) -> str:
        tp = "" if self.topic is None else f" for {self.topic}"
        if self.topic is not None and self.partition is not None:
            tp += f" [{self.partition}]"
        attempts = "" if self.attempts is None else f" after {self.attempts} attempt(s)"
        happened = f"a record{tp} failed{attempts} with {self.name()} ({self.str()})"
        if self.outcome is Outcome.NOT_WRITTEN:
            return f"{happened}. It is not in the log: produce it again when the cause is gone."
        if self.possibly_twice:
            return (
                f"{happened}. It may be in the log once, possibly twice, or not at all: its leader may have forgotten "
                f"this producer between two attempts (KIP-854). Look for it in the log before you produce it again."
            )
        return (
            f"{happened}. It may be in the log once, or not at all: if a duplicate does no harm, produce it again; "
            f"else look for it in the log before you do."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        error = KafkaError(self.code(), self.str(), **flags_of(self))
        return type(self), (error, self.outcome), self.__dict__


class DeliveryFailed(SafeProducerError, KafkaException):  # noqa: N818 - DeliveryError is the KafkaError in it
    """A record that somebody awaits was not delivered. `args[0]` is its DeliveryError, `outcome` what became of it.

    It is a NotWritten or an OutcomeUnknown.
    """

    outcome: Outcome

    def __str__(self) -> str:
        return str(self.args[0])


class NotWritten(DeliveryFailed):
    """The record is nowhere in the log and never will be: send it again when the cause is gone. In HTTP a 503."""

    outcome = Outcome.NOT_WRITTEN


class OutcomeUnknown(DeliveryFailed):
    """The record is in the log once, or not at all: look for it before you send it again. In HTTP a 504."""

    outcome = Outcome.UNKNOWN


def failed(error: Any) -> DeliveryFailed:
    return (NotWritten if error.outcome is Outcome.NOT_WRITTEN else OutcomeUnknown)(error)


class EventLoopError(SafeProducerError, RuntimeError):
    """A producer was used on another event loop or thread than its own, or where no event loop of asyncio runs."""


class RecordTypeError(SafeProducerError, TypeError):
    """A record, or a list of them, was expected, and something else was given. None was accepted."""


class TransactionError(SafeProducerError, RuntimeError):
    """A transaction() cannot begin: another one is open, or the producer has no transactional.id."""


class TransactionAborted(SafeProducerError, KafkaException):  # noqa: N818 - as Kafka says it
    """The block of a transaction() could not be committed, and was aborted: no reader of committed records sees it.

    `args[0]` is the KafkaError that is the cause. Produce its records again, in a new transaction.
    """

    def __str__(self) -> str:
        cause = self.args[0]
        return f"the transaction was aborted: {cause.name()}: {cause.str()}. Produce its records again in a new one"


class TransactionUnknown(SafeProducerError, KafkaException):  # noqa: N818 - as OutcomeUnknown
    """A commit has no answer: whether readers see the transaction is open, and brokers alone know.

    `args[0]` is the KafkaError. commit_transaction() may be called again, and goes on waiting. A new transaction may
    begin instead: then this one ends as brokers had it, committed or aborted, and none of it gets into the new one.
    """

    def __str__(self) -> str:
        cause = self.args[0]
        return (
            f"whether the transaction is committed is not known: {cause.name()}: {cause.str()}. Call "
            f"commit_transaction() again to wait on, or look whether committed readers see it before its records are "
            f"produced again"
        )


__all__ = [
    "CallbackReentryError",
    "ConfigurationError",
    "ConfigurationTypeError",
    "ConfigurationValueError",
    "DeliveryError",
    "FatalError",
    "ForkedProducerError",
    "ProducerClosedError",
    "ProducerIdLimitError",
    "QueueFullError",
    "SafeProducerError",
]
for _name in __all__:
    globals()[_name].__module__ = "safeproducer"
_OF_AIO: tuple[type, ...] = (DeliveryFailed, NotWritten, OutcomeUnknown, EventLoopError, RecordTypeError)
for _class in (*_OF_AIO, TransactionError, TransactionAborted, TransactionUnknown):
    _class.__module__ = "safeproducer.aio"


class Unusable:
    """Stands where a native producer was once it must not be called any more: whatever is called raises."""

    def __init__(self, refusal: Callable[[], SafeProducerError]) -> None:
        self._refusal = refusal

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self._refusal()

    def __getitem__(self, key: object) -> NoReturn:
        raise self._refusal()

    def __len__(self) -> int:
        return 0

    @property
    def queued(self) -> int:
        return 0


UNINITIALISED = Unusable(
    lambda: ProducerClosedError(
        "Producer has been closed (Handle has been closed), or rather was never initialised: call "
        "super().__init__(config) in its subclass"
    )
)
