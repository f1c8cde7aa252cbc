"""Reads from an additional lane's log that it has its producer ID.

A batch that is handed over before waits for librdkafka's next look, half a second later (measured: 507 ms against
2 ms). Statistics would tell, too, but many lanes of many partitions make long documents.
"""

from __future__ import annotations

import logging
import re

_ACQUIRED = "Acquired "
_ID = re.compile(r"Acquired PID\{Id:(\d+)")


class LaneLog:
    """Stands where a logging.Logger would. The first lane tells of the same brokers, so nothing is passed on but what
    the application asked for by a logger of its own. `tells`: it is of the first batch lane, which has statistics.
    """

    def __init__(self, tells: bool = False) -> None:
        self.acquired = False
        self.producer_id: int | None = None
        self.tells = tells
        self.application: logging.Logger | None = None

    def log(self, level: int, form: str, *args: object) -> None:
        """As logging.Logger.log()."""
        if not self.acquired and any(isinstance(text, str) and _ACQUIRED in text for text in args):
            self.acquired = True
            found = _ID.search(" ".join(map(str, args)))
            self.producer_id = int(found[1]) if found else None
        elif self.application is not None and level > logging.DEBUG:
            self.application.log(level, form, *args)
