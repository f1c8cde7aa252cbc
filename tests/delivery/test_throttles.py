"""Shared throttle deadlines: one for each cluster of the process, for any thread, gone when nobody uses it."""

import gc
from functools import partial

from safeproducer.pipeline.cluster import throttles
from safeproducer.pipeline.cluster.throttles import ThrottleRegistry
from safeproducer.policy.throttle import Throttle
from tests.contract.support import together
from tests.pipeline.interleaving import between, codes_of


def test_producers_of_one_cluster_share_its_deadlines() -> None:
    one, same, other = throttles.of("a:9092"), throttles.of("a:9092"), throttles.of("b:9092")
    one.announce(1, 5.0, now=0.0)
    assert same is one
    assert same.deadline(1, 1.0) == same.deadline(None, 1.0) == 5.0
    assert same.deadlines(1.0) == {1: 5.0}
    assert other.deadline(1, 1.0) is None


def test_a_cluster_that_nobody_uses_goes_away() -> None:
    registry = ThrottleRegistry()
    kept = registry.of("kept")
    registry.of("gone").announce(1, 5.0, now=0.0)
    gc.collect()
    assert [name for name, known in registry._references.items() if known() is not None] == ["kept"]
    assert registry.of("gone").deadline(1, 1.0) is None
    registry.of("third")
    assert "gone" not in registry._references
    assert registry.of("kept") is kept


def test_a_forked_child_starts_without_deadlines() -> None:
    """Its parent's may be locked in the middle of a change."""
    registry = ThrottleRegistry()
    parent = registry.of("a:9092")
    registry.reset()
    assert registry.of("a:9092") is not parent


def test_threads_get_the_same_deadlines_and_lose_none() -> None:
    """Eight threads ask for the cluster and announce; the latest of all stays."""
    registry = ThrottleRegistry()
    keep = []

    def work(thread: int) -> None:
        shared = registry.of("a:9092")
        keep.append(shared)
        for number in range(2_000):
            shared.announce(number % 3, 1.0 + (number * 7 + thread) % 1_000, now=0.0)
            shared.deadline(None, 0.0)

    together(*(partial(work, number) for number in range(8)))
    assert len({id(shared) for shared in keep}) == 1
    assert keep[0].deadlines(0.0) == {0: 1000.0, 1: 1000.0, 2: 1000.0}


def announce_and_stop_at(step: int) -> int:
    """Announce 5 s; in the middle, at a place where the interpreter may switch, 50 s are announced and asked for."""
    shared = ThrottleRegistry().of("a:9092")
    shared.announce(1, 1.0, now=0.0)
    answers: list[object] = []

    def other() -> None:
        shared.announce(1, 50.0, now=0.0)
        shared.announce(2, 3.0, now=0.0)
        answers.extend((shared.deadline(1, 0.0), shared.deadlines(0.0), shared.probes(2, 0.0)))

    with between(codes_of(Throttle.announce), step, other) as tps:
        shared.announce(1, 5.0, now=0.0)
    assert answers in ([], [50.0, {1: 50.0, 2: 3.0}, True])
    assert shared.deadlines(0.0) == ({1: 50.0, 2: 3.0} if answers else {1: 5.0})
    assert shared.probes(None, 60.0) == bool(answers)
    return tps[0]


def test_an_announcement_in_the_middle_of_another_waits_for_nothing_and_is_not_undone() -> None:
    """A signal handler, or another thread: a sender that waited here for an interrupted thread would hang its flush."""
    tps = announce_and_stop_at(-1)
    assert tps > 3
    for step in range(tps):
        announce_and_stop_at(step)
