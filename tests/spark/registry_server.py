"""A schema registry on the loopback that speaks what confluent_kafka's client asks for over HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Registry:
    """`subjects`: the schemas of each, oldest first; an ID is the schema's place in `schemas`, from 1 on."""

    def __init__(self) -> None:
        self.subjects: dict[str, list[int]] = {}
        self.schemas: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.url = ""

    def add(self, subject: str, schema: dict[str, Any]) -> int:
        """Register it, once."""
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """(HTTP status, document)."""
        self.asked.append(f"{method} {path}")
        if found := re.fullmatch(r"/subjects/([^/]+)/versions", path):
            known = {key: value for key, value in body.items() if value}
            return 200, {"id": self.add(found[1], {"schemaType": "AVRO", **known})}
        if found := re.fullmatch(r"/subjects/([^/]+)/versions/latest", path):
            if not (versions := self.subjects.get(found[1])):
                return 404, {"error_code": 40401, "message": f"Subject '{found[1]}' not found."}
            row = {"subject": found[1], "version": len(versions), "id": versions[-1]}
            return 200, {**row, **self.schemas[versions[-1] - 1]}
        if found := re.fullmatch(r"/schemas/ids/(\d+)", path):
            return 200, self.schemas[int(found[1]) - 1]
        return 404, {"error_code": 404, "message": f"HTTP 404 Not Found: {path}"}


@contextmanager
def registry() -> Iterator[Registry]:
    """It serves until the end of the block."""
    served = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: Any) -> None:
            status, document = served.answer(self.command, self.path.partition("?")[0], body)
            text = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
