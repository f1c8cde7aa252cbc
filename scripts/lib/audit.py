"""Two questions of scripts/release to other programs: `audit.py bills WHEEL`, `audit.py vulnerabilities LOCK...`.

The first one asks CycloneDX's own schema about the bills of materials of a wheel. The second one asks pip-audit about
the packages that a user gets. Its service is on the web: where it does not answer, or does not know the packages, it
says "not asked", and fails nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

TIME_LIMIT = 120
"""Seconds for a lock; the service is asked about each package."""
PIP_AUDIT = ("-m", "pip_audit", "--require-hashes", "--disable-pip", "--no-deps", "--progress-spinner", "off")


def bills(wheel: Path) -> list[str]:
    """What is wrong with the bills of materials, a line for each that is not valid."""
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415 - the second question is asked without it
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    wrong = []
    with zipfile.ZipFile(wheel) as archive:
        for name in (each for each in archive.namelist() if ".dist-info/sboms/" in each):
            text = archive.read(name).decode()
            version = SchemaVersion.from_version(json.loads(text)["specVersion"])
            if error := JsonStrictValidator(version).validate_str(text):
                wrong.append(f"{name}: {error}")
    return wrong


def asked(lock: Path) -> tuple[list[str], str]:
    """The known vulnerabilities of what a lock pins, and why some or all packages were not asked about."""
    command = [sys.executable, *PIP_AUDIT, "--format", "json", "--requirement", str(lock)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIME_LIMIT)
        found = json.loads(done.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        return [], f"no answer within {TIME_LIMIT} s"
    except (json.JSONDecodeError, KeyError):
        return [], (done.stderr.strip() or "no answer").splitlines()[-1]
    known = [
        f"{each['name']} {each['version']}: {one['id']}, cured in {', '.join(one['fix_versions']) or 'no version'}"
        for each in found
        for one in each.get("vulns", [])
    ]
    skipped = [each["name"] for each in found if "skip_reason" in each]
    if not skipped:
        return known, ""
    those = "any of them" if len(skipped) == len(found) else ", ".join(skipped)
    return known, f"the service does not know {those}"


def vulnerabilities(locks: list[Path]) -> list[str]:
    """The known ones of all locks; prints what became of each."""
    known: set[str] = set()
    for lock in locks:
        found, reason = asked(lock)
        known.update(found)
        print(f"{lock.name}: " + (f"not asked: {reason}" if reason else f"asked, {len(found)} known"))
    return sorted(known)


def main(action: str, *files: str) -> int:
    """Ask one of them; 1 when something is wrong."""
    wrong = bills(Path(files[0])) if action == "bills" else vulnerabilities([Path(file) for file in files])
    for line in wrong:
        print(line, file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
