"""Tasks log in with tokens that live for seconds: those of a function, and those of a token endpoint on the loopback.

Kafka's brokers end each connection whose token is over (KIP-368). Without Spark, as write_task() is what a task runs;
and streams by both doors, whose workers are killed meanwhile. Their long form (`--full`) takes ten minutes.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from integration import spark_endurance, spark_tokens
from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import read_records
from integration.kafka.poll import until
from integration.kafka.security import LISTENERS
from integration.spark import Finished, run_script, task_workers
from integration.spark_endurance import REPORTS
from safeproducer.spark.errors import KafkaWriteError
from safeproducer.spark.options import Options
from safeproducer.spark.task import Task, write_task
from safeproducer.spark.worker_producers import producers

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SECRET = "marker-of-a-client"
ROWS = 50
EACH, TRIGGER = 4_000, 2
"""Rows of a micro-batch of a stream, and the seconds between two."""
FEW = 3
TASKS = 2
"""Of a query at once: so many workers live."""
STARTS, CLIENTS = 4, 2
"""Questions for a token that a worker asks at its start at most, and its native clients that go on asking, each at 80 %
of a token's life."""
LOGIN = "SPARK_TOKENS_LOGIN"
"""The environment variable that has what the endpoint is to be shown."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCluster]:
    """Its brokers take tokens without a signature, and connections no longer than their tokens."""
    entry = f'{MODULE} required unsecuredLoginStringClaim_sub="broker";'
    configs = {f"listener.name.{one.lower()}.oauthbearer.sasl.jaas.config": entry for one in LISTENERS}
    configs |= {"sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN,OAUTHBEARER"}
    with KafkaCluster(secure=True, configs={**configs, "connections.max.reauth.ms": "3600000"}) as cluster:
        for topic in ("called", "asked", "broken", "sink-6", "source-6", "sink-60", "source-60"):
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


def given(kafka: KafkaCluster, topic: str, **more: str) -> dict[str, str]:
    """Options for the listener with TLS and SASL."""
    return {
        "topic": topic,
        "kafka.bootstrap.servers": kafka.secure_bootstrap,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(kafka.ca_pem),
        "kafka.sasl.mechanism": "OAUTHBEARER",
        **{f"kafka.{name.replace('_', '.')}": text for name, text in more.items()},
    }


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
    made = Options.parse(given(kafka, "called", sasl_jaas_config="call:integration.spark_tokens:token"))
    write_for_three_lives(made, kafka, "called")
    assert len(calls.read_text().splitlines()) >= 4
    told = capfd.readouterr()
    assert spark_tokens.MARKER not in told.out + told.err + repr(made)
    assert spark_tokens.SEEN not in told.out + told.err + repr(made)


def test_tokens_of_an_endpoint_are_renewed(
    kafka: KafkaCluster, calls: Path, endpoint: tuple[str, list[bytes]], capfd: pytest.CaptureFixture[str]
) -> None:
    """librdkafka asks for them, with the scope."""
    url, asked = endpoint
    login = f'{MODULE} required clientId="me" clientSecret="{SECRET}" scope="kafka" extension_logicalCluster="lkc";'
    more = {"sasl_oauthbearer_token_endpoint_url": url, "sasl_jaas_config": login}
    made = Options.parse(given(kafka, "asked", **more))
    write_for_three_lives(made, kafka, "asked")
    assert len(asked) >= 3
    assert all(b"grant_type=client_credentials" in body and b"scope=kafka" in body for body in asked)
    told = capfd.readouterr()
    assert SECRET not in told.out + told.err + repr(made)


def test_a_function_that_fails_ends_the_task(kafka: KafkaCluster, calls: Path) -> None:
    """At once, without its words."""
    made = Options.parse(given(kafka, "broken", sasl_jaas_config="call:integration.spark_tokens:broken"))
    with pytest.raises(KafkaWriteError, match=r"no token from .*: the call raised RuntimeError") as raised:
        write_task([pa.RecordBatch.from_pydict({"value": [b"x"]})], made, Task(0, 0))
    assert spark_tokens.MARKER not in str(raised.value)


# --- streams ---------------------------------------------------------------------------------------------------------


def streamed(doors: dict[str, dict[str, str]], folder: Path) -> Finished:
    """The queries of spark_endurance.py, in a driver that logs all events of Spark in `folder`."""
    settings = {"folder": str(folder), "doors": doors, "batches": 1_000_000, "rows": EACH}
    (folder / "settings.json").write_text(json.dumps({**settings, "trigger": f"{TRIGGER} seconds"}))
    login = f'{MODULE} required clientId="me" clientSecret="{SECRET}" scope="kafka";'
    done = run_script(
        Path(spark_endurance.__file__),
        [str(folder / "settings.json")],
        folder,
        cores="2,4",
        conf={
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{folder}/events",
            "spark.eventLog.compress": "false",
        },
        environment={REPORTS: str(folder / "reports"), LOGIN: login},
        timeout=2_400,
    )
    (folder / "output").write_text(done.stdout + done.stderr)
    return done


def told(folder: Path, topic: str) -> list[dict[str, Any]]:
    """The reports of the query that writes to this topic."""
    lines = (folder / "reports").read_text().splitlines(keepends=True)
    reports = [json.loads(line) for line in lines if line.endswith("\n")]
    return [report for report in reports if topic in report["topics"]]


def least_told(folder: Path, topics: list[str], running: Future[Finished]) -> int:
    """Micro-batches that each query has reported. Raises the error of a driver that has ended."""
    assert not running.done(), running.result().stderr[-5000:]
    return min(len(told(folder, topic)) for topic in topics)


def kill_workers(least: Callable[[], int], seconds: float, pause: float) -> int:
    """One after a pause, if the queries went on since the last one; for so long from their first report on, and until
    some are killed. How many."""
    until(least, "both queries write", 600)
    began, killed, before = time.monotonic(), 0, 0
    while time.monotonic() < began + seconds or killed < FEW:
        time.sleep(pause)
        if (now := least()) > before and (found := task_workers(psutil.Process())):
            before = now
            with suppress(psutil.NoSuchProcess):
                random.choice(found).kill()
                killed += 1
    return killed


@pytest.mark.parametrize(
    ("life", "seconds"),
    [
        pytest.param(6, 24, id="short", marks=pytest.mark.timeout(1_200)),
        pytest.param(60, 600, id="full", marks=[pytest.mark.full, pytest.mark.timeout(2_400)]),
    ],
)
def test_streams_outlive_their_tokens(
    kafka: KafkaCluster,
    calls: Path,
    endpoint: tuple[str, list[bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    life: int,
    seconds: int,
) -> None:
    """By both doors at once: the sink's tokens are of a function, those of the data source of the endpoint. Workers are
    killed so seldom that many live longer than a token. No row fails or is missing; copies are of repeated tasks alone,
    and have the row's `sp-id`; nothing that is written shows a token or a secret."""
    monkeypatch.setenv(spark_tokens.LIVES, str(life))  # for the endpoint, too
    url, asked = endpoint
    of_function = {"sasl_jaas_config": "call:integration.spark_tokens:token"}
    of_endpoint = {"sasl_oauthbearer_token_endpoint_url": url, "sasl_jaas_config": f"env:{LOGIN}"}
    topics, began = [f"{door}-{life}" for door in ("sink", "source")], time.monotonic()
    ids = {"safeproducer.spark.row.id": "position"}
    made = [given(kafka, topic, **more) | ids for topic, more in zip(topics, (of_function, of_endpoint), strict=True)]
    (tmp_path / "events").mkdir()
    (tmp_path / "reports").touch()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(streamed, {"sink": made[0], "source": made[1]}, tmp_path)
        try:
            killed = kill_workers(lambda: least_told(tmp_path, topics, running), seconds, life / 2)
        finally:
            (tmp_path / "end").touch()
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path != calls]
    folders = {part for path in written for part in path.parts}
    assert {"events", "checkpoint-sink", "checkpoint-source"} <= folders
    for mark in (spark_tokens.MARKER, spark_tokens.SEEN, SECRET):
        assert [path for path in written if mark.encode() in path.read_bytes()] == []
    finished = running.result()
    assert finished.returncode == 0, finished.stderr[-5000:]
    assert "KafkaWriteError" not in finished.stderr, finished.stderr[-5000:]
    for topic in topics:
        judge(kafka, topic, told(tmp_path, topic))
    print(json.dumps({"killed": killed, "calls": len(calls.read_text().splitlines()), "asked": len(asked)}))
    lives = (time.monotonic() - began) / life
    for questions in (len(calls.read_text().splitlines()), len(asked)):
        assert seconds / life < questions < STARTS * (TASKS + killed) + CLIENTS * TASKS * lives / 0.8


def judge(kafka: KafkaCluster, topic: str, reports: list[dict[str, Any]]) -> None:
    """Each row of the micro-batches that were reported."""
    records = list(chain.from_iterable(read_records(kafka.direct_bootstrap, topic)))
    rows = Counter(int(record.value or b"") for record in records)
    wanted = len(reports) * EACH
    assert [report["batch_id"] for report in reports] == list(range(len(reports)))
    assert {(report["rows"], report["delivered"]) for report in reports} == {(EACH, EACH)}
    assert [row for row in range(wanted) if row not in rows] == []
    named = {
        (row, dict(record.headers or ())["sp-id"]) for record in records if (row := int(record.value or b"")) < wanted
    }
    assert len(named) == wanted
    twice = Counter(row // EACH for row, count in rows.items() for _ in range(count - 1))
    repeated = {report["batch_id"]: report["maybe_twice"] for report in reports if report["repeated_tasks"]}
    print(json.dumps({"topic": topic, "rows": wanted, "twice": twice.total(), "repeated": len(repeated)}))
    for batch, extra in twice.items():
        assert batch == len(reports) or batch in repeated
        most = repeated.get(batch)
        assert most is None or extra <= most
