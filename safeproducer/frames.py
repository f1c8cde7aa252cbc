"""Whose code is running: the application's or this library's, told from frames and tracebacks.

By the names of modules: bytecode that was compiled elsewhere, or frozen, says other file names than it is loaded from.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from safeproducer.records import CallSite

_PACKAGE = __name__.removesuffix("frames")
_RAISES = frozenset({"builtins", "cimpl", "confluent_kafka", _PACKAGE.rstrip(".")})
"""Of whose classes is what native calls raise, and this library in their place."""


def _is_ours(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__")  # missing where code is executed in a dict of its own
    return isinstance(name, str) and f"{name}.".startswith(_PACKAGE)


def caller() -> CallSite:
    """The line of code outside this library that is running it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
    code = frame.f_code
    return CallSite(code.co_filename, frame.f_lineno, code.co_qualname)


def raised_by_native_call(error: BaseException) -> bool:
    """Whether `error` left a native call made by this library, rather than a signal handler that ran after it.

    Nor one that another thread has set (PyThreadState_SetAsyncExc): such a time limit has no frame, and is of a class
    that the native client knows nothing of. Nor that of a full stack, which may come behind the call.
    """
    if type(error).__module__.partition(".")[0] not in _RAISES or isinstance(error, OSError | RecursionError):
        return False
    last = _last_frame(error)
    return last is None or _is_ours(last)


def let_handlers_through(error: BaseException) -> None:
    """Raise `error` again if it is of a signal handler of the application: a time limit may be an OSError, too.

    An error of a system call has its number. Else the last code that it left tells, but for the standard library's.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return
    traceback, last = error.__traceback__, None
    while traceback is not None:
        last = last if _is_standard(traceback.tb_frame) else traceback.tb_frame
        traceback = traceback.tb_next
    if last is not None and not _is_ours(last):
        try:
            raise error
        finally:
            del error  # or it and this frame refer to each other, and all frames below stay until they are collected


@contextmanager
def without_a_thread() -> Iterator[None]:
    """Go on where no thread can be started: there are too many, or the interpreter ends."""
    try:
        yield
    except RuntimeError as error:
        if type(error).__module__ != "builtins":  # a time limit
            raise


def release(error: BaseException) -> None:
    """Have the frames of this library that `error` has left refer to nothing: who keeps it would keep a lock."""
    traceback = error.__traceback__
    while traceback is not None:
        if _is_ours(traceback.tb_frame):
            with suppress(RuntimeError):  # it still runs
                traceback.tb_frame.clear()
        traceback = traceback.tb_next


def _is_standard(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__")
    return isinstance(name, str) and name != "__main__" and name.partition(".")[0] in sys.stdlib_module_names


def handles_signal(frame: FrameType) -> bool:
    """Whether this is a signal handler's first frame: it is given the frame that it interrupted."""
    if frame.f_back is None:
        return False
    code = frame.f_code
    count = code.co_argcount
    if code.co_flags & inspect.CO_VARARGS:
        count += 1 + code.co_kwonlyargcount
    values = frame.f_locals
    for name in code.co_varnames[:count]:
        value = values.get(name)
        if value is frame.f_back or (isinstance(value, tuple) and any(part is frame.f_back for part in value)):
            return True
    return False


def raised_by_handler(error: BaseException) -> bool:
    """Whether a signal handler of the application raised it."""
    traceback = error.__traceback__
    while traceback is not None and not handles_signal(traceback.tb_frame):
        traceback = traceback.tb_next
    return traceback is not None


def _last_frame(error: BaseException) -> FrameType | None:
    """Where `error` was raised."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return None if traceback is None else traceback.tb_frame
