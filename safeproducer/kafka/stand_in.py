"""A stand-in goes through the C client in place of a callback's exception."""

from __future__ import annotations


class StandIn(Exception):  # noqa: N818 - the application never sees it
    """The client never lets go of what goes through it (2.16.1): the frames of the application's would keep all that
    they refer to, the producer among it.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error: Exception | None = error
        self._traceback = error.__traceback__

    def taken(self) -> Exception:
        """The exception that it stands for, with its traceback; from then on it refers to nothing."""
        error = self._error or self
        error.__traceback__ = self._traceback
        self._error = self._traceback = self.__traceback__ = self.__context__ = None
        return error
