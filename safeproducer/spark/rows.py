"""Gives the rows of an Arrow batch to a producer: one inner loop for each set of columns.

These loops are where the time of a task goes: no work for a row may be done twice, nor once where a column of Arrow can
do it. A row that produce() refuses goes to `again`, with the arguments it had, and the loop goes on behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from safeproducer import SafeProducer
from safeproducer.errors import NOT_ACCEPTED
from safeproducer.pairs import Block, Placing, placing, produce_block, produce_pairs
from safeproducer.spark.blocks import blocks, halves
from safeproducer.spark.columns import ANY_PARTITION, Columns

Produce = Callable[..., Any]
Callback = Callable[..., Any]
Again = Callable[..., Any]
Reports = Callable[[Columns, int], Callback]
Loop = Callable[[Columns, Callback, Again], None]

_POLL_EVERY = 1_000
"""Rows: some milliseconds. If an application polls less often, the sender takes its reports, by a longer way, and holds
records back meanwhile. Rows in blocks are held back anyway: all of an Arrow batch at once is best then."""
_FEW = 64
"""Rows of a refused block are taken one by one: each waits for its own room, and says why there is none."""


def produce_rows(columns: Columns, topic: str | None, kafka: SafeProducer, reports: Reports, again: Again) -> None:
    """Produce each row of `columns`, in their order; `topic` is that of the option. No row's topic is null.

    `again(*arguments)` is called for each row that produce() refuses by an exception; what that raises ends the loop,
    as what a signal handler raises does. `reports(part, row)` makes the callback(error, message) for the reports of
    `part`, whose first row has this number in `columns`. Rows with headers or a timestamp get one of their own, which
    calls it with the row, too: see failed_rows.
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
    if columns.has_extras:
        return partial(_with_extras, topic, kafka.produce), _POLL_EVERY
    names = columns.topic_names(topic)
    if placings := _placings(kafka, names):
        return partial(_in_blocks, kafka, placings), columns.rows
    if columns.partition is not None:
        return partial(_placed, topic, kafka.produce), _POLL_EVERY
    if len(names) != 1:
        return partial(_routed, kafka.produce), _POLL_EVERY
    return partial(_pairs, names[0], kafka), _POLL_EVERY


def _placings(kafka: SafeProducer, names: Iterable[str]) -> list[Placing]:
    """The placing of each topic; none while one of them takes no blocks."""
    found: list[Placing] = []
    for name in names:
        if (placed := placing(kafka, name)) is None:
            return []
        found.append(placed)
    return found


def _pairs(topic: str, kafka: SafeProducer, columns: Columns, callback: Callback, again: Again) -> None:
    pairs = zip(columns.values(), columns.keys(), strict=True)
    produce_pairs(kafka, topic, pairs, callback, partial(_refused, again, ANY_PARTITION, callback))


def _in_blocks(
    kafka: SafeProducer, placings: list[Placing], columns: Columns, callback: Callback, again: Again
) -> None:
    asked = columns.partition is not None
    for block in blocks(columns, placings):
        _block(block, asked, kafka, callback, again)


def _block(block: Block, asked: bool, kafka: SafeProducer, callback: Callback, again: Again) -> None:
    """`asked`: rows ask for a partition."""
    if produce_block(kafka, block, callback):
        return
    if len(block.sizes) > _FEW:
        for half in halves(block):
            _block(half, asked, kafka, callback, again)
        return
    partition = block.partition if asked else ANY_PARTITION
    pairs = zip(block.values, block.keys, strict=True)
    produce_pairs(kafka, block.topic, pairs, callback, partial(_refused, again, partition, callback), partition)


def _refused(
    again: Again, partition: int, callback: Callback, topic: str, value: bytes | None, key: bytes | None
) -> None:
    again(topic, value, key, partition, callback)


def _routed(produce: Produce, columns: Columns, callback: Callback, again: Again) -> None:
    for topic, value, key in zip(columns.topics(None), columns.values(), columns.keys(), strict=True):
        try:
            produce(topic, value, key, ANY_PARTITION, callback)
        except NOT_ACCEPTED:
            again(topic, value, key, ANY_PARTITION, callback)


def _placed(topic: str | None, produce: Produce, columns: Columns, callback: Callback, again: Again) -> None:
    rows = zip(columns.topics(topic), columns.values(), columns.keys(), columns.partitions(), strict=True)
    for name, value, key, partition in rows:
        try:
            produce(name, value, key, partition, callback)
        except NOT_ACCEPTED:
            again(name, value, key, partition, callback)


def _with_extras(topic: str | None, produce: Produce, columns: Columns, callback: Callback, again: Again) -> None:
    rows = zip(
        columns.topics(topic),
        columns.values(),
        columns.keys(),
        columns.partitions(),
        columns.timestamps(),
        columns.all_headers(),
        strict=True,
    )
    for row, (name, value, key, partition, timestamp, headers) in enumerate(rows):
        report = partial(callback, row=row)
        try:
            produce(name, value, key, partition, report, None, timestamp, headers)
        except NOT_ACCEPTED:
            again(name, value, key, partition, report, None, timestamp, headers)
