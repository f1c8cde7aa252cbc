"""The calling thread is in the middle of a callback, or of a signal handler that interrupted something.

That is told from its frames, and only when a call finds that its thread is inside another one, so that no other call
pays for it. A note that is made when a callback begins would be wrong for good after a signal handler that raises
behind it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from inspect import CO_VARARGS
from itertools import chain
from types import CodeType, FrameType
from typing import Any, TypeVar

_OURS = (
    "safeproducer.pipeline.",
    "safeproducer.runtime.",
    "safeproducer.producer",
    "safeproducer.hooks",
    "safeproducer.serializing",
)
_natively_called: set[CodeType] = set()
_native_callers: set[CodeType] = set()
_reporters: set[CodeType] = set()
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _added_to(codes: set[CodeType]) -> Callable[[_Function], _Function]:
    def decorator(function: _Function) -> _Function:
        codes.add(function.__code__)
        return function

    return decorator


calls_natively = _added_to(_native_callers)  # the function makes native calls that run callbacks
runs_reports = _added_to(_reporters)  # the function runs without a native call what native calls run, too
called_natively = _added_to(_natively_called)  # native calls run the function as a callback


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


def in_callbacks(threads: Iterable[int]) -> bool:
    """Whether each of these threads, which serve, is in the middle of a callback. They go on meanwhile."""
    return all(_callback(frame) is not None for frame in _frames(threads))


def callbacks(threads: Iterable[int]) -> list[str]:
    """The name, file and line of the callback that each of these threads is in; none if one is in none."""
    found = [_callback(frame) for frame in _frames(threads)]
    places = [(each.f_code, each.f_lineno) for each in found if each is not None and not _is_ours(each)]
    told = [f"{code.co_qualname} ({code.co_filename}:{line})" for code, line in places]
    return told if len(told) == len(found) else []


def _frames(threads: Iterable[int]) -> list[FrameType | None]:
    """Frames of these threads. This call's own is among all, a cycle: what other threads delete later would be kept
    until the collector comes, on a thread of its choice."""
    frames = sys._current_frames()
    try:
        return [frames.get(thread) for thread in threads]
    finally:
        frames.clear()


def _callback(frame: FrameType | None) -> FrameType | None:
    """The innermost call that serves tells it: a signal handler may serve inside a callback."""
    outermost = None
    while frame is not None and frame.f_back is not None and frame.f_code not in _native_callers:
        caller = frame.f_back.f_code
        if not _is_ours(frame):
            outermost = frame
        if caller in _native_callers:
            return (outermost or frame) if frame.f_code in _natively_called else outermost
        if caller in _reporters:
            return outermost or frame
        frame = frame.f_back
    return None


def handles_signal(frame: FrameType) -> bool:
    """Whether this is a signal handler's first frame: it is given the frame that it interrupted."""
    code, values = frame.f_code, frame.f_locals
    count = code.co_argcount + (1 + code.co_kwonlyargcount) * bool(code.co_flags & CO_VARARGS)
    given = [values.get(name) for name in code.co_varnames[:count]]
    parts = chain(given, *[value for value in given if isinstance(value, tuple)])
    return frame.f_back is not None and any(part is frame.f_back for part in parts)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(_OURS)
