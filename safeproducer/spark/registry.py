"""Avro values whose schema is in a registry, made by Spark's own columns: no Python runs for a row.

A value is a zero byte, the schema's ID in four bytes, and the Avro: the format of Confluent's serializers.
"""

from __future__ import annotations

from pyspark.sql import Column, functions
from pyspark.sql.avro.functions import to_avro

from safeproducer.errors import ConfigurationError

try:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
except ImportError as _missing:
    _TEXT = f"registry_avro needs confluent_kafka's registry client ({_missing}): install safeproducer[registry]"
    raise ImportError(_TEXT) from None

_MAGIC = b"\0"
_ID_BYTES = 4
_NO_SUBJECT, _NO_VERSION = 40401, 40402
"""Error codes of the registry's HTTP interface."""


def registry_avro(
    column: Column | str,
    subject: str,
    registry: str | dict[str, object] | SchemaRegistryClient,
    schema: str | None = None,
) -> Column:
    """Return a binary column for Confluent's AvroDeserializer: `column` as Avro, by the schema of `subject`.

    - `column`: a Column or the name of one, usually a struct. Where it is null, the value is null: a tombstone.
    - `subject`: for values of a topic usually `TOPIC-value`, for keys `TOPIC-key`.
    - `registry`: its URL, a dict of settings as of confluent_kafka's SchemaRegistryClient, or such a client.
    - `schema`: Avro's JSON, registered under `subject` unless it is there. None: the newest schema of the subject.

    Call it on the driver, which asks the registry once; executors never do. Needs safeproducer[registry] and, as
    Spark's to_avro(), the package spark-avro of Spark's version. Raises ConfigurationError for a subject that the
    registry does not have, for a schema that is not Avro, or that refers to others; and SchemaRegistryError, or the
    HTTP client's error, for a registry that refuses or does not answer.
    """
    number, text = found_schema(registry, subject, schema)
    given = functions.col(column) if isinstance(column, str) else column
    head = functions.lit(bytearray(_MAGIC + number.to_bytes(_ID_BYTES, "big")))
    return functions.when(given.isNotNull(), functions.concat(head, to_avro(given, text)))


def found_schema(registry: object, subject: str, schema: str | None) -> tuple[int, str]:
    """The schema's ID and text."""
    settings = {"url": registry} if isinstance(registry, str) else registry
    client = SchemaRegistryClient(settings) if isinstance(settings, dict) else settings
    if not isinstance(client, SchemaRegistryClient):
        kind = type(registry).__name__
        raise TypeError(f"registry must be a URL, a dict of settings or a SchemaRegistryClient, not {kind}")
    if schema is not None:
        return client.register_schema(subject, Schema(schema, "AVRO")), schema
    try:
        newest = client.get_latest_version(subject)
    except SchemaRegistryError as error:
        if error.error_code not in (_NO_SUBJECT, _NO_VERSION):
            raise
        raise _refusal(subject, "the registry has no schema of it", "Register one, or pass `schema`.") from None
    kind, others = str(newest.schema.schema_type), newest.schema.references
    if kind != "AVRO":
        raise _refusal(subject, f"its schema is of type {kind}", "Name a subject with an Avro schema.")
    if others:
        problem = "its schema refers to others, which Spark's to_avro() cannot read"
        raise _refusal(subject, problem, "Pass `schema` with all of it in one text.")
    return newest.schema_id or 0, newest.schema.schema_str or ""


def _refusal(subject: str, problem: str, way_out: str) -> ConfigurationError:
    return ConfigurationError("subject", repr(subject), problem, way_out)
