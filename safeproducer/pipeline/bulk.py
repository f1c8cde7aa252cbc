"""Many records in one call: produce_batch(), and values and keys of one topic for the sink of Spark.

The native call drops headers and per-message partitions silently and refuses timestamps (confluent_kafka 2.16).

Far from the brokers, where records wait before they go, those of one partition are accepted together, as a Block.
That is for the sink of Spark. It is no method of SafeProducer, whose methods are those of confluent_kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

from safeproducer.errors import NOT_ACCEPTED, RENEWED, Renewed, SafeProducerError
from safeproducer.hooks import BulkReport
from safeproducer.kafka.arguments import is_invalid
from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.pipeline.engine import Engine
from safeproducer.pipeline.lanes.direct_lane import BatchCall
from safeproducer.pipeline.reports.counters import DeliveryCounters
from safeproducer.policy.types import DIRECT_LANE, UNPLACED
from safeproducer.records import refuse_names
from safeproducer.runtime import clock

BEYOND_NATIVE = frozenset({"headers", "timestamp", "partition", "callback", "on_delivery"})
BYTES_OR_NONE = frozenset({bytes, type(None)})
VALUE, KEY = itemgetter("value"), itemgetter("key")


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
    if not isinstance(messages, list) or not messages:
        return _native(engine, counters, topic, messages, partition, callback)
    engine.route.enter()
    direct = engine.route.goes_direct and engine.route.state == "open" and engine.route.observed is None
    if direct and _is_plain(messages) and _is_counted(engine, topic, partition):
        try:
            return _native(engine, counters, topic, messages, partition, callback)
        except Renewed:  # those without an error were accepted before
            refused = [message for message in messages if message.pop("_error", None) is not None]
            again = produce_batch(engine, counters, produce, topic, refused, partition, callback)
            return len(messages) - len(refused) + again
    if isinstance(topic, str) and is_invalid(topic):
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, f"Invalid topic: {topic}"))
    return _one_by_one(engine, produce, topic, messages, partition, callback)


def _one_by_one(
    engine: Engine,
    produce: Callable[..., None],
    topic: str,
    messages: list[dict[str, Any]],
    partition: int,
    callback: Callable[..., Any] | None,
) -> int:
    records = [checked(index, message, partition, callback) for index, message in enumerate(messages)]
    observed = engine.route.observed
    if observed is not None and engine.route.send is observed:
        records = observed.follow(topic, records)
    left = iter(records)
    try:
        # A copy: callbacks that run meanwhile may change the caller's list.
        return sum(_one(engine, produce, topic, *pair) for pair in zip(messages.copy(), left, strict=True))
    except BaseException as error:
        for record in left:
            _refused(record, error)
        raise


def _is_counted(engine: Engine, topic: str, partition: int) -> bool:
    """Whether it is known what librdkafka's statistics will count of this call.

    What names a partition is left out, but not what waits with a new topic's other records until a broker has told of
    it.
    """
    direct = engine.holds.direct
    if partition == -1 or direct is None or not direct.knows_backlogs:
        return True
    found = engine.holds.cluster.statistics.get(DIRECT_LANE)
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


# librdkafka may take all messages, some or none, report them before the call returns, and a signal handler may raise in
# it. Were they counted later, more could end than were accepted: all are counted first, those not taken are taken off.
def _native(
    engine: Engine,
    counters: DeliveryCounters,
    topic: str,
    messages: Any,
    partition: int,
    callback: Callable[..., Any] | None,
) -> int:
    account: Any = (counters.topics.get(topic) if isinstance(topic, str) else None) or counters.open(topic)
    if partition != -1:
        account = account.explicit(partition)
    bound = account.bound
    if bound[0] is not callback:
        bound = account.bind(callback)
    offered = len(messages) if isinstance(messages, list) else 0
    direct = engine.holds.direct if offered and partition != -1 else None
    call = BatchCall(offered)  # it ends also when a signal handler raises
    account.accepted += offered
    good: int = 0
    try:
        if direct is not None:
            direct.begin_batch((topic, partition), call)
        good = engine.native.produce_batch(topic, messages, partition, bound[1])
    except NOT_ACCEPTED as error:
        account.accepted -= offered
        if isinstance(refusal := _refusal(engine, error), Renewed):
            for message in messages:
                message["_error"] = _failed(KafkaError._FATAL)
        raise refusal from None
    except BaseException:
        counters.interrupts += offered  # how many were accepted is not known
        raise
    finally:
        call.end(good)
    if good != offered:
        account.accepted -= offered - good
        refusal = messages[-1].get("_error")
        if isinstance(refusal, KafkaError) and refusal.code() == KafkaError._FATAL:
            raise _refusal(engine, KafkaException(refusal))
    return good


def _refusal(engine: Engine, error: Exception) -> Exception:
    refusal = engine.calls.refusal_of(error)
    return Renewed() if refusal is RENEWED else refusal


def checked(index: int, message: Any, partition: int, callback: Callable[..., Any] | None) -> tuple[Any, ...]:
    """(value, key, partition, timestamp, headers, callback), refusing before anything is handed over."""
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
    own_callback = message.get("callback")
    if own_callback is None:
        own_callback = message.get("on_delivery")
    return (
        message.get("value"),
        message.get("key"),
        partition if own_partition is None else own_partition,
        0 if timestamp is None else timestamp,
        headers,
        callback if own_callback is None else own_callback,
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
    engine: Engine, produce: Callable[..., None], topic: str, message: dict[str, Any], record: tuple[Any, ...]
) -> int:
    value, key, partition, timestamp, headers, callback = record
    try:
        produce(topic, value, key, partition, callback, None, timestamp, headers)
    except BaseException as error:
        _refused(record, error)
        full = isinstance(error, BufferError)
        if not (full or (isinstance(error, KafkaException) and engine.events.fatal is None)):
            raise
        message["_error"] = _failed(KafkaError._QUEUE_FULL if full else error.args[0].code())
        return 0
    return 1


def _refused(record: tuple[Any, ...], error: BaseException) -> None:
    if type(record[-1]) is BulkReport:
        record[-1].end(error)


def _failed(code: int) -> KafkaError:
    return KafkaError(code, f"Message failed: {KafkaError(code).str()}")


def produce_records(
    engine: Engine,
    topic: str,
    columns: Sequence[Iterable[Any]],
    callback: Callable[..., Any],
    refused: Callable[..., object],
    partition: int = UNPLACED,
) -> None:
    """Accept the records of these `columns` in their order: values and keys, or also timestamps and headers, of which
    nothing is checked or noted any more. Without exception each is counted before it is handed over.

    `refused` is called with what produce() takes for a record that was not accepted; what it raises ends the loop. Why
    it was not, a produce() of the same tells. What is raised by a signal handler is not caught.
    """
    counters, route = engine.counters, engine.route
    opened = counters.open(topic)
    account = opened if partition == UNPLACED else opened.explicit(partition)
    name, place, report, none = map(repeat, (topic, partition, account.bind(callback)[1], None))
    extras = (none, *columns[2:]) if columns[2:] else ()
    for record in zip(name, *columns[:2], place, report, *extras, strict=False):
        account.accepted += 1  # as in produce()
        try:
            route.send(*record)  # looked up for each: the route may change meanwhile
        except NOT_ACCEPTED:
            account.accepted -= 1
        except BaseException:
            counters.interrupts += 1
            raise
        else:
            continue
        refused(*record[:4], callback, *record[5:])


class Block(NamedTuple):
    """Records of one partition, in their order; `sizes`: bytes of value and key of each. There is at least one."""

    topic: str
    partition: int
    values: list[bytes | None]
    keys: list[bytes | None]
    sizes: list[int]


class Placing(NamedTuple):
    """How records of `topic`, with so many `partitions`, are placed: by librdkafka's partitioner of that name.

    `choose(key)` does it for one; where the key decides nothing, for as many as come together.
    """

    topic: str
    partitions: int
    partitioner: str
    choose: Callable[[bytes | None], int]


def placing(engine: Engine, topic: str) -> Placing | None:
    """None while produce_block() takes nothing of this topic: records go directly, or no broker has told of it.

    Asks for the producer's permit, as the first produce() does.
    """
    partitions = engine.holds.partitions
    count = partitions.count(topic)
    if engine.route.gate is not None:
        with suppress(SafeProducerError):  # a produce() is refused with it; what a signal handler raises goes on
            engine.route.enter()
    direct, intake = engine.holds.direct, engine.dispatcher.intake
    if engine.holds.cluster.outdated.differ(topic, clock.monotonic()):
        return None
    if not count or engine.route.send != intake.send or (direct is not None and direct.probation.open):
        return None
    return Placing(topic, count, partitions.partitioner, partial(partitions.choose, topic, now=clock.monotonic()))


def produce_block(engine: Engine, block: Block, callback: Callable[..., Any]) -> bool:
    """Accept all records of `block`; False when none was: there is no room for all, or they have to go one by one.

    `callback` is called for errors alone, and only where the producer is configured so. What a signal handler raises
    goes on; then it is not known whether they were accepted.
    """
    counters, intake = engine.counters, engine.dispatcher.intake
    account = counters.open(block.topic)
    report = account.counted(callback)
    if report is None or engine.route.send != intake.send:
        return False
    count = len(block.sizes)
    account.accepted += count
    try:
        taken = intake.send_block(*block, report)
    except NOT_ACCEPTED:
        taken = False
    except BaseException:
        counters.interrupts += count
        raise
    if not taken:
        account.accepted -= count
    return taken
