"""Reads lines of any stream as bytes, in constant memory and without blocking for long."""

import os
import select
from collections.abc import Iterator
from typing import NamedTuple

_CHUNK = 1 << 18


class Line(NamedTuple):
    """One line without its newline.

    ``number`` counts from 1, ``size`` is its length in bytes; ``data`` is None if it is longer than the limit.
    """

    number: int
    data: bytes | None
    size: int


def read_lines(descriptor: int, *, limit: int, wait: float = 0.1) -> Iterator[Line | None]:
    """Yield the lines of a file descriptor, and None when nothing was there to read for ``wait`` seconds.

    Only the newline separates: a carriage return before it stays, as in kcat, because the bytes may be
    anything. A last line without newline counts; an empty line is a line. At most ``limit`` bytes of a line are
    kept, so a longer one is measured and dropped. None lets the caller do other work (and stop) between reads.
    """
    number = 0
    kept = bytearray()
    size = 0
    while True:
        if not _readable(descriptor, wait):
            yield None
            continue
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            break
        first, *others = chunk.split(b"\n")
        for ended in others:
            size += len(first)
            number += 1
            yield Line(number, bytes(kept) + first if size <= limit else None, size)
            kept.clear()
            size = 0
            first = ended
        size += len(first)
        if size <= limit:
            kept += first
        else:
            kept.clear()
    if size:
        yield Line(number + 1, bytes(kept) if size <= limit else None, size)


def _readable(descriptor: int, wait: float) -> bool:
    """Wait for input; where a descriptor cannot be waited for (files on Windows) let the read itself block."""
    try:
        return bool(select.select([descriptor], [], [], wait)[0])
    except (OSError, ValueError):
        return True
