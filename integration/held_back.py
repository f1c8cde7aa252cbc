"""Producers that hold records back, and what tests of them need to know."""

from typing import Any

import pytest

from safeproducer import SafeProducer
from safeproducer.errors import ConfigurationError
from safeproducer.settings.config import parse

MODE = "safeproducer.mode"


def _exists() -> bool:
    try:
        parse(({"bootstrap.servers": "127.0.0.1:1", MODE: "held"},), {})
    except ConfigurationError:
        return False
    return True


EXISTS = _exists()
needed = pytest.mark.skipif(not EXISTS, reason=f"SafeProducer has no {MODE} yet: it cannot hold records back")


def in_mode(mode: str, config: dict[str, Any]) -> SafeProducer:
    """A SafeProducer in one of its modes: auto, held or passthrough."""
    return SafeProducer({**config, MODE: mode})
