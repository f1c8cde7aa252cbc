"""The tests of tests/contract that reach a cluster, collected once more: here the fixture `cluster` is real Kafka."""

from __future__ import annotations

from integration import again

CONTRACT = "tests.contract"
REACHING = {"cluster", "producer", "topic"}
"""Fixtures that lead to the cluster, besides those that modules define themselves; with `make` alone it is nowhere."""

globals().update(again.collect_again(CONTRACT, REACHING))


def test_the_whole_contract_is_here() -> None:
    """No module of the contract was lost on the way, and none is empty."""
    assert again.collected_modules(globals()) == set(again.test_modules(CONTRACT))
