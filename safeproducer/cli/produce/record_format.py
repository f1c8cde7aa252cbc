"""How a line becomes a record: key, value, headers and partition."""

import os
import re
from collections.abc import Sequence
from typing import Any

from safeproducer.cli.common.failure import Failure

_ESCAPE = re.compile(rb"\\(t|\\|x[0-9a-fA-F]{2})")


class RecordFormat:
    """Splits lines and knows what all records of a run have in common.

    ``options`` are keyword arguments of ``produce()``. Raises Failure on arguments that mean nothing.
    """

    def __init__(self, key_separator: str | None, headers: Sequence[str], partition: int | None) -> None:
        self._separator = None if key_separator is None else _separator(key_separator)
        self.options: dict[str, Any] = {}
        if headers:
            self.options["headers"] = [_header(number, text) for number, text in enumerate(headers, start=1)]
        if partition is not None:
            self.options["partition"] = partition

    def split(self, line: bytes) -> tuple[bytes | None, bytes] | None:
        """Return (key, value), or None if the separator is not in the line.

        The first separator counts, so the value may contain it. Without a separator there is no key (null).
        """
        if self._separator is None:
            return None, line
        key, found, value = line.partition(self._separator)
        return (key, value) if found else None


def _separator(text: str) -> bytes:
    def plain(found: re.Match[bytes]) -> bytes:
        escape = found[1]
        return {b"t": b"\t", b"\\": b"\\"}.get(escape) or bytes([int(escape[1:], 16)])

    separator = _ESCAPE.sub(plain, os.fsencode(text))
    if not separator or b"\n" in separator:
        raise Failure("--key-separator must be at least one character and cannot hold a newline, which ends lines.")
    return separator


def _header(number: int, text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Failure(f"Argument number {number} of --header is not of the form NAME=VALUE.")
    return name, os.fsencode(value)
