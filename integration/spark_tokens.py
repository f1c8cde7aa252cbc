"""The module that executors of test_spark_tokens.py import: a function that gives tokens, and one that gives none.

Kafka's own validator for tests takes tokens without a signature.
"""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path
from typing import Any

MARKER = "marker-of-a-token"
LIFE = 6.0
"""Seconds, unless the environment variable LIVES has others."""
CALLS, LIVES = "SPARK_TOKENS_CALLS", "SPARK_TOKENS_LIVES"
"""Environment variables; the first one names a file with a line for each call."""


def _part(content: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


SEEN = _part({"jti": MARKER})[:34]
"""What each token has in it, as it is sent: the marker as base64."""


def life() -> float:
    """Of a token, in seconds."""
    return float(os.environ.get(LIVES, LIFE))


def text() -> str:
    """A token without a signature, for the user `spark`."""
    now = time.time()
    claims = {"jti": MARKER, "sub": "spark", "iat": now, "exp": now + life(), "scope": "kafka"}
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def token() -> tuple[str, int]:
    """As a cloud's library gives it, in milliseconds."""
    with Path(os.environ[CALLS]).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    return text(), int((time.time() + life()) * 1000)


def broken() -> tuple[str, int]:
    """As when a cloud's library fails, and says too much."""
    raise RuntimeError(MARKER)
