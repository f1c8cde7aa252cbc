"""The logger of this library. What a handler or a filter of the application raises stops nothing here.

Nor would it in confluent_kafka, which logs nothing. It is printed as logging prints errors of handlers.
"""

from __future__ import annotations

import logging
from typing import Any

from safeproducer import frames


class _Log(logging.LoggerAdapter[logging.Logger]):
    """What a signal handler raises meanwhile goes on."""

    def log(self, level: int, msg: object, *args: object, **keywords: Any) -> None:
        try:
            # Not through process(), which would take the application's `extra` away; the frame is not this one's.
            self.logger.log(level, msg, *args, **{"stacklevel": 2, **keywords})
        except Exception as error:
            if frames.raised_by_handler(error):
                raise
            _prints.handleError(logging.LogRecord(self.logger.name, level, "", 0, str(msg), args, None))


_prints = logging.Handler()
logger = _Log(logging.getLogger("safeproducer"), {})
