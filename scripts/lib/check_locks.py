"""Compares requirements/*.txt with pyproject.toml, without a network. Exits 1 and says what differs."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]

Pins = dict[str, set[Version]]


def pins(lock: Path, problems: list[str]) -> tuple[Pins, set[str]]:
    """What a lock pins, and which of it is there because pyproject.toml asks for it itself."""
    versions: Pins = {}
    direct: set[str] = set()
    for entry in re.split(r"\n(?=[^\s#])", lock.read_text(encoding="utf-8")):
        head = re.match(r"([A-Za-z0-9._-]+)==([^\s;\\]+)", entry)
        if head is None:
            problems.append(f"{lock.name}: not a pinned requirement: {entry.splitlines()[0]!r}")
            continue
        name = canonicalize_name(head[1])
        versions.setdefault(name, set()).add(Version(head[2]))
        if "--hash=sha256:" not in entry:
            problems.append(f"{lock.name}: {name} has no hash")
        if re.search(r"# +(via )?safeproducer \(pyproject\.toml", entry):
            direct.add(name)
    return versions, direct


def group(project: dict[str, Any], name: str) -> list[str]:
    """The requirements of a dependency group, included groups too."""
    wanted: list[str] = []
    for item in project["dependency-groups"][name]:
        wanted += [item] if isinstance(item, str) else group(project, item["include-group"])
    return wanted


def compare(lock: Path, wanted: list[str], problems: list[str]) -> Pins:
    """Every wanted requirement is pinned at a version it allows, and nothing else is said to be wanted."""
    versions, direct = pins(lock, problems)
    asked: set[str] = set()
    for requirement in map(Requirement, wanted):
        name = canonicalize_name(requirement.name)
        asked.add(name)
        pinned = versions.get(name, set())
        if not pinned:
            problems.append(f"{lock.name}: pyproject.toml asks for {requirement}, which is not pinned")
        problems.extend(
            f"{lock.name}: pins {name} {version}, pyproject.toml asks for {requirement}"
            for version in pinned
            if version not in requirement.specifier
        )
    problems.extend(
        f"{lock.name}: pins {name} for pyproject.toml, which no longer asks for it" for name in sorted(direct - asked)
    )
    return versions


def main() -> int:
    """Check all locks; print every difference."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = pyproject["project"]
    extras = project["optional-dependencies"]
    core = project["dependencies"]
    folder = ROOT / "requirements"
    problems: list[str] = []

    every_extra = [requirement for extra in extras.values() for requirement in extra]
    locks = {"core": [], **extras}

    dev = compare(folder / "dev.txt", [*core, *every_extra, *group(pyproject, "dev")], problems)
    demo = compare(folder / "demo.txt", [*core, *extras["cli"], *group(pyproject, "build")], problems)
    compare(folder / "docs.txt", [*core, *extras["testing"], *group(pyproject, "docs")], problems)
    compare(folder / "bootstrap.txt", group(pyproject, "bootstrap"), problems)
    compare(folder / "build.txt", group(pyproject, "sdist"), problems)
    compare(folder / "audit.txt", group(pyproject, "audit"), problems)
    users = {lock: compare(folder / f"extras/{lock}.txt", [*core, *asked], problems) for lock, asked in locks.items()}
    for lock in sorted((folder / "matrix").glob("*.txt")):
        compare(lock, [*core, *extras["testing"]], problems)
    problems.extend(
        f"demo.txt pins another {name} than dev.txt, and both are installed into one environment"
        for name, versions in demo.items()
        if versions != dev.get(name)
    )
    problems.extend(
        f"extras/{lock}.txt pins another {name} than dev.txt, and the tests run with that one"
        for lock, pinned in users.items()
        for name, versions in pinned.items()
        if versions != dev.get(name)
    )
    for problem in problems:
        print(problem)
    if problems:
        print("The locks do not fit pyproject.toml: run scripts/lock.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
