"""The logger of this library.

An exception of an application's handler or filter is printed, as logging prints it, and stops nothing here.
"""

from __future__ import annotations

import logging
import sys
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


_prints = logging.Handler()
logger = _Log(logging.getLogger("safeproducer"), {})
