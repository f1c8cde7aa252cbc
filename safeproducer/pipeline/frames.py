"""Whose code is running: the application's or this library's, told from frames and tracebacks."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType

from safeproducer.records import CallSite

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_CALLBACKS = str(Path(__file__).parent) + os.sep


def caller() -> CallSite:
    """The line of code outside this library that is running it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    code = frame.f_code
    return CallSite(code.co_filename, frame.f_lineno, code.co_qualname)


def raised_by_native_call(error: BaseException) -> bool:
    """Whether `error` left a native call made by this library, rather than a signal handler that ran after it."""
    frames = _frames(error)
    return not frames or frames[-1].f_code.co_filename.startswith(_PACKAGE)


def raised_in_callback(error: BaseException) -> bool:
    """Whether `error` came out of a callback: those run through a function of this folder, signal handlers do not."""
    return any(frame.f_code.co_filename.startswith(_CALLBACKS) for frame in _frames(error))


def _frames(error: BaseException) -> list[FrameType]:
    frames = []
    traceback = error.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return frames
