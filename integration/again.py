"""Tests of one folder, collected once more in another, where fixtures of the same names lead to another cluster."""

import inspect
import sys
from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def rewrite_asserts(package: str) -> None:
    """Let pytest explain the asserts of a package's modules; to be called before any of them is imported."""
    modules = (f"{package}.{path.stem}" for path in folder(package).glob("*.py"))
    pytest.register_assert_rewrite(*(module for module in modules if module not in sys.modules))


def folder(package: str) -> Path:
    """Where a package lies in the repository."""
    return ROOT.joinpath(*package.split("."))


def test_modules(package: str) -> list[str]:
    """The names of a package's test modules, sorted."""
    return sorted(path.stem for path in folder(package).glob("test_*.py"))


def collect_again(package: str, reaching: Collection[str] | None = None) -> dict[str, object]:
    """The tests and fixtures of a package's test modules by name; tests get their module's name as suffix.

    With `reaching`, only tests that ask for one of these fixtures, or for one of their module that asks for it.
    """
    found: dict[str, object] = {}
    for module in test_modules(package):
        members = vars(import_module(f"{package}.{module}"))
        fixtures = {name: member for name, member in members.items() if _is_fixture(member)}
        assert not fixtures.keys() & found.keys(), f"two modules of {package} have a fixture of one name"
        found |= fixtures
        wanted = None if reaching is None else _with_those_that_ask(fixtures, reaching)
        tests = {n: one for n, one in members.items() if n.startswith("test_") and inspect.isfunction(one)}
        for name, test in tests.items():
            if wanted is None or inspect.signature(test).parameters.keys() & wanted:
                found[f"{name}__{module.removeprefix('test_')}"] = test
    return found


def collected_modules(names: Collection[str]) -> set[str]:
    """The test modules from which at least one of these collected tests comes."""
    return {f"test_{name.rpartition('__')[2]}" for name in names if name.startswith("test_") and "__" in name}


def _with_those_that_ask(fixtures: Mapping[str, object], reaching: Collection[str]) -> set[str]:
    """These fixtures, and those of a module that lead to them."""
    asked = {name: inspect.signature(fixture).parameters.keys() for name, fixture in fixtures.items()}  # type: ignore[arg-type]
    found = set(reaching)
    while more := {name for name, names in asked.items() if names & found} - found:
        found |= more
    return found


def _is_fixture(member: object) -> bool:
    """Whether pytest made this from a function decorated as fixture."""
    return type(member).__name__ == "FixtureFunctionDefinition"
