"""Searches the committed files for what belongs to one machine: registry hosts and folders. Exits 1 and shows them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FORBIDDEN = {
    "the host of a package registry (users configure their own)": re.compile(
        r"\b(?:(?:files\.)?python(?:hosted|software)|(?:test\.)?pypi|repo\d?\.maven(?:\.apache)?|deb\.debian|"
        r"(?:security|snapshot)\.debian|archive\.ubuntu|packages\.confluent|conda\.anaconda|registry\.npmjs|"
        r"proxy\.golang|plugins\.gradle|static\.crates)\.(?:org|io|com)\b"
        r"|\b(?:artifactory|nexus|\w+-(?:python|maven|apt)\.pkg)\.[\w.-]+\.\w+",
        re.IGNORECASE,
    ),
    "an index chosen in a file (users configure their own)": re.compile(
        r"^\s*--?(?:(?:extra-)?index-url|find-links|trusted-host)\b", re.MULTILINE
    ),
    "a folder of one machine": re.compile(r"(?<![\w.$}/-])/(?:work|root|home/[a-z]\w*|Users/\w+|tmp)/\w"),
}


def committed_files() -> list[Path]:
    """Every file git tracks, or is about to: staged files count."""
    # A checkout may belong to another user, in a container for example; only its list of names is read.
    command = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files", "-z"]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]


def findings(text: str) -> list[tuple[int, str, str]]:
    """Line number, what was found, and what is wrong with it."""
    return sorted(
        (text.count("\n", 0, match.start()) + 1, match[0].strip(), why)
        for why, pattern in FORBIDDEN.items()
        for match in pattern.finditer(text)
    )


def main() -> int:
    """Check all files; print every finding."""
    failed = False
    for path in committed_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for line, found, why in findings(text):
            failed = True
            print(f"{path.relative_to(ROOT)}:{line}: {found!r}: {why}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
