"""Makes `format("safeproducer")` known to Spark, which looks for modules named `pyspark_*` with a `DefaultSource`.

A module beside the package, because Spark imports it in every session that uses any Python data source: such a session
is to pay nothing for this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """`safeproducer.spark.SafeProducerDataSource`, loaded when it is used."""

    @classmethod
    def name(cls) -> str:
        """The name for `format()`."""
        return "safeproducer"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`."""
        return self._source().writer(schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """For `df.writeStream`."""
        return self._source().streamWriter(schema, overwrite)

    def _source(self) -> DataSource:
        from safeproducer.spark import SafeProducerDataSource  # noqa: PLC0415 - refuses a PySpark that is too old

        source: DataSource = SafeProducerDataSource(self.options)
        return source
