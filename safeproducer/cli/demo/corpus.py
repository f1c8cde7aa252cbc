"""Real text to send: the lines of files, each made unique by its file and line number."""

import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from safeproducer.cli.common.failure import Failure


class Entry(NamedTuple):
    """One line of one file. ``name`` is the record's key, ``value`` names file and line before the text."""

    name: bytes
    line: int
    value: bytes


def python_sources() -> list[tuple[str, Path]]:
    """Return the modules of the standard library that runs this program: real text on every machine.

    The small ones come first, so that a run has many files, which are its keys.
    """
    modules = Path(sysconfig.get_path("stdlib")).glob("*.py")
    return [(path.name, path) for path in sorted(modules, key=lambda path: (path.stat().st_size, path.name))]


def named_files(paths: Sequence[str]) -> list[tuple[str, Path]]:
    """Return the given files once each; Failure if one is missing or is no file."""
    files = {}
    for path in paths:
        try:
            with open(path, "rb"):
                files[path] = Path(path)
        except OSError as error:
            raise Failure(
                f"The input {path} cannot be read ({error.strerror}): correct its path or its rights.", code="input"
            ) from None
    return list(files.items())


def read_corpus(files: Sequence[tuple[str, Path]], *, records: int | None) -> Iterator[Entry]:
    """Yield the lines of the files one after the other, up to a number of records."""
    count = 0
    for shown, path in files:
        name = shown.encode("utf-8", "surrogateescape").replace(b"\t", b" ")
        with path.open("rb") as stream:
            for line, text in enumerate(stream, start=1):
                if records is not None and count >= records:
                    return
                count += 1
                yield Entry(name, line, b"%s\t%d\t%s" % (name, line, text.rstrip(b"\n")))


def identify(value: bytes) -> tuple[bytes, int] | None:
    """Return file name and line number of a value made by ``read_corpus``, None for any other."""
    name, _, rest = value.partition(b"\t")
    line, found, _ = rest.partition(b"\t")
    return (name, int(line)) if found and line.isdigit() else None
