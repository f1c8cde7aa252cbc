"""Which columns an Arrow batch has, and their values as a producer takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice, repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.lib.stride_tricks import as_strided

ANY_PARTITION = -1
ROW_ID = "sp-id"
"""The header that tells a row from all others, and not from its own copies."""
NOW = 0
"""The timestamp of a row that has none: librdkafka puts its clock's time there."""
_AT_ONCE = 1_000

Header = tuple[str, bytes | None]


@dataclass(frozen=True)
class Columns:
    """The columns of one Arrow batch; None where there is none, or only nulls. `topic` is None, too, where the option
    names one; an empty topic is null.

    `value`, `key`: binary. Names are exact, as in Spark's own Kafka sink: `Key` is another column.
    """

    rows: int
    value: Any
    key: Any
    topic: Any
    partition: Any
    headers: Any
    timestamp: Any
    ids: Any = None

    @classmethod
    def of(cls, batch: pa.RecordBatch, fixed_topic: str | None, id_column: str | None = None) -> Columns:
        """The columns of `batch`, with the `ids` of that one. Raises KeyError without a column `value`."""
        at = {name: number for number, name in enumerate(batch.schema.names)}

        def column(name: str) -> Any:
            found = _plain(batch.column(at[name])) if name in at else None
            return None if found is None or found.null_count == len(found) else found

        key, topic = column("key"), column("topic") if fixed_topic is None else None
        return cls(
            batch.num_rows,
            _binary(_plain(batch.column(at["value"]))),
            None if key is None else _binary(key),
            None if topic is None else _names(utf8(topic.cast(pa.large_string()))),
            column("partition"),
            column("headers"),
            column("timestamp"),
            None if id_column is None or (ids := column(id_column)) is None else _binary(ids),
        )

    def at_positions(self, prefix: str, first: int) -> Columns:
        """These rows with ids: the prefix, and the number of each row, which is `first` for the first."""
        numbers = pa.array(np.arange(first, first + self.rows)).cast(pa.string())
        return replace(self, ids=pc.binary_join_element_wise(prefix, numbers, "").cast(pa.binary()))

    @property
    def size(self) -> Any:
        """Bytes of key and value of each row, an array without nulls."""
        size = _length(self.value)
        return size if self.key is None else pc.add(size, _length(self.key))

    def values(self) -> list[bytes | None]:
        return self.value.to_pylist()  # type: ignore[no-any-return]

    def keys(self) -> list[bytes | None]:
        return [None] * self.rows if self.key is None else self.key.to_pylist()

    def topics(self, fixed: str | None) -> list[Any]:
        """The topic of each row, None where there is none."""
        if self.topic is None:
            return [fixed] * self.rows
        names = self.topic.dictionary.to_pylist()
        return [None if index is None else names[index] for index in self.topic.indices.to_pylist()]

    def topic_names(self, fixed: str | None) -> list[str]:
        """The topics that its rows go to, each once."""
        if self.topic is None:
            return [] if fixed is None else [fixed]
        return [name for name in self.topic.dictionary.to_pylist() if name is not None]

    def topic_numbers(self) -> Any:
        """The number of each row's topic in topic_names(), an array; no topic is null."""
        if self.topic is None:
            return np.zeros(self.rows, np.int64)
        return self.topic.indices.to_numpy().astype(np.int64)

    def partitions(self) -> list[int]:
        """The partition that each row asks for, ANY_PARTITION where it asks for none."""
        if self.partition is None:
            return [ANY_PARTITION] * self.rows
        return pc.fill_null(self.partition, ANY_PARTITION).to_pylist()  # type: ignore[no-any-return]

    def timestamps(self) -> list[int]:
        """Milliseconds since the epoch, NOW where the row has none."""
        if self.timestamp is None:
            return [NOW] * self.rows
        return pc.fill_null(self.milliseconds(), NOW).to_pylist()  # type: ignore[no-any-return]

    def milliseconds(self) -> Any:
        """The column `timestamp` as numbers; whatever zone it is told in, the number counts in UTC."""
        if not pa.types.is_timestamp(self.timestamp.type):
            return self.timestamp.cast(pa.int64())
        zone = self.timestamp.type.tz
        return self.timestamp.cast(pa.timestamp("ms", tz=zone), safe=False).cast(pa.int64())

    @property
    def oldest(self) -> int:
        """The oldest timestamp in milliseconds, NOW if no row has one."""
        return NOW if self.timestamp is None else pc.min(self.milliseconds()).as_py() or NOW

    @cached_property
    def flat_headers(self) -> tuple[Any, Any, Any]:
        """How many headers each row has; names and contents of all of them, in their order. No UTF-8 is null."""
        counts = pc.fill_null(pc.list_value_length(self.headers), 0).to_numpy()
        names, contents = pc.list_flatten(self.headers).flatten()
        return counts, utf8(_plain(names).cast(pa.large_string())), _binary(_plain(contents))

    def all_headers(self) -> Iterator[list[Header] | None]:
        """The headers of each row, in their order; None where there are none. A name may be None: see row_check.

        Rows may share a list: the same headers are made once. An id is behind all others.
        """
        each = self._alike()
        if self.ids is None:
            return self._headers_of_rows(each)
        if each is not None and not self.ids.null_count:
            return self._headers_of_rows([*each, zip(repeat(ROW_ID), _one_by_one(self.ids), strict=False)])
        pairs = zip(self._headers_of_rows(each), _one_by_one(self.ids), strict=True)
        return (given if one is None else [*(given or ()), (ROW_ID, one)] for given, one in pairs)

    def _headers_of_rows(self, each: Sequence[Iterable[Header]] | None) -> Iterator[list[Header] | None]:
        if each is None:
            counts, names, contents = self.flat_headers
            pairs = zip(_one_by_one(names), _one_by_one(contents), strict=True)
            return (list(islice(pairs, count)) if count else None for count in counts.tolist())
        rows: Iterator[Any] = map(list, zip(*each, strict=True))
        if all(isinstance(one, repeat) for one in each):
            return repeat(next(rows, None), self.rows)
        return rows

    def _alike(self) -> list[Iterable[Header]] | None:
        """The first header of each row, the second and so on, without Python for a row. None where rows have unequally
        many."""
        if self.headers is None:
            return []
        counts, names, contents = self.flat_headers
        number, columns = int(counts.max(initial=0)), list[Iterable[Any]]()
        if number * self.rows != len(names):
            return None
        for first in range(number):
            at = pa.array(np.arange(first, len(names), number))
            name, content = names.take(at), contents.take(at)
            one_name = _is_constant(name)
            if one_name and _is_constant(content):
                columns.append(repeat((name[0].as_py(), content[0].as_py()), self.rows))
            else:
                texts = repeat(name[0].as_py(), self.rows) if one_name else _one_by_one(name)
                columns.append(zip(texts, _one_by_one(content), strict=True))
        return columns

    def slice(self, first: int, rows: int = 1) -> Columns:
        return Columns(rows, *(None if column is None else column.slice(first, rows) for column in self._all()))

    def without(self, rows: Set[int]) -> Columns:
        kept = pa.array([row for row in range(self.rows) if row not in rows], pa.int64())
        found = Columns(len(kept), *(None if column is None else column.take(kept) for column in self._all()))
        if found.topic is None:
            return found
        # Without names in the dictionary that no row has any more.
        return replace(found, topic=found.topic.dictionary_decode().dictionary_encode())

    def _all(self) -> tuple[Any, ...]:
        return self.value, self.key, self.topic, self.partition, self.headers, self.timestamp, self.ids

    def parts(self, rows: int) -> Iterator[Columns]:
        """All rows in their order, at most so many at once."""
        if 0 < self.rows <= rows:
            return iter((self,))  # with its flat_headers
        return (self.slice(first, min(rows, self.rows - first)) for first in range(0, self.rows, rows))


def _names(topics: Any) -> Any:
    """Dictionary-encoded. An empty name is none: a client that asks for it is told of all topics."""
    found = topics.dictionary_encode()
    if pc.index(found.dictionary, "").as_py() < 0:
        return found
    return pc.if_else(pc.equal(topics, ""), pa.scalar(None, topics.type), topics).dictionary_encode()


def utf8(texts: Any) -> Any:
    """This column of strings, with null where one is no UTF-8, which Spark's strings may be."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        found = [None if one is None else one.decode(errors="replace") for one in _binary(texts).to_pylist()]
        valid = pa.array(found, texts.type)
        return pc.if_else(pc.equal(_binary(valid), _binary(texts)), valid, pa.scalar(None, texts.type))
    return texts


def _one_by_one(column: Any) -> Iterator[Any]:
    """Its values in Python, few at a time: those of a whole batch leave the processor's cache before they are used."""
    firsts = range(0, len(column), _AT_ONCE)
    return chain.from_iterable(column.slice(first, _AT_ONCE).to_pylist() for first in firsts)


def _is_constant(column: Any) -> bool:
    """Whether all of them are the same, and none is null; there is one at least. The ends tell most that are not."""
    return column[0] == column[-1] and pc.all(pc.equal(column, column[0]), skip_nulls=False).as_py() is True


def _plain(column: Any) -> Any:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _binary(column: Any) -> Any:
    """As bytes, which of a string are its UTF-8; no copy but for views, which Arrow's functions do not take."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column
    return column.cast(pa.binary() if pa.types.is_string(kind) else pa.large_binary())


def words_of(column: Any) -> tuple[Any, Any, Any]:
    """The words of eight bytes that begin at each byte of a column of texts, with zeros behind the last one; where each
    text begins; and how long it is. Null is empty."""
    large = (column.cast(pa.large_string()) if pa.types.is_string(column.type) else column).cast(pa.large_binary())
    _, offsets, data = large.buffers()
    ends = np.frombuffer(offsets, np.int64)[large.offset : large.offset + len(large) + 1]
    octets = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[int(ends[0]) : int(ends[-1])]
    padded = np.concatenate([octets, np.zeros(8, np.uint8)])
    return as_strided(padded[:8].view("<u8"), (len(padded) - 7,), (1,)), ends[:-1] - ends[0], np.diff(ends)


def _length(column: Any) -> Any:
    return pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())
