"""Makes the native clients of one SafeProducer that are no lane: admin clients, for windows and for expiration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from safeproducer.pipeline.cluster import horizons
from safeproducer.pipeline.cluster.windows import Asks
from safeproducer.policy.expiry import Told


def discovery(config: dict[str, Any], heard: Callable[[Told], None], sleep: Callable[[float], object]) -> Asks:
    # Not before the first question: the admin client takes longer to import than everything else here.
    from safeproducer.kafka.discovery import Discovery  # noqa: PLC0415

    return Discovery(config, sleep, heard)


def expirations(config: dict[str, Any], sleep: Callable[[float], object]) -> horizons.Asks:
    from safeproducer.kafka.expiration import Expirations  # noqa: PLC0415 - as above

    return Expirations(config, sleep)
