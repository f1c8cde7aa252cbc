"""Which alerts fire, by promtool: Prometheus' own evaluation of docs/operate/alerts.yml over given series."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.telemetry import dashboard

SCRAPE = 15
"""Seconds."""
Series = Mapping[str, Sequence[float | None]]
"""A metric with its labels -> its values, one each scrape; None where the scrape did not have it."""


def promtool() -> str:
    folder = dashboard.ROOT / ".cache/prometheus/usr/bin"
    found = shutil.which("promtool", path=f"{folder}{os.pathsep}{os.environ['PATH']}")
    return found or pytest.skip("no promtool: scripts/test provides Prometheus")


def fired(series: Series, begin: int, end: int) -> set[str]:
    """Alerts that fire at any time from `begin` to `end`, in seconds since the first scrape."""
    rows = [
        {"series": name, "values": " ".join("_" if value is None else f"{value:g}" for value in values)}
        for name, values in series.items()
    ]
    range_ = f"[{end - begin + 1}s]"
    expression = f'count by (alertname) (count_over_time(ALERTS{{alertstate="firing"}}{range_}))'
    wanted = {"expr": expression, "eval_time": f"{end}s", "exp_samples": []}
    case = {"interval": f"{SCRAPE}s", "input_series": rows, "promql_expr_test": [wanted]}
    with tempfile.TemporaryDirectory() as folder:
        rule_test = Path(folder, "test.yml")
        # JSON is YAML.
        whole = {"rule_files": [str(dashboard.ALERTS)], "evaluation_interval": f"{SCRAPE}s", "tests": [case]}
        rule_test.write_text(json.dumps(whole))
        command = promtool(), "test", "rules", str(rule_test)
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    said = done.stdout + done.stderr
    names = set(re.findall(r'alertname="(\w+)"', said))
    assert bool(names) != (done.returncode == 0), said  # else it could not evaluate them
    return names
