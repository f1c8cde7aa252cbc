"""The set-up behind scripts/demo and scripts/test, with stand-ins for Python, uv and Java: no network, no packages."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contract.support import ran, wait_until

ROOT = Path(__file__).resolve().parents[2]
TOOLS = "basename bash cat chmod cut dirname env flock grep head mkdir mktemp readlink rm sed sha256sum sleep tail uniq"
ENVIRONMENT = {"HOME": "", "PATH": "", "LC_ALL": "C"}


@dataclass
class Machine:
    """A checkout with the real scripts, and a PATH that holds a few tools and what a test puts there."""

    checkout: Path
    path: Path

    def install(self, name: str | Path, body: str) -> Path:
        """Put a shell script on PATH, or at a place in the checkout; it can append to `calls`."""
        script = self.path / name if isinstance(name, str) else self.checkout / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f"#!{self.path}/bash\ncalls={self.checkout}/calls\n{body}\n", encoding="utf-8")
        script.chmod(0o755)
        return script

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start one of the checkout's scripts."""
        return subprocess.Popen(
            [self.path / "bash", self.checkout / command[0], *command[1:]],
            env=ENVIRONMENT | {"HOME": str(self.checkout), "PATH": str(self.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str) -> tuple[int, str]:
        """Run one of the checkout's scripts; exit code and what it said to the person."""
        process = self.start(*command)
        # Shorter than the progress timer: nothing may be left behind that keeps the output open.
        said = process.communicate(timeout=25)[1]
        return process.returncode, said

    def calls(self) -> list[str]:
        """What the stand-ins were called with."""
        log = self.checkout / "calls"
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else []

    def give_python(self) -> None:
        """uv and an environment, both already there; nothing is installed in it yet."""
        self.install(Path(".cache/uv-venv/bin/uv"), 'echo "uv $*" >>"$calls"')
        self.install(Path(".cache/uv-venv/bin/python"), "exit 0")
        self.install(Path(".venv/bin/python"), '[ "$1" = -c ] || echo "python $*" >>"$calls"')
        fingerprint = ran(
            [
                self.path / "bash",
                "-c",
                '. scripts/lib/python.sh; root=$PWD; fingerprint "$PWD/requirements/bootstrap.txt"',
            ],
            cwd=self.checkout,
            env=os.environ | {"root": str(self.checkout)},
            check=True,
        ).stdout
        (self.checkout / ".cache/uv-venv/.fingerprint").write_text(fingerprint, encoding="utf-8")
        self.install("python3", "exit 0")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine whose user is not root and has no sudo."""
    checkout, path = tmp_path / "checkout", tmp_path / "bin"
    for folder in ("scripts", "requirements"):
        shutil.copytree(ROOT / folder, checkout / folder)
    shutil.copy(ROOT / "pyproject.toml", checkout)
    path.mkdir()
    for tool in TOOLS.split():
        found = shutil.which(tool)
        assert found, f"{tool} is part of every Debian"
        (path / tool).symlink_to(found)
    made = Machine(checkout, path)
    made.install("id", "echo 1000")
    return made


def installs(machine: Machine) -> list[str]:
    """The calls of uv that installed packages from a lock."""
    return [call for call in machine.calls() if call.startswith("uv pip install") and "--require-hashes" in call]


@pytest.mark.parametrize(
    ("python", "package"),
    [(None, "apt-get install python3 python3-venv"), ("exit 1", "apt-get install python3-venv")],
    ids=["no python3", "python3 without ensurepip"],
)
def test_a_person_without_rights_is_told_what_to_install(machine: Machine, python: str | None, package: str) -> None:
    """Without Python or its venv module, and without a way to install them, one sentence names the packages."""
    if python is not None:
        machine.install("python3", python)
    machine.install("apt-get", 'echo "apt-get $*" >>"$calls"')
    code, said = machine.run("scripts/demo")
    assert code == 1
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert package in said
    assert machine.calls() == []


def test_root_gets_missing_packages_through_apt(machine: Machine) -> None:
    """As root the missing package is installed, and a failure of apt-get is shown with its own message."""
    machine.install("id", "echo 0")
    machine.install("python3", "exit 1")
    machine.install("apt-get", 'echo "apt-get $*" >>"$calls"; [[ "$*" == *update* ]] || { echo no disk; exit 100; }')
    code, said = machine.run("scripts/demo")
    assert code == 1
    assert [call.split()[-1] for call in machine.calls()] == ["update", "python3-venv"]
    assert "no disk\nerror: " in said


def test_apt_can_be_forbidden(machine: Machine) -> None:
    """SAFEPRODUCER_NO_APT keeps the set-up from touching the machine even as root."""
    machine.install("id", "echo 0")
    machine.install("python3", "exit 1")
    machine.install("apt-get", 'echo "apt-get $*" >>"$calls"')
    script = machine.checkout / "scripts/demo"
    script.write_text(script.read_text().replace("set -euo", "SAFEPRODUCER_NO_APT=1\nset -euo"), encoding="utf-8")
    assert machine.run("scripts/demo")[0] == 1
    assert machine.calls() == []


def test_the_second_run_does_nothing_but_run(machine: Machine) -> None:
    """Packages are installed once, with their hashes; a second run goes directly to the demonstration."""
    machine.give_python()
    assert machine.run("scripts/demo", "--seed", "7")[0] == 0
    assert machine.run("scripts/demo", "--seed", "7") == (0, "")
    assert len(installs(machine)) == 1
    assert installs(machine)[0].endswith("requirements/demo.txt")
    assert machine.calls()[-2:] == ["python -m safeproducer demo --seed 7"] * 2


def test_a_changed_lock_is_installed(machine: Machine) -> None:
    """When a lock changes, the next run installs it."""
    machine.give_python()
    machine.run("scripts/demo")
    with (machine.checkout / "requirements/demo.txt").open("a", encoding="utf-8") as lock:
        lock.write("# changed\n")
    machine.run("scripts/demo")
    assert len(installs(machine)) == 2


def test_a_failed_installation_is_shown_and_repeated(machine: Machine) -> None:
    """A failure shows the tool's last words and one sentence, and is not taken for done the next time."""
    machine.give_python()
    machine.install(Path(".cache/uv-venv/bin/uv"), 'echo "uv $*" >>"$calls"; echo hash mismatch; exit 2')
    for _ in range(2):
        code, said = machine.run("scripts/demo")
        assert code == 1
        # One time in a hundred bash says between the two that it has "no record of process" of what it has just begun.
        assert re.search("hash mismatch\n(.*\n)?error: the locked packages could not be installed", said)
    assert len(installs(machine)) == 2
    assert not any(call.startswith("python") for call in machine.calls())


def test_two_set_ups_at_once_install_once(machine: Machine) -> None:
    """A set-up waits for another one of the same checkout, and then finds nothing left to do."""
    machine.give_python()
    gate = machine.checkout / "gate"
    slow = f'echo "uv $*" >>"$calls"; while [ ! -e {gate} ]; do sleep 0.05; done'
    machine.install(Path(".cache/uv-venv/bin/uv"), slow)
    first = machine.start("scripts/demo")
    wait_until(lambda: len(installs(machine)) == 1)
    second = machine.start("scripts/demo")
    waiting = second.stderr.readline() if second.stderr else ""
    gate.touch()
    said = [process.communicate(timeout=60)[1] for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), said
    assert "waiting for it" in waiting
    assert len(installs(machine)) == 1


@pytest.mark.parametrize(
    ("java", "maven", "missing"),
    [
        ("11.0.2", True, "Java 17 or newer missing"),
        ("17.0.9", False, "Maven missing"),
        (None, False, "Java 17 or newer and Maven missing"),
    ],
)
def test_missing_java_or_maven_is_named(machine: Machine, java: str | None, maven: bool, missing: str) -> None:
    """scripts/test says which of Java 17 and Maven is missing, and how to get it, when it may not install them."""
    if any(Path("/usr/lib/jvm").glob("*/bin/java")) and java != "17.0.9":
        script = machine.checkout / "scripts/lib/java.sh"
        script.write_text(script.read_text().replace("/usr/lib/jvm/", "/nonexistent/"), encoding="utf-8")
    machine.give_python()
    if java:
        machine.install("java", f"echo 'openjdk version \"{java}\" 2024-01-16' >&2")
    if maven:
        machine.install("mvn", "exit 0")
    code, said = machine.run("scripts/test")
    assert code == 1
    assert said.splitlines()[-1].startswith(f"error: {missing}")
    assert "apt-get install default-jre-headless maven" in said


@pytest.mark.parametrize(
    ("failing", "again", "arguments", "code", "unsteady"),
    [
        (2, 0, (), 0, True),
        (2, 1, (), 1, False),
        (9, 0, (), 1, False),
        (2, 0, ("tests/settings/test_config.py",), 1, False),
        (0, 0, (), 134, False),
    ],
    ids=["passes alone", "fails again", "too many", "not all tests", "crashes"],
)
def test_a_test_that_passes_alone_is_named(
    machine: Machine, failing: int, again: int, arguments: tuple[str, ...], code: int, unsteady: bool
) -> None:
    """Few that fail run once more; whoever reads the output learns of them either way."""
    names = "".join(f'  "tests/test_{number}.py::test_x": true,\n' for number in range(failing))
    cache = ".pytest_cache/units/v/cache"
    machine.install(
        Path(".venv/bin/python"),
        f"""case "$*" in
        *--last-failed*) exit {again} ;;
        *"/scenarios "*) echo "of the scenarios"; exit 0 ;;
        *"/former "*) echo "of the former Kafka"; exit 0 ;;
        *"/units "*) [ {failing} -gt 0 ] || {{ echo "Fatal Python error: Aborted"; exit 134; }} ;;&
        *"/units "*|*"/chosen "*) mkdir -p {cache}; printf '{{\n%s}}' '{names}' >{cache}/lastfailed; exit 1 ;;
        *) exit 0
        esac""",
    )
    script = machine.install(
        Path("scripts/run_tests"),
        "set -euo pipefail; root=$PWD; venv=$root/.venv; . scripts/lib/console.sh; . scripts/lib/tests.sh\n"
        'run_tests "$@"',
    )
    done = ran(
        [machine.path / "bash", script, *arguments],
        cwd=machine.checkout,
        env=ENVIRONMENT | {"HOME": str(machine.checkout), "PATH": str(machine.path)},
    )
    assert done.returncode == code, done.stderr
    assert ("of the scenarios" in done.stdout) is ("of the former Kafka" in done.stdout) is (not arguments)
    assert ("UNSTEADY" in done.stderr and "test_0.py::test_x" in done.stderr) is unsteady
    assert ("part units ended with 134" in done.stderr and "Python error: Aborted" in done.stderr) is (code == 134)
