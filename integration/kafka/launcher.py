"""Runs a command that the kernel kills as soon as the owner is gone, however the owner ends.

Called as a script: `python launcher.py OWNER_PID COMMAND ARGUMENT...`. On Linux the command is killed with the
*thread* that started this script, so start it from a thread that lives as long as its process.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask for the signal, then become the command."""
    owner, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
        if os.getppid() != owner:
            sys.exit("the owner ended before its command started")
    os.execv(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
