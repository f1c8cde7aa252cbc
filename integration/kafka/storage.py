"""Formatted storage for new nodes without a JVM each.

StorageTool runs once per cache and writes the feature levels of a fresh cluster; they hold no identity. A new node
gets a copy of them, wherever this version keeps them (4.3 in `bootstrap.checkpoint`, 4.4 in the log of the metadata),
and its own `meta.properties`, which is all that formatting adds.
"""

import base64
import os
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

from integration.kafka.folders import exclusive
from integration.kafka.jars import java
from integration.kafka.settings import Ports, server_properties, write_properties

IDENTITY = "meta.properties"


def format_folder(folder: Path, node_id: int, cluster_id: str, features: Path) -> None:
    """Make `folder` the formatted, empty log folder of a node; what it held is deleted."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(features, folder)
    identity = {"version": "1", "cluster.id": cluster_id, "node.id": str(node_id), "directory.id": random_uuid()}
    write_properties(folder / IDENTITY, identity)


def features(jars: list[Path]) -> Path:
    """A folder with the feature levels as StorageTool writes them; made on the first call, kept beside the jars."""
    cache = jars[0].parents[1]
    kept = cache / "features"
    with exclusive(cache):
        if not kept.is_dir():
            _run_storage_tool(jars, kept)
    return kept


def random_uuid() -> str:
    """A Kafka Uuid: URL-safe base64 without padding, and no leading dash that a tool would take for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _run_storage_tool(jars: list[Path], kept: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "formatted"
        properties = Path(scratch) / "server.properties"
        ports = Ports(client=1, advertised=1, direct=2, controller=3, secure={})
        write_properties(properties, server_properties(1, {1: ports}, folder, {}))
        command = [java(), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "kafka.tools.StorageTool", "format"]
        done = subprocess.run(
            [*command, "--cluster-id", random_uuid(), "--config", str(properties)],
            env={**os.environ, "CLASSPATH": os.pathsep.join(map(str, jars))},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"StorageTool failed ({done.returncode}): {done.stdout}{done.stderr}")
        (folder / IDENTITY).unlink()
        partial = kept.with_suffix(".new")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(folder, partial)
        partial.rename(kept)
