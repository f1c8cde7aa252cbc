"""A consumer with Confluent's deserializer reads what registry_avro() made, and asks the same registry."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from integration.conftest import TopicFactory
from integration.kafka.cluster import KafkaCluster
from integration.kafka.jars import CONNECTOR, classpath
from integration.kafka.log import read_records
from integration.spark import run_script
from tests.spark.registry_server import registry

SCRIPT = Path(__file__).parent / "spark_registry.py"


def test_confluents_deserializer_reads_them(kafka: KafkaCluster, topic: TopicFactory, tmp_path: Path) -> None:
    """Each row once; one schema, asked for on the driver alone: once for each column."""
    name = topic()
    jars = {"spark.jars": ",".join(map(str, classpath(of=CONNECTOR)))}
    with registry() as served:
        done = run_script(SCRIPT, [kafka.bootstrap, name, served.url], tmp_path, conf=jars)
        assert done.returncode == 0, done.stderr
        assert served.asked == [f"POST /subjects/{name}-value/versions", f"GET /subjects/{name}-value/versions/latest"]
        read = AvroDeserializer(SchemaRegistryClient({"url": served.url}))
        context = SerializationContext(name, MessageField.VALUE)
        records = [record for partition in read_records(kafka.direct_bootstrap, name) for record in partition]
        found = {int(record.key or b""): read(record.value, context) for record in records}
    assert len(records) == 100
    expected = {number: {"id": number, "note": f"note {number}" if number % 2 else None} for number in range(99)}
    assert found == {**expected, 99: None}
