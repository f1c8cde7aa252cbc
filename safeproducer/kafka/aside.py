"""A native call that may come from inside another one: it runs on a thread of its own."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any


def aside(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return or raise what `call` does, on a thread of its own.

    The C client remembers by thread that it is inside a call. A second one of the same producer, made in a callback,
    makes it forget that when it ends, and the next callback of the first one aborts the process.
    """
    returned: list[Any] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            returned.append(call(*args, **kwargs))
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="safeproducer-aside", daemon=True)
    if not sys.is_finalizing():  # before Python 3.12 the start would never end
        with suppress(RuntimeError):
            thread.start()
    if thread.ident is None:
        return call(*args, **kwargs)
    thread.join()
    if raised:
        raise raised.pop()
    return returned.pop()
