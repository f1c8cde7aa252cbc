"""The package as build images and freezers deploy it: bytecode that was compiled elsewhere, without its sources."""

import compileall
import os
import shutil
import sys
from pathlib import Path

import pytest

import safeproducer
from tests.contract.support import ran

SCRIPT = """
import safeproducer
print(safeproducer.__file__)
producer = safeproducer.SafeProducer(
    {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "queue.buffering.max.messages": 10}
)
refused = set()
for _ in range(30):
    try:
        producer.produce("t", b"x")
    except BufferError as error:
        refused.add(type(error).__name__)
try:
    producer.produce(5, b"x")
except TypeError:
    refused.add("TypeError")
account = producer.snapshot()
print(account.accepted, account.unresolved, *sorted(refused))
print(producer._SafeProducer__closing._info.site)
producer.close(0)
"""


@pytest.fixture(scope="module")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as bytecode, whose file names are those of another folder that is gone."""
    built, deployed = tmp_path_factory.mktemp("built"), tmp_path_factory.mktemp("deployed")
    package = Path(safeproducer.__file__).parent
    shutil.copytree(package, built / "safeproducer", ignore=shutil.ignore_patterns("__pycache__", "testing", "cli"))
    assert compileall.compile_dir(built, quiet=1, legacy=True)
    shutil.copytree(built / "safeproducer", deployed / "safeproducer", ignore=shutil.ignore_patterns("*.py"))
    shutil.rmtree(built)
    return deployed


def test_refused_records_are_taken_off_the_account(bytecode: Path) -> None:
    """What librdkafka refuses is told from what a signal handler raises by names of modules, not of files."""
    result = ran([sys.executable, "-c", SCRIPT], cwd=bytecode, env={**os.environ, "PYTHONPATH": str(bytecode)})
    assert result.stdout.splitlines() == [
        str(bytecode / "safeproducer" / "__init__.pyc"),
        "10 10 QueueFullError TypeError",
        "<string>:4 in <module>",
    ], result.stderr
