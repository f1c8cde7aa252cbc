"""produce_batch(): the native batch call where it is exact, record by record where it would lose something.

The native call drops headers and per-message partitions silently and refuses timestamps (confluent_kafka 2.16).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.pipeline.frames import raised_by_native_call
from safeproducer.pipeline.lane import Lane
from safeproducer.pipeline.ledger import Ledger

BEYOND_NATIVE = frozenset({"headers", "timestamp", "partition", "callback", "on_delivery"})


def produce_batch(
    lane: Lane,
    ledger: Ledger,
    produce: Callable[..., None],
    topic: str,
    messages: list[dict[str, Any]],
    partition: int,
    callback: Callable[..., Any] | None,
) -> int:
    plain = lane.observed is None and lane.state == "open" and _is_plain(messages)
    if plain or not isinstance(messages, list) or not messages:
        return _native(lane, ledger, topic, messages, partition, callback)
    checked = [_checked(index, message, partition) for index, message in enumerate(messages)]
    return sum(_one(lane, produce, topic, message, arguments, callback) for message, arguments in checked)


def _is_plain(messages: Any) -> bool:
    try:
        return all(map(BEYOND_NATIVE.isdisjoint, messages))
    except TypeError:  # not a list of dicts: the native call says so as stock does
        return True


def _native(
    lane: Lane, ledger: Ledger, topic: str, messages: Any, partition: int, callback: Callable[..., Any] | None
) -> int:
    account: Any = ledger.topics.get(topic) if isinstance(topic, str) else None
    if account is None:
        account = ledger.open(topic)
    if partition != -1:
        account = account.explicit(partition)
    bound = account.bound
    if bound[0] is not callback:
        bound = account.bind(callback)
    offered = len(messages) if isinstance(messages, list) else 0
    account.accepted += offered
    try:
        good: int = lane.native.produce_batch(topic, messages, partition, bound[1])
    except Exception as error:
        if raised_by_native_call(error):
            account.accepted -= offered
            raise lane.refusal_of(error) from None
        raise
    if good != offered:
        account.accepted -= offered - good
        refusal = messages[-1].get("_error")
        if isinstance(refusal, KafkaError) and refusal.code() == KafkaError._FATAL:
            raise lane.refusal_of(KafkaException(refusal))
    return good


def _checked(index: int, message: Any, partition: int) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """(message, (value, key, partition, timestamp, headers)), refusing before anything is handed over."""
    if not isinstance(message, dict):
        raise TypeError(f"Message at index {index} must be a dict, not {type(message).__name__}")
    for field in ("value", "key"):
        if not isinstance(message.get(field), str | bytes | None):
            raise TypeError(
                f"Message at index {index}: {field} must be bytes, str or None, not {type(message[field]).__name__}"
            )
    own_partition = message.get("partition")
    timestamp = message.get("timestamp")
    for field, number in (("partition", own_partition), ("timestamp", timestamp)):
        if not isinstance(number, int | None):
            raise TypeError(f"Message at index {index}: {field} must be an int, not {type(number).__name__}")
    headers = message.get("headers")
    if headers is not None:
        _check_headers(index, headers)
    return message, (
        message.get("value"),
        message.get("key"),
        partition if own_partition is None else own_partition,
        0 if timestamp is None else timestamp,
        headers,
    )


def _check_headers(index: int, headers: Any) -> None:
    pairs = headers.items() if isinstance(headers, dict) else headers
    if not isinstance(headers, dict | list):
        raise TypeError(f"Message at index {index}: headers must be a dict or a list, not {type(headers).__name__}")
    for pair in pairs:
        if not (
            isinstance(pair, tuple)
            and len(pair) == 2
            and isinstance(pair[0], str | bytes)
            and isinstance(pair[1], str | bytes | None)
        ):
            raise TypeError(
                f"Message at index {index}: each header must be a pair of a name (str) and a value (bytes, str or None)"
            )


def _one(
    lane: Lane,
    produce: Callable[..., None],
    topic: str,
    message: dict[str, Any],
    arguments: tuple[Any, ...],
    callback: Callable[..., Any] | None,
) -> int:
    value, key, partition, timestamp, headers = arguments
    own_callback = message.get("callback") or message.get("on_delivery") or callback
    try:
        produce(topic, value, key, partition, own_callback, None, timestamp, headers)
    except BufferError:
        message["_error"] = KafkaError(KafkaError._QUEUE_FULL, "Message failed: Local: Queue full")
        return 0
    except KafkaException as error:
        if lane.events.fatal is not None:
            raise
        message["_error"] = error.args[0]
        return 0
    return 1
