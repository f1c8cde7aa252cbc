"""Stands in for a native producer that must not be called any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from safeproducer.errors import ProducerClosedError, SafeProducerError


class Unusable:
    """Stands where a native producer was once it must not be called any more: whatever is called raises."""

    def __init__(self, refusal: Callable[[], SafeProducerError]) -> None:
        self._refusal = refusal

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self._refusal()

    def __getitem__(self, key: object) -> NoReturn:
        raise self._refusal()

    def __len__(self) -> int:
        return 0

    @property
    def queued(self) -> int:
        return 0


UNINITIALISED = Unusable(
    lambda: ProducerClosedError(
        "Producer has been closed (Handle has been closed), or rather was never initialised: call "
        "super().__init__(config) in its subclass"
    )
)
