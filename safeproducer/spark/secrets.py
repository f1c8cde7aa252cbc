"""Where a secret is, and how an executor reads it: `env:NAME`, `file:PATH`, `call:package.module:function`.

A secret that was given as it is becomes a place, too: `value:` and the secret. That one is never shown.
"""

from __future__ import annotations

import os
import socket
from importlib import import_module
from pathlib import Path

from safeproducer.errors import ConfigurationError
from safeproducer.kafka.properties import HIDDEN

ENV, FILE, CALL, VALUE = "env:", "file:", "call:", "value:"
FORMS = "env:NAME, file:PATH or call:package.module:function"


class Place(str):
    """A place as text. Its repr, as in a traceback that shows locals, hides a secret that was given as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(f"{VALUE}{HIDDEN}") if self.startswith(VALUE) else super().__repr__()


def place_of(text: str) -> Place:
    """`text` when it names a place, else the place of a secret that was given as it is.

    A secret that itself begins like a place can be given behind `value:`.
    """
    return Place(text if is_place(text) or text.startswith(VALUE) else VALUE + text)


def is_place(text: str) -> bool:
    """Whether it names a place on an executor."""
    return text.startswith((ENV, FILE, CALL))


def resolve(place: str) -> str:
    """The secret at this place, read now, in this process. The line's end after the text of a file is no part of it.

    Raises ConfigurationError, which names the place and this host, and nothing of what was found.
    """
    kind, _, name = place.partition(":")
    problem, found = _read(f"{kind}:", name)
    if not problem and found:
        return found
    raise ConfigurationError(
        "",
        "",
        f"no secret at {place_of(place)!r} on {socket.gethostname()}: {problem or 'it is empty'}",
        f"Give {FORMS}, present on every executor",
    )


def _read(kind: str, name: str) -> tuple[str, str]:
    """The error, if there is one, and the value."""
    if kind == VALUE:
        return "", name
    if kind == ENV:
        return ("", os.environ[name]) if name in os.environ else ("there is no such environment variable", "")
    if kind == FILE:
        return _text(Path(name))
    if kind == CALL:
        return _called(name)
    return "that is no place of a secret", ""


def _text(path: Path) -> tuple[str, str]:
    try:
        return "", path.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        return f"the file cannot be read ({error.strerror})", ""
    except ValueError:
        return "the file is no text in UTF-8", ""


def _called(name: str) -> tuple[str, str]:
    module, _, function = name.partition(":")
    try:
        found = getattr(import_module(module), function)()
    except Exception as error:  # whatever it raises may hold the secret, and no frame of it may go on
        return f"the call raised {type(error).__name__}", ""
    return ("", found) if isinstance(found, str) else (f"the call returned {type(found).__name__}, not str", "")
