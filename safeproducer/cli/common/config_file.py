"""Reads producer settings from a file: Java-style properties or one JSON object."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from safeproducer.cli.common.failure import Failure

Setting = str | int | float | bool | None

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPLIT = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)


def read_config_file(path: str) -> dict[str, Setting]:
    """Return the settings of a UTF-8 file; one that begins with ``{`` is JSON, any other is properties.

    Raises Failure, naming the file (and the line), never a value.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise Failure(
            f"The configuration file {path} cannot be read ({error.strerror}): correct its path or its rights.",
            code="config-file",
        ) from None
    except UnicodeDecodeError:
        raise Failure(f"The configuration file {path} is not UTF-8 text.", code="config-file") from None
    return _json(path, text) if text.lstrip().startswith("{") else parse_properties(text)


def parse_properties(text: str) -> dict[str, Setting]:
    """Parse Java's properties format; a later line wins over an earlier one of the same name."""
    settings: dict[str, Setting] = {}
    for line in _logical_lines(text):
        found = _SPLIT.match(line)
        if found:
            settings[_unescape(found[1])] = _unescape(found[2])
    return settings


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments and blanks, with continuation lines joined."""
    pending = ""
    for raw in re.split(r"\r\n|\n|\r", text):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        # An odd number of backslashes at the end continues the line; an even number is escaped backslashes.
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        escape = found[1]
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        return _NAMED.get(escape, escape)

    return _ESCAPE.sub(plain, text)


def _json(path: str, text: str) -> dict[str, Setting]:
    try:
        settings = json.loads(text)
    except json.JSONDecodeError as error:
        raise Failure(
            f"The configuration file {path} is not valid JSON (line {error.lineno}: {error.msg}).", code="config-file"
        ) from None
    for name, value in settings.items():
        if not isinstance(value, str | int | float | bool | None):
            raise Failure(
                f"In the configuration file {path} the value of {name} is no string, number or boolean.",
                code="config-file",
            )
    return dict(settings)
