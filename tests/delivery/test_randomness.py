"""An application that seeds `random` sees its own numbers."""

import os
import random
from collections.abc import Callable, Iterator

import pytest

from safeproducer.pipeline.cluster import asker
from safeproducer.pipeline.cluster.cluster_view import Partitions
from safeproducer.policy.cluster_metadata import PartitionMetadata
from safeproducer.runtime import randomness
from tests.producer_ids import test_gate


def waits_for_a_permit() -> None:
    told = test_gate.Told()
    gate = test_gate.gate_for(test_gate.ScriptedGuard(test_gate.FORBIDDEN), told, policy="delay")
    gate.enter()
    assert gate.hold


def asks_a_broker_again() -> None:
    pauses = {asker._after_failure(None)[1] for _ in range(100)}
    assert len(pauses) > 50, "never together"
    assert all(0.375 <= pause <= 0.5 for pause in pauses)


def chooses_a_partition() -> None:
    partitions = Partitions("consistent_random", 0.0)
    partitions.update("t", dict.fromkeys(range(10), PartitionMetadata(1, 0)), 1.0)
    assert len({partitions.choose("t", None, float(now)) for now in range(100)}) > 5


@pytest.mark.parametrize("act", [waits_for_a_permit, asks_a_broker_again, chooses_a_partition])
def test_no_module_takes_random_numbers_of_the_application(act: Callable[[], None]) -> None:
    random.seed(1)
    before = random.getstate()
    act()
    assert random.getstate() == before


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_children_of_a_fork_throw_dice_of_their_own(pipe: tuple[int, int]) -> None:
    """Or workers of a pre-fork server, refused together, would ask again together for ever."""
    for _ in range(2):
        child = os.fork()
        if child == 0:
            os.write(pipe[1], f"{randomness.share()}\n".encode())
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    first, second = os.read(pipe[0], 1000).split()
    assert first != second
