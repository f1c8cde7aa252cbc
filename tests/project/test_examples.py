"""The examples run as they stand, on librdkafka's mock cluster, and their exit codes tell the truth."""

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NOBODY = "127.0.0.1:1"
NEED_A_CLUSTER = {"spark_job.py", "spark_pipeline.py"}
"""Run on real Spark and real Kafka, in integration/test_spark_kafka.py."""
TESTS = "test_application.py"
SERVES = "fastapi_app.py"
"""Until it is stopped: tests/aio/test_service.py."""
COMPARES = "four_clients.py"
"""Takes a minute: two of its rows are counted here."""


def run(name: str, *args: str) -> subprocess.CompletedProcess[str]:
    """The example as a person starts it, with every Python warning an error."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def standalone() -> list[str]:
    return sorted(
        path.name for path in EXAMPLES.glob("*.py") if path.name not in NEED_A_CLUSTER | {TESTS, SERVES, COMPARES}
    )


def test_every_example_is_known() -> None:
    """The list of examples that run alone is not empty by mistake."""
    assert {"application.py", "migrate.py", "service_loop.py"} <= set(standalone())


@pytest.mark.parametrize("name", standalone())
def test_example_succeeds_without_a_cluster(name: str) -> None:
    """Each example starts with a docstring that says how to run it, and by default succeeds on the mock cluster."""
    assert f"python examples/{name}" in (EXAMPLES / name).read_text().split('"""')[1]
    short = {"service_loop.py": ("--seconds", "1"), "metrics.py": ("--seconds", "1", "--port", "0")}
    done = run(name, *short.get(name, ()))
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("fastapi_app.py", "uvicorn"),
        ("four_clients.py", "google_crc32c"),
        ("metrics.py", "opentelemetry.sdk.metrics"),
        ("spark_job.py", "pyspark.errors"),
        ("spark_pipeline.py", "pyspark.errors"),
        ("tracing.py", "opentelemetry.sdk.trace"),
    ],
)
def test_example_without_its_packages_ends_with_one_sentence(name: str, missing: str) -> None:
    """It says what to install."""
    program = f"import runpy, sys; sys.modules[{missing!r}] = None; runpy.run_path({str(EXAMPLES / name)!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"[^\n]+ is not installed: pip install [^\n]+\n", done.stderr), done.stderr


def test_only_safeproducer_doubles_no_record() -> None:
    """The cells of the front page that a busy machine cannot change; aiokafka's batches are smaller there."""
    done = run(COMPARES, "lost-answer", "deadline")
    assert done.returncode == 0, done.stderr
    cells = [re.findall(r"\d+", line)[::2] for line in done.stdout.splitlines()[2:]]
    page = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
    told = [re.search(rf"^\| `{name}`[^|]*\|(.*)\|$", page, re.MULTILINE) for name in ("lost-answer", "deadline")]
    page_cells = [row[1].replace(" ", "").split("|") for row in told if row]
    assert [(*row[:2], *row[3:]) for row in cells] == [(*row[:2], *row[3:]) for row in page_cells]
    assert [row[-1] for row in cells] == ["0", "0"]


UNREACHABLE = {
    "application.py": ("--orders 5 --deadline 0.5", "0 of 5 orders delivered", "5 orders are not written"),
    "migrate.py": ("--events 5 --deadline 0.5", "0 delivered, 5 unresolved", ""),
    "service_loop.py": ("--records 20 --rate 1000 --drain-seconds 0.5", "", "20 were left after 0.5 s"),
    "worker.py": ("--jobs 3 --drain-seconds 0", "", "3 results: not written"),
}


@pytest.mark.parametrize("name", UNREACHABLE)
def test_example_fails_when_nobody_answers(name: str) -> None:
    """With unreachable brokers it ends within its deadline, exits with 1 and counts what is left."""
    arguments, told, said = UNREACHABLE[name]
    done = run(name, "--bootstrap-servers", NOBODY, *arguments.split())
    assert done.returncode == 1
    assert told in done.stdout
    assert said in done.stderr


def run_tests(path: Path) -> subprocess.CompletedProcess[str]:
    """A test module as a person runs it, with the plug-in found by its entry point."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    return subprocess.run(command, cwd=EXAMPLES.parent, capture_output=True, text=True, timeout=60, check=False)


def test_the_tests_of_the_application_pass() -> None:
    """The example of a user's own tests on FakeCluster runs as it stands."""
    done = run_tests(EXAMPLES / TESTS)
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout


def test_the_tests_of_the_application_can_fail(tmp_path: Path) -> None:
    """With a producer that is not idempotent the lost acknowledgement doubles orders, and that test alone notices."""
    text = (EXAMPLES / TESTS).read_text().replace('"linger.ms": 1}', '"linger.ms": 1, "enable.idempotence": False}')
    (tmp_path / TESTS).write_text(text)
    for name in ("application.py", "pytest.ini"):
        shutil.copy(EXAMPLES / name, tmp_path)
    done = run_tests(tmp_path / TESTS)
    assert "test_a_lost_acknowledgement_doubles_no_order" in done.stdout
    assert "1 failed, 4 passed" in done.stdout, done.stdout


def test_migration_runs_the_same_code_on_both() -> None:
    """The same function delivers everything on confluent_kafka and on SafeProducer."""
    done = run("migrate.py", "--events", "300")
    assert "confluent_kafka.Producer: 300 of 300 delivered" in done.stdout
    assert "safeproducer.SafeProducer: 300 of 300 delivered" in done.stdout
    assert "it counted 300 accepted, 300 delivered, 0 unresolved" in done.stdout


def test_metrics_tell_how_long_records_were_held() -> None:
    """By reason, and how all of them ended."""
    told = run("metrics.py", "--seconds", "1", "--port", "0").stdout
    assert "safeproducer_records_ended_total 200 {'name': 'orders', 'outcome': 'delivered'}" in told
    held = re.findall(r"^safeproducer_hold_time_seconds_total (\S+) .*'throttled'", told, re.MULTILINE)
    assert float(held[0]) > 0.1


def test_service_stops_after_its_records() -> None:
    """The service produces exactly as many records as it was told."""
    done = run("service_loop.py", "--records", "50", "--rate", "500")
    assert "50 accepted, 50 delivered, 0 failed" in done.stdout


def test_worker_ends_by_a_signal() -> None:
    """It says what was done until then, and leaves no result in the process."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / "worker.py"), "--jobs", "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "running\n"
        time.sleep(0.3)
        worker.send_signal(signal.SIGTERM)
        told, errors = worker.communicate(timeout=60)
    assert worker.returncode == 1
    assert re.fullmatch(r"\d+ of 1000000 jobs done\n", told)
    assert "Traceback" not in errors
