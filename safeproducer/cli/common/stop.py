"""A command ends by a Failure with one sentence, or by signals: the first Ctrl-C or SIGTERM asks it to finish."""

from contextlib import ExitStack
from signal import SIGINT, SIGTERM, Signals, signal
from types import FrameType
from typing import Self

NOTHING_SENT = 2
NOT_ALL_DELIVERED = 1


class Failure(Exception):  # noqa: N818 - it is an outcome shown to a person, not a bug
    """A command cannot go on; ``str()`` is the sentence to show.

    ``exit_code`` is 2 when nothing was sent and 1 afterwards. ``code`` is a short stable name for ``--json``.
    """

    def __init__(self, sentence: str, *, code: str = "usage", exit_code: int = NOTHING_SENT) -> None:
        super().__init__(sentence)
        self.code = code
        self.exit_code = exit_code


class StopRequest(ExitStack):
    """Handles SIGINT and SIGTERM while it is entered; truthy from the first signal on.

    The first signal is only noted, so nothing is interrupted half done and the command finishes in its own
    time. The second raises KeyboardInterrupt wherever the main thread is.
    """

    signal: Signals | None = None

    def __enter__(self) -> Self:
        for one in (SIGINT, SIGTERM):
            self.callback(signal, one, signal(one, self._handle))
        return self

    def __bool__(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """128 plus the signal's number, as shells report it: 130 after Ctrl-C; 0 if there was none."""
        return 0 if self.signal is None else 128 + self.signal

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = Signals(number)
