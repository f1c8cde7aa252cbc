"""The package on systems that are not Linux, and beside other clients than the developers'."""

import os
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.contract.support import ran

ROOT = Path(__file__).resolve().parents[2]
CHOSEN = "not stock and not fork and not program_ends"
"""The last one starts a process that has everything."""
PART = ("test_reports.py", "test_lifecycle.py", "test_produce_batch.py")


def run_pytest(*arguments: str, first: str = "") -> Any:
    """A run of pytest in an interpreter of its own, which looks for modules in the folder `first` first."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    path = f"{first}{os.pathsep}{ROOT}" if first else str(ROOT)
    return ran(command, 1800, cwd=ROOT, env=os.environ | {"PYTHONPATH": path})


@pytest.mark.parametrize(
    "files", [pytest.param(PART, id="part"), pytest.param(("",), id="all", marks=pytest.mark.full)]
)
def test_contract_holds_without_fork_users_and_flags(files: tuple[str, ...]) -> None:
    """As on Windows: producers of all modes keep the contract, with a ledger of producer IDs."""
    done = run_pytest("-p", "tests.other_system", "-k", CHOSEN, *(f"tests/contract/{file}" for file in files))
    assert done.returncode == 0, done.stdout + done.stderr


def test_directory_for_a_ledger_is_refused_where_there_is_none() -> None:
    """With one sentence, in place of an AttributeError."""
    program = """
        import sys
        sys.platform = "freebsd14"
        from safeproducer import ConfigurationError, SafeProducer
        try:
            SafeProducer({"safeproducer.producer.ids.ledger": "/var/ledger"})
        except ConfigurationError as error:
            print(error)
    """
    done = ran([sys.executable, "-c", dedent(program)], cwd=ROOT, check=True)
    assert "ledgers are kept on Linux, macOS and Windows only" in done.stdout, done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_brokers_and_doctor_need_no_kafka_python(tmp_path: Path) -> None:
    """Beside none; scripts/test runs the same beside its version 3."""
    (tmp_path / "kafka.py").write_text('raise ModuleNotFoundError("No module named \'kafka\'", name="kafka")\n')
    done = run_pytest("tests/conformance", "tests/testing", "tests/cli/doctor", first=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kafka-python is not installed" in done.stdout
