"""Bills of materials of a wheel (PEP 770), in CycloneDX's format: one for the core, and one for each extra.

Hatchling loads it when it builds a wheel, and puts the files into `*.dist-info/sboms/`. Each says what
`requirements/extras/NAME.txt` pins: which package, which version, where, and who needs it. The hashes stay in the
locks: some versions have a hundred, one for each file, and they would be a tenth of the wheel. The same locks make the
same bytes.
"""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT_NAME = "safeproducer"
EDITABLE = "editable"
ENTRY = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?: ; (?P<marker>[^\\\n]+?))?(?: \\)?$", re.MULTILINE
)
BELOW = re.compile(r"^    #(?: via|  ) +(?!-c )(\S+)", re.MULTILINE)
"""Who needs a package, one in a line."""


def component(entry: str) -> tuple[dict[str, Any], list[str]]:
    """A package of a lock, and the names of those that need it."""
    found = ENTRY.match(entry)
    if found is None:
        raise ValueError(f"not a pinned requirement: {entry.splitlines()[0]!r}")
    purl = f"pkg:pypi/{found['name']}@{found['version']}"
    made: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": found["name"],
        "version": found["version"],
        "purl": purl,
    }
    if found["marker"]:
        made["properties"] = [{"name": f"{ROOT_NAME}:environment-marker", "value": found["marker"].strip()}]
    return made, BELOW.findall(entry)


def bill(lock: str, version: str) -> dict[str, Any]:
    """What a lock pins, as a bill of materials of that version."""
    found = [component(entry) for entry in re.split(r"\n(?=[^\s#])", lock.strip())]
    root = f"pkg:pypi/{ROOT_NAME}@{version}"
    needs: dict[str, set[str]] = {ROOT_NAME: set(), **{made["name"]: set() for made, _ in found}}
    for made, above in found:
        for name in above:
            needs[name].add(made["bom-ref"])
    refs = [(ROOT_NAME, root), *((made["name"], made["bom-ref"]) for made, _ in found)]
    subject = {"type": "library", "bom-ref": root, "name": ROOT_NAME, "version": version, "purl": root}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, root + lock)}",
        "version": 1,
        "metadata": {"component": {**subject, "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": [made for made, _ in found],
        "dependencies": [{"ref": ref, "dependsOn": sorted(needs[name])} for name, ref in refs],
    }


class Readme(MetadataHookInterface):
    """Hatchling's hook for README.md, whose links would lead nowhere on the page of a package index."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Let them begin where the documents are."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        start = metadata["urls"]["Documentation"].removesuffix("docs/README.md")
        text = re.sub(r"(?<=\]\()(?!\w+:|#)", start, text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class Bills(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling's hook."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the files, unless the project is installed to be edited."""
        if version == EDITABLE:
            return
        self._folder = TemporaryDirectory()
        for lock in sorted(Path(self.root, "requirements/extras").glob("*.txt")):
            made = bill(lock.read_text(encoding="utf-8"), self.metadata.version)
            file = Path(self._folder.name, f"{ROOT_NAME}-{lock.stem}.cdx.json")
            file.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
            build_data["sbom_files"].append(str(file))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove them: they are in the wheel."""
        if version != EDITABLE:
            self._folder.cleanup()
