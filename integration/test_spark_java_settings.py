"""The tables of Java's settings against the class that Spark's own Kafka sink is configured by."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter

import pytest

from integration.kafka.jars import CONNECTOR, classpath, java, read_lock
from safeproducer.spark.java_settings import REFUSED, TRANSLATED, WITHOUT_EFFECT

CLASS = "org.apache.kafka.clients.producer.ProducerConfig"


@pytest.fixture(scope="module")
def javas_names() -> list[str]:
    """What `ProducerConfig` of the connector's kafka-clients prints: a list in HTML with an anchor for each setting."""
    clients = next(jar for jar in classpath(of=CONNECTOR) if jar.name.startswith("kafka-clients-"))
    logging = [jar for jar in classpath() if jar.name.startswith("slf4j-")]
    done = subprocess.run(
        [java(), "-XX:TieredStopAtLevel=1", CLASS],
        env={**os.environ, "CLASSPATH": os.pathsep.join(map(str, (clients, *logging)))},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return re.findall(r'id="producerconfigs_([^"]+)"', done.stdout)


def test_each_setting_of_java_is_in_exactly_one_table(javas_names: list[str]) -> None:
    """And the tables have no name that Java has not."""
    tables = Counter([*TRANSLATED, *WITHOUT_EFFECT, *REFUSED])
    assert [name for name, count in tables.items() if count > 1] == []
    assert sorted(tables) == sorted(javas_names)
    assert len(javas_names) == 95


def test_the_connector_is_locked_with_its_companions() -> None:
    """Those that go with PySpark 4.2.1."""
    assert sorted(read_lock(CONNECTOR)) == [
        "commons-pool2-2.13.1.jar",
        "kafka-clients-3.9.2.jar",
        "spark-avro_2.13-4.2.0.jar",
        "spark-sql-kafka-0-10_2.13-4.2.0.jar",
        "spark-token-provider-kafka-0-10_2.13-4.2.0.jar",
    ]
