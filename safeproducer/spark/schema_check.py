"""The driver's checks before any task runs: whether the columns fit, and what the session will cost.

It asks neither brokers nor executors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from safeproducer.errors import ConfigurationError
from safeproducer.spark.guarantee import GUARANTEE
from safeproducer.spark.java_settings import refused
from safeproducer.spark.options import MAX_WRITERS, ROW_ID, TOPIC, Options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

VALUE, KEY, PARTITION, HEADERS, TIMESTAMP = "value", "key", "partition", "headers", "timestamp"
_TEXT_OR_BYTES = ("binary", "string")
_HEADERS = "array<struct<key:string,value:binary>>"
TYPES: dict[str, tuple[str, ...]] = {
    VALUE: _TEXT_OR_BYTES,
    KEY: _TEXT_OR_BYTES,
    TOPIC: ("string",),
    PARTITION: ("int",),
    HEADERS: (_HEADERS,),
    TIMESTAMP: ("timestamp",),
}
"""Column that is written -> its types, as Spark names them."""

_REUSE = "spark.python.worker.reuse"
_SPECULATION = "spark.speculation"
_CAST = "Cast it in Spark"
_CURES = {
    VALUE: "Cast it in Spark, or make it text, as in to_json(struct('*'))",
    PARTITION: "Cast it: col('partition').cast('int')",
    TIMESTAMP: "Cast it to timestamp, in a session whose time zone is the one that is meant, or drop or rename it",
}


def check_schema(schema: StructType, options: Options, *, data_source: bool) -> tuple[str, ...]:
    """Sentences to tell once. Raises ConfigurationError for columns that cannot be written, with one sentence.

    Columns are found by their exact names, as in Spark's own Kafka sink.
    """
    names = Counter(field.name for field in schema.fields)
    own = () if options.id_column is None else (options.id_column,)
    twice = [name for name in (*TYPES, *own) if names[name] > 1]
    if twice:
        raise _refused(f"there are {names[twice[0]]} columns {twice[0]!r}", "Keep one of them")
    if not names[VALUE]:
        raise _refused(f"there is no column {VALUE!r}, which every row needs{_similar(names, VALUE)}", _have(names))
    if not names[TOPIC] and options.topic is None:
        problem = f"there is neither the option {TOPIC!r} nor a column {TOPIC!r}{_similar(names, TOPIC)}"
        raise _refused(problem, "Give one of the two")
    if own and not names[own[0]]:
        raise _refused(f"there is no column {own[0]!r}, which {ROW_ID} names{_similar(names, own[0])}", _have(names))
    for field in schema.fields:
        found, wanted = field.dataType.simpleString(), TYPES.get(field.name, _TEXT_OR_BYTES)
        # "string collate X" is bytes in UTF-8, too.
        if (field.name in TYPES or field.name in own) and found.partition(" ")[0] not in wanted:
            problem = f"column {field.name!r} is of type {found}, and must be {' or '.join(wanted)}"
            raise _refused(problem, _CURES.get(field.name, _CAST).format(field.name))
    notes = []
    if names[TOPIC] and options.topic is not None:
        notes.append(f"the column {TOPIC!r} is not used: the option {TOPIC} = {options.topic!r} wins")
    ignored = [name for name in names if name not in TYPES and name not in own]
    if ignored and data_source:  # the sink leaves them out
        notes.append(f"not written, but carried to Python with every row: {', '.join(map(repr, ignored))}. Drop them")
    return tuple(notes)


def check_session(conf: Callable[[str, str], str], options: Options, *, data_source: bool) -> tuple[str, ...]:
    """Sentences to tell once. `conf(name, default)` is `spark.conf.get`.

    Raises ConfigurationError when Spark might fail the query.
    """
    notes = []
    if not _is_on(conf, _REUSE, "true"):
        why = "each task has a Python worker and takes a producer ID of its own"
        notes.append(f"{_REUSE}=false: {why}. Set it to true")
    if speculates(conf):
        if options.exactly_once is not None:
            problem = "copies of a task fence each other, and none may commit"
            raise refused(_SPECULATION, "true", problem, f"Set it to false, or leave {GUARANTEE} out")
        if data_source:
            problem = "Spark counts a copy that came too late as a failed task, and may fail the query (SPARK-56564)"
            way_out = "Set it to false, or pass a SafeProducerSink to foreachBatch"
            raise refused(_SPECULATION, "true", problem, way_out)
        notes.append(f"{_SPECULATION}=true: rows of a task that runs twice are written twice. Set it to false")
    if data_source and options.max_writers is not None:
        notes.append(f"{MAX_WRITERS} has no effect with the data source: coalesce the DataFrame, or use foreachBatch")
    return tuple(notes)


def speculates(conf: Callable[[str, str], str]) -> bool:
    """Whether Spark may run a copy of a task that is slow."""
    return _is_on(conf, _SPECULATION, "false")


def _similar(names: Counter[str], wanted: str) -> str:
    found = [name for name in names if name.lower() == wanted.lower()]
    return f" ({found[0]!r} is another one: names of columns are in lower case)" if found else ""


def _have(names: Counter[str]) -> str:
    columns = ", ".join(map(repr, names)) or "none"
    return f"Select one under that name; the columns are {columns}"


def _is_on(conf: Callable[[str, str], str], name: str, default: str) -> bool:
    return str(conf(name, default)).strip().lower() == "true"


def _refused(problem: str, way_out: str) -> ConfigurationError:
    return ConfigurationError("", "", problem, way_out)
