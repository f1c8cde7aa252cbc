"""The documents tell the truth: what they list exists, and what exists is listed."""

from __future__ import annotations

import re
from pathlib import Path

import safeproducer
from safeproducer.config import OWN_SETTINGS
from safeproducer.kafka.properties import HANDLED_HERE, REFUSED
from safeproducer.policy.admission import Hold

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
TROUBLESHOOTING = (ROOT / "docs/operate/troubleshooting.md").read_text(encoding="utf-8")


def test_each_difference_from_stock_has_its_test_and_each_test_its_line() -> None:
    """The table of differences and tests/contract/test_differences.py name each other completely."""
    source = (ROOT / "tests/contract/test_differences.py").read_text(encoding="utf-8")
    tests = set(re.findall(r"^def (test_\w+)", source, re.MULTILINE)) - {"test_this_file_is_run_for_both_classes"}
    listed = set(re.findall(r"\| `(test_\w+)` \|$", README, re.MULTILINE))
    assert listed == tests


def test_every_setting_that_is_not_passed_on_is_in_the_table() -> None:
    """Settings that are handled here, refused or our own."""
    for name in (*HANDLED_HERE, *REFUSED, *OWN_SETTINGS):
        assert f"`{name}`" in README, name


def test_every_error_is_in_the_table() -> None:
    """Each public exception class is documented."""
    for name in safeproducer.__all__:
        kind = getattr(safeproducer, name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert name.replace("Configuration", "...", 1) in README or f"`{name}`" in README, name


def test_each_reason_to_hold_records_back_is_in_the_table() -> None:
    """Code, sentence, KIP and cure, in the order of the enumeration, as explain() says them."""
    listed = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) ?\| (.*?) ?\|$", TROUBLESHOOTING, re.MULTILINE)
    assert listed == [
        (reason.value, Hold(2.5, reason, 1).sentence(0.0), reason.kip or "", reason.cure or "")
        for reason in safeproducer.HoldReason
    ]


def test_the_five_kips_are_in_the_architecture() -> None:
    """KIP table: none of them is a footnote."""
    for kip in ("13, 124, 219", "73", "854", "936", "1269"):
        assert re.search(rf"^\| {kip} \|", ARCHITECTURE, re.MULTILINE), kip


def test_every_file_the_documents_name_exists() -> None:
    """Paths in backquotes that look like files of this repository."""
    for text in (README, ARCHITECTURE):
        for path in re.findall(r"`((?:safeproducer|tests|integration|examples|scripts|benchmarks)/[\w/.]+)`", text):
            assert (ROOT / path).exists(), path
    for module in re.findall(r"`((?:policy|pipeline|kafka|telemetry|testing|cli)/\w+\.py)`", ARCHITECTURE):
        assert (ROOT / "safeproducer" / module).exists(), module
