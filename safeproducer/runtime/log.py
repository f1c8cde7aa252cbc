"""The logger of this library.

An exception of an application's handler or filter is printed, as logging prints it, and stops nothing here.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class _Log(logging.LoggerAdapter[logging.Logger]):
    def log(self, level: int, msg: object, *args: object, **keywords: Any) -> None:
        if sys.is_finalizing():  # a destructor: there are no imports any more, and a traceback needs some
            keywords["exc_info"] = None
        try:
            # Not through process(), which would take the application's `extra` away; the frame is not this one's.
            self.logger.log(level, msg, *args, **{"stacklevel": 2, **keywords})
        except Exception:
            if not sys.is_finalizing():
                _prints.handleError(logging.LogRecord(self.logger.name, level, "", 0, str(msg), args, None))

    def last_words(self, text: str) -> None:
        """An error at the end. Where logging was configured with disable_existing_loggers, which is Django's default,
        nobody would hear of it: then on stderr."""
        if not self.logger.disabled:
            self.log(logging.ERROR, text, stacklevel=3)
            return
        with suppress(OSError, ValueError, AttributeError):  # it is closed, or there is none
            print(f"safeproducer: {text}", file=sys.__stderr__, flush=True)


class _Last(logging.Handler):
    """logging.shutdown() closes it behind the handlers that were made later."""

    then: Callable[[], object] = bool

    def close(self) -> None:
        super().close()
        self.then()


def behind_handlers(act: Callable[[], object]) -> None:
    """Run it once the application's handlers have ended, at exit: they may produce what they have gathered."""
    handlers = [found for each in getattr(logging, "_handlerList", ()) if (found := each()) is not None]
    others = [one for one in handlers if one is not _prints and not type(one).__module__.startswith("logging")]
    if others and any(one is _prints for one in handlers):
        _prints.then = act
        return
    for one in others:  # dictConfig() ends all handlers that are there, and forgets them
        with suppress(Exception):  # it is shown when logging.shutdown() meets it
            one.flush()
    act()


_prints = _Last()
logger = _Log(logging.getLogger("safeproducer"), {})
