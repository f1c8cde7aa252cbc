"""Calls of an object by its parts, which must not keep it alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


class Upward:
    """Of a producer's engine: native producers hold some of its parts, and threads the others."""

    def __init__(self) -> None:
        self._engine: Callable[[], Any] = _nobody

    def bind(self, engine: Any) -> None:
        """That one from now on; again in a destructor: the collector clears references like this before it runs any."""
        self._engine = weakref.ref(engine)

    def lives(self) -> bool:
        return self._engine() is not None

    def call(self, method: Callable[[Any], Callable[..., _T]], otherwise: _T) -> Callable[..., _T]:
        """Gives `otherwise` while there is no engine, and once it is gone."""

        def called(*args: Any) -> _T:
            engine = self._engine()
            return otherwise if engine is None else method(engine)(*args)

        return called


def _nobody() -> None:
    pass
