"""What the calling thread is in the middle of: a callback, or a signal handler that interrupted something.

Told from its frames, and only when a call finds that its thread is inside another one, so that nobody else pays for it.
A note that is made when a callback begins would be wrong for good after a signal handler that raises behind it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

from safeproducer.frames import handles_signal

_OURS = (
    "safeproducer.pipeline.",
    "safeproducer.producer",
    "safeproducer.announcements",
    "safeproducer.batch",
    "safeproducer.pairs",
    "safeproducer.closing",
    "safeproducer.permit_end",
    "safeproducer.transactions",
    "safeproducer.hooks",
    "safeproducer.serializing",
)
_natively_called: set[CodeType] = set()
_native_callers: set[CodeType] = set()
_reporters: set[CodeType] = set()
_Function = TypeVar("_Function", bound=Callable[..., Any])


def calls_natively(function: _Function) -> _Function:
    """It makes native calls that run callbacks."""
    _native_callers.add(function.__code__)
    return function


def runs_reports(function: _Function) -> _Function:
    """It runs without a native call what native calls run, too."""
    _reporters.add(function.__code__)
    return function


def called_natively(function: _Function) -> _Function:
    """Native calls run it as a callback."""
    _natively_called.add(function.__code__)
    return function


def in_callback() -> bool:
    """Whether the caller of this library's method runs in a callback, and not in a signal handler that interrupted it.

    A callback is whatever is not ours and was called by what is ours: a delivery callback, a hook, a log handler, a
    destructor. Asked only when a call of this library is under way on this thread.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame):  # the method that asks
        frame = frame.f_back
    while frame is not None:
        if handles_signal(frame):
            return False
        if frame.f_back is not None and _is_ours(frame.f_back):
            return True
        frame = frame.f_back
    return True  # another greenlet of this thread is inside a call, and lets this one run in a callback


def in_native_callback() -> bool:
    """Whether a native call further down is in the middle of a callback, so that it must not be served again.

    The client aborts the process at the next callback after that.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_back is not None:
        caller = frame.f_back.f_code
        if frame.f_code in _natively_called:
            if caller not in _natively_called and caller not in _reporters:
                return True
        elif caller in _native_callers and not _is_ours(frame) and not handles_signal(frame):
            return True  # a log handler
        frame = frame.f_back
    return False


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(_OURS)
