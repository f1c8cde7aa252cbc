"""The input of ``produce``: a file, a pipe or the terminal, as a file descriptor."""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from safeproducer.cli.common.failure import Failure


@contextmanager
def open_source(path: str) -> Iterator[int]:
    """Give the descriptor to read from; ``-`` is standard input, and a closed standard input is empty."""
    if path == "-" and sys.stdin is not None:
        yield sys.stdin.fileno()
        return
    descriptor = _open(os.devnull if path == "-" else path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def remaining_bytes(descriptor: int) -> int | None:
    """Return how much there is to read, None if that cannot be known."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return None
    return max(0, status.st_size - os.lseek(descriptor, 0, os.SEEK_CUR))


def _open(path: str) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise Failure(
            f"The input {path} cannot be read ({error.strerror}): correct its path or its rights.", code="input"
        ) from None
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Failure(f"The input {path} is a directory: name a file in it.", code="input")
    return descriptor
