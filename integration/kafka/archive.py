"""A class-data archive of the broker, which halves the time and the CPU of every later start.

A node is started once and stopped cleanly; the JVM writes the archive on its way out. The JVM checks the archive itself
and ignores one that does not fit, and one without the feature runs without it.
"""

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from integration.kafka.folders import exclusive
from integration.kafka.jars import java
from integration.kafka.node import Node, PortTakenError
from integration.kafka.ports import free_ports
from integration.kafka.settings import Ports, server_properties, write_properties
from integration.kafka.storage import format_folder, random_uuid

ATTEMPTS = 5


def archive_options(jars: Sequence[Path], features: Path, options: Sequence[str]) -> list[str]:
    """JVM options that use the archive for these jars and this Java; made on the first call, kept beside the jars."""
    cache = jars[0].parents[1]
    kept = cache / f"classes-{_fingerprint(jars)}.jsa"
    with exclusive(cache):
        if not kept.is_file():
            for stale in cache.glob("classes-*.jsa"):
                stale.unlink()
            _record(kept, jars, features, options)
    return [f"-XX:SharedArchiveFile={kept}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def _record(kept: Path, jars: Sequence[Path], features: Path, options: Sequence[str]) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        with tempfile.TemporaryDirectory() as scratch:
            log_dir = Path(scratch) / "node-1"
            client, direct, controller = free_ports(3)
            ports = Ports(client, client, direct, controller, secure={})
            format_folder(log_dir, 1, random_uuid(), features)
            properties = log_dir.with_suffix(".properties")
            write_properties(properties, server_properties(1, {1: ports}, log_dir, {}))
            partial = kept.with_suffix(".new")
            recording = [*options, f"-XX:ArchiveClassesAtExit={partial}"]
            node = Node(1, ports, log_dir, properties=properties, jars=jars, java_options=recording)
            try:
                node.start()
                node.stop(300)  # it writes the archive, which takes long on a busy machine
                if partial.is_file():
                    partial.rename(kept)
                return
            except PortTakenError:
                if attempt == ATTEMPTS:
                    raise
            finally:
                if node.pid is not None:
                    node.kill()


def _fingerprint(jars: Sequence[Path]) -> str:
    """Of what the JVM compares: itself, and path and time of the jars."""
    command = Path(os.path.realpath(java()))
    parts = [str(command), str(command.stat().st_mtime_ns)]
    parts += [f"{jar} {jar.stat().st_mtime_ns}" for jar in jars]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
