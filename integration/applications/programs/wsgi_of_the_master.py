"""The mistake: gunicorn's master makes the producer, when it loads this for its workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from integration.applications.programs.given import TOPIC, make

producer = make()


def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    try:
        producer.produce(TOPIC, environ["PATH_INFO"])
    except RuntimeError as error:
        start("500 Internal Server Error", [("Content-Type", "text/plain")])
        return [str(error).encode()]
    start("202 Accepted", [("Content-Type", "text/plain")])
    return []
