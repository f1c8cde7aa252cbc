"""A WSGI application for gunicorn: each worker makes its producer at its first request."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Producer

from integration.applications.programs.given import TOPIC, accepted, make, reported

_making = threading.Lock()
_producer: Producer | None = None


def producer() -> Producer:
    global _producer  # noqa: PLW0603 - one for each worker
    with _making:
        if _producer is None:
            _producer = make()
            atexit.register(_producer.flush)
        return _producer


def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    number = environ["PATH_INFO"].rpartition("/")[2]
    producer().produce(TOPIC, number, on_delivery=reported)
    accepted(number)
    producer().poll(0)
    start("202 Accepted", [("Content-Type", "text/plain")])
    return [number.encode()]
