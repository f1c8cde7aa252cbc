"""A ledger is kept in one or two directories of this host, which SAFEPRODUCER_PRODUCER_IDS_LEDGER may name."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import NewType

Place = NewType("Place", str)
"""The value of `safeproducer.producer.ids.ledger`: "auto" for this host, "off" for this process, or a directory."""
AUTO, OFF = Place("auto"), Place("off")
SUFFIX = ".ledger"
AUTO_VARIABLE = "SAFEPRODUCER_PRODUCER_IDS_AUTO"
"""An environment variable: the directories that "auto" takes, as in PATH. The pytest plug-in sets it."""

SUPPORTED = sys.platform in ("linux", "darwin", "win32")
_MEMORY = "/dev/shm"  # noqa: S108
"""Not there on macOS and Windows, nor in most sandboxes for functions."""
_MOUNTS = "/proc/self/mountinfo"
_NETWORK = (
    *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afs", "ceph", "lustre", "gpfs", "glusterfs", "beegfs", "ocfs2"),
    *("gfs2", "ncpfs", "coda", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone"),
)


def user() -> int:
    """Whose files are used. Windows has no numbers of users: there os.stat() tells 0 for all."""
    effective: Callable[[], int] | None = getattr(os, "geteuid", None)
    return effective() if effective is not None else 0


def directories(place: Place) -> list[str]:
    """Where ledgers of `place` are, the first one first; none for "off" and on a system without ledgers.

    "auto": memory that the containers of a Kubernetes pod and a service with PrivateTmp keep, and the temporary
    directory, which a restarted container keeps, and which is all that a sandbox for functions has.
    """
    if place == OFF or not SUPPORTED:
        return []
    if place != AUTO:
        return [place]
    if named := os.environ.get(AUTO_VARIABLE):
        return named.split(os.pathsep)
    # Not tempfile: it would take the working directory when there is no other. TEMP is the user's own on Windows.
    temporary = os.environ.get("TMPDIR") or (os.environ.get("TEMP", "") if sys.platform == "win32" else "/tmp")  # noqa: S108
    roots = dict.fromkeys((_MEMORY, temporary))
    return [os.path.join(root, f"safeproducer-{user()}") for root in roots if os.path.isabs(root)]


def prepared(place: Place) -> tuple[list[str], list[str]]:
    """(those that can be used, made where they were missing; what is wrong with the others)."""
    found = {directory: problem(directory) for directory in directories(place)}
    return [directory for directory, wrong in found.items() if wrong is None], list(filter(None, found.values()))


def unusable(directory: str) -> str | None:
    """Why a ledger cannot be in `directory`, or cannot make it; None when it can. Changes nothing: it only reads."""
    if not os.path.isabs(directory):
        return f"{directory} is no absolute path"
    if not SUPPORTED:
        return "ledgers are kept on Linux, macOS and Windows only"
    wrong = problem(directory, make=False)
    if wrong is None and os.path.isdir(directory) and not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        wrong = f"this process may not write to {directory}"
    return wrong


def problem(directory: str, make: bool = True) -> str | None:
    """Why it cannot be used. `make` it if it is missing."""
    try:
        with suppress(FileExistsError):
            if make:
                os.mkdir(directory, 0o700)
        found = os.lstat(directory)
        if not stat.S_ISDIR(found.st_mode):
            return f"{directory} is no directory" + (", but a symbolic link" if stat.S_ISLNK(found.st_mode) else "")
        if found.st_uid != user():
            return f"{directory} belongs to another user"
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and sys.platform != "win32":
            return f"{directory} may be written to by other users"
        network = _network(found.st_dev)
    except FileNotFoundError:
        parent = os.path.dirname(directory.rstrip("/"))
        if make or not os.access(parent, os.W_OK | os.X_OK):
            return f"{directory} cannot be made"
        network = _network(os.stat(parent).st_dev)
    except OSError as error:
        return f"{directory}: {error.strerror or error}"
    return f"{directory} is on a network file system ({network}), where locks hold nobody off" if network else None


@cache
def _network(device: int) -> str | None:
    """The name of the network file system on it, if it is one. Linux tells."""
    try:
        with open(_MOUNTS, errors="surrogateescape") as mounts:
            lines = mounts.read().splitlines()
    except OSError:
        return None
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        fields, _, rest = line.partition(" - ")
        kind = rest.split(" ", 1)[0]
        if fields.split(" ")[2] == number:
            return kind if kind in _NETWORK else None
    return None
