"""Tasks log in with tokens that live for seconds: those of a function, and those of a token endpoint on the loopback.

Kafka's brokers end each connection whose token is over (KIP-368). Without Spark: write_task() is what a task runs.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from integration import spark_tokens
from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import read_records
from integration.kafka.security import LISTENERS
from safeproducer.spark.errors import KafkaWriteError
from safeproducer.spark.options import Options
from safeproducer.spark.task import Task, write_task
from safeproducer.spark.worker_producers import producers

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SECRET = "marker-of-a-client"
ROWS = 50

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCluster]:
    """Its brokers take tokens without a signature, and connections no longer than their tokens."""
    entry = f'{MODULE} required unsecuredLoginStringClaim_sub="broker";'
    configs = {f"listener.name.{one.lower()}.oauthbearer.sasl.jaas.config": entry for one in LISTENERS}
    configs |= {"sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN,OAUTHBEARER"}
    with KafkaCluster(secure=True, configs={**configs, "connections.max.reauth.ms": "3600000"}) as cluster:
        for topic in ("called", "asked", "broken"):
            cluster.admin.create_topic(topic, 2)
            cluster.admin.add_acl("User:spark", topic, AclOperation.WRITE, AclOperation.DESCRIBE)
        yield cluster


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[bytes]]]:
    """The address of a token endpoint, and the bodies of the requests that it got."""
    asked: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["Content-Length"])))
            told = json.dumps({"access_token": spark_tokens.text(), "token_type": "Bearer"}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/token", asked
    server.shutdown()
    server.server_close()


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A line for each call of the function; no producer is left behind."""
    file = tmp_path / "calls"
    file.touch()
    monkeypatch.setenv(spark_tokens.CALLS, str(file))
    yield file
    for worker in list(producers._idle.values()):
        producers._idle.pop(worker.key).end()


def options(kafka: KafkaCluster, topic: str, **more: str) -> Options:
    """For the listener with TLS and SASL."""
    given = {
        "topic": topic,
        "kafka.bootstrap.servers": kafka.secure_bootstrap,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(kafka.ca_pem),
        "kafka.sasl.mechanism": "OAUTHBEARER",
        **{f"kafka.{name.replace('_', '.')}": text for name, text in more.items()},
    }
    return Options.parse(given)


def write_for_three_lives(made: Options, kafka: KafkaCluster, topic: str) -> None:
    """A task each half second: no row fails, each is in the log once, and one producer is kept for all."""
    began, count, kept = time.monotonic(), 0, []
    while time.monotonic() - began < 3 * spark_tokens.LIFE:
        sent = pa.RecordBatch.from_pydict({"value": [b"%d" % (count + row) for row in range(ROWS)]})
        totals = write_task([sent], made, Task(0, 0, "q", count, "r"))
        kept.append(totals.producer)
        count += totals.delivered
        time.sleep(0.5)
    records = [record.value or b"" for partition in read_records(kafka.direct_bootstrap, topic) for record in partition]
    assert sorted(records) == sorted(b"%d" % number for number in range(count))
    assert kept[1:] == ["reused"] * (len(kept) - 1)


def test_tokens_of_a_function_are_renewed(kafka: KafkaCluster, calls: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is called at each refresh, and nothing that is printed has a token."""
    made = options(kafka, "called", sasl_jaas_config="call:integration.spark_tokens:token")
    write_for_three_lives(made, kafka, "called")
    assert len(calls.read_text().splitlines()) >= 4
    told = capfd.readouterr()
    assert spark_tokens.MARKER not in told.out + told.err + repr(made)


def test_tokens_of_an_endpoint_are_renewed(
    kafka: KafkaCluster, calls: Path, endpoint: tuple[str, list[bytes]], capfd: pytest.CaptureFixture[str]
) -> None:
    """librdkafka asks for them, with the scope."""
    url, asked = endpoint
    login = f'{MODULE} required clientId="me" clientSecret="{SECRET}" scope="kafka" extension_logicalCluster="lkc";'
    more = {"sasl_oauthbearer_token_endpoint_url": url, "sasl_jaas_config": login}
    made = options(kafka, "asked", **more)
    write_for_three_lives(made, kafka, "asked")
    assert len(asked) >= 3
    assert all(b"grant_type=client_credentials" in body and b"scope=kafka" in body for body in asked)
    told = capfd.readouterr()
    assert SECRET not in told.out + told.err + repr(made)


def test_a_function_that_fails_ends_the_task(kafka: KafkaCluster, calls: Path) -> None:
    """At once, without its words."""
    made = options(kafka, "broken", sasl_jaas_config="call:integration.spark_tokens:broken")
    with pytest.raises(KafkaWriteError, match=r"no token from .*: the call raised RuntimeError") as raised:
        write_task([pa.RecordBatch.from_pydict({"value": [b"x"]})], made, Task(0, 0))
    assert spark_tokens.MARKER not in str(raised.value)
