"""Whose code is running: the application's or this library's, told from frames and tracebacks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from safeproducer.records import CallSite

_PACKAGE = str(Path(__file__).parents[1]) + os.sep


def caller() -> CallSite:
    """The line of code outside this library that is running it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    code = frame.f_code
    return CallSite(code.co_filename, frame.f_lineno, code.co_qualname)


def raised_by_native_call(error: BaseException) -> bool:
    """Whether `error` left a native call made by this library, rather than a signal handler that ran after it."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is None or traceback.tb_frame.f_code.co_filename.startswith(_PACKAGE)
