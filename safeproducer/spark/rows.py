"""This module gives the rows of an Arrow batch to a producer, one by one or as blocks of one partition.

These loops are where the time of a task goes: no work for a row may be done twice, nor once where a column of Arrow can
do it. A row that produce() refuses goes to `again`, with the arguments it had, and the loop goes on behind it.

A block goes where rd_kafka_msg_partitioner_murmur2_random() of librdkafka puts its rows, see policy/partitioner.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, repeat
from typing import Any

import numpy as np
import pyarrow as pa

from safeproducer import SafeProducer
from safeproducer.errors import NOT_ACCEPTED
from safeproducer.pipeline.bulk import Block, Placing, placing, produce_block, produce_records
from safeproducer.policy.partitioner import murmur2
from safeproducer.producer import engine_of
from safeproducer.spark.columns import ANY_PARTITION, Columns, Header, words_of

MOST_ROWS = 2_000
"""Most rows of a block, which is accepted when there is room for all of it."""
_VECTORISED = frozenset({"murmur2", "murmur2_random"})
_LONG_KEY = 256
"""Bytes: few rows have longer keys, and each word of the longest one costs a step over the column."""
_FACTOR, _SEED = np.uint32(0x5BD1E995), np.uint32(0x9747B28C)
_TAIL = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
"""Which bits of a word belong to a key that ends in it, by the number of bytes."""
Callback = Callable[..., Any]
Again = Callable[..., Any]
MakeCallback = Callable[[Columns, int], Callback]
Loop = Callable[[Columns, Callback, Again], None]
_POLL_EVERY = 1_000
"""Rows: some milliseconds. If an application polls less often, the sender takes its reports, by a longer way, and holds
records back meanwhile. Rows in blocks are held back anyway: all of an Arrow batch at once is best then."""
_FEW = 64
"""So many rows of a refused block are taken one by one: each waits for its own room, and says why there is none."""


def blocks(columns: Columns, placings: Sequence[Placing]) -> Iterator[Block]:
    """The rows of `columns`, without headers and timestamp. `placings`: of each topic, as in topic_numbers()."""
    partitions = partitions_of(columns, placings)
    most = int(partitions.max(initial=0)) + 1
    places = columns.topic_numbers() * most + partitions
    order = pa.array(np.argsort(places, kind="stable"))
    keys = [None] * columns.rows if columns.key is None else columns.key.take(order).to_pylist()
    values, sizes = columns.value.take(order).to_pylist(), columns.size.take(order).to_pylist()
    counts = np.bincount(places)
    end = 0
    for place in np.flatnonzero(counts).tolist():
        first, end = end, end + int(counts[place])
        topic, partition = divmod(place, most)
        for start in range(first, end, MOST_ROWS):
            rows = slice(start, min(start + MOST_ROWS, end))
            yield Block(placings[topic].topic, partition, values[rows], keys[rows], sizes[rows])


def halves(block: Block) -> Iterator[Block]:
    """Two blocks of its rows, in their order; it has at least two."""
    middle = len(block.sizes) // 2
    for rows in (slice(middle), slice(middle, None)):
        yield Block(block.topic, block.partition, block.values[rows], block.keys[rows], block.sizes[rows])


def partitions_of(columns: Columns, placings: Sequence[Placing]) -> Any:
    """The partition of each row, an array of numbers: the one that it asks for, else that of its key."""
    found = _of_keys(columns, placings)
    if columns.partition is None:
        return found
    asked = np.array(columns.partitions(), np.int64)
    return np.where(asked == ANY_PARTITION, found, asked)


def _of_keys(columns: Columns, placings: Sequence[Placing]) -> Any:
    topics, key = columns.topic_numbers(), columns.key
    if key is None:
        return _without_key(placings)[topics]
    if placings[0].partitioner not in _VECTORISED:
        rows = zip(topics.tolist(), key.to_pylist(), strict=True)
        return np.array([placings[topic].choose(text) for topic, text in rows], np.int64)
    found = hashes(key).astype(np.int64) % np.array([placing.partitions for placing in placings])[topics]
    if key.null_count:
        return np.where(key.is_null().to_numpy(zero_copy_only=False), _without_key(placings)[topics], found)
    return found


def _without_key(placings: Sequence[Placing]) -> Any:
    return np.array([placing.choose(None) for placing in placings], np.int64)


def hashes(keys: Any) -> Any:
    """murmur2() of each key of a column of Arrow; of null that of the empty key."""
    if not len(keys):
        return np.empty(0, np.uint32)
    words, starts, lengths = words_of(keys)
    found = _hashes(words, starts, lengths)
    for row in np.flatnonzero(lengths > _LONG_KEY).tolist():
        found[row] = murmur2(keys[row].as_py())
    return found


# murmur2() needs a step for each word of a key, and keys have different lengths. A loop over the keys would run Python
# for each row. So the n-th words of all keys are taken at once, in a loop as long as the longest key: with the keys
# sorted by their number of words, those that still have one are a prefix of the column.
def _hashes(words: Any, starts: Any, lengths: Any) -> Any:
    """The hashes of keys; those of long ones are wrong."""
    whole = np.where(lengths > _LONG_KEY, 0, lengths) // 4
    rows = np.argsort(-whole, kind="stable")  # those with many words first: each step is for the first of them
    starts, whole, lengths = starts[rows], whole[rows], lengths[rows]
    value = _SEED ^ lengths.astype(np.uint32)
    for number in range(int(whole[0]) if len(whole) else 0):
        some = slice(int(np.searchsorted(-whole, -number)))
        mixed = words[starts[some] + 4 * number].astype(np.uint32) * _FACTOR
        value[some] = value[some] * _FACTOR ^ (mixed ^ mixed >> np.uint32(24)) * _FACTOR
    bits = _TAIL[lengths & 3]
    tail = (value ^ words[starts + 4 * whole].astype(np.uint32) & bits) * _FACTOR
    value = np.where(bits > 0, tail, value)
    value = (value ^ value >> np.uint32(13)) * _FACTOR
    value = (value ^ value >> np.uint32(15)) & np.uint32(0x7FFFFFFF)
    found = np.empty_like(value)
    found[rows] = value
    return found


def produce_rows(columns: Columns, topic: str | None, kafka: SafeProducer, reports: MakeCallback, again: Again) -> None:
    """Produce each row of `columns`, in their order; `topic` is that of the option. No row's topic is null.

    `again(*arguments)` is called for each row that produce() refuses by an exception; what that raises ends the loop,
    as what a signal handler raises does. `reports(part, row)` makes the callback(error, message) for the reports of
    `part`, whose first row has this number in `columns`. Rows with headers or a timestamp that are like others in all
    that a report brings get one of their own, which calls it with the row, too: see SentBatch.
    """
    kafka.poll(0)  # while the task waited for this batch, the sender may have taken reports: then records are buffered
    loop, most = _loop(columns, topic, kafka)
    first = 0
    for part in columns.parts(most):
        loop(part, reports(part, first), again)
        kafka.poll(0)
        first += part.rows


def _loop(columns: Columns, topic: str | None, kafka: SafeProducer) -> tuple[Loop, int]:
    """The function that produces rows with these columns, and how many at once."""
    if any(one is not None for one in (columns.headers, columns.timestamp, columns.ids)):  # a report brings none back
        return partial(_one_by_one, topic, kafka, columns.all_headers()), _POLL_EVERY
    names = columns.topic_names(topic)
    placings = [placed for name in names if (placed := placing(engine_of(kafka), name)) is not None]
    if placings and len(placings) == len(names):  # else one of them takes no blocks
        return partial(_in_blocks, kafka, placings), columns.rows
    return partial(_one_by_one, topic, kafka, None), _POLL_EVERY


def _in_blocks(
    kafka: SafeProducer, placings: list[Placing], columns: Columns, callback: Callback, again: Again
) -> None:
    for block in blocks(columns, placings):
        _block(block, columns.partition is not None, kafka, callback, again)


def _block(block: Block, asked: bool, kafka: SafeProducer, callback: Callback, again: Again) -> None:
    """`asked`: rows ask for a partition."""
    if produce_block(engine_of(kafka), block, callback):
        return
    if len(block.sizes) > _FEW:
        for half in halves(block):
            _block(half, asked, kafka, callback, again)
        return
    partition = block.partition if asked else ANY_PARTITION
    produce_records(engine_of(kafka), block.topic, (block.values, block.keys), callback, again, partition)


def _one_by_one(
    topic: str | None,
    kafka: SafeProducer,
    all_headers: Iterator[list[Header] | None] | None,
    columns: Columns,
    callback: Callback,
    again: Again,
) -> None:
    """`all_headers`: of these rows, and behind them of the parts that come next; None for rows without extras."""
    names, values, keys = columns.topics(topic), columns.values(), columns.keys()
    extras = () if all_headers is None else (columns.timestamps(), islice(all_headers, columns.rows))
    distinct = (
        not extras or len(set(values)) == len(values) or len(set(zip(names, values, keys, strict=True))) == len(values)
    )
    engine, one_topic = engine_of(kafka), len(columns.topic_names(topic)) == 1
    if distinct and one_topic and columns.partition is None and (engine.route.goes_direct or not extras):
        if extras:  # what produce() notes for each record: once for all. The names of headers are checked
            engine.counters.report_queue.note_headers(names[0], columns.headers if columns.ids is None else columns.ids)
            engine.questions.expirations.timestamps.note(names[0], columns.oldest)
        produce_records(engine, names[0], (values, keys, *extras), callback, again)
        return
    produce, more = kafka.produce, (repeat(None), *extras) if extras else ()
    reports = repeat(callback) if distinct else (partial(callback, row=row) for row in range(columns.rows))
    for record in zip(names, values, keys, columns.partitions(), reports, *more, strict=False):
        try:
            produce(*record)
        except NOT_ACCEPTED:
            again(*record)
