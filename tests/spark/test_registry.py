"""What registry_avro() asks a registry for, and what it refuses. integration/test_spark_registry.py looks at values."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError

from safeproducer import ConfigurationError
from safeproducer.spark.registry import found_schema
from tests.spark.registry_server import Registry, registry

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
TEXT = json.dumps(ORDER)


@pytest.fixture
def served() -> Iterator[Registry]:
    with registry() as served:
        yield served


@pytest.mark.parametrize("given", ["url", "settings", "client"])
def test_the_newest_schema_of_a_subject_is_found(served: Registry, given: str) -> None:
    served.add("orders-value", {"schema": '"string"', "schemaType": "AVRO"})
    number = served.add("orders-value", {"schema": TEXT, "schemaType": "AVRO"})
    client = {"url": served.url, "settings": {"url": served.url}, "client": SchemaRegistryClient({"url": served.url})}
    assert found_schema(client[given], "orders-value", None) == (number, TEXT)


def test_a_schema_is_registered_unless_it_is_there(served: Registry) -> None:
    for _ in range(2):
        assert found_schema(served.url, "orders-value", TEXT) == (1, TEXT)
    assert served.subjects == {"orders-value": [1]}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (None, "no schema of it"),
        ({"schema": "{}", "schemaType": "JSON"}, "type JSON"),
        ({"schema": TEXT, "references": [{"name": "a", "subject": "b", "version": 1}]}, "refers to others"),
    ],
)
def test_what_cannot_be_written_is_refused(served: Registry, schema: dict[str, Any] | None, said: str) -> None:
    if schema is not None:
        served.add("orders-value", {"schemaType": "AVRO", **schema})
    with pytest.raises(ConfigurationError, match=said) as raised:
        found_schema(served.url, "orders-value", None)
    assert "'orders-value'" in str(raised.value)


def test_other_errors_of_the_registry_go_on(served: Registry) -> None:
    served.answer = lambda *_: (401, {"error_code": 401, "message": "Unauthorized"})  # type: ignore[method-assign]
    with pytest.raises(SchemaRegistryError, match="Unauthorized"):
        found_schema(served.url, "orders-value", None)


def test_what_is_no_registry_is_refused() -> None:
    with pytest.raises(TypeError, match="not int"):
        found_schema(8081, "orders-value", None)


def test_without_the_extra_the_first_use_says_what_to_install() -> None:
    code = "import sys\nsys.modules['confluent_kafka.schema_registry'] = None\n"
    code += "from safeproducer.spark import registry_avro"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert "ImportError: registry_avro needs" in done.stderr
    assert "safeproducer[registry]" in done.stderr
