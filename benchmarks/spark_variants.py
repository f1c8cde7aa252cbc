"""What is compared by `scripts/bench spark`. Knows nothing of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Variant:
    """`how`: "sink", "plain" (confluent_kafka in mapInArrow), or the name of a format.
    `options` beside brokers and topic."""

    name: str
    how: str
    options: Mapping[str, str] = field(default_factory=dict)
    far_only: bool = False


BEST = {"kafka.batch.size": "1000000", "kafka.linger.ms": "20"}
SPARK = Variant("Spark's sink, defaults", "kafka")
SPARK_BEST = Variant("Spark's sink, 1 MB, 20 ms", "kafka", BEST)
SPARK_LARGE = Variant(
    "Spark's sink, requests of 6.5 MB", "kafka", {**BEST, "kafka.max.request.size": "6500000"}, far_only=True
)
STOCK = Variant("produce(), mapInArrow", "plain")
STOCK_SOURCE = Variant("produce(), data source", "plain_source")
SINK = Variant("SafeProducerSink", "sink")
SOURCE = Variant('format("safeproducer")', "safeproducer")
BY_KEY = Variant("SafeProducerSink, ordering=key", "sink", {"safeproducer.ordering": "key"}, far_only=True)

VARIANTS = SPARK, SPARK_BEST, SPARK_LARGE, STOCK, STOCK_SOURCE, SINK, SOURCE, BY_KEY
BY_NAME = {variant.name: variant for variant in VARIANTS}


@dataclass(frozen=True)
class Comparison:
    """`near` and `far` are bars of (throughput at least, CPU at most) beside the brokers and far from them; None where
    there is none."""

    variant: Variant
    against: Variant
    near: tuple[float | None, float | None] = (None, None)
    far: tuple[float | None, float | None] = (None, None)


COMPARISONS = (
    Comparison(SINK, STOCK, near=(0.80, 1.25), far=(0.85, None)),
    Comparison(SOURCE, STOCK_SOURCE, near=(0.80, 1.25), far=(0.85, None)),
    *(Comparison(door, SPARK, near=(0.55, None), far=(8.0, None)) for door in (SINK, SOURCE)),
    *(Comparison(door, SPARK_BEST, near=(0.45, None), far=(1.2, None)) for door in (SINK, SOURCE)),
    Comparison(SINK, SPARK_LARGE),
    Comparison(BY_KEY, SINK, far=(0.95, None)),
    Comparison(STOCK_SOURCE, STOCK),
)
