"""scripts/release: each thing that is not ready is one sentence."""

import email.message
import json
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.project.test_project import ROOT, script

release = script("release")
sbom = script("sbom")
audit = script("audit")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository that is ready to release 0.2.0, with v0.1.0 released."""
    folder = tmp_path / "checkout"
    (folder / "safeproducer").mkdir(parents=True)
    (folder / "safeproducer/__init__.py").write_text('__version__ = "0.2.0"\n')
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n## [0.2.0] - unreleased\n\nNew.\n\n## [0.1.0]\n\nOld.\n")
    git(folder, "init", "-q")
    commit(folder)
    git(folder, "tag", "v0.1.0")
    return folder


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=x", "-c", "user.email=x@x")
    subprocess.run(["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "x")


def write(folder: Path, file: str, text: str) -> None:
    (folder / file).write_text(text)
    commit(folder)


def test_ready_checkout_has_its_version(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A number of two digits is above one of one digit."""
    assert release.main("ready", str(checkout), "0.2.0") == 0
    git(checkout, "tag", "v0.1.9")
    write(checkout, "safeproducer/__init__.py", '__version__ = "0.10.0"\n')
    write(checkout, "CHANGELOG.md", "## [0.10.0]\n\nNew.\n")
    assert release.main("ready", str(checkout)) == 0
    assert capsys.readouterr().out == "0.2.0\n0.10.0\n"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda at: (at / "left.txt").touch(), "1 file(s) are not committed, such as left.txt"),
        (lambda at: write(at, "CHANGELOG.md", "## [0.1.0]\n"), "CHANGELOG.md has no section ## [0.2.0]"),
        (lambda at: write(at, "CHANGELOG.md", "## [0.2.0]\n\n## [0.1.0]\nx\n"), "has no section ## [0.2.0]"),
        (lambda at: git(at, "tag", "v0.2.0"), "the version 0.2.0 exists already"),
        (lambda at: git(at, "tag", "v0.3.0"), "the version 0.2.0 is not above v0.3.0"),
        (lambda at: write(at, "safeproducer/__init__.py", ""), 'has no line __version__ = "X.Y.Z"'),
    ],
)
def test_checkout_that_is_not_ready_is_one_sentence(
    checkout: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[Path], None], said: str
) -> None:
    """It names what to do, and nothing is built."""
    spoil(checkout)
    assert release.main("ready", str(checkout)) == 1
    told = capsys.readouterr().err
    assert said in told
    assert (told[:7], told.count("\n")) == ("error: ", 1)


def test_another_version_than_was_asked_for_is_named(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is in one place only."""
    assert release.main("ready", str(checkout), "0.3.0") == 1
    assert "says 0.2.0, not 0.3.0" in capsys.readouterr().err


def test_flipped_byte_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And where it is."""
    for name, content in (("a", b"0123"), ("b", b"0123"), ("c", b"01x3"), ("d", b"012")):
        (tmp_path / name).write_bytes(content)
    assert release.main("same", str(tmp_path / "a"), str(tmp_path / "b")) == 0
    for other, place in (("c", 2), ("d", 3)):
        assert release.main("same", str(tmp_path / "a"), str(tmp_path / other)) == 1
        assert f"differs from byte {place} on" in capsys.readouterr().err


def test_file_that_was_forgotten_or_left_is_named(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In an archive, against what is committed."""
    archive = checkout.parent / "safeproducer-0.2.0.tar.gz"

    def packed(*left: str) -> int:
        with tarfile.open(archive, "w:gz") as file:
            for name in ("CHANGELOG.md", "safeproducer/__init__.py", ".gitignore", "PKG-INFO", *left):
                (checkout / name).touch()
                file.add(checkout / name, f"safeproducer-0.2.0/{name}")
        status: int = release.main("contents", str(checkout), str(archive))
        return status

    assert packed() == 0
    assert packed("secret.txt") == 1
    assert "has, and should not: secret.txt" in capsys.readouterr().err
    write(checkout, "safeproducer/more.py", "")
    assert packed() == 1
    assert "should have, and does not: safeproducer/more.py" in capsys.readouterr().err


LOCK = """\
top==1.2 \\
    --hash=sha256:{hash}
    # via
    #   -c requirements/dev.txt
    #   safeproducer (pyproject.toml)
below==2 ; sys_platform == 'win32' \\
    --hash=sha256:{hash} \\
    --hash=sha256:{hash}
    # via top
""".format(hash=64 * "0")


def test_bill_of_materials_says_what_a_lock_pins_and_who_needs_it() -> None:
    """The same lock and version make the same bytes, another one another serial number."""
    bill = sbom.bill(LOCK, "0.2.0")
    assert [(each["name"], each["version"], each["purl"]) for each in bill["components"]] == [
        ("top", "1.2", "pkg:pypi/top@1.2"),
        ("below", "2", "pkg:pypi/below@2"),
    ]
    assert bill["components"][1]["properties"][0]["value"] == "sys_platform == 'win32'"
    assert {each["ref"]: each["dependsOn"] for each in bill["dependencies"]} == {
        "pkg:pypi/safeproducer@0.2.0": ["pkg:pypi/top@1.2"],
        "pkg:pypi/top@1.2": ["pkg:pypi/below@2"],
        "pkg:pypi/below@2": [],
    }
    assert sbom.bill(LOCK, "0.2.0") == bill
    assert sbom.bill(LOCK, "0.2.1")["serialNumber"] != bill["serialNumber"]
    with pytest.raises(ValueError, match="not a pinned requirement: 'top>=1'"):
        sbom.bill("top>=1", "0.2.0")


def test_bills_of_materials_cover_the_core_and_each_extra() -> None:
    """A wheel without one, or with one that lacks a requirement or is of another version, is not released."""
    metadata = email.message.Message()
    for name, value in (("Version", "0.2.0"), ("Provides-Extra", "more")):
        metadata[name] = value
    for requirement in ("top>=1", "Be.low<3; extra == 'more'"):
        metadata["Requires-Dist"] = requirement
    both, top = (json.dumps(sbom.bill(lock, "0.2.0")).encode() for lock in (LOCK.replace("below", "be-low"), LOCK))
    release.account_for(metadata, {"safeproducer-core.cdx.json": top, "safeproducer-more.cdx.json": both})
    for more, said in (
        ({}, "the wheel has no sboms/safeproducer-more.cdx.json"),
        ({"safeproducer-more.cdx.json": top}, "safeproducer-more.cdx.json has nothing for Be.low<3"),
        ({"safeproducer-more.cdx.json": both.replace(b'"2"', b'"3"')}, 'has 3 for Be.low<3; extra == "more"'),
        ({"safeproducer-more.cdx.json": both.replace(b'"0.2.0"', b'"0.1.0"')}, "of another version than 0.2.0"),
    ):
        with pytest.raises(release.NotReadyError, match=said):
            release.account_for(metadata, {"safeproducer-core.cdx.json": top, **more})


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        ('{"dependencies": [{"name": "top", "version": "1", "vulns": []}]}', 0, "asked, 0 known"),
        ('{"dependencies": [{"name": "top", "skip_reason": "x"}]}', 0, "not asked: the service does not know any"),
        ("", 0, "not asked: no answer"),
        (
            '{"dependencies": [{"name": "top", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}]}',
            *(1, "top 1: CVE-1, cured in 2"),
        ),
    ],
)
def test_release_stops_at_a_known_vulnerability_and_says_when_nobody_was_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str, status: int, said: str
) -> None:
    """Silence of the service is not taken for a good answer."""
    monkeypatch.setattr(audit, "PIP_AUDIT", ("-c", f"print({answer!r})"))
    assert audit.main("vulnerabilities", "requirements/extras/core.txt") == status
    assert said in "".join(capsys.readouterr())


def test_wrong_arguments_build_nothing() -> None:
    """The script says how it is called."""
    done = subprocess.run([ROOT / "scripts/release", "--publish"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: usage: scripts/release [--dry-run] [VERSION]\n")
