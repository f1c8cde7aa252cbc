"""A disk for one node that can be filled: a small tmpfs over its folder."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from integration.kafka.node import Node

FILLER = "filler"
BLOCK = 64 * 1024
# The shell outlives its owner, however that ends: its input is then at an end, and it takes the disk away.
KEEPER = 'mount -t tmpfs -o "size=$2" tmpfs "$1" || exit; echo mounted; cat >/dev/null; umount -l "$1"'


class NoDiskError(RuntimeError):
    """This machine lets nobody mount a disk; the message says what mount said."""


class SmallDisk:
    """The disk that is mounted over a folder."""

    def __init__(self, folder: Path) -> None:
        self._filler = folder / FILLER
        self._folder = folder

    def fill(self) -> int:
        """Take all the space there is; returns the bytes it took."""
        taken = 0
        with self._filler.open("wb", buffering=0) as filler:
            try:
                while True:
                    taken += filler.write(b"\0" * BLOCK)
            except OSError:
                return taken

    def free(self) -> int:
        told = os.statvfs(self._folder)
        return told.f_bavail * told.f_frsize

    def empty(self) -> None:
        """Give the space back."""
        self._filler.unlink(missing_ok=True)


@contextmanager
def small_disk(node: Node, size: str = "256m") -> Iterator[SmallDisk]:
    """Move a running node to a disk of this size and, at the end, back. It is stopped cleanly for both.

    Raises NoDiskError, before it touches the node, where mounting is not allowed.
    """
    with tempfile.TemporaryDirectory(dir=node.log_dir.parent) as name:
        refuge = Path(name)
        with _mounted(refuge, size):
            pass
        node.stop()
        _copy(node.log_dir, refuge)
        with _mounted(node.log_dir, size):
            _copy(refuge, node.log_dir)
            node.start()
            try:
                yield SmallDisk(node.log_dir)
            finally:
                (node.log_dir / FILLER).unlink(missing_ok=True)
                if node.state != "stopped":
                    node.stop()
                _copy(node.log_dir, refuge)
        _copy(refuge, node.log_dir)
        node.start()


@contextmanager
def _mounted(folder: Path, size: str) -> Iterator[None]:
    keeper = subprocess.Popen(
        ["sh", "-c", KEEPER, "keeper", str(folder), size],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with keeper:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        said = keeper.stdout.readline().strip()
        if said != "mounted":
            raise NoDiskError(f"cannot mount a tmpfs: {said or 'mount said nothing'}")
        try:
            yield
        finally:
            keeper.stdin.close()
            keeper.wait(10)


def _copy(source: Path, target: Path) -> None:
    """Make the target's contents those of the source."""
    for old in target.iterdir():
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    shutil.copytree(source, target, dirs_exist_ok=True)
