"""Rows as blocks: each holds rows of one partition, in their order. Partitions of keys are computed for a whole column.

Followed: rd_kafka_msg_partitioner_murmur2_random() of librdkafka, as in policy/partitioner.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from safeproducer.pairs import Block, Placing
from safeproducer.policy.partitioner import murmur2
from safeproducer.spark.columns import ANY_PARTITION, Columns

MOST_ROWS = 2_000
"""Most rows of a block, which is accepted when there is room for all of it."""
_VECTORISED = frozenset({"murmur2", "murmur2_random"})
_LONG_KEY = 256
"""Bytes: few rows have longer keys, and each word of the longest one costs a step over the column."""
_FACTOR, _SEED = np.uint32(0x5BD1E995), np.uint32(0x9747B28C)
_TAIL = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
"""Which bits of a word belong to a key that ends in it, by the number of bytes."""


def blocks(columns: Columns, placings: Sequence[Placing]) -> Iterator[Block]:
    """The rows of `columns`, which have neither headers nor a timestamp. `placings`: of each of their topics."""
    return placed(columns, [placing.topic for placing in placings], partitions_of(columns, placings))


def placed(columns: Columns, topics: Sequence[str], partitions: Any) -> Iterator[Block]:
    """The rows of `columns`, whose partitions are known: an array of numbers. `topics`: as in topic_numbers()."""
    most = int(partitions.max(initial=0)) + 1
    places = columns.topic_numbers() * most + partitions
    values, keys, sizes = columns.rearranged(np.argsort(places, kind="stable"))
    counts = np.bincount(places)
    end = 0
    for place in np.flatnonzero(counts).tolist():
        first, end = end, end + int(counts[place])
        topic, partition = divmod(place, most)
        for start in range(first, end, MOST_ROWS):
            rows = slice(start, min(start + MOST_ROWS, end))
            yield Block(topics[topic], partition, values[rows], keys[rows], sizes[rows])


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
    """By topic."""
    return np.array([placing.choose(None) for placing in placings], np.int64)


def hashes(keys: Any) -> Any:
    """murmur2() of each key of a column of Arrow; of null that of the empty key."""
    large = keys.cast(pa.large_binary())
    if not len(large):
        return np.empty(0, np.uint32)
    _, offsets, data = large.buffers()
    ends = np.frombuffer(offsets, np.int64)[large.offset : large.offset + len(large) + 1]
    first, last = int(ends[0]), int(ends[-1])
    octets = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[first:last]
    found = _hashes(octets, ends[:-1] - first, np.diff(ends))
    for row in np.flatnonzero(np.diff(ends) > _LONG_KEY).tolist():
        found[row] = murmur2(keys[row].as_py())
    return found


def _hashes(octets: Any, starts: Any, lengths: Any) -> Any:
    """Those of long keys are wrong."""
    padded = np.concatenate([octets, np.zeros(4, np.uint8)])
    words = np.lib.stride_tricks.as_strided(padded[:4].view("<u4"), (len(padded) - 3,), (1,))  # one at each byte
    whole = np.where(lengths > _LONG_KEY, 0, lengths) // 4
    rows = np.argsort(-whole, kind="stable")  # those with many words first: each step is for the first of them
    starts, whole, lengths = starts[rows], whole[rows], lengths[rows]
    value = _SEED ^ lengths.astype(np.uint32)
    for number in range(int(whole[0]) if len(whole) else 0):
        some = slice(int(np.searchsorted(-whole, -number)))
        mixed = words[starts[some] + 4 * number] * _FACTOR
        value[some] = value[some] * _FACTOR ^ (mixed ^ mixed >> np.uint32(24)) * _FACTOR
    bits = _TAIL[lengths & 3]
    tail = (value ^ words[np.minimum(starts + 4 * whole, len(padded) - 4)] & bits) * _FACTOR
    value = np.where(bits > 0, tail, value)
    value = (value ^ value >> np.uint32(13)) * _FACTOR
    value = (value ^ value >> np.uint32(15)) & np.uint32(0x7FFFFFFF)
    found = np.empty_like(value)
    found[rows] = value
    return found
