"""What is refused or told on the driver, before any task."""

from __future__ import annotations

import pytest
from pyspark.sql import types as t

from safeproducer import ConfigurationError
from safeproducer.spark.options import Options
from safeproducer.spark.schema_check import check_schema, check_session

TO_TOPIC = Options(topic="orders", config={})
BY_COLUMN = Options(topic=None, config={})
HEADERS = t.ArrayType(t.StructType().add("key", t.StringType()).add("value", t.BinaryType()))


def schema(**columns: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


ALL = {
    "key": t.StringType(),
    "value": t.BinaryType(),
    "topic": t.StringType(),
    "partition": t.IntegerType(),
    "headers": HEADERS,
    "timestamp": t.TimestampType(),
}


def test_all_columns_that_are_written_pass_without_a_word() -> None:
    """Of every type that Spark's sink takes, and a timestamp."""
    assert check_schema(schema(**ALL), BY_COLUMN, data_source=True) == ()
    assert check_schema(schema(value=t.StringType("UNICODE")), TO_TOPIC, data_source=True) == ()


def test_ignored_columns_are_named_with_what_they_cost() -> None:
    told = check_schema(schema(**ALL, offset=t.LongType(), timestampType=t.IntegerType()), TO_TOPIC, data_source=True)
    assert told == (
        "the column 'topic' is not used: the option topic = 'orders' wins",
        "not written, but carried to Python with every row: 'offset', 'timestampType'. Drop them",
    )


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ({"key": t.BinaryType()}, TO_TOPIC, "no column 'value', which every row needs. Select one.* columns are 'key'"),
        ({"Value": t.BinaryType()}, TO_TOPIC, r"'Value' is another one: names of columns are in lower case"),
        ({}, TO_TOPIC, "the columns are none"),
        ({"value": t.BinaryType()}, BY_COLUMN, "neither the option 'topic' nor a column 'topic'. Give one"),
        ({"value": t.LongType()}, TO_TOPIC, r"'value' is of type bigint, and must be binary or string. .*to_json"),
        ({"value": t.StructType().add("x", t.LongType())}, TO_TOPIC, r"'value' is of type struct<x:bigint>.*to_json"),
        ({**ALL, "key": t.IntegerType()}, BY_COLUMN, "'key' is of type int, and must be binary or string. Cast it"),
        ({**ALL, "topic": t.BinaryType()}, BY_COLUMN, "'topic' is of type binary, and must be string"),
        (
            {**ALL, "partition": t.LongType()},
            BY_COLUMN,
            r"'partition' is of type bigint, and must be int. .*cast\('int",
        ),
        ({**ALL, "partition": t.StringType()}, TO_TOPIC, "'partition' is of type string"),
        ({**ALL, "headers": t.MapType(t.StringType(), t.BinaryType())}, TO_TOPIC, "'headers' is of type map<"),
        (
            {**ALL, "headers": t.ArrayType(t.StructType().add("key", t.StringType()).add("value", t.StringType()))},
            TO_TOPIC,
            r"must be array<struct<key:string,value:binary>>",
        ),
        ({**ALL, "timestamp": t.TimestampNTZType()}, TO_TOPIC, "'timestamp' is of type timestamp_ntz, and must be "),
        ({**ALL, "timestamp": t.LongType()}, TO_TOPIC, "'timestamp' is of type bigint"),
    ],
)
def test_a_column_that_cannot_be_written_is_refused(
    columns: dict[str, t.DataType], options: Options, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        check_schema(schema(**columns), options, data_source=True)
    assert "\n" not in str(caught.value)


def test_two_columns_of_one_name_are_refused() -> None:
    """It would be a guess which one is meant."""
    twice = t.StructType([t.StructField("value", t.BinaryType()), t.StructField("value", t.StringType())])
    with pytest.raises(ConfigurationError, match=r"there are 2 columns 'value'\. Keep one of them"):
        check_schema(twice, TO_TOPIC, data_source=True)


# --- the session -----------------------------------------------------------------------------------------------------


def conf(**settings: str) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in settings.items()}


@pytest.mark.parametrize("data_source", [False, True])
def test_a_session_as_it_comes_passes_without_a_word(data_source: bool) -> None:
    settings = conf(spark_python_worker_reuse="true", spark_speculation="False")
    assert check_session({}.get, TO_TOPIC, data_source=data_source) == ()
    assert check_session(settings.get, TO_TOPIC, data_source=data_source) == ()


def test_a_session_that_takes_producer_ids_is_told_with_the_cure() -> None:
    settings = conf(spark_python_worker_reuse="false")
    (reuse,) = check_session(settings.get, TO_TOPIC, data_source=False)
    assert reuse.startswith("spark.python.worker.reuse=false: each task")
    assert reuse.endswith("Set it to true")


def test_speculation_is_told_and_refused_where_spark_fails() -> None:
    """foreachBatch writes rows twice; a data source in Python fails the query."""
    settings = conf(spark_speculation="true")
    (told,) = check_session(settings.get, TO_TOPIC, data_source=False)
    assert "written twice" in told
    with pytest.raises(ConfigurationError, match=r"'spark\.speculation' = 'true'.* foreachBatch"):
        check_session(settings.get, TO_TOPIC, data_source=True)


def test_the_data_source_says_that_it_cannot_limit_its_writers() -> None:
    options = Options(topic="orders", config={}, max_writers=2)
    assert check_session({}.get, options, data_source=False) == ()
    (told,) = check_session({}.get, options, data_source=True)
    assert told.startswith("safeproducer.spark.max.writers has no effect with the data source")
