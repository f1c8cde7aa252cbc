"""Everything this library raises.

Each class also derives from the class that confluent_kafka.Producer raises in the same situation, so handlers
written for it keep working, and where stock carries a KafkaError in `args[0]`, so do we.
One class stands for one decision a caller can take.
"""

from __future__ import annotations

from safeproducer.kafka.native import KafkaError, KafkaException


class SafeProducerError(Exception):
    """Base of every error raised by this library; catch it to catch them all."""


class ConfigurationError(SafeProducerError, KafkaException):
    """A setting was refused when the producer was constructed.

    `setting` is its name, `value` the refused value as text ("***" where it may be a secret), and the message
    ends with the way out. `args[0]` is the KafkaError with code _INVALID_ARG, as stock raises.
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
    """A setting has a value of the wrong type, where stock raises TypeError."""


class ConfigurationValueError(ConfigurationError, ValueError):
    """A setting has an unusable value, where stock raises ValueError."""


class QueueFullError(SafeProducerError, BufferError):
    """The local queue is full; the record was not accepted. Call poll() and produce it again."""


class FatalError(SafeProducerError, KafkaException):
    """The producer met an error it cannot recover from and takes no more records.

    `args[0]` is librdkafka's KafkaError (its `fatal()` is true). Records without a delivery report are of unknown
    outcome: they may or may not be in the log. The message says what to do.
    """

    def __init__(self, error: KafkaError, unresolved: int) -> None:
        self.unresolved = unresolved
        super().__init__(error)

    def __str__(self) -> str:
        error = self.args[0]
        return (
            f"fatal error {error.name()}: {error.str()}. This producer takes no more records; {self.unresolved} "
            f"accepted record(s) have no delivery report yet and are of unknown outcome. Call poll() or flush() to "
            f"receive the reports that remain, close() this producer, and create one new producer (not one per "
            f"retry: each takes a new producer ID from the brokers)."
        )


class ProducerClosedError(SafeProducerError, RuntimeError):
    """The producer was used after close()."""


class ForkedProducerError(SafeProducerError, RuntimeError):
    """A producer made before a fork was used in the child process, where its threads do not exist."""


class CallbackReentryError(SafeProducerError, RuntimeError):
    """close() was called from inside a callback, where it could never finish."""


__all__ = [
    "CallbackReentryError",
    "ConfigurationError",
    "ConfigurationTypeError",
    "ConfigurationValueError",
    "FatalError",
    "ForkedProducerError",
    "ProducerClosedError",
    "QueueFullError",
    "SafeProducerError",
]
for _name in __all__:
    globals()[_name].__module__ = "safeproducer"
