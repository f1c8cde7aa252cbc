"""The checks of scripts/release: `release.py ready ROOT [VERSION]`, `same FILE FILE`, `contents ROOT FILE...`.

Each ends with one sentence about what is wrong, and status 1.
"""

from __future__ import annotations

import email
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

VERSION = re.compile(r'^__version__ = "(\d+\.\d+\.\d+)"$', re.MULTILINE)
MODULES = ("pyspark_safeproducer.py", "pytest_safeproducer.py")
PAPERS = (
    "README.md",
    "CHANGELOG.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "LICENSE",
    "NOTICE",
    "pyproject.toml",
)
OF_THE_WHEEL = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE", "licenses/NOTICE")
OF_THE_BUILD = ("requirements/extras", "scripts/lib/sbom.py")
"""The source archive has them, as they make the bills of materials of its wheel."""


class NotReadyError(Exception):
    """The text is the sentence."""


def git(root: Path, *arguments: str) -> list[str]:
    """The lines that git prints."""
    command = ["git", "-c", f"safe.directory={root}", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def numbers(version: str) -> tuple[int, ...]:
    """For comparisons."""
    return tuple(int(part) for part in version.split("."))


def ready(root: Path, wanted: str = "") -> str:
    """The version, if it can be released from here."""
    if changed := git(root, "status", "--porcelain"):
        raise NotReadyError(
            f"{len(changed)} file(s) are not committed, such as {changed[0][3:]}: commit or remove them"
        )
    found = VERSION.findall((root / "safeproducer/__init__.py").read_text(encoding="utf-8"))
    if len(found) != 1:
        raise NotReadyError('safeproducer/__init__.py has no line __version__ = "X.Y.Z"')
    version: str = found[0]
    if wanted and wanted != version:
        raise NotReadyError(f"safeproducer/__init__.py says {version}, not {wanted}: set __version__ there")
    tags = [tag[1:] for tag in git(root, "tag", "--list", "v*") if re.fullmatch(r"v\d+\.\d+\.\d+", tag)]
    last = max(tags, key=numbers, default=None)
    if last is not None and numbers(version) <= numbers(last):
        there = "exists already" if version in tags else f"is not above v{last}, the last one"
        raise NotReadyError(f"the version {version} {there}: set a higher __version__ in safeproducer/__init__.py")
    log = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(rf"^## \[{re.escape(version)}\].*\n((?:(?!## ).*\n?)*)", log, re.MULTILINE)
    if section is None or not section[1].strip():
        raise NotReadyError(f"CHANGELOG.md has no section ## [{version}]: write one")
    return version


def same(first: Path, second: Path) -> None:
    """Two builds of one file."""
    one, two = first.read_bytes(), second.read_bytes()
    if one != two:
        at = next(
            (place for place, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two))
        )
        raise NotReadyError(
            f"{first.name} was built twice and differs from byte {at} on: a build must not depend on when and where"
        )


def account_for(metadata: email.message.Message, bills: dict[str, bytes]) -> None:
    """The core and each extra have a bill of materials, with all that their requirements ask for."""
    wanted = [Requirement(each) for each in metadata.get_all("Requires-Dist", [])]
    for extra in ("core", *metadata.get_all("Provides-Extra", [])):
        name = f"safeproducer-{extra}.cdx.json"
        if name not in bills:
            raise NotReadyError(f"the wheel has no sboms/{name}: run scripts/lock")
        bill = json.loads(bills[name])
        if bill["metadata"]["component"]["version"] != metadata["Version"]:
            raise NotReadyError(f"sboms/{name} is of another version than {metadata['Version']}")
        listed = {canonicalize_name(each["name"]): each["version"] for each in bill["components"]}
        for requirement in wanted:
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                version = listed.get(canonicalize_name(requirement.name))
                if version is None or version not in requirement.specifier:
                    raise NotReadyError(f"sboms/{name} has {version or 'nothing'} for {requirement}: run scripts/lock")


def contents(root: Path, file: Path) -> None:
    """A wheel or source archive has what is committed, and nothing else."""
    committed = git(root, "ls-files", "safeproducer", *MODULES)
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            found = set(wheel.namelist())
            info = f"{'-'.join(file.name.split('-')[:2])}.dist-info"
            bills = {name.removeprefix(f"{info}/sboms/"): wheel.read(name) for name in found if "/sboms/" in name}
            metadata = email.message_from_bytes(wheel.read(f"{info}/METADATA"))
        expected = {*committed, *(f"{info}/{name}" for name in (*OF_THE_WHEEL, *(f"sboms/{one}" for one in bills)))}
        account_for(metadata, bills)
    else:
        with tarfile.open(file) as archive:
            found = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
        expected = {*committed, *git(root, "ls-files", "tests", "docs", *OF_THE_BUILD, *PAPERS)}
        expected |= {".gitignore", "PKG-INFO"}
    for names, wrong in ((found - expected, "has, and should not"), (expected - found, "should have, and does not")):
        if names:
            raise NotReadyError(f"{file.name} {wrong}: {', '.join(sorted(names)[:3])}")


def main(action: str, *arguments: str) -> int:
    """Do one of them."""
    try:
        if action == "ready":
            print(ready(Path(arguments[0]), *arguments[1:]))
        elif action == "same":
            same(Path(arguments[0]), Path(arguments[1]))
        else:
            for file in arguments[1:]:
                contents(Path(arguments[0]), Path(file))
    except NotReadyError as error:
        print(f"error: {error}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
