"""The known cases of producers that take too many IDs (KIP-936), as programs: the rows of
docs/operate/producer-id-recipes.md. Each test takes a ledger of its own, and a rate of three an hour.

With gunicorn and Celery: integration/applications/test_producer_ids.py.
With Spark: integration/test_spark_producer_ids.py.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from safeproducer.producer_ids.ledger_places import Place
from safeproducer.producer_ids.ledger_reader import LedgerReading, read_ledgers
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.contract.support import ran

ROOT = Path(__file__).resolve().parents[2]
RATE = 3
BEGIN = """
import os, signal, sys, time
from safeproducer import ProducerIdLimitError, SafeProducer

def make(**more):
    settings = {"bootstrap.servers": sys.argv[1], "safeproducer.producer.ids.per.hour": 3, "log_level": 0, **more}
    return SafeProducer(settings)

def write(producer):
    producer.produce("t", b"x")
    assert producer.flush(30) == 0
"""
CRASH = """
producer = make()
write(producer)
raise ValueError("a bug")
"""
KILLED = """
producer = make()
write(producer)
os.kill(os.getpid(), signal.SIGKILL)
"""
REQUESTS = """
def handle():
    producer = make()
    write(producer)
    producer.close()

for _ in range(5):
    handle()
"""
TASK = """
producer = make()
write(producer)
producer.close()
"""
WORKERS = """
from safeproducer.producer_ids.ledger_places import Place
from safeproducer.producer_ids.ledger_reader import read_ledgers

def serve(done, stop):
    producer = make()
    write(producer)
    os.write(done, b"x")
    os.read(stop, 1)
    producer.close()
    os._exit(0)

(begun, done), (stop, end) = os.pipe(), os.pipe()
workers = []
for _ in range(3):
    worker = os.fork()
    if not worker:
        os.close(end)
        serve(done, stop)
    workers.append(worker)
for _ in workers:
    os.read(begun, 1)
print(*(pattern.code for pattern in read_ledgers(Place(sys.argv[2]))[0].patterns()))
os.close(end)
for worker in workers:
    os.waitpid(worker, 0)
"""
FUNCTION = """
producer = make(**({"enable.idempotence": False} if sys.argv[2] == "plain" else {}))

def handler(event):
    write(producer)

for event in range(20):
    handler(event)
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


cluster = fake_cluster({"t": 1}, scope="module")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "ledger"))


@pytest.fixture
def run(cluster: FakeCluster, place: Place, tmp_path: Path) -> Run:
    """Runs a program to its end: run(text, *arguments, policy="warn")."""

    def start(text: str, *arguments: str, policy: str = "warn") -> subprocess.CompletedProcess[str]:
        program = tmp_path / "program.py"
        program.write_text(BEGIN + text)
        environment = {
            "SAFEPRODUCER_PRODUCER_IDS_LEDGER": place,
            "SAFEPRODUCER_PRODUCER_IDS_POLICY": policy,
            "PYTHONPATH": str(ROOT),
        }
        return ran([sys.executable, str(program), cluster.bootstrap, *arguments], env={**os.environ, **environment})

    return start


def ledger(place: Place) -> LedgerReading:
    (found,) = read_ledgers(place)
    return found


def patterns(place: Place) -> list[str]:
    return [pattern.code for pattern in ledger(place).patterns()]


@pytest.mark.parametrize(
    ("program", "code"), [(CRASH, "crash-loop"), (KILLED, "one-per-process"), (TASK, "one-per-process")]
)
def test_a_pod_that_ends_again_and_again(run: Run, place: Place, program: str, code: str) -> None:
    """Or a task in a worker that is ended, as Spark's. From the fourth start on each log names line and pattern, though
    each start is another process; with `refuse` produce() raises at once, and says when the next permit comes."""
    logs = [run(program).stderr for _ in range(5)]
    assert ["producer-ID churn" in log for log in logs] == [False] * RATE + [True] * 2
    assert all("program.py:7 in make" in log and "crash loop" in log for log in logs[RATE:])
    assert patterns(place) == [code]
    refused = run(program, policy="refuse")
    assert refused.returncode == 1
    assert "ProducerIdLimitError" in refused.stderr
    assert len(ledger(place).in_hour) == 5


def test_a_producer_for_each_request(run: Run, place: Place) -> None:
    done = run(REQUESTS)
    assert done.returncode == 0, done.stderr
    (told,) = [line for line in done.stderr.splitlines() if "producer-ID churn" in line]
    assert "program.py:7 in make" in told
    assert "one a request" in told
    assert patterns(place) == ["one-per-request"]


def test_workers_of_a_pre_fork_server(run: Run, place: Place) -> None:
    """A start within the rate is not told. Recycled workers are, and not as a crash loop."""
    done = run(WORKERS, place)
    assert (done.returncode, done.stdout.split()) == (0, ["one-per-process"]), done.stderr
    assert "producer-ID churn" not in done.stderr
    recycled = run(WORKERS, place)
    assert recycled.returncode == 0, recycled.stderr
    assert "producer-ID churn" in recycled.stderr
    assert len(ledger(place).in_hour) == 6


def test_a_function_that_keeps_its_producer(run: Run, place: Place) -> None:
    """Outside the handler: one ID for all events of a warm sandbox. Without idempotence none."""
    assert run(FUNCTION, "idempotent").returncode == 0
    assert len(ledger(place).in_hour) == 1
    assert run(FUNCTION, "plain").returncode == 0
    assert len(ledger(place).in_hour) == 1
