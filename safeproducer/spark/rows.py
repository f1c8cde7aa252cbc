"""Gives the rows of an Arrow batch to a producer: one inner loop for each set of columns.

These loops are where the time of a task goes: no work for a row may be done twice, nor once where a column of Arrow can
do it. A row that produce() refuses goes to `again`, with the arguments it had, and the loop goes on behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from safeproducer import SafeProducer
from safeproducer.kafka.native import KafkaException
from safeproducer.pairs import Block, placing, produce_block, produce_pairs
from safeproducer.spark.blocks import blocks, halves
from safeproducer.spark.columns import ANY_PARTITION, Columns

Produce = Callable[..., Any]
Callback = Callable[..., Any]
Again = Callable[..., Any]

_FEW = 64
"""Rows for which there is no room are taken one by one: each waits for its own."""


def produce_rows(columns: Columns, topic: str | None, kafka: SafeProducer, callback: Callback, again: Again) -> None:
    """Produce each row of `columns`, in their order; `topic` is that of the option. No row's topic is null.

    `again(*arguments)` is called for each row that produce() refuses by an exception; what that raises ends the loop.
    `callback(error, message)` gets the reports. Rows with headers or a timestamp get one of their own, which calls it
    with the row, too: see sent_batch.
    """
    produce, names = kafka.produce, columns.topic_names(topic)
    if columns.has_extras:
        _with_extras(columns, topic, produce, callback, again)
    elif columns.partition is not None:
        _placed(columns, topic, produce, callback, again)
    elif len(names) == 1:
        _pairs(columns, names[0], kafka, callback, again)
    else:
        _routed(columns, produce, callback, again)


def in_blocks(columns: Columns, topic: str | None, kafka: SafeProducer) -> bool:
    """Whether they are produced as blocks now: all of an Arrow batch at once is best then."""
    plain = not columns.has_extras and columns.partition is None
    return plain and len(names := columns.topic_names(topic)) == 1 and placing(kafka, names[0]) is not None


def _pairs(columns: Columns, topic: str, kafka: SafeProducer, callback: Callback, again: Again) -> None:
    def refused(topic: str, value: bytes | None, key: bytes | None) -> None:
        again(topic, value, key, ANY_PARTITION, callback)

    placed = placing(kafka, topic)
    if placed is None:
        produce_pairs(kafka, topic, zip(columns.values(), columns.keys(), strict=True), callback, refused)
        return
    for block in blocks(columns, placed):
        _block(block, topic, kafka, callback, refused)


def _block(block: Block, topic: str, kafka: SafeProducer, callback: Callback, refused: Callback) -> None:
    try:
        if produce_block(kafka, topic, block, callback):
            return
    except BufferError:
        if len(block.sizes) > _FEW:
            for half in halves(block):
                _block(half, topic, kafka, callback, refused)
            return
    except KafkaException:  # of which row, and what it says, that row's produce() tells
        pass
    produce_pairs(kafka, topic, zip(block.values, block.keys, strict=True), callback, refused)


def _routed(columns: Columns, produce: Produce, callback: object, again: Again) -> None:
    for topic, value, key in zip(columns.topics(None), columns.values(), columns.keys(), strict=True):
        try:
            produce(topic, value, key, ANY_PARTITION, callback)
        except Exception:
            again(topic, value, key, ANY_PARTITION, callback)


def _placed(columns: Columns, topic: str | None, produce: Produce, callback: object, again: Again) -> None:
    rows = zip(columns.topics(topic), columns.values(), columns.keys(), columns.partitions(), strict=True)
    for name, value, key, partition in rows:
        try:
            produce(name, value, key, partition, callback)
        except Exception:
            again(name, value, key, partition, callback)


def _with_extras(columns: Columns, topic: str | None, produce: Produce, callback: Callback, again: Again) -> None:
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
        except Exception:
            again(name, value, key, partition, report, None, timestamp, headers)
