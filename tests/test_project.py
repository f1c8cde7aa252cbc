"""The package as others see it: its names, its wheel, its import rules, its locks and its papers."""

from __future__ import annotations

import email
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import safeproducer

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

PUBLIC_NAMES = """
    CallSite CallbackReentryError CloseReport ConfigurationError ConfigurationTypeError ConfigurationValueError
    DeliveryError FatalError ForkedProducerError HoldReason Hook LanesChanged Outcome PartitionSnapshot ProducerChurn
    ProducerClosedError ProducerIdLimitError ProducerIdLimited ProducerInfo QueueFullError Record RecordsLost
    SafeProducer SafeProducerError SafeSerializingProducer Snapshot Throttled WindowChanged WindowSnapshot
"""


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, both outputs together."""
    return subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )


# --- names ---------------------------------------------------------------------------------------------------------


def test_public_names_are_frozen() -> None:
    """`safeproducer` exports exactly the names that users rely on; adding or removing one is a decision."""
    assert sorted(safeproducer.__all__) == sorted(PUBLIC_NAMES.split())
    assert [name for name in safeproducer.__all__ if not hasattr(safeproducer, name)] == []


def test_importing_the_package_loads_no_extra() -> None:
    """`import safeproducer` works with the core dependencies alone, and costs no telemetry, terminal or Spark."""
    extras = ("opentelemetry.sdk", "structlog", "rich", "pyspark", "pandas", "kafka", "pytest")
    loaded = run(sys.executable, "-c", f"import safeproducer, sys; print(sorted({set(extras)} & set(sys.modules)))")
    assert loaded.stdout == "[]\n"


# --- wheel ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by the installed hatchling: no network."""
    folder = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder)
    assert built.returncode == 0, built.stdout
    return next(folder.glob("*.whl"))


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """The wheel has all modules, pytest's plug-in, the marker of types and the licence; no tests or scripts."""
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
        notices = [name for name in archive.namelist() if name.endswith("licenses/LICENSE")]
    modules = (path.relative_to(ROOT).as_posix() for path in (ROOT / "safeproducer").rglob("*.py"))
    assert inside == {*modules, "safeproducer/py.typed", "pyspark_safeproducer.py", "pytest_safeproducer.py"}
    assert len(notices) == 1


def test_wheel_declares_what_pyproject_says(wheel: Path) -> None:
    """Version, Python range, extras and the number of requirements reach the metadata that installers read."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]
    assert metadata["Version"] == project["version"]
    assert metadata["Requires-Python"] == project["requires-python"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("Provides-Extra", [])) == set(extras)
    declared = metadata.get_all("Requires-Dist", [])
    assert len(declared) == len(project["dependencies"]) + sum(map(len, extras.values()))


def test_wheel_works_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    """Installed by uv into an empty environment, the package imports from there and the command starts.

    No network: the dependencies are those of the environment that runs the tests, lent by PYTHONPATH. That they can
    be installed from the locks alone is shown by scripts/demo and scripts/test themselves.
    """
    uv = shutil.which("uv") or ROOT / ".cache/uv-venv/bin/uv"
    if not Path(uv).exists():
        pytest.skip("no uv on PATH and none in .cache/uv-venv: scripts/test provides it")
    home = tmp_path / "environment"
    venv.create(home, with_pip=False, symlinks=True)
    installed = run(uv, "pip", "install", "--offline", "--no-deps", "--python", home / "bin/python", wheel)
    assert installed.returncode == 0, installed.stdout
    lent = str(Path(pytest.__file__).parents[1])
    found = run(
        home / "bin/python", "-c", "import safeproducer; print(safeproducer.__file__)", cwd=tmp_path, PYTHONPATH=lent
    )
    assert found.stdout.startswith(str(home)), found.stdout
    helped = run(home / "bin/safeproducer", "--help", cwd=tmp_path, PYTHONPATH=lent)
    assert helped.returncode == 0, helped.stdout
    assert "doctor" in helped.stdout


# --- import rules --------------------------------------------------------------------------------------------------

# What each contract must refuse: where it is planted, the statement, and the import that must be named.
VIOLATIONS = {
    "policy-is-pure": [
        ("policy/permits.py", "import time", "time"),
        ("policy/permits.py", "from threading import Lock", "threading"),
        ("policy/permits.py", "import logging", "logging"),
        ("policy/permits.py", "from random import random", "random"),
        ("policy/permits.py", "import asyncio.events", "asyncio"),
        ("policy/permits.py", "import socket", "socket"),
        ("policy/permits.py", "import structlog", "structlog"),
        ("policy/permits.py", "from opentelemetry import trace", "opentelemetry"),
        ("policy/permits.py", "import confluent_kafka", "confluent_kafka"),
        ("policy/permits.py", "from safeproducer.records import CallSite", "safeproducer.records"),
        ("records.py", "import uuid", "uuid"),
    ],
    "layers": [
        ("policy/permits.py", "from safeproducer.config import Settings", "safeproducer.config"),
        ("policy/permits.py", "from safeproducer.kafka import native", "safeproducer.kafka.native"),
        ("snapshot.py", "import safeproducer", "safeproducer"),
        ("kafka/native.py", "from safeproducer.errors import FatalError", "safeproducer.errors"),
        (
            "pipeline/reports/delivery_counters.py",
            "from safeproducer.producer import SafeProducer",
            "safeproducer.producer",
        ),
        (
            "hooks.py",
            "def late():\n    from safeproducer.telemetry import opentelemetry",
            "safeproducer.telemetry.opentelemetry",
        ),
    ],
    "pipeline-layers": [
        (
            "pipeline/buffer/partition_buffer.py",
            "from safeproducer.pipeline.dispatch.holds import Holds",
            "safeproducer.pipeline.dispatch.holds",
        ),
        (
            "pipeline/cluster/throttles.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "
            "from safeproducer.pipeline.lanes.batch_lane import BatchLane",
            "safeproducer.pipeline.lanes.batch_lane",
        ),
    ],
    **{
        f"pipeline-{room}": [
            (
                f"pipeline/{room}/{lower}.py",
                f"from safeproducer.pipeline.{room} import {upper}",
                f"safeproducer.pipeline.{room}.{upper}",
            )
        ]
        for room, lower, upper in (
            ("dispatch", "record_buffer", "dispatcher"),
            ("lanes", "lane_log", "lane_pool"),
            ("buffer", "in_flight_batch", "partition_buffer"),
            ("cluster", "throttles", "events"),
            ("reports", "report_numbers", "delivery_counters"),
            ("process", "stack", "sender"),
        )
    },
    "producer-id-layers": [
        (
            "producer_ids/patterns.py",
            "from safeproducer.producer_ids import guard",
            "safeproducer.producer_ids.guard",
        ),
    ],
    "spark-layers": [
        ("spark/id_rate.py", "from safeproducer.spark import told", "safeproducer.spark.told"),
        ("spark/jaas.py", "from safeproducer.spark.options import Options", "safeproducer.spark.options"),
    ],
    "spark-in-one-package": [
        ("producer.py", "import pyarrow", "pyarrow"),
        ("telemetry/structlog.py", "from pyspark.sql import DataFrame", "pyspark"),
    ],
    "kafka-client-in-one-package": [
        ("producer.py", "from confluent_kafka import Message", "confluent_kafka"),
        ("cli/main.py", "import confluent_kafka.admin", "confluent_kafka"),
        ("telemetry/opentelemetry.py", "from confluent_kafka.cimpl import Producer", "confluent_kafka"),
    ],
    "core-without-extras": [
        ("__init__.py", "from safeproducer.telemetry import opentelemetry", "safeproducer.telemetry.opentelemetry"),
        ("pipeline/reports/delivery_counters.py", "import safeproducer.testing", "safeproducer.testing"),
        ("snapshot.py", "from safeproducer.spark import options", "safeproducer.spark.options"),
    ],
    "commands-on-top": [("__init__.py", "from safeproducer.cli.main import main", "safeproducer.cli.main")],
    "commands-apart": [
        ("cli/doctor/words.py", "from safeproducer.cli.demo import corpus", "safeproducer.cli.demo.corpus"),
        ("cli/common/stop.py", "from safeproducer.cli.demo import corpus", "safeproducer.cli.demo.corpus"),
    ],
    "fake-layers": [
        (
            "testing/fake/rules/bloom.py",
            "from safeproducer.testing.fake.state import topics",
            "safeproducer.testing.fake.state.topics",
        ),
        (
            "testing/fake/state/faults.py",
            "from safeproducer.testing.fake.handlers import SERVED",
            "safeproducer.testing.fake.handlers",
        ),
        (
            "testing/fake/handlers/read.py",
            "from safeproducer.testing.fake.network import connection",
            "safeproducer.testing.fake.network.connection",
        ),
        (
            "testing/fake/network/broker.py",
            "from safeproducer.testing.fake.control import runtime",
            "safeproducer.testing.fake.control.runtime",
        ),
    ],
    "fake-network-layers": [
        (
            "testing/fake/network/outbox.py",
            "from safeproducer.testing.fake.network import broker",
            "safeproducer.testing.fake.network.broker",
        ),
    ],
    "fake-rules-are-pure": [("testing/fake/rules/quota_window.py", "import time", "time")],
    "telemetry-libraries-in-one-package": [
        ("producer.py", "import structlog", "structlog"),
        ("hooks.py", "from opentelemetry import trace", "opentelemetry"),
    ],
    "terminal-in-one-package": [("snapshot.py", "import rich.table", "rich")],
    "wire-format-in-one-module": [
        ("testing/codec.py", "import kafka.protocol", "kafka"),
        ("kafka/native.py", "from kafka import KafkaProducer", "kafka"),
    ],
}


def lint_imports(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Check import contracts of a copy of the project."""
    linter = Path(sys.executable).with_name("lint-imports")
    return run(linter, "--no-logo", "--no-cache", *arguments, cwd=project, COLUMNS="400")


@pytest.fixture
def project_copy(tmp_path: Path) -> Path:
    """A copy of the package and its configuration, to break."""
    shutil.copytree(ROOT / "safeproducer", tmp_path / "safeproducer", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_every_import_contract_is_tried() -> None:
    """Each contract in pyproject.toml has at least one planted violation."""
    assert {contract["id"] for contract in PYPROJECT["tool"]["importlinter"]["contracts"]} == set(VIOLATIONS)


def test_import_contracts_hold(project_copy: Path) -> None:
    """The package keeps every import contract."""
    kept = lint_imports(project_copy)
    assert kept.returncode == 0, kept.stdout


@pytest.mark.parametrize("contract", VIOLATIONS)
def test_import_contract_refuses_violations(project_copy: Path, contract: str) -> None:
    """Each contract fails when modules break it, and names every import that does."""
    expected = []
    for file, code, imported in VIOLATIONS[contract]:
        with (project_copy / "safeproducer" / file).open("a", encoding="utf-8") as module:
            module.write(f"\n{code}\n")
        importer = "safeproducer/" + file.removesuffix(".py").removesuffix("/__init__").removesuffix("__init__")
        expected.append(f"{importer.strip('/').replace('/', '.')} -> {imported} (l.")
    broken = lint_imports(project_copy, "--contract", contract)
    assert broken.returncode == 1, broken.stdout
    assert [edge for edge in expected if edge not in broken.stdout] == [], broken.stdout


def test_a_module_without_a_layer_is_refused(project_copy: Path) -> None:
    """A new module must be given its layer in pyproject.toml."""
    (project_copy / "safeproducer/misplaced.py").touch()
    broken = lint_imports(project_copy, "--contract", "layers")
    assert broken.returncode == 1
    assert "safeproducer.misplaced" in broken.stdout


def test_wire_library_is_not_loaded_behind_the_linter() -> None:
    """Few modules load others by name, which import contracts cannot see: the wire module, the commands for rich, and
    for Spark what loads its public names late and what calls a function that the user named.
    """
    loading = re.compile(r"\b(import_module|__import__)\b")
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "safeproducer").rglob("*.py")
        if loading.search(path.read_text(encoding="utf-8"))
    }
    assert found <= {
        "safeproducer/testing/wire.py",
        "safeproducer/cli/common/screen.py",
        "safeproducer/spark/__init__.py",
        "safeproducer/spark/secret_places.py",
    }


# --- locks and forbidden text --------------------------------------------------------------------------------------


def script(name: str) -> ModuleType:
    """A module of scripts/lib, which is not a package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts/lib" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        ("pyproject.toml", '"tenacity>=9"', '"tenacity>=9", "attrs>=24"', "asks for attrs>=24, which is not pinned"),
        ("pyproject.toml", '"tenacity>=9"', '"tenacity>=99"', "pyproject.toml asks for tenacity>=99"),
        ("pyproject.toml", '    "tenacity>=9",\n', "", "pins tenacity for pyproject.toml, which no longer asks"),
        ("requirements/demo.txt", "rich==", "rich==0.", "demo.txt pins another rich than dev.txt"),
        ("requirements/build.txt", "--hash=sha256:", "--hash=md5:", "setuptools has no hash"),
        ("requirements/bootstrap.txt", "uv==", "uv>=", "not a pinned requirement"),
    ],
)
def test_stale_locks_are_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, old: str, new: str, complaint: str
) -> None:
    """The comparison of locks with pyproject.toml passes as they are and names each kind of difference."""
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    check = script("check_locks")
    check.ROOT = tmp_path
    assert check.main() == 0, capsys.readouterr().out
    text = (tmp_path / file).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new), encoding="utf-8")
    assert check.main() == 1
    assert complaint in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        "see https://{}.org/simple".format("pypi"),
        "file https://files.{}.org/x".format("pythonhosted"),
        "<url>https://repo.maven.{}.org</url>".format("apache"),
        "deb http://deb.{}.org/debian bookworm main".format("debian"),
        "--{} https://example.com".format("index-url"),
        'open("/{}/main/x")'.format("work"),
        "ran in /{}/kafka".format("tmp"),
        "/{}/alice/kafka".format("home"),
    ],
)
def test_text_of_one_machine_is_noticed(text: str) -> None:
    """Hosts of package registries and folders of one machine are found in a committed text."""
    check = script("check_text")
    assert len(check.findings(f"line\n{text}\n")) == 1
    assert check.findings(f"line\n{text}\n")[0][0] == 2


def test_harmless_text_passes() -> None:
    """Relative folders, variables and the web sites of projects are no findings."""
    check = script("check_text")
    harmless = "cd $ROOT/work/x; ls ./tmp/x; https://kafka.apache.org/documentation https://www.debian.org framework/x"
    assert check.findings(harmless) == []


def test_prose_that_is_hard_to_read_is_noticed() -> None:
    """Long lines and long paragraphs, in lists too; tables and code may be longer."""
    check = script("check_text")
    assert check.style("x" * 121 + "\n") == [(1, "x" * 40, "121 characters in a line, 120 at most")]
    assert [line for line, _, _ in check.style("# A\n\n- " + "word\n" * 91)] == [3]
    assert check.style("- " + "word\n" * 90 + "- " + "word\n" * 90) == []
    assert check.style(f"| {'word ' * 91} |\n\n```\n{'word ' * 91}\n```\n\n    {'word ' * 91}\n") == []


def test_a_front_page_that_grows_is_noticed() -> None:
    """More lines or words than a reader takes in at once."""
    check = script("check_text")
    assert check.front_page("word " * 900) == []
    assert [why for _, _, why in check.front_page("word\n" * 131)] == ["131 lines on the front page, 130 at most"]
    assert [why for _, _, why in check.front_page("word " * 901)] == ["901 words on the front page, 900 at most"]


def test_a_word_that_the_glossary_replaces_is_noticed() -> None:
    """Those of the first column of its second table, over a line's end too; names in the code may be called so."""
    check = script("check_text")
    replaced = check.replaced_words(
        f"| term | meaning |\n|---|---|\n| lane | x |\n\n{check.REPLACED}\n\n| instead of | write |\n|---|---|\n"
        "| old word, worse | new |\n"
    )
    assert [(line, word) for line, word, _ in check.style("A lane.\n\nAn old\nword is Worse.\n", replaced)] == [
        (3, "old\nword"),
        (4, "Worse"),
    ]
    assert check.style("`worse.py` and [text](worse.md), worsen, even-worse\n", replaced) == []


def test_a_replaced_word_is_noticed_in_comments_and_docstrings() -> None:
    """On its line; names and other strings may be called so."""
    check = script("check_text")
    replaced = check.replaced_words(f"{check.REPLACED}\n\n| instead of | write |\n|---|---|\n| worse | new |\n")
    source = '"""Fine, `worse` too.\n\nBut worse here.\n"""\nworse = "worse"  # no worse\n'
    assert [line for line, _, _ in check.words(check.prose_of(source), replaced)] == [3, 5]


def test_the_glossary_replaces_words() -> None:
    """The table is where the check looks for it."""
    check = script("check_text")
    replaced = check.replaced_words((ROOT / check.GLOSSARY).read_text(encoding="utf-8"))
    assert replaced is not None
    assert replaced.search("the fed lane")
    assert replaced.search("stock's")
    assert not replaced.search("instead of")


# --- papers --------------------------------------------------------------------------------------------------------


def test_scripts_of_the_readme_exist() -> None:
    """Each script that people are told to run is there and can be run; the README names the two first steps."""
    first_steps = {"scripts/demo", "scripts/test"}
    named = {
        script
        for paper in ("README.md", "CONTRIBUTING.md", "docs/reference/commands.md", "benchmarks/README.md")
        for script in re.findall(r"\bscripts/[a-z]+\b(?!/)", (ROOT / paper).read_text(encoding="utf-8"))
    }
    assert first_steps <= set(re.findall(r"\bscripts/[a-z]+\b", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert sorted(name for name in named if not os.access(ROOT / name, os.X_OK)) == []


def test_all_papers_agree_on_the_version() -> None:
    """pyproject.toml, the package and the newest entry of the change log say the same version."""
    newest = re.search(r"^## \[?v?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest
    assert newest[1] == PYPROJECT["project"]["version"] == safeproducer.__version__
