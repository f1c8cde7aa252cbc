"""The documents' code and commands run in their order, in an empty home, with the wheel that is built of this tree."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.contract.support import ran
from tests.project.test_documents import ROOT, python_in, read

PAGES = ["README.md", *(path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("docs/[!i]*/*.md")))]
NEED_SPARK = re.compile(r"\bspark\b|\bdf\.|\brows\b|SafeProducerSink")
"""Code that is compiled, and its imports looked up, in tests/project/test_documents.py."""
RUN = """
import json, sys
import safeproducer
assert safeproducer.__file__.startswith(sys.argv[1]), safeproducer.__file__
config = {"bootstrap.servers": sys.argv[2]}
pages = {}
for page, code in json.load(sys.stdin):
    print("==", page, flush=True)
    exec(compile(code, page, "exec"), pages.setdefault(page, {"__name__": "__main__", "config": config}))
"""
COMMANDS = re.compile(r"^    (safeproducer (?:doctor|replication|run) .*?)(?:  +#.*)?$", re.MULTILINE)
OTHER_PROGRAMS = re.compile(r"\[--|gunicorn|ddtrace")
QUICK = ("--measure", "0.2")
FURTHER = {
    "replication status": QUICK,
    "replication plan": QUICK,
    "replication throttle": ("--yes", *QUICK),
    "replication clear": ("--yes",),
}
"""A person is asked, and waits for five seconds."""
APPLICATION = """
import confluent_kafka

producer = confluent_kafka.Producer({"bootstrap.servers": "localhost:9092"})
producer.produce("orders", "order")
assert producer.flush(20) == 0
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wheel installs."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (built,) = folder.glob("*.whl")
    zipfile.ZipFile(built).extractall(folder / "installed")
    return folder / "installed"


cluster = fake_cluster(dict.fromkeys(("orders", "events"), 1), brokers=3, scope="module")
"""Takes the place of localhost:9092."""


class Home:
    """An empty folder, where commands know of nothing but the wheel."""

    def __init__(self, folder: Path, wheel: Path, cluster: FakeCluster) -> None:
        self.folder, self.wheel, self.cluster = folder, wheel, cluster

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(self.with_cluster(text))

    def with_cluster(self, text: str) -> str:
        return text.replace("localhost:9092", self.cluster.bootstrap)

    def run(self, *command: str, given: str = "") -> str:
        """What a command printed, which ended well; `python` is this one."""
        words = [sys.executable if word == "python" else word for word in command]
        environment = {"HOME": str(self.folder), "PYTHONPATH": str(self.wheel), "PATH": os.environ["PATH"]}
        done = ran(words, input=given, cwd=self.folder, env=environment)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout


@pytest.fixture
def home(tmp_path: Path, wheel: Path, cluster: FakeCluster) -> Home:
    return Home(tmp_path, wheel, cluster)


def test_the_code_of_each_document_runs(home: Home) -> None:
    """What needs no Spark. The pages that print a report say what it is."""
    code = [(page, block) for page in PAGES for block in python_in(page) if not NEED_SPARK.search(block)]
    printed = home.run(
        *("python", "-c", RUN, str(home.wheel), home.cluster.bootstrap), given=home.with_cluster(json.dumps(code))
    )
    reports = printed.count("CloseReport(accepted=1000, delivered=1000, failed=0, left=0")
    assert reports == sum(block.count("# CloseReport(accepted=1000") for _, block in code) == 2


def test_a_first_record_takes_the_commands_of_its_page(tmp_path: Path, cluster: FakeCluster) -> None:
    """Five in a minute at most, typed in a copy of this tree. This environment lends pip what a network would bring."""
    page = read("docs/use/quickstart.md")
    typed = re.findall(r"^    ([^#\n]*[^#\s])(?: +#.*)?$", page.partition("```")[0], re.MULTILINE)
    assert len(typed) <= 5
    clone, programs = tmp_path / "clone", tmp_path / "programs"
    names = ("safeproducer", "requirements/extras", "scripts/lib")
    for name in names:
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (*ROOT.glob("*.py"), ROOT / "README.md", ROOT / "LICENSE", ROOT / "pyproject.toml"):
        shutil.copy(file, clone)
    (clone / "first.py").write_text(python_in("docs/use/quickstart.md")[0].replace("localhost:9092", cluster.bootstrap))
    programs.mkdir()
    (programs / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (programs / "python3").chmod(0o755)
    lent = str(Path(pytest.__file__).parents[1])
    alone = dict.fromkeys(("PIP_NO_INDEX", "PIP_NO_DEPS", "PIP_IGNORE_INSTALLED", "PIP_QUIET"), "1")
    alone["PIP_NO_BUILD_ISOLATION"] = "0"  # pip reads it as the value of build isolation
    done = ran(
        ["bash", "-e"],
        input="\n".join(typed),
        cwd=clone,
        timeout=60,
        env={**alone, "HOME": str(tmp_path), "PYTHONPATH": lent}
        | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CloseReport(accepted=1000, delivered=1000, failed=0, left=0" in done.stdout
    assert list(clone.glob("venv/lib/*/site-packages/safeproducer/__init__.py"))


def test_the_brokers_of_that_page_take_its_records(home: Home) -> None:
    """For somebody who has none."""
    (line,) = re.findall(r"^    (echo .* --stay)$", read("docs/use/quickstart.md"), re.MULTILINE)
    typed = ["bash", "-c", line.replace("python", sys.executable)]
    environment = {**os.environ, "PYTHONPATH": str(home.wheel)}
    served = subprocess.Popen(typed, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    with served:
        assert served.stdout
        try:
            bootstrap = json.loads(served.stdout.readline())["bootstrap"]
            first = python_in("docs/use/quickstart.md")[0].replace("localhost:9092", bootstrap)
            assert "delivered=1000, failed=0" in home.run("python", "-c", first)
        finally:
            os.killpg(served.pid, signal.SIGTERM)


def test_the_test_of_the_plug_in_page_passes(home: Home) -> None:
    """Pytest finds the plug-in of the wheel."""
    home.write("test_orders.py", "".join(python_in("docs/test/pytest.md")))
    assert "1 passed" in home.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider")


def commands() -> list[str]:
    """Each once, in the order of the documents."""
    found = [command for page in PAGES for command in COMMANDS.findall(read(page))]
    return [command for command in dict.fromkeys(found) if not OTHER_PROGRAMS.search(command)]


def test_the_commands_of_each_document_run(home: Home) -> None:
    """With the files that they name."""
    home.write("kafka.properties", "bootstrap.servers = localhost:9092\n")
    home.write("app.py", APPLICATION)
    move = {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [2]}]}
    home.write("move.json", json.dumps(move))
    assert len(commands()) >= 8
    for command in commands():
        further = [word for name, words in FURTHER.items() if name in command for word in words]
        home.run("python", "-m", *home.with_cluster(command).split(), *further)
