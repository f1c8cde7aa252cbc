"""The parts that all tests share."""

import signal

import pytest

pytest_plugins = ["integration.faults.plugin", "integration.tap.fixtures"]

FULL = "takes minutes: run with --full"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--full` runs what is too long for every day."""
    parser.addoption("--full", action="store_true", help="also run the tests that take minutes each")


def pytest_configure(config: pytest.Config) -> None:
    """Say what the marker means; listen to Ctrl-C, which a shell switches off in what it runs in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", f"full: {FULL}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what is marked, and say so."""
    if not config.getoption("--full"):
        for item in items:
            if item.get_closest_marker("full"):
                item.add_marker(pytest.mark.skip(reason=FULL))
