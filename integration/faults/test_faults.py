"""Under faults nothing is lost, duplicated or reordered, what is reported is true, and the producer stays calm.

A run without options runs the short scenarios; `scripts/faults` runs all.
"""

from collections.abc import Iterator

import pytest

from integration.faults.disk import NoDiskError
from integration.faults.ground import Ground
from integration.faults.plugin import FIGURES
from integration.faults.scenarios import SCENARIOS, play

pytestmark = pytest.mark.timeout(180)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The scenarios that the options ask for."""
    if "name" not in metafunc.fixturenames:
        return
    wanted = str(metafunc.config.getoption("--faults"))
    short = [name for name, scenario in SCENARIOS.items() if scenario.short]
    names = {"short": short, "all": list(SCENARIOS)}.get(wanted, wanted.split(","))
    if unknown := set(names) - set(SCENARIOS):
        raise pytest.UsageError(f"--faults: no scenario {sorted(unknown)}; there are {', '.join(SCENARIOS)}")
    metafunc.parametrize("name", names)
    metafunc.parametrize("seed", [int(seed) for seed in str(metafunc.config.getoption("--fault-seeds")).split(",")])


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with Ground() as ground:
        yield ground


def test_fault(ground: Ground, name: str, seed: int, pytestconfig: pytest.Config) -> None:
    """No promise is broken and no bar missed, whatever the fault."""
    try:
        figures = play(SCENARIOS[name], ground, seed, str(pytestconfig.getoption("--fault-producer")))
    except NoDiskError as reason:
        pytest.skip(str(reason))
    print(figures)
    pytestconfig.stash[FIGURES].append(figures)
    assert list(figures.missed) == [], figures.verdict.examples
