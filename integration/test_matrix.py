"""Each version that is supported, in an environment of its own: `scripts/test --matrix` makes all of them.

`scripts/test` makes those of the oldest client and of Python 3.12, and tests all environments that are there.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integration.spark import spark_environment

ROOT = Path(__file__).resolve().parents[1]
MATRIX = ROOT / ".cache/matrix"
HERE = "here"
"""The environment that runs the tests: the newest client, Spark 4.2."""
CLIENTS = (HERE, "client-2.13.2", "client-2.14.2", "client-2.15.1", "python-3.12", "python-3.13", "python-3.14")
SPARKS = ("spark-3.5", "spark-4.0", "spark-4.1", HERE, "spark-4.3")
ALL = 500
_NEEDS_CLUSTER_ID = ("cluster_id", "cluster-timed", "safe-id-", "held-id-")
NOT_BEFORE_2_16 = (*_NEEDS_CLUSTER_ID, "is_not_open", "builder", "serializers_run", "aio_producer")
"""No builders, another AIOProducer; one that was not initialised crashes, and a bad topic comes to the serializers."""
LONGEST = 900
"""Seconds of a part on a busy machine."""


def python_of(name: str) -> str:
    """The interpreter of that environment; skips where it was not made."""
    python = MATRIX / name / "bin/python"
    if name != HERE and not python.exists():
        pytest.skip(f"no environment {name}: scripts/test --matrix makes it, if this machine has its Python")
    return sys.executable if name == HERE else str(python)


def ran(*command: str, **environment: str) -> str:
    """The last line that it prints."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=LONGEST, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
    return done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def first_here() -> float:
    """How long a first record takes with the newest client."""
    found: dict[str, Any] = json.loads(ran(sys.executable, "-m", "integration.matrix.client"))
    return float(found["first"])


@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_delivers_in_each_mode(name: str, first_here: float) -> None:
    """All records are in the log once, no line is logged at ERROR, and the first record does not wait for a timer."""
    found = json.loads(ran(python_of(name), "-m", "integration.matrix.client"))
    assert found["errors"] == []
    assert found["delivered"] == {way: [ALL, ALL] for way in ("auto", "held", "passthrough", "lanes")}
    assert found["first"] < first_here + 0.3, "librdkafka's timer takes half a second"


@pytest.mark.full
@pytest.mark.timeout(LONGEST + 20)
@pytest.mark.parametrize("part", ["aio", "contract", "kafka", "lanes"])
@pytest.mark.parametrize("name", CLIENTS[1:])
def test_contract_holds_on_every_client(name: str, part: str) -> None:
    """The suite that compares with confluent_kafka; of the clients in between only what applications see. How soon a
    producer delivers again is judged by the newest client, on a machine that does nothing else."""
    if part != "contract" and name in ("client-2.14.2", "client-2.15.1"):
        pytest.skip("the oldest and the newest client run it")
    left_out = ("stock", "renewal_pace", "service", *(NOT_BEFORE_2_16 if name.startswith("client") else ()))
    chosen = " and ".join(f"not {one}" for one in left_out)
    plugins = ("-p", "no:cacheprovider", "-p", "pytest_safeproducer")
    ran(python_of(name), "-m", "pytest", "-q", *plugins, "-k", chosen, f"tests/{part}")


@pytest.mark.full
@pytest.mark.parametrize("name", SPARKS)
def test_every_spark_writes_all_rows(name: str, tmp_path: Path) -> None:
    """Through the sink, and from 4.0 on through the data source; batches and streams."""
    python = python_of(name)
    environment = spark_environment(tmp_path, environment={"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python})
    found = json.loads(ran(python, "-m", "integration.matrix.on_spark", **environment))
    assert name == HERE or found["version"].startswith(name.removeprefix("spark-"))
    ways = ("batch_of_sink", "stream_of_sink", "batch_of_data_source", "stream_of_data_source")
    assert found["written"] == {way: [1000, 1000, 1000] for way in ways[: 2 if name == "spark-3.5" else 4]}
