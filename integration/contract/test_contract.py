"""The tests of tests/contract that reach a cluster, collected once more: here the fixture `cluster` is real Kafka."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "tests" / "contract"
MODULES = sorted(path.stem for path in FOLDER.glob("test_*.py"))
REACHING = {"cluster", "producer", "topic"}
"""Fixtures that lead to the cluster, besides those that modules define themselves; with `make` alone it is nowhere."""


def is_fixture(member: object) -> bool:
    """Whether pytest made this from a function decorated as fixture."""
    return type(member).__name__ == "FixtureFunctionDefinition"


def collect() -> None:
    """Put the tests, and the fixtures of their modules, into this module; tests get their module's name as suffix."""
    for module in MODULES:
        members = vars(import_module(f"tests.contract.{module}"))
        fixtures = {name: member for name, member in members.items() if is_fixture(member)}
        assert not fixtures.keys() & globals().keys(), "two modules of the contract have a fixture of one name"
        globals().update(fixtures)
        for name, member in members.items():
            if name.startswith("test_") and inspect.signature(member).parameters.keys() & (REACHING | fixtures.keys()):
                globals()[f"{name}__{module.removeprefix('test_')}"] = member


collect()


def test_the_whole_contract_is_here() -> None:
    """No module of the contract was lost on the way, and none is empty."""
    suffixes = {name.rpartition("__")[2] for name in globals() if name.startswith("test_") and "__" in name}
    assert suffixes == {module.removeprefix("test_") for module in MODULES}
