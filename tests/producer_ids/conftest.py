"""What the tests of permits and ledgers share."""

from pathlib import Path

import pytest

from safeproducer.runtime import clock
from tests.producer_ids.host import Clock, Host


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


@pytest.fixture
def still(host: Host) -> Host:
    host.stop_clocks()
    return host


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all that decides without a ledger."""
    found = Clock()
    monkeypatch.setattr(clock, "monotonic", found)
    return found
