#!/usr/bin/env python3
"""Tests on any system, with the Python that runs this: no shell, no Java, no Linux. `python scripts/portable.py`.

It makes an environment of its own below `.cache/portable` from the locks, produces with it in each mode, then runs the
decisions and the contract with confluent_kafka's producer. Arguments go to pytest. Workflows run it on Linux, macOS and
Windows; scripts/test is for Linux, and runs everything.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from hashlib import sha256
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements/matrix/newest.txt"
TESTS = ("tests/policy", "tests/kafka", "tests/contract")
LEFT_OUT = "not stock and not fork and not program_ends"
"""What only the system of the developers has, and what compares the speed of two clients."""
RECORDS = 500
"""integration/matrix/client.py produces them in each mode."""
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps")


def environment() -> Path:
    """Its interpreter; made when it is missing, or the lock is another one by now."""
    folder = ROOT / ".cache/portable" / f"{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp, wanted = folder / ".fingerprint", sha256(LOCK.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        print(f"Making {folder}", flush=True)
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([python, *PIP, "--requirement", LOCK], check=True)
        stamp.write_text(wanted, encoding="utf-8")
    return python


def ran(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command with this clone's package, beside its end."""
    print("Running", *command[1:], flush=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False, text=True, **options)


def delivers(python: Path) -> bool:
    """Whether each record is in the log, in each mode, and no error was logged."""
    told = ran(python, "-m", "integration.matrix.client", stdout=subprocess.PIPE).stdout
    print(told, flush=True)
    found = json.loads(told or '{"delivered": {}}')
    counts = found["delivered"].values()
    return bool(counts) and not found["errors"] and all(set(count) == {RECORDS} for count in counts)


def main(*arguments: str) -> int:
    """0 if both parts are right."""
    python = environment()
    plugins = ("-p", "pytest_safeproducer", "-p", "no:cacheprovider")
    if not delivers(python):
        return 1
    return ran(python, "-m", "pytest", "-q", *plugins, "-k", LEFT_OUT, *(arguments or TESTS)).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
