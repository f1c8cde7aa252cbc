"""Fixtures of the tests of telemetry."""

import pytest

from tests.telemetry.tracing import Tracing


@pytest.fixture
def tracing() -> Tracing:
    return Tracing()
