"""The fingerprint of rows, by columns: their number, and the sum of their hashes, which no order changes.

Of what is written: value, key, topic, partition, headers, timestamp and id. A column that is not there is one of nulls.
The hash is SplitMix64's mixer over words of eight bytes, each mixed with its place: no secret, and no protection from
somebody who wants two contents to be alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeproducer.spark.columns import Columns, words_of
from safeproducer.spark.markers import Print

_AT_ONCE = 4 << 20
"""Bytes of keys and values: the words and their places take some times as much."""
_TOPIC = 3
"""The seed of the hash of a topic's name."""
_GOLDEN = 0x9E3779B97F4A7C15
_SHIFTS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def fingerprint(columns: Columns, fixed_topic: str | None = None) -> Print:
    """The fingerprint of these rows, which all go to `fixed_topic` unless they have a column with topics."""
    if columns.rows > 1 and pc.sum(columns.size).as_py() > _AT_ONCE:
        half = columns.rows // 2
        first = fingerprint(columns.slice(0, half), fixed_topic)
        return first.plus(fingerprint(columns.slice(half, columns.rows - half), fixed_topic))
    topic, times = columns.topic, columns.timestamp
    texts = (columns.value, columns.key, None if topic is None else topic.dictionary_decode(), columns.ids)
    hashes = sum(
        (_texts(column, seed) for seed, column in enumerate(texts, 1) if column is not None),
        np.zeros(columns.rows, np.uint64) + _texts(pa.array([fixed_topic], pa.string()), _TOPIC),
    )
    numbers = (columns.partition, None if times is None else columns.milliseconds())
    for seed, column in enumerate(numbers, 5):
        if column is not None:
            hashes = hashes + _known(column, _mixed(_numbers(pc.fill_null(column, 0)) + _seed(seed)))
    if columns.headers is not None:
        hashes = hashes + _headers(*columns.flat_headers)
    return Print(columns.rows, int(_mixed(hashes).sum(dtype=np.uint64)))


def _seed(number: int) -> Any:
    return np.uint64(number * _GOLDEN % 2**64)


def _mixed(numbers: Any) -> Any:
    for shift, factor in _SHIFTS:
        numbers = (numbers ^ numbers >> np.uint64(shift)) * np.uint64(factor)
    return numbers ^ numbers >> np.uint64(31)


def _known(column: Any, hashes: Any) -> Any:
    """The hashes of a column, with 0 where it is null."""
    if not column.null_count:
        return hashes
    return np.where(column.is_null().to_numpy(zero_copy_only=False), np.uint64(0), hashes)


def _numbers(column: Any) -> Any:
    return column.cast(pa.int64()).to_numpy(zero_copy_only=False).view(np.uint64)


# The texts lie one behind the other in one buffer, so a word that is read at the end of one holds the beginning of the
# next: two equal texts would get two hashes, and a replay would be refused. The bytes that are not its own are shifted
# out. All words of all texts are mixed at once; the sum of those of one text is the difference of two running sums,
# which may overflow: both do it alike.
def _texts(column: Any, seed: int) -> Any:
    words, starts, lengths = words_of(column)
    counts = (lengths + 7) // 8
    until = np.cumsum(counts)
    place = np.arange(int(counts.sum())) - np.repeat(until - counts, counts)
    left = np.repeat(lengths, counts) - 8 * place  # bytes of the text from this word on; the last one may have others
    of_next = np.uint64(8) * np.maximum(8 - left, 0).astype(np.uint64)
    found = words[np.repeat(starts, counts) + 8 * place] << of_next >> of_next
    sums = np.concatenate(
        [[np.uint64(0)], np.cumsum(_mixed(found + (place + 1).astype(np.uint64) * np.uint64(_GOLDEN)))]
    )
    return _known(column, _mixed(sums[until] - sums[until - counts] + lengths.astype(np.uint64) + _seed(seed)))


def _headers(counts: Any, names: Any, contents: Any) -> Any:
    until = np.cumsum(counts)
    place = np.arange(len(names)) - np.repeat(until - counts, counts)
    each = _mixed(_texts(names, 7) + _texts(contents, 8) + (place + 1).astype(np.uint64) * np.uint64(_GOLDEN))
    sums = np.concatenate([[np.uint64(0)], np.cumsum(each)])
    return sums[until] - sums[until - counts]
