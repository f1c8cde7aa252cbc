"""Options of pytest for the fault scenarios, and their figures at the end of a run."""

import json
import os
from pathlib import Path

import pytest

from integration.faults.figures import Figures

FILE = "SAFEPRODUCER_FAULTS_JSON"
FIGURES = pytest.StashKey[list[Figures]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which scenarios, how often, and with which producer."""
    group = parser.getgroup("faults", "fault scenarios on three Kafka nodes")
    group.addoption(
        "--faults", default="short", help="short (default), all, or names of scenarios: 'half open,disk full'"
    )
    group.addoption("--fault-seeds", default="1", metavar="N,N", help="play each scenario once for each seed")
    group.addoption("--fault-producer", default="safe", choices=["safe", "stock"], help="stock: see what it breaks")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIGURES] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """One line for each scenario that was played to its end; all of them as JSON in the file that FILE names."""
    played = config.stash[FIGURES]
    if not played:
        return
    terminalreporter.section("fault scenarios")
    for figures in played:
        terminalreporter.write_line(str(figures))
    if config.getoption("--faults") == "short":
        terminalreporter.write_line("these are the short ones; scripts/faults plays all")
    if FILE in os.environ:
        Path(os.environ[FILE]).write_text(json.dumps([figures.as_json() for figures in played], indent=1) + "\n")
