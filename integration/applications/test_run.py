"""`safeproducer run`: programs that use confluent_kafka are taken over, and each process tells its account."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from integration.applications.application import STOCK
from integration.applications.programs import produces
from integration.applications.test_services import GUNICORN, PROGRAMS, REQUESTS, by_two_workers
from integration.kafka.cluster import KafkaCluster
from integration.tap.tap import Tap
from safeproducer.testing import FakeCluster
from tests.telemetry.test_instrumentor import APPLICATION, instrumented

ROOT = Path(__file__).parents[2]
OTHERS = ROOT / ".cache/matrix/programs/bin"
"""Programs and tracers that the environment of the tests does not have."""
FILE = produces.__file__
WITHOUT_AGENTS: dict[str, Any] = {
    "DD_TRACE_STARTUP_LOGS": "false",
    "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "0",
    "DD_REMOTE_CONFIGURATION_ENABLED": "0",
    "DD_TRACE_AGENT_URL": "unix:///nowhere",
    "OTEL_TRACES_EXPORTER": "none",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_LOGS_EXPORTER": "none",
}
COUNTS = ("accepted", "delivered", "unknown", "not_written", "without_report")
MODES = pytest.mark.parametrize("mode", ["observe", "auto"])


class Run:
    """Runs commands under `safeproducer run`, each with a topic of its own."""

    def __init__(self, cluster: FakeCluster, folder: Path) -> None:
        self._cluster, self._summary = cluster, folder / "summary of all.json"
        self.topic = folder.name.replace("[", "-").replace("]", "")
        cluster.create_topic(self.topic)

    def __call__(
        self,
        *command: str | Path,
        mode: str = "auto",
        processes: int = 1,
        status: int = 0,
        inside: Sequence[str | Path] = (),
        outside: Sequence[str | Path] = (),
        **environment: str,
    ) -> str:
        """Start the command with brokers and topic; each process that produces tells, and all of it adds up.

        What was written to stderr.
        """
        ours = [sys.executable, "-m", "safeproducer", "run", "--mode", mode, "--summary", self._summary, "--"]
        done = subprocess.run(
            [*map(str, (*outside, *ours, *inside, *command)), self._cluster.bootstrap, self.topic],
            cwd=self._summary.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        self.adds_up(mode, processes)
        return done.stderr

    def adds_up(self, mode: str, processes: int) -> None:
        """All records are in the log, all were delivered, and there is one summary a process."""
        told = summaries(self._summary)
        number = produces.RECORDS * processes
        assert len(self._cluster.log(self.topic)) == number
        assert [sum(one[name] for one in told) for name in COUNTS] == [number, number, 0, 0, 0]
        assert [one["mode"] for one in told] == [mode] * processes
        assert len({one["pid"] for one in told}) == processes


def summaries(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def run(brokers: FakeCluster, tmp_path: Path) -> Run:
    return Run(brokers, tmp_path)


# --- how a program is started ------------------------------------------------------------------------------------


@MODES
@pytest.mark.parametrize("form", ["script", "text", "module", "console script", "without site-packages"])
def test_every_form_of_command_is_taken_over(run: Run, tmp_path: Path, mode: str, form: str) -> None:
    """Also in a folder whose name has spaces."""
    folder = tmp_path / "with spaces"
    folder.mkdir()
    script = Path(shutil.copy(FILE, folder / "program.py"))
    if form == "console script":
        script.write_text(f"#!{sys.executable}\n{script.read_text()}")
        script.chmod(0o755)
    site = str(Path(pytest.__file__).parents[1])
    commands: dict[str, Sequence[str | Path]] = {
        "script": (sys.executable, script),
        "text": (sys.executable, "-c", "import program, sys; program.WAYS[sys.argv[1]](*sys.argv[2:])"),
        "module": (sys.executable, "-m", "program"),
        "console script": (script,),
        "without site-packages": (sys.executable, "-S", script),
    }
    run(*commands[form], "plain", mode=mode, PYTHONPATH=os.pathsep.join((str(folder), str(ROOT), site)))


def test_status_of_the_command_is_kept(run: Run) -> None:
    run(sys.executable, FILE, "fails", status=3)


@MODES
@pytest.mark.parametrize(
    ("way", "processes"),
    [("serializing", 1), ("futures", 1), ("imports", 1), ("subprocesses", 2), ("fork", 3), ("spawn", 3), ("celery", 1)],
)
def test_every_way_to_produce_is_taken_over(run: Run, mode: str, way: str, processes: int) -> None:
    """SerializingProducer, AIOProducer, children of each kind, and twenty threads that import at once."""
    run(sys.executable, FILE, way, mode=mode, processes=processes)


def test_a_run_inside_a_run_counts_once(run: Run, tmp_path: Path) -> None:
    """The inner one wins."""
    outer = (sys.executable, "-m", "safeproducer", "run", "--mode", "held", "--summary", tmp_path / "outer")
    run(*outer, sys.executable, "-m", "safeproducer", "run", "--summary", tmp_path / "summary of all.json", "--mode",
        "observe", sys.executable, FILE, "plain", mode="observe")  # fmt: skip
    assert not (tmp_path / "outer").read_text()


# --- programs that others wrote ----------------------------------------------------------------------------------


def other(name: str) -> Path:
    """A program of that environment; skips where it was not made."""
    if not (OTHERS / name).exists():
        pytest.skip("no environment programs: scripts/test --matrix makes it")
    return OTHERS / name


@MODES
@pytest.mark.parametrize("way", ["kombu", "faststream"])
def test_libraries_that_make_producers_are_taken_over(run: Run, mode: str, way: str) -> None:
    run(other("python"), FILE, way, mode=mode)


@MODES
@pytest.mark.parametrize("tracer", ["ddtrace-run", "opentelemetry-instrument"])
@pytest.mark.parametrize("place", ["inside", "outside"])
def test_tracers_go_together_with_it(run: Run, mode: str, tracer: str, place: str) -> None:
    """Whether the tracer starts this command, or this command the tracer."""
    program = (other("python"), FILE, "plain")
    around: Any = {place: (other(tracer),), "PATH": f"{OTHERS}{os.pathsep}{os.environ['PATH']}"}
    run(*program, mode=mode, **around, **WITHOUT_AGENTS)


@pytest.mark.parametrize("mode", [None, "observe", "auto"])
def test_each_record_is_traced_once_beside_confluent_kafkas_instrumentation(tmp_path: Path, mode: str | None) -> None:
    """A SafeProducer by ours, and `confluent_kafka.Producer` by theirs, also where it is a SafeProducer inside."""
    python, ours = other("python"), ("-m", "safeproducer", "run", "--mode", str(mode), other("python"))
    program = ("-c", APPLICATION, "and confluent_kafka's")
    start = (other("opentelemetry-instrument"), python, *(ours if mode else ()))
    accepted, spans, producer = instrumented(tmp_path, *start, *program)
    assert producer == "opentelemetry.instrumentation.confluent_kafka"
    assert spans == ["orders send", *["send orders"] * 3]
    assert accepted == (4 if mode else 3)


@MODES
def test_gunicorn_with_preload(both: Callable[..., list[Any]], brokers: FakeCluster, tmp_path: Path, mode: str) -> None:
    """Each of its two workers tells its own account when it is told to end."""
    summary = tmp_path / "summary.json"
    ours = ("safeproducer", "run", "--mode", mode, "--summary", str(summary), "--", sys.executable, "-u", "-m")
    both(by_two_workers(brokers), *ours, *GUNICORN, f"{PROGRAMS}.wsgi:app", classes=(STOCK,))
    told = summaries(summary)
    assert len(told) == len({one["pid"] for one in told}) <= 2
    assert [sum(one[name] for one in told) for name in COUNTS] == [REQUESTS, REQUESTS, 0, 0, 0]


# --- observe ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [{}, {"enable.idempotence": True}, {"transactional.id": "observed"}], ids=["plain", "idempotent", "txn"]
)
def test_observe_makes_the_same_requests(
    tap: Tap, kafka_tapped: KafkaCluster, topic: Callable[..., str], settings: dict[str, Any]
) -> None:
    """By API and number as confluent_kafka without it, on real Kafka.

    How often librdkafka asks for metadata varies with its timers by itself: the least of up to three times counts.
    """
    seen: dict[bool, Counter[str]] = {}
    for _ in range(3):
        for ours in (False, True):
            name = topic(on=kafka_tapped)
            tap.reset()
            command = (*((sys.executable, "-m", "safeproducer", "run", "--") if ours else ()), sys.executable, FILE)
            subprocess.run(
                [*command, "steadily", kafka_tapped.bootstrap, name, json.dumps(settings)],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                check=True,
                timeout=90,
            )
            found = Counter(request.api for request in tap.requests())
            seen[ours] = found & seen.get(ours, found)
        if seen[True] == seen[False]:
            break
    assert seen[True] == seen[False]
    assert seen[False]["Produce"] == produces.RECORDS
