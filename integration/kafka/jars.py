"""The broker's jars and those of Spark's own Kafka sink: fetched once through Maven, checked on every use.

They are checked against the SHA-256 of their lock. `python -m integration.kafka.jars` fetches them and says what it
did; `python -m integration.kafka.jars --lock` rewrites the locks from what Maven resolves, for review.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from integration.kafka.folders import exclusive

HERE = Path(__file__).resolve().parent
FETCH = "python -m integration.kafka.jars"


@dataclass(frozen=True)
class JarSet:
    """Jars that are used together: what Maven is asked for, what was reviewed, and their folder in the cache.

    `options` are for Maven, beside the pom.
    """

    name: str
    pom: Path
    lock: Path
    folder: str
    options: tuple[str, ...] = ()


KAFKA = JarSet("Kafka", HERE / "pom.xml", HERE / "jars.lock", "kafka-4.4.0")
FORMER = JarSet("Kafka 4.3", KAFKA.pom, HERE / "jars-4.3.lock", "kafka-4.3.1", ("-Dkafka.version=4.3.1",))
"""The release before, for a few tests that run on it once more: `$SAFEPRODUCER_KAFKA` is then 4.3.1."""
CONNECTOR = JarSet("Spark's Kafka connector", HERE / "connector.xml", HERE / "connector.lock", "spark-connector-4.2.0")
"""What Spark's own Kafka sink and source need beside the jars of PySpark."""

ALL = (KAFKA, FORMER, CONNECTOR)
VERSION = "SAFEPRODUCER_KAFKA"


class JarsError(RuntimeError):
    """The jars cannot be had or cannot be trusted; the message says what to do."""


@dataclass(frozen=True)
class Fetched:
    """What one call did: the jars, and whether and how long Maven had to work."""

    jars: list[Path]
    downloaded: bool
    seconds: float

    @property
    def size(self) -> int:
        return sum(jar.stat().st_size for jar in self.jars)


def under_test() -> JarSet:
    """The broker that tests run: `$SAFEPRODUCER_KAFKA` chooses its version, the newest if it is not set."""
    brokers = {of.folder.removeprefix("kafka-"): of for of in (KAFKA, FORMER)}
    version = os.environ.get(VERSION) or next(iter(brokers))
    if version not in brokers:
        raise JarsError(f"{VERSION}={version} is no broker of these tests: set it to {' or '.join(brokers)}.")
    return brokers[version]


def cache_folder(of: JarSet = KAFKA) -> Path:
    """Its folder in `$SAFEPRODUCER_CACHE`, or in `.cache` of the repository."""
    root = os.environ.get("SAFEPRODUCER_CACHE")
    return (Path(root) if root else HERE.parents[1] / ".cache").resolve() / of.folder


def classpath(cache: Path | None = None, of: JarSet = KAFKA) -> list[Path]:
    """The verified jars, fetched first when the cache does not hold them all.

    Safe to call from several threads and processes at once. Raises JarsError when Maven or Java is
    missing, the download fails, or a jar differs from the lock.
    """
    return fetch(cache, of).jars


def fetch(cache: Path | None = None, of: JarSet = KAFKA) -> Fetched:
    """As `classpath`, and tells whether anything was downloaded."""
    cache = cache or cache_folder(of)
    expected = read_lock(of)
    begin = time.monotonic()
    with exclusive(cache):
        library = cache / "lib"
        downloaded = not all((library / name).is_file() for name in expected)
        if downloaded:
            fresh = _resolve(cache, of)
            _verify(fresh, expected, of)
            unlocked = sorted(jar.name for jar in fresh.iterdir() if jar.name not in expected)
            if unlocked:
                raise JarsError(
                    f"Maven resolved jars that {of.lock} does not name: {', '.join(unlocked)}. "
                    f"If {of.pom.name} was changed on purpose, run `{FETCH} --lock` and review the difference."
                )
            _install(fresh, library)
        else:
            _verify(library, expected, of)
    return Fetched([library / name for name in expected], downloaded, time.monotonic() - begin)


def rewrite_lock(cache: Path | None = None, of: JarSet = KAFKA) -> dict[str, str]:
    """Resolve the pom anew and write the SHA-256 of every jar into the lock."""
    cache = cache or cache_folder(of)
    with exclusive(cache):
        fresh = _resolve(cache, of)
        hashes = {jar.name: _sha256(jar) for jar in sorted(fresh.iterdir())}
        of.lock.write_text("".join(f"{digest}  {name}\n" for name, digest in hashes.items()), encoding="utf-8")
        _install(fresh, cache / "lib")
    return hashes


def read_lock(of: JarSet = KAFKA) -> dict[str, str]:
    """Jar name to SHA-256, in the order of the class path. The format is that of `sha256sum`."""
    lines = of.lock.read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines if line.strip())}


def java() -> str:
    """Path of the `java` command, from JAVA_HOME or PATH."""
    home = os.environ.get("JAVA_HOME")
    candidate = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    found = candidate or shutil.which("java")
    if found is None:
        raise JarsError(
            "Kafka needs Java 17 or newer and there is no `java` on PATH. "
            "Install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME."
        )
    return found


def _resolve(cache: Path, of: JarSet) -> Path:
    """Let Maven copy the dependency tree of the pom into a fresh folder.

    The local repository lies in the cache, so that an empty or read-only home is enough.
    """
    java()
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsError(
            "Kafka's jars are fetched by Maven and there is no `mvn` on PATH. "
            "Install it (Debian: apt-get install maven), then run `" + FETCH + "`."
        )
    target = cache / "lib.new"
    shutil.rmtree(target, ignore_errors=True)
    command = [
        maven,
        "--batch-mode",
        "--quiet",
        "--update-snapshots",
        "-Dstyle.color=never",
        f"--file={of.pom}",
        *of.options,
        f"-Dmaven.repo.local={cache / 'repository'}",
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        f"-DoutputDirectory={target}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not target.is_dir():
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        said = "\n".join(lines[:3]) or (done.stdout + done.stderr).strip() or "no output"
        raise JarsError(
            f"Maven could not fetch the jars of {of.name} (exit code {done.returncode}):\n{said}\n"
            "Check that this machine reaches a Maven repository; a mirror or proxy is set in "
            f"~/.m2/settings.xml. Then run `{FETCH}` again: what was fetched already is kept."
        )
    return target


def _install(fresh: Path, library: Path) -> None:
    shutil.rmtree(library, ignore_errors=True)
    fresh.rename(library)
    # The local repository holds every jar a second time; it only served to resume a broken download.
    shutil.rmtree(library.parent / "repository", ignore_errors=True)


def _verify(folder: Path, expected: Mapping[str, str], of: JarSet) -> None:
    for name, digest in expected.items():
        jar = folder / name
        if not jar.is_file():
            raise JarsError(
                f"Maven did not deliver {name}, which {of.lock} names. "
                f"If {of.pom.name} was changed on purpose, run `{FETCH} --lock` and review the difference."
            )
        found = _sha256(jar)
        if found != digest:
            raise JarsError(
                f"{jar} is not the jar it should be: SHA-256 expected {digest}, found {found}. "
                f"It will not be run. Delete {folder} and run `{FETCH}` to fetch it again; if it differs "
                "again, the repository serves something else than was reviewed."
            )


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def main(arguments: list[str] | None = None) -> int:
    """Command line entry: fetch and verify, or rewrite the locks."""
    parser = argparse.ArgumentParser(prog=FETCH, description="Fetch and verify the jars that tests need.")
    parser.add_argument("--lock", action="store_true", help="resolve anew and rewrite the locks")
    options = parser.parse_args(arguments)
    try:
        for of in ALL:
            if options.lock:
                print(f"{of.lock}: {len(rewrite_lock(of=of))} jars locked")
            fetched = fetch(of=of)
            did = "fetched and verified" if fetched.downloaded else "already there, verified"
            print(
                f"{of.name}: {len(fetched.jars)} jars, {fetched.size / 1e6:.0f} MB, {did} in {fetched.seconds:.1f} s "
                f"({cache_folder(of)})"
            )
    except JarsError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
