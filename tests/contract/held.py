"""SafeProducer with everything held back, which by default it does only for a reason."""

from typing import Any

from safeproducer import SafeProducer


class SafeProducerHeld(SafeProducer):
    """The third class of the contract."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        given = {**(args[0] if args and isinstance(args[0], dict) else {}), **keywords}
        if (args or keywords) and not given.get(
            "transactional.id"
        ):  # which is refused: transactions are never held back
            keywords = {"safeproducer.mode": "held", **keywords}
        super().__init__(*args, **keywords)
