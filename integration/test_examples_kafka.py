"""The examples on a real broker: what they say they delivered is what the broker has."""

import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import Record, read_records
from integration.kafka.poll import until

EXAMPLES = Path(__file__).parent.parent / "examples"
TopicFactory = Callable[..., str]


def run(name: str, kafka: KafkaCluster, topic: str, *args: str) -> subprocess.CompletedProcess[str]:
    """The example as a person starts it, on this cluster and topic."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), "--bootstrap-servers", kafka.bootstrap]
    return subprocess.run([*command, "--topic", topic, *args], capture_output=True, text=True, timeout=90, check=False)


def content(kafka: KafkaCluster, topic: str) -> list[list[Record]]:
    return read_records(kafka.direct_bootstrap, topic)


def test_application_orders_arrive(kafka: KafkaCluster, topic: TopicFactory) -> None:
    """Each order is in the topic once, with its key and header, on the partitions the application printed."""
    name = topic(partitions=3)
    done = run("application.py", kafka, name, "--orders", "2000")
    assert done.returncode == 0, done.stderr
    partitions = content(kafka, name)
    records = [record for records in partitions for record in records]
    orders = {f"order-{number}": number * 100 for number in range(2000)}
    assert len(records) == len(orders)
    assert {(record.key or b"").decode(): json.loads(record.value or b"")["amount"] for record in records} == orders
    assert {tuple(record.headers or ()) for record in records} == {(("content-type", b"application/json"),)}
    printed = ", ".join(f"{len(records)} on partition {number}" for number, records in enumerate(partitions))
    assert done.stdout.startswith("2000 of 2000 orders delivered in ")
    assert done.stdout.rstrip().endswith(f"to {name}: {printed}")


def test_application_reports_what_the_broker_refuses(kafka: KafkaCluster) -> None:
    """Orders for a topic that cannot exist fail with the broker's reason and exit code 1, within the deadline."""
    done = run("application.py", kafka, "no spaces allowed", "--orders", "3")
    assert done.returncode == 1
    assert "0 of 3 orders delivered" in done.stdout
    # The first report may come before the last produce(), which is then refused at the call: two lines for one cause.
    assert sum(int(line.split()[0]) for line in done.stderr.splitlines() if " orders are not written: " in line) == 3


def test_service_delivers_all_it_accepted(kafka: KafkaCluster, topic: TopicFactory) -> None:
    """A service stopped by SIGTERM has written every measurement it accepted, in order for each sensor."""
    name = topic(partitions=2)
    command = [sys.executable, "-W", "error", str(EXAMPLES / "service_loop.py"), "--rate", "300"]
    command += ["--bootstrap-servers", kafka.bootstrap, "--topic", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as service:
        try:
            until(lambda: sum(kafka.admin.end_offsets(name)) >= 50, "50 measurements are written")
            service.send_signal(signal.SIGTERM)
            output, errors = service.communicate(timeout=60)
        finally:
            service.kill()
    assert service.returncode == 0, errors
    numbers = [[int((record.value or b"").split()[1]) for record in records] for records in content(kafka, name)]
    accepted = int(output.splitlines()[-1].split()[0])
    assert sorted(itertools.chain(*numbers)) == list(range(accepted))
    assert all(list(partition) == sorted(partition) for partition in numbers)
    producers = {state.producer_id for number in (0, 1) for state in kafka.admin.describe_producers(name, number)}
    assert len(producers) == 1


def test_migration_writes_the_same_twice(kafka: KafkaCluster, topic: TopicFactory) -> None:
    """confluent_kafka and SafeProducer write the same records to the same partitions; only the second has a producer
    ID."""
    name = topic(partitions=2)
    done = run("migrate.py", kafka, name, "--events", "400")
    assert done.returncode == 0, done.stderr
    partitions = content(kafka, name)
    assert sum(len(records) for records in partitions) == 800
    ids = set()
    for number, records in enumerate(partitions):
        values = [record.value or b"" for record in records]
        half = len(values) // 2
        assert sorted(values[:half]) == sorted(values[half:])
        batches = list(kafka.read_batches(name, number))
        assert sum(batch.count for batch in batches if batch.producer_id == -1) == half
        ids |= {batch.producer_id for batch in batches}
    assert len(ids) == 2


def test_trace_reaches_the_consumer(kafka: KafkaCluster, topic: TopicFactory) -> None:
    """The tracing example finds every record's trace again at its consumer, and the headers in the topic carry it."""
    name = topic(partitions=2)
    done = run("tracing.py", kafka, name)
    assert done.returncode == 0, done.stderr
    records = [record for records in content(kafka, name) for record in records]
    assert records
    assert all("traceparent" in dict(record.headers or ()) for record in records)
