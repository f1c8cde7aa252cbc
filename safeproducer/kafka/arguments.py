"""The arguments of produce() for a record that is held back: checked as confluent_kafka checks them, and copied.

Timeouts of calls are taken as confluent_kafka takes them.
"""

from __future__ import annotations

import math
import re
from typing import Any

from safeproducer.kafka.advice import way_out
from safeproducer.kafka.native import KafkaError, KafkaException, NativeProducer

_VALIDATOR = NativeProducer.__new__(NativeProducer)
"""Has no handle: its produce() checks the arguments as confluent_kafka does, and then says that it is closed."""
Headers = list[tuple[Any, Any]]
_ONE_BYTE, _TWO_BYTES = 63, 8191  # the longest length that takes so many bytes in a record
_LONGEST_TOPIC = 512
_TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
WAYS_OUT = {
    code: f": {way_out(KafkaError(code).name())}"
    for code in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
}
NO_TIMEOUT = -1.0


def unable(code: int) -> KafkaException:
    """The exception that the native produce() raises."""
    reason = f"Unable to produce message: {KafkaError(code).str()}{WAYS_OUT.get(code, '')}"
    return KafkaException(KafkaError(code, reason))


def is_invalid(topic: str) -> bool:
    """Whether librdkafka refuses this name of a topic, which it does only once it sees it."""
    return len(str.encode(topic)) > _LONGEST_TOPIC


def is_no_name(topic: str) -> bool:
    """Whether brokers refuse this name of a topic."""
    return _TOPIC.fullmatch(topic) is None


def checked(
    topic: Any, value: Any, key: Any, partition: Any, report: Any, timestamp: Any, headers: Any
) -> tuple[bytes | None, bytes | None, Headers | None, int, int]:
    """(value, key, headers, bytes of the headers, and those that tell their lengths), copied as confluent_kafka copies
    them.

    Raises what confluent_kafka raises for the arguments.
    """
    try:
        _VALIDATOR.produce(topic, value, key, partition, report, None, timestamp, headers)
    except RuntimeError as error:
        if type(error) is not RuntimeError:  # the stack is full
            raise
    if is_invalid(topic):
        raise unable(KafkaError._INVALID_ARG)
    size = lengths = 0
    copied = list(headers.items() if isinstance(headers, dict) else headers) if headers else None
    if copied is not None:
        for name, content in copied:
            for length in (len(str(name).encode()), len(_copied(content) or b"")):
                size += length
                lengths += 1 + (length > _ONE_BYTE) + 2 * (length > _TWO_BYTES)
    return _copied(value), _copied(key), copied, size, lengths


def _copied(content: Any) -> bytes | None:
    if content is None or type(content) is bytes:
        return content
    # Not a subclass's own encode(): confluent_kafka does not call it.
    return str.encode(content) if isinstance(content, str) else bytes(memoryview(content))


def seconds(timeout: float) -> float:
    """A timeout that confluent_kafka takes for a number, text not; raises its TypeError."""
    try:
        return math.ldexp(timeout, 0)
    except TypeError as error:
        raise TypeError(f"timeout {error}: give seconds, such as 1.5") from None
