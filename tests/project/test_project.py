"""The package as others see it: its names, its wheel, its import rules, its locks and its papers."""

import email
import importlib.util
import os
import re
import shutil
import sys
import tomllib
import venv
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import safeproducer
from tests.contract.support import ran

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> Any:
    return ran(command, cwd=cwd, env=os.environ | environment)


RARELY_USED = """
    confluent_kafka.admin difflib http importlib.metadata ipaddress kafka opentelemetry pandas pathlib pyspark pytest
    rich structlog tenacity urllib
    safeproducer.cli safeproducer.spark safeproducer.takeover safeproducer.telemetry safeproducer.testing
"""
AT_IMPORT = """
    safeproducer safeproducer.errors safeproducer.hooks safeproducer.kafka safeproducer.kafka.advice
    safeproducer.kafka.arguments safeproducer.kafka.native safeproducer.policy safeproducer.policy.hold_reason
    safeproducer.policy.outcome safeproducer.policy.types safeproducer.producer safeproducer.records
    safeproducer.runtime safeproducer.runtime.clock safeproducer.runtime.forks safeproducer.runtime.lifetime
    safeproducer.runtime.log safeproducer.runtime.threads safeproducer.serializing safeproducer.snapshot
    safeproducer.submitting
"""
CALLS = """
producer.produce("t", b"x", b"k")
producer.produce_batch("t", [{"value": b"x"}])
producer.poll(0)
producer.flush(0.01)
producer.purge()
producer.poll(0)
producer.snapshot(), producer.explain(), producer.health(), repr(producer), len(producer)
producer.close(0)
"""


def loads(*steps: str) -> list[set[str]]:
    """Modules that each step loads, in an interpreter of its own that has confluent_kafka."""
    code = f"import sys; sys.path[:] = {sys.path!r}; import confluent_kafka; before = set(sys.modules)\n"
    for step in steps:
        code += f"{step}\nprint(*set(sys.modules) - before, flush=True); before = set(sys.modules)\n"
    return [set(line.split()) for line in run(sys.executable, "-S", "-c", code).stdout.splitlines()]


def test_importing_it_loads_what_callers_name_and_nothing_of_a_producer() -> None:
    """The first producer loads that, which is most of the package; what is rarely used is imported where it is."""
    loaded, by_first = loads("import safeproducer", "producer = safeproducer.SafeProducer({'log_level': 0})")
    assert {name for name in loaded if name.startswith("safeproducer")} == set(AT_IMPORT.split())
    assert not loaded & {"ctypes", "hashlib", "json", "random"}
    assert "safeproducer.pipeline.assembly" in by_first
    assert not (loaded | by_first) & set(RARELY_USED.split())


def test_metrics_load_no_producer() -> None:
    """Spark starts a process for each write to plan it, which loads them: 60 ms more each time."""
    (loaded,) = loads("import safeproducer.telemetry.figures")
    assert "safeproducer.pipeline.inspection" in loaded
    assert "safeproducer.pipeline.engine" not in loaded


def test_children_share_what_a_producer_loads() -> None:
    """Each worker of a server that imports this before it forks loaded it for itself, 50 ms and 6 MB."""
    fork = (
        "import os\nif not os.fork(): print('safeproducer.pipeline.assembly' in sys.modules, flush=True); os._exit(0)"
    )
    code = f"import safeproducer, sys; print('safeproducer.pipeline.assembly' in sys.modules, flush=True); {fork}"
    assert run(sys.executable, "-W", "error", "-c", f"{code}\nos.wait()").stdout.split() == ["False", "True"]


def test_calls_of_a_producer_load_nothing() -> None:
    """A destructor may make them when the interpreter ends, and imports fail then."""
    made = "from safeproducer import SafeProducer; producer = SafeProducer({'log_level': 0})"
    assert loads(made, CALLS)[1:] == [set()]


def test_an_error_of_a_client_loads_nothing() -> None:
    """Its sender notes it, and a child that is forked meanwhile would wait for the same import for ever."""
    config = "{'bootstrap.servers': '127.0.0.1:1', 'sasl.username': 'ann', 'sasl.password': 'x'}"
    quiet = "import logging; logging.root.addHandler(logging.NullHandler())"
    made = f"import safeproducer; producer = safeproducer.SafeProducer({config}, logger=logging.root)"
    met = "while producer.snapshot().last_error is None: producer.poll(0.01)"
    assert not [found for found in loads(f"{quiet}; {made}", f"exec({met!r})") if "difflib" in found]


# --- wheel ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by the installed hatchling: no network."""
    folder = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder)
    assert built.returncode == 0, built.stderr
    return next(folder.glob("*.whl"))


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """The wheel has all modules, pytest's plug-in, the marker of types, the licence and bills of materials."""
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
        notices = [name for name in archive.namelist() if name.endswith("licenses/LICENSE")]
        bills = {Path(name).name for name in archive.namelist() if ".dist-info/sboms/" in name}
    modules = (path.relative_to(ROOT).as_posix() for path in (ROOT / "safeproducer").rglob("*.py"))
    assert inside == {
        *modules,
        "safeproducer/testing/schemas.json",
        "safeproducer/py.typed",
        "pyspark_safeproducer.py",
        "pytest_safeproducer.py",
    }
    assert len(notices) == 1
    extras = PYPROJECT["project"]["optional-dependencies"]
    assert bills == {f"safeproducer-{name}.cdx.json" for name in ("core", *extras)}


def test_wheel_declares_what_pyproject_says(wheel: Path) -> None:
    """Version, Python range, extras and the number of requirements reach the metadata that installers read."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]
    assert metadata["Version"] == safeproducer.__version__
    assert metadata["Requires-Python"] == project["requires-python"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("Provides-Extra", [])) == set(extras)
    assert "](https://example.org/safeproducer/docs/use/quickstart.md)" in metadata.get_payload()
    assert re.findall(r"\]\((?!https:|#)[^)]*\)", metadata.get_payload()) == []
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
    assert installed.returncode == 0, installed.stderr
    lent = str(Path(pytest.__file__).parents[1])
    found = run(
        home / "bin/python", "-c", "import safeproducer; print(safeproducer.__file__)", cwd=tmp_path, PYTHONPATH=lent
    )
    assert found.stdout.startswith(str(home)), found.stderr
    helped = run(home / "bin/safeproducer", "--help", cwd=tmp_path, PYTHONPATH=lent)
    assert helped.returncode == 0, helped.stderr
    assert "doctor" in helped.stdout


# --- import rules --------------------------------------------------------------------------------------------------

# One violation for each type of contract: its ID, where it is planted, the statement, and the import that is named.
VIOLATIONS = {
    "forbidden": ("policy-is-pure", "policy/permits.py", "from threading import Lock", "threading"),
    "layers": ("layers", "kafka/native.py", "from safeproducer.errors import FatalError", "safeproducer.errors"),
    "protected": (
        "core-without-extras",
        "snapshot.py",
        "def late():\n    from safeproducer.spark import options",
        "safeproducer.spark.options",
    ),
}


def test_import_contracts_refuse_violations(tmp_path: Path) -> None:
    """A contract of each type is broken by its violation and names it; so is one by a module that has no layer."""
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    assert {contract["type"] for contract in contracts} == set(VIOLATIONS)
    shutil.copytree(ROOT / "safeproducer", tmp_path / "safeproducer", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "safeproducer/misplaced.py").touch()
    expected = ["safeproducer.misplaced"]
    for broken, file, code, imported in VIOLATIONS.values():
        with (tmp_path / "safeproducer" / file).open("a", encoding="utf-8") as module:
            module.write(f"\n{code}\n")
        expected.append(f"safeproducer.{file.removesuffix('.py').replace('/', '.')} -> {imported} (l.")
        expected += [f"{contract['name']} BROKEN" for contract in contracts if contract["id"] == broken]
    linter = Path(sys.executable).with_name("lint-imports")
    found = run(linter, "--no-logo", "--no-cache", cwd=tmp_path, COLUMNS="400")
    assert found.returncode == 1, found.stdout
    assert [name for name in expected if name not in found.stdout] == [], found.stdout


def test_wire_library_is_not_loaded_behind_the_linter() -> None:
    """Few modules load others by name, which import contracts cannot see: the wire module, the commands for rich, what
    loads the public names of Spark and of testing late, and what calls a function that the user of Spark named.
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
        "safeproducer/spark/security.py",
        "safeproducer/testing/__init__.py",
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


def test_stale_locks_are_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The comparison of locks with pyproject.toml passes as they are."""
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    check = script("check_locks")
    check.ROOT = tmp_path
    assert check.main() == 0, capsys.readouterr().out
    (tmp_path / "pyproject.toml").write_text(text.replace('"tenacity>=9"', '"tenacity>=99"'), encoding="utf-8")
    assert check.main() == 1
    assert "pyproject.toml asks for tenacity>=99" in capsys.readouterr().out


def test_each_check_of_text_notices_a_violation() -> None:
    """Text of one machine, long lines and paragraphs, a front page that grows, replaced words, no subject."""
    check = script("check_text")
    replaced = check.replaced_words((ROOT / check.GLOSSARY).read_text(encoding="utf-8"))
    assert [line for line, *_ in check.findings(f"line\nsee https://{'pypi'}.org/simple\nls ./{'tmp'}/x\n")] == [2]
    assert [line for line, *_ in check.style("x" * 121 + "\n\n" + "word\n" * 91)] == [1, 3]
    assert len(check.front_page("word " * 901)) == 1
    assert [line for line, *_ in check.style("A lane.\n\nThe fed\nlane, `fed lane`.\n", replaced)] == [3]
    assert [line for line, *_ in check.words(check.prose_of('"""Fine."""\nx = 1  # fed lane\n'), replaced)] == [2]
    texts = [
        ("a.md", "What holds. A lane.\n"),
        ("safeproducer/a.py", '"""So it is. It is."""'),
        ("tests/a.py", "def test_who_is(): ...\ndef test_a_lane(): ...\n"),
    ]
    shares = [line[:18] for line in check.without_subject(texts) if "at most" in line]
    assert shares == ["50.0 % of the sent", "50.0 % of the sent", "50.0 % of the name"]


# --- papers --------------------------------------------------------------------------------------------------------


def test_scripts_of_the_readme_exist() -> None:
    """Each script that people are told to run is there and can be run; the README names the two first steps."""
    first_steps = {"scripts/demo", "scripts/test"}
    named = {
        script
        for paper in ("README.md", "CONTRIBUTING.md", "docs/reference/commands.md", "benchmarks/README.md")
        for script in re.findall(r"\bscripts/[a-z]+\b(?!/)(?:\.py\b)?", (ROOT / paper).read_text(encoding="utf-8"))
    }
    assert first_steps <= set(re.findall(r"\bscripts/[a-z]+\b", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert sorted(name for name in named if not os.access(ROOT / name, os.X_OK)) == []


def test_all_papers_agree_on_the_version() -> None:
    """The package has the version, pyproject.toml takes it from there; the newest entry of the change log is its."""
    newest = re.search(r"^## \[?v?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest
    assert newest[1] == safeproducer.__version__
    assert "version" in PYPROJECT["project"]["dynamic"]
