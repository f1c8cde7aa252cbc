"""The variants that `scripts/bench spark` compares, and their bars. Knows nothing of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FAR = 50.0
"""Milliseconds of round trip from which the bars for long links hold."""
PAIRS, HEADERS, TIMESTAMP, TOPICS = "pairs", "headers", "timestamp", "topics"
MANY_TOPICS = 1_000


@dataclass(frozen=True)
class Variant:
    """`how`: "sink", "plain" or "plain_callback" (confluent_kafka in mapInArrow), or the name of a format.
    `options` beside brokers and topic. `columns`: PAIRS is key and value, the others have one column more; that of
    TOPICS names one of MANY_TOPICS."""

    name: str
    how: str
    options: Mapping[str, str] = field(default_factory=dict)
    far_only: bool = False
    columns: str = PAIRS


BEST = {"kafka.batch.size": "1000000", "kafka.linger.ms": "20"}
SPARK = Variant("Spark's sink, defaults", "kafka")
SPARK_BEST = Variant("Spark's sink, 1 MB, 20 ms", "kafka", BEST)
SPARK_LARGE = Variant(
    "Spark's sink, requests of 6.5 MB", "kafka", {**BEST, "kafka.max.request.size": "6500000"}, far_only=True
)
STOCK = Variant("produce(), mapInArrow", "plain")
STOCK_SOURCE = Variant("produce(), data source", "plain_source")
EMPTY = Variant("produce(), empty callback", "plain_callback")
SINK = Variant("SafeProducerSink", "sink")
SOURCE = Variant('format("safeproducer")', "safeproducer")
BY_KEY = Variant("SafeProducerSink, ordering=key", "sink", {"safeproducer.ordering": "key"}, far_only=True)
SPARK_HEADERS = Variant("Spark's sink, two headers", "kafka", columns=HEADERS)
STOCK_HEADERS = Variant("produce(), two headers", "plain", columns=HEADERS)
SINK_HEADERS = Variant("SafeProducerSink, two headers", "sink", columns=HEADERS)
SINK_TIMESTAMP = Variant("SafeProducerSink, timestamps", "sink", columns=TIMESTAMP)
SINK_ROW_ID = Variant("SafeProducerSink, row.id=position", "sink", {"safeproducer.spark.row.id": "position"})
SPARK_TOPICS = Variant("Spark's sink, 1 000 topics", "kafka", columns=TOPICS)
SINK_TOPICS = Variant("SafeProducerSink, 1 000 topics", "sink", columns=TOPICS)
SOURCE_TOPICS = Variant('format("safeproducer"), 1 000 topics', "safeproducer", columns=TOPICS)
TO_A_TOPIC = {"safeproducer.spark.bad.rows": "topic", "safeproducer.spark.bad.rows.topic": "bad-rows"}
SINK_BAD_ROWS = Variant("SafeProducerSink, topic for bad rows", "sink", TO_A_TOPIC)
SOURCE_BAD_ROWS = Variant('format("safeproducer"), topic for bad rows', "safeproducer", TO_A_TOPIC)


@dataclass(frozen=True)
class Comparison:
    """`near` and `far` are bars of (throughput at least, CPU at most) beside the brokers and far from them; None where
    there is none."""

    variant: Variant
    against: Variant
    near: tuple[float | None, float | None] = (None, None)
    far: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True)
class Suite:
    """Compared in one session. `near` and `far`: rows a write, None where it is not run.

    A worker keeps four producers: more variants of ours in one session would make a new one for each write.
    """

    title: str
    variants: tuple[Variant, ...]
    comparisons: tuple[Comparison, ...]
    near: int | None
    far: int | None

    def rows(self, rtt: float) -> int | None:
        return self.far if rtt >= FAR else self.near


MANY = Suite(
    "keys and values",
    (SPARK, SPARK_BEST, SPARK_LARGE, STOCK, STOCK_SOURCE, EMPTY, SINK, SOURCE, BY_KEY),
    (
        Comparison(SINK, STOCK, near=(0.80, 1.25), far=(0.85, None)),
        Comparison(SOURCE, STOCK_SOURCE, near=(0.80, 1.25), far=(0.85, None)),
        *(Comparison(door, SPARK, near=(0.55, None), far=(8.0, None)) for door in (SINK, SOURCE)),
        *(Comparison(door, SPARK_BEST, near=(0.45, None), far=(1.2, None)) for door in (SINK, SOURCE)),
        Comparison(SINK, SPARK_LARGE),
        Comparison(BY_KEY, SINK, far=(0.95, None)),
        Comparison(STOCK_SOURCE, STOCK),
        Comparison(EMPTY, STOCK),
        Comparison(SINK, EMPTY),
    ),
    near=1_000_000,
    far=500_000,
)
FEW = Suite(
    "fewer rows",
    (SPARK, SINK, SOURCE),
    tuple(Comparison(door, SPARK, far=(4.0, None)) for door in (SINK, SOURCE)),
    near=None,
    far=100_000,
)
EXTRAS = Suite(
    "headers, timestamps, and an identity for each row",
    (SPARK_HEADERS, STOCK_HEADERS, SINK, SINK_HEADERS, SINK_TIMESTAMP, SINK_ROW_ID),
    (
        Comparison(SINK_HEADERS, SINK),
        Comparison(SINK_HEADERS, SPARK_HEADERS),
        Comparison(SINK_HEADERS, STOCK_HEADERS),
        Comparison(STOCK_HEADERS, SPARK_HEADERS),
        Comparison(SINK_TIMESTAMP, SINK),
        Comparison(SINK_ROW_ID, SINK),
    ),
    near=200_000,
    far=None,
)
DIVIDED = Suite(
    "1 000 topics",
    (SPARK_TOPICS, SINK_TOPICS, SOURCE_TOPICS),
    tuple(Comparison(door, SPARK_TOPICS) for door in (SINK_TOPICS, SOURCE_TOPICS)),
    near=100_000,
    far=None,
)
BAD_ROWS = Suite(
    "a topic for bad rows, and none is bad",
    (SINK, SINK_BAD_ROWS, SOURCE, SOURCE_BAD_ROWS),
    (Comparison(SINK_BAD_ROWS, SINK, near=(0.98, None)), Comparison(SOURCE_BAD_ROWS, SOURCE, near=(0.98, None))),
    near=500_000,
    far=None,
)
SUITES = MANY, FEW, EXTRAS, DIVIDED, BAD_ROWS
BY_NAME = {variant.name: variant for suite in SUITES for variant in suite.variants}


@dataclass(frozen=True)
class Door:
    """A way to write a stream. `idle` is its no-op sink by the same door; None for those that have none."""

    name: str
    idle: str | None = None


NO_OP_SINK, NO_OP_SOURCE = "no-op, foreachBatch", "no-op, data source"
DOORS = (
    Door(SINK.name, NO_OP_SINK),
    Door(SOURCE.name, NO_OP_SOURCE),
    Door(NO_OP_SINK),
    Door(NO_OP_SOURCE),
    Door(SPARK.name),
)
MEDIAN_AT_MOST, P90_AT_MOST = 1.15, 1.3
"""Shares of the time of a trigger with 100 rows, beside the no-op sink by the same door."""
