"""produce_batch(): the native batch call where it is exact, record by record where it would lose something.

The native call drops headers and per-message partitions silently and refuses timestamps (confluent_kafka 2.16).
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from safeproducer.errors import NOT_ACCEPTED
from safeproducer.kafka.arguments import is_invalid
from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.pipeline.cluster.outdated_leaders import DIRECT
from safeproducer.pipeline.engine import Engine
from safeproducer.pipeline.reports.delivery_counters import DeliveryCounters
from safeproducer.records import refuse_names

BEYOND_NATIVE = frozenset({"headers", "timestamp", "partition", "callback", "on_delivery"})
BYTES_OR_NONE = frozenset({bytes, type(None)})
VALUE = itemgetter("value")
KEY = itemgetter("key")


def produce_batch(
    engine: Engine,
    counters: DeliveryCounters,
    produce: Callable[..., None],
    topic: str,
    messages: list[dict[str, Any]],
    partition: int,
    callback: Callable[..., Any] | None,
) -> int:
    """Accept `messages`; how many were accepted. `produce` accepts one record."""
    # Nothing to lose: the native call answers as confluent_kafka does.
    simple = not isinstance(messages, list) or not messages
    if not simple:
        engine.route.enter()
    direct = engine.route.goes_direct and engine.route.observed is None and engine.route.state == "open"
    if simple or (direct and _is_plain(messages) and _is_counted(engine, counters, topic, partition)):
        return _native(engine, counters, topic, messages, partition, callback)
    if isinstance(topic, str) and is_invalid(topic):
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, f"Invalid topic: {topic}"))
    checked = [_checked(index, message, partition) for index, message in enumerate(messages)]
    return sum(_one(engine, produce, topic, message, arguments, callback) for message, arguments in checked)


def _is_counted(engine: Engine, counters: DeliveryCounters, topic: str, partition: int) -> bool:
    """Whether it is known what librdkafka's statistics will count of this call.

    What names a partition is left out, but not what waits with a new topic's other records until a broker has told of
    it.
    """
    if partition == -1 or not counters.times_batches:
        return True
    found = engine.holds.cluster.statistics.get(DIRECT)
    entry = None if found is None else found.partitions.get((topic, partition))
    return entry is not None and entry.leader >= 0


def _is_plain(messages: list[dict[str, Any]]) -> bool:
    """Whether the native call sends these messages exactly.

    Raises UnicodeEncodeError for text that is no UTF-8: the native call raises too, but sends all the messages first,
    with null in place of that text.
    """
    try:
        if {*map(type, messages)} != {dict}:  # a subclass may put a default where a field is asked for
            raise TypeError
        if not BEYOND_NATIVE.isdisjoint(set().union(*messages)):
            return False
        kinds = {*map(type, map(VALUE, messages)), *map(type, map(KEY, messages))}
    except (KeyError, TypeError):  # a field left out, or not all of them dicts
        return all(isinstance(message, dict) for message in messages) and _is_plain(
            [{"value": message.get("value"), "key": message.get("key"), **message} for message in messages]
        )
    if kinds <= BYTES_OR_NONE:
        return True
    for message in messages:
        for text in (message["value"], message["key"]):
            if type(text) is str and not text.isascii():
                text.encode()
    return kinds <= BYTES_OR_NONE | {str}


def _native(
    engine: Engine,
    counters: DeliveryCounters,
    topic: str,
    messages: Any,
    partition: int,
    callback: Callable[..., Any] | None,
) -> int:
    account: Any = counters.topics.get(topic) if isinstance(topic, str) else None
    if account is None:
        account = counters.open(topic)
    if partition != -1:
        account = account.explicit(partition)
    bound = account.bound
    if bound[0] is not callback:
        bound = account.bind(callback)
    offered = len(messages) if isinstance(messages, list) else 0
    account.accepted += offered
    call = account.batches.begin(offered) if partition != -1 else None
    good: int = 0
    try:
        good = engine.native.produce_batch(topic, messages, partition, bound[1])
    except NOT_ACCEPTED as error:
        account.accepted -= offered
        raise engine.calls.refusal_of(error) from None
    except BaseException:
        counters.interrupts += offered  # how many were accepted is not known
        raise
    finally:
        if call is not None:
            call.end(good)
    if good != offered:
        account.accepted -= offered - good
        refusal = messages[-1].get("_error")
        if isinstance(refusal, KafkaError) and refusal.code() == KafkaError._FATAL:
            raise engine.calls.refusal_of(KafkaException(refusal))
    return good


def _checked(index: int, message: Any, partition: int) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """(message, (value, key, partition, timestamp, headers)), refusing before anything is handed over."""
    if not isinstance(message, dict):
        raise TypeError(f"Message at index {index} must be a dict, not {type(message).__name__}")
    for field in ("value", "key"):
        content = message.get(field)
        if not isinstance(content, str | bytes | None):
            kind = type(content).__name__
            raise TypeError(f"Message {field} at index {index} must be bytes or str, not {kind}; None for none")
        if isinstance(content, str):
            str.encode(content)  # as the client does: not by a subclass's own method
    own_partition = _integer(index, message, "partition", bits=32)
    timestamp = _integer(index, message, "timestamp", bits=64)
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


def _integer(index: int, message: dict[str, Any], field: str, bits: int) -> int | None:
    number: Any = message.get(field)
    if not isinstance(number, int | None):
        raise TypeError(f"Message {field} at index {index} must be int, not {type(number).__name__}")
    if number is not None and not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise OverflowError(f"Message {field} at index {index} does not fit into {bits} bits: {number}")
    return number


def _check_headers(index: int, headers: Any) -> None:
    """Raise ValueError, as the native batch call does, for what is no dict or list of (name, value) pairs."""
    if not isinstance(headers, dict | list):
        kind = type(headers).__name__
        raise ValueError(f"Invalid headers at index {index}: they must be a dict or a list of pairs, not {kind}")
    for pair in headers.items() if isinstance(headers, dict) else headers:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], str | bytes | None)):
            raise ValueError(
                f"Invalid headers at index {index}: each must be a tuple of a name and a value (bytes, str or None)"
            )
        refuse_names([pair])
        if isinstance(pair[1], str):
            str.encode(pair[1])


def _one(
    engine: Engine,
    produce: Callable[..., None],
    topic: str,
    message: dict[str, Any],
    arguments: tuple[Any, ...],
    callback: Callable[..., Any] | None,
) -> int:
    value, key, partition, timestamp, headers = arguments
    own_callback = message.get("callback")
    if own_callback is None:
        own_callback = message.get("on_delivery")
    if own_callback is None:
        own_callback = callback
    try:
        produce(topic, value, key, partition, own_callback, None, timestamp, headers)
    except BufferError:
        message["_error"] = _failed(KafkaError._QUEUE_FULL)
        return 0
    except KafkaException as error:
        if engine.events.fatal is not None:
            raise
        message["_error"] = _failed(error.args[0].code())
        return 0
    return 1


def _failed(code: int) -> KafkaError:
    return KafkaError(code, f"Message failed: {KafkaError(code).str()}")
