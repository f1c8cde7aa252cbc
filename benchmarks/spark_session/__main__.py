"""The driver's script: rounds of all variants in one session, in random order; a line of JSON for each run.

`python benchmarks/spark_session SETTINGS`, a file in JSON; benchmarks/spark.py writes it.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession

from benchmarks.brokers import written
from benchmarks.spark_session import cpu, plain
from benchmarks.spark_variants import BY_NAME, HEADERS, MANY_TOPICS, PAIRS, TIMESTAMP, TOPICS, Variant
from safeproducer.spark import SafeProducerSink

CORES = 2
KEY_SIZE, VALUE_SIZE = 16, 200
FEW = 600
"""Rows of a write before each that counts: Spark ends a worker that was idle for a minute, and on a long link others
write for as long."""


EXTRAS = {
    PAIRS: (),
    HEADERS: (
        "array(named_struct('key', 'trace', 'value', substr(unhex(sha2(string(id), 256)), 17, 16)), "
        "named_struct('key', 'source', 'value', encode('pipeline', 'UTF-8'))) headers",
    ),
    TIMESTAMP: ("current_timestamp() timestamp",),
    TOPICS: (f"concat('{TOPICS}-', string(id % {MANY_TOPICS})) topic",),
}


def cached(spark: SparkSession, rows: int, columns: str) -> DataFrame:
    """Distinct keys and values, all of them in memory."""
    value = f"encode(rpad(string(id), {VALUE_SIZE}, sha2(string(id), 256)), 'UTF-8')"
    key = f"substr(unhex(sha2(string(id), 256)), 1, {KEY_SIZE})"
    df = spark.range(0, rows, 1, CORES).selectExpr(f"{key} key", f"{value} value", *EXTRAS[columns]).cache()
    df.count()
    return df


def writes(variant: Variant, df: DataFrame, bootstrap: str, topic: str) -> Callable[[], Any]:
    """Writes all rows once, and returns when they are acknowledged."""
    options = {"kafka.bootstrap.servers": bootstrap, **variant.options}
    if variant.columns != TOPICS:
        options["topic"] = topic
    if variant.how == "sink":
        return partial(SafeProducerSink(options).write, df)
    if variant.how in ("plain", "plain_callback"):
        looks = variant.how == "plain_callback"
        return df.mapInArrow(partial(plain.in_arrow, given=options, looks=looks), plain.SCHEMA).collect
    return lambda: df.write.format(variant.how).options(**options).mode("append").save()


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    spark = SparkSession.builder.appName("benchmark").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(plain.Source)
    topics: dict[str, str] = settings["topics"]
    kinds = {BY_NAME[name].columns for name in topics}
    sizes = FEW, settings["rows"]
    frames = {(columns, rows): cached(spark, rows, columns) for columns in sorted(kinds) for rows in sizes}
    few, runs = (
        {
            name: writes(BY_NAME[name], frames[BY_NAME[name].columns, rows], settings["bootstrap"], topics[name])
            for name in topics
        }
        for rows in sizes
    )
    watch, strangers = cpu.Watch(psutil.Process()), cpu.Strangers()
    for number in range(-settings["warm_up"], settings["rounds"]):
        for name in random.Random(number).sample(sorted(runs), len(runs)):
            few[name]()
            place = settings, BY_NAME[name], topics[name]
            before, cpu_before = in_log(*place), watch.now()
            started = time.perf_counter()
            runs[name]()
            seconds, spent = time.perf_counter() - started, watch.now() - cpu_before
            found = in_log(*place) - before
            line = {"round": number, "name": name, "seconds": seconds, "found": found, **vars(spent)}
            print(json.dumps(line), flush=True)
            strangers.look()
    print(json.dumps({"strangers": strangers.share()}), flush=True)
    spark.stop()


def in_log(settings: dict[str, Any], variant: Variant, topic: str) -> int:
    """Records of its topic, or of all that it shares with others."""
    if variant.columns == TOPICS:
        return written(settings["direct_bootstrap"], [f"{TOPICS}-{number}" for number in range(MANY_TOPICS)], 1)
    return written(settings["direct_bootstrap"], topic, settings["partitions"])


if __name__ == "__main__":
    main()
