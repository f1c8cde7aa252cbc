"""The logger of this library.

An exception of an application's handler or filter is printed, as logging prints it, and stops nothing here.
"""

from __future__ import annotations

import logging
import sys
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


def flush_handlers() -> None:
    """Those that flush in a way of their own, as logging.shutdown() does later: they may have records to produce."""
    loggers = [logging.root, *logging.root.manager.loggerDict.copy().values()]
    for handler in {handler for each in loggers for handler in getattr(each, "handlers", ())}:
        if type(handler).flush not in (logging.Handler.flush, logging.StreamHandler.flush):
            with suppress(Exception):  # it is shown when logging.shutdown() meets it
                handler.flush()


_prints = logging.Handler()
logger = _Log(logging.getLogger("safeproducer"), {})
