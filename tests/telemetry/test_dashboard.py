"""The dashboard, the alert rules and their tables are those of the instruments. integration/test_dashboard.py asks a
real Prometheus."""

import json
import re
from pathlib import Path

import pytest

from tests.telemetry import dashboard


@pytest.mark.parametrize("path", dashboard.FILES, ids=lambda path: path.name)
def test_the_files_are_those_of_the_instruments(path: Path) -> None:
    """Cure: `python -m tests.telemetry.dashboard`."""
    text = path.read_text(encoding="utf-8")
    assert dashboard.FILES[path](text) == text


@pytest.mark.parametrize(
    "query",
    [
        "rate(<safeproducer.records.sent>[1m])",
        "sum by (@safeproducer.hold.reason) (<safeproducer.lanes>)",
        '<safeproducer.lanes{error.type="x"}>',
    ],
)
def test_a_name_that_no_instrument_has_is_an_error(query: str) -> None:
    """An instrument, and attributes that it has not."""
    with pytest.raises(KeyError):
        dashboard.promql(query)


def test_each_instrument_has_a_place_and_no_other_name_is_shown() -> None:
    """In what is shipped."""
    text = dashboard.DASHBOARD.read_text(encoding="utf-8")
    queries = [target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]]
    metrics = {dashboard.prometheus(each) for each in dashboard.INSTRUMENTS}
    named = set(re.findall(r"\b(?:safeproducer|messaging)_\w+(?=\{job)", " ".join(queries)))
    assert named == metrics
    rules = dashboard.ALERTS.read_text(encoding="utf-8")
    labels = {dashboard.label(each) for each in dashboard.ATTRIBUTES}
    assert set(re.findall(r"\b(?:safeproducer|messaging)_\w+", rules)) <= metrics | labels


def test_each_attribute_is_described() -> None:
    """Those of all instruments, and those that options add."""
    added = {"messaging.destination.partition.id", "messaging.client.id"}
    assert set(dashboard.ATTRIBUTES) == added.union(*(each.attributes for each in dashboard.INSTRUMENTS))
