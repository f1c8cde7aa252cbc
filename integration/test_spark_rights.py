"""Rights of an exactly-once sink on a broker with an authorizer: each that is missing is named with the command that
grants it, and with that it goes on."""

from __future__ import annotations

import argparse
import re
import shlex
import uuid

import pyarrow as pa
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from integration.conftest import MARKER
from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import read_records
from integration.kafka.poll import until
from safeproducer.errors import ConfigurationError
from safeproducer.spark.errors import KafkaWriteError
from safeproducer.spark.jaas import MODULES
from safeproducer.spark.options import Options
from safeproducer.spark.run_start import begin
from safeproducer.spark.task import Task, write_task

pytestmark = pytest.mark.usefixtures("_no_idle_producer_left")
KINDS = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "transactional_id": ResourceType.TRANSACTIONAL_ID}


def run_acls(kafka: KafkaCluster, user: str, command: str) -> None:
    """What kafka-acls.sh would do, for this user."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--add", action="store_true", required=True)
    parser.add_argument("--operation", action="append", required=True)
    parser.add_argument("--resource-pattern-type", default="literal")
    for name in ("bootstrap-server", "allow-principal", *(kind.replace("_", "-") for kind in KINDS)):
        parser.add_argument(f"--{name}")
    program, *arguments = shlex.split(command)
    given = vars(parser.parse_args(arguments))
    assert (program, given["allow_principal"]) == ("kafka-acls.sh", "User:NAME")
    pattern = ResourcePatternType[given["resource_pattern_type"].upper()]
    allow = AclPermissionType.ALLOW
    bindings = [
        AclBinding(kind, given[name], pattern, f"User:{user}", "*", AclOperation[operation.upper()], allow)
        for name, kind in KINDS.items()
        if given[name]
        for operation in given["operation"]
    ]
    assert bindings
    for created in kafka.admin.client.create_acls(bindings).values():
        created.result()


@pytest.mark.parametrize("of_driver", [True, False], ids=["driver", "task"])
def test_rights_that_are_missing_are_named_one_by_one(kafka_secure: KafkaCluster, user: str, of_driver: bool) -> None:
    """From none to all: the command of each error is run, and the next attempt meets the next one."""
    sink = f"r{uuid.uuid4().hex[:8]}"
    topic, markers = f"{sink}-rows", f"{sink}-markers"
    for name in (topic, markers):
        kafka_secure.admin.create_topic(name, 1)
    options = Options.parse(
        {
            "kafka.bootstrap.servers": kafka_secure.secure_bootstrap,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(kafka_secure.ca_pem),
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f'{MODULES["SCRAM-SHA-512"]} required username="{user}" password="{MARKER}";',
            "topic": topic,
            "safeproducer.spark.guarantee": "exactly_once",
            "safeproducer.spark.sink.id": sink,
            "safeproducer.spark.slots": "1",
            "safeproducer.spark.marker.topic": markers,
            "safeproducer.spark.deadline": "10",
        }
    )
    assert options.exactly_once is not None
    rows = pa.RecordBatch.from_pydict({"value": [b"x"]})
    granted: list[str] = []

    def attempt() -> str:
        """The error, or nothing."""
        try:
            if of_driver:
                begin(options, options.exactly_once, 0, "query")  # type: ignore[arg-type]
            else:
                write_task(iter([rows]), options, Task(0, len(granted), "query", 0, "run"))
        except (ConfigurationError, KafkaWriteError) as error:
            return str(error)
        return ""

    while error := attempt():
        found = re.search(r"Grant it: (kafka-acls\.sh .*?)(?:\. |\.?$|, |;|\n)", error)
        assert found is not None, error
        print(found[1])
        assert MARKER not in error
        (kind,) = (name for name in ("--transactional-id", "--group", "--topic") if name in found[1])
        granted.append(f"{kind} {markers if markers in found[1] else topic if topic in found[1] else 'sink'}")
        run_acls(kafka_secure, user, found[1])
        before = error
        until(lambda: attempt() != before, "the right counts")  # noqa: B023 - it is called here
    of_sink = {"--transactional-id sink", "--group sink", f"--topic {markers}"}
    assert set(granted) == (of_sink if of_driver else {*of_sink, f"--topic {topic}"})
    assert len(granted) == len(set(granted)), "a command does not grant what its error says"
    if not of_driver:
        (log,) = read_records(kafka_secure.direct_bootstrap, topic, isolation="read_committed")
        assert [record.value for record in log] == [b"x"]


def test_a_time_out_above_that_of_brokers_is_named(kafka_secure: KafkaCluster) -> None:
    """Kafka's default is 15 minutes."""
    sink = f"r{uuid.uuid4().hex[:8]}"
    kafka_secure.admin.create_topic(sink, 1)
    options = Options.parse(
        {
            "kafka.bootstrap.servers": kafka_secure.direct_bootstrap,
            "topic": sink,
            "safeproducer.spark.guarantee": "exactly_once",
            "safeproducer.spark.sink.id": sink,
            "safeproducer.spark.slots": "1",
            "safeproducer.spark.marker.topic": sink,
            "safeproducer.spark.transaction.timeout": "901",
        }
    )
    assert options.exactly_once is not None
    with pytest.raises(ConfigurationError) as raised:
        begin(options, options.exactly_once, 0, "query")
    told = (
        "safeproducer.spark.transaction.timeout=901 is above the brokers' transaction.max.timeout.ms. Make it shorter"
    )
    assert told in str(raised.value)
