"""Data folders of clusters: locked while their owner lives, swept by the next owner when it was killed."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

OWNER = ".owner"


class ClusterFolder:
    """A fresh private folder that no other process takes for abandoned before `remove` or the owner's end."""

    def __init__(self, root: Path | None = None) -> None:
        root = root or scratch_root()
        with exclusive(root):
            sweep(root)
            self.path = Path(tempfile.mkdtemp(prefix="cluster-", dir=root))
            self._owner: IO[str] = (self.path / OWNER).open("w")
            fcntl.flock(self._owner, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Delete the folder and everything in it; may be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._owner.close()


def scratch_root() -> Path:
    """The folder of this user's clusters below the temporary folder."""
    root = Path(tempfile.gettempdir()) / f"safeproducer-kafka-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.stat().st_uid != os.getuid():
        raise PermissionError(f"{root} belongs to another user; set TMPDIR to a folder of your own")
    return root


def sweep(root: Path) -> list[Path]:
    """Delete cluster folders whose owner is gone; call with `exclusive(root)` held."""
    abandoned = [folder for folder in root.glob("cluster-*") if _is_abandoned(folder)]
    for folder in abandoned:
        shutil.rmtree(folder, ignore_errors=True)
    return abandoned


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the folder against every other process and thread; created when missing."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _is_abandoned(folder: Path) -> bool:
    try:
        with (folder / OWNER).open("r") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return True
    return True
