"""Another thread that comes wherever the interpreter may switch to one: behind a call, at a loop's end, at a start."""

import dis
import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

_NEVER = 10.0
"""Seconds: no thread asks for the interpreter so soon. A loop without a lock or a sleep would keep it for as long."""


@contextmanager
def between(codes: set[CodeType], step: int, other: Callable[[], object], raises: bool = False) -> Iterator[list[int]]:
    """`other` runs at the given one of the places for it in what runs in `codes`; gives how many places there were.

    `raises`: it stands for a signal handler that raises. What that raises behind a call leaves the call itself, so
    the places are left out where another `except` or `finally` begins to hold right behind it.
    """
    steps = [0]
    tps = {code: _tps(code, raises) for code in codes}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code not in codes:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in tps[frame.f_code]:
            if steps[0] == step:
                sys.settrace(None)
                other()
                sys.settrace(trace)
            steps[0] += 1
            time.sleep(0)  # the other threads may come here as well
        return trace

    with _only_at_places():
        before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # 3.12 traces opcodes only if a frame asked for it before settrace()
        sys.settrace(trace)
        try:
            yield steps
        finally:
            sys.settrace(before)


@contextmanager
def _only_at_places() -> Iterator[None]:
    """No other thread, and no destructor that the garbage collector runs, comes in between what is one step untraced.

    The trace function is Python code that runs before each opcode: at its start the interpreter would give its lock
    away, in the middle of a `x += 1`. And what a handler raises in a destructor is swallowed by Python.
    """
    interval, collects = sys.getswitchinterval(), gc.isenabled()
    sys.setswitchinterval(_NEVER)
    gc.disable()
    try:
        time.sleep(0.001)  # who waits already has asked for the lock by the former interval
        yield
    finally:
        sys.setswitchinterval(interval)
        if collects:
            gc.enable()


def codes_of(*functions: Any) -> set[CodeType]:
    return {function.__code__ for function in functions}


@cache
def _tps(code: CodeType, raises: bool) -> set[int]:
    return _switches(code) - (_behind_try(code) if raises else set())


def _switches(code: CodeType) -> set[int]:
    """Where the interpreter may give its lock away."""
    steps = list(dis.get_instructions(code))
    return {
        step.offset
        for before, step in pairwise(steps)
        if before.opname.startswith("CALL") or "BACKWARD" in before.opname or before.opname == "RESUME"
    }


def _behind_try(code: CodeType) -> set[int]:
    """Where what is raised is caught by something else than at the step before, or where a call has only begun."""
    handlers: dict[int, int] = {}
    for entry in dis.Bytecode(code).exception_entries:  # type: ignore[attr-defined]
        handlers.update(dict.fromkeys(range(entry.start, entry.end, 2), entry.target))
    steps = list(dis.get_instructions(code))
    return {step.offset for before, step in pairwise(steps) if handlers.get(before.offset) != handlers.get(step.offset)}
