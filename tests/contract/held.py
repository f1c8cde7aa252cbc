"""SafeProducer with everything held back, which by default it does only for a reason."""

from __future__ import annotations

from typing import Any

from safeproducer import SafeProducer


class SafeProducerHeld(SafeProducer):
    """The third class of the contract."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        if args or keywords:
            keywords = {"safeproducer.mode": "held", **keywords}
        super().__init__(*args, **keywords)
