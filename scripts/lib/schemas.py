"""Takes the schemas of Kafka's messages for safeproducer/testing/schemas.json: `schemas.py KAFKA-CLIENTS.JAR`.

Those that the file has already, in that version of Kafka; further names may follow the jar. Descriptions are left out,
and what only Kafka's own code generator reads.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[2] / "safeproducer/testing/schemas.json"
FOLDER = "common/message/"
KEPT = {
    *("apiKey", "commonStructs", "default", "fields", "flexibleVersions", "name", "nullableVersions", "tag"),
    *("taggedVersions", "type", "validVersions", "versions"),
}


def lean(schema: Any) -> Any:
    """Only what makes bytes."""
    if isinstance(schema, dict):
        return {name: lean(value) for name, value in schema.items() if name in KEPT}
    return [lean(each) for each in schema] if isinstance(schema, list) else schema


def main(jar: str, *further: str) -> None:
    """Write the file anew; one schema is one line."""
    names = {*json.loads(FILE.read_text(encoding="utf-8")), *further} if FILE.exists() else {*further}
    with zipfile.ZipFile(jar) as archive:
        lines = []
        for name in sorted(names):
            text = re.sub(r"(?m)^\s*//.*$", "", archive.read(f"{FOLDER}{name}.json").decode())
            lines.append(f"{json.dumps(name)}: {json.dumps(lean(json.loads(text)), separators=(',', ':'))}")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
