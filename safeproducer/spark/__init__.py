"""Writes DataFrames of PySpark to Kafka: `format("safeproducer")`, or a sink for `foreachBatch`.

The public names are loaded when they are first used, so that importing this package loads neither PySpark nor pyarrow.
Without them the first use raises ImportError, and with a PySpark that is too old, too: the data source needs 4.0.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {
    "BatchReport": "report",
    "KafkaWriteError": "errors",
    "SafeProducerDataSource": "data_source",
    "SafeProducerSink": "sink",
    "registry_avro": "registry",
}
_OLDEST = {"SafeProducerDataSource": (4, 0)}
_OLDEST_OF_ALL = (3, 5)

__all__ = ["BatchReport", "KafkaWriteError", "SafeProducerDataSource", "SafeProducerSink", "registry_avro"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _require_extra(f"{__name__}.{name}", _OLDEST.get(name, _OLDEST_OF_ALL))
    value = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def _require_extra(wanted: str, oldest: tuple[int, int]) -> None:
    try:
        import_module("pyarrow")
        version: str = import_module("pyspark").__version__
    except ImportError:
        raise ImportError(
            f"{wanted} needs PySpark and pyarrow, which are not installed here: install safeproducer[spark]"
        ) from None
    if tuple(int(part) for part in version.split(".")[:2]) < oldest:
        raise ImportError(
            f"{wanted} needs PySpark {'.'.join(map(str, oldest))} or newer, and this is {version}: install a newer one"
            + (", or pass a SafeProducerSink to foreachBatch" if oldest > _OLDEST_OF_ALL else "")
        )
