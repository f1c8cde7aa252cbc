"""The jars that run are the jars that were reviewed, and whoever lacks something is told what."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from integration.kafka import jars
from integration.kafka.jars import FORMER, KAFKA, JarsError, JarSet, classpath, fetch, read_lock, under_test

FAKE_MAVEN = """#!/bin/sh
for argument in "$@"; do
  case "$argument" in -DoutputDirectory=*) target="${argument#-DoutputDirectory=}" ;; esac
done
"""


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache of its own with all jars in it, sharing their bytes with the real one."""
    own = tmp_path / "cache"
    (own / "lib").mkdir(parents=True)
    for jar in classpath():
        os.link(jar, own / "lib" / jar.name) if _same_device(jar, own) else shutil.copy(jar, own / "lib")
    return own


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for `mvn` on PATH; a test appends what it does with `$target`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "mvn"
    script.write_text(FAKE_MAVEN)
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return script


def append(script: Path, text: str) -> None:
    """Add lines to a script."""
    script.write_text(script.read_text() + text)


def test_cached_jars_are_used_without_maven(cache: Path, maven: Path) -> None:
    """A complete cache is verified and used; Maven is not asked."""
    append(maven, "exit 9\n")
    fetched = fetch(cache)
    assert not fetched.downloaded
    assert [jar.name for jar in fetched.jars] == list(read_lock())


def test_changed_jar_is_refused(cache: Path) -> None:
    """One changed byte in a cached jar stops everything, and the message names jar, hashes and way out."""
    jar = cache / "lib" / "kafka-clients-4.4.0.jar"
    content = bytearray(jar.read_bytes())
    content[1000] ^= 1
    jar.unlink()
    jar.write_bytes(content)
    with pytest.raises(JarsError) as caught:
        classpath(cache)
    message = str(caught.value)
    assert str(jar) in message
    assert read_lock()["kafka-clients-4.4.0.jar"] in message
    assert jars._sha256(jar) in message
    assert "Delete" in message


def test_downloaded_jar_with_wrong_hash_is_not_installed(cache: Path, maven: Path, tmp_path: Path) -> None:
    """A repository that serves other bytes cannot get them into the class path."""
    served = tmp_path / "served"
    (cache / "lib").rename(served)
    victim = served / "kafka-raft-4.4.0.jar"
    victim.unlink()
    victim.write_bytes(b"something else")
    append(maven, f'cp -r "{served}" "$target"\n')
    with pytest.raises(JarsError, match=r"kafka-raft-4\.4\.0\.jar is not the jar it should be"):
        classpath(cache)
    assert not (cache / "lib").exists()


@pytest.mark.parametrize(("version", "broker"), [("", KAFKA), ("4.4.0", KAFKA), ("4.3.1", FORMER)])
def test_the_version_of_the_broker_is_chosen(version: str, broker: JarSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest, or the one that the environment names; its lock has no jar of the other."""
    monkeypatch.setenv("SAFEPRODUCER_KAFKA", version)
    assert under_test() == broker
    own, other = ("4.4.0", "4.3.1") if broker is KAFKA else ("4.3.1", "4.4.0")
    locked = " ".join(read_lock(broker))
    assert f"kafka_2.13-{own}.jar" in locked
    assert f"-{other}.jar" not in locked


def test_an_unknown_version_of_the_broker_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable, its value and the versions there are."""
    monkeypatch.setenv("SAFEPRODUCER_KAFKA", "3.9")
    with pytest.raises(JarsError, match=r"SAFEPRODUCER_KAFKA=3\.9 .* 4\.4\.0 or 4\.3\.1"):
        under_test()


def test_unlocked_jar_is_refused(cache: Path, maven: Path, tmp_path: Path) -> None:
    """A jar that nobody reviewed is refused by name."""
    served = tmp_path / "served"
    (cache / "lib").rename(served)
    (served / "surprise-1.0.jar").write_bytes(b"x")
    append(maven, f'cp -r "{served}" "$target"\n')
    with pytest.raises(JarsError, match=r"does not name: surprise-1\.0\.jar"):
        classpath(cache)


def test_concurrent_users_download_once(cache: Path, maven: Path, tmp_path: Path) -> None:
    """Users of one empty cache that start together download once, and all get the same jars."""
    served, calls = tmp_path / "served", tmp_path / "calls"
    (cache / "lib").rename(served)
    append(maven, f'echo call >> "{calls}"\ncp -r "{served}" "$target"\n')
    with ThreadPoolExecutor(4) as users:
        found = [future.result() for future in [users.submit(fetch, cache) for _ in range(4)]]
    assert calls.read_text() == "call\n"
    assert sum(one.downloaded for one in found) == 1
    assert len({tuple(one.jars) for one in found}) == 1


def test_failed_download_says_why(tmp_path: Path, maven: Path) -> None:
    """When Maven fails, its own reason is shown and what to check."""
    append(maven, 'echo "[ERROR] Could not transfer artifact org.apache.kafka:kafka_2.13"; exit 1\n')
    with pytest.raises(JarsError, match=r"(?s)Could not transfer artifact.*reaches a Maven repository"):
        classpath(tmp_path / "empty")


@pytest.mark.parametrize(("missing", "advice"), [("java", "openjdk-17-jre-headless"), ("mvn", "apt-get install maven")])
def test_missing_command_says_what_to_install(
    missing: str, advice: str, tmp_path: Path, maven: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Java or Maven the message names the package to install."""
    folder = maven.parent
    (folder / "java").write_text("#!/bin/sh\n")
    (folder / "java").chmod(0o755)
    (folder / missing).unlink()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(JarsError, match=advice):
        classpath(tmp_path / "empty")


def test_command_line_reports_failure(
    tmp_path: Path, maven: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command prints the sentence to standard error, without a traceback, and its exit code is 1."""
    append(maven, "exit 3\n")
    monkeypatch.setenv("SAFEPRODUCER_CACHE", str(tmp_path / "other"))
    assert jars.main([]) == 1
    captured = capsys.readouterr()
    assert "exit code 3" in captured.err
    assert "Traceback" not in captured.err


def _same_device(one: Path, other: Path) -> bool:
    return one.stat().st_dev == other.stat().st_dev
