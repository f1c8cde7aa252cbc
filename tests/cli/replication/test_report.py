"""The arithmetic of a plan and of a status, and the findings of a throttle that is left over."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.cli.replication.cluster import Cluster
from safeproducer.cli.replication.report import plan, status
from safeproducer.policy.replication import Facts, Moves, Replicas, Side, ThrottledReplicas, moves

MB = 1e6
BROKERS = frozenset({1, 2, 3})
HERE = Replicas(1, (1, 2), frozenset({1, 2}), BROKERS)
KNOWN = {("a", 0): HERE, ("a", 1): HERE._replace(leader=2), ("b", 0): HERE}
EMPTY = {(topic, side): ThrottledReplicas() for topic in "ab" for side in Side}
SIZES = {(tp, broker): 100_000_000 for tp in KNOWN for broker in (1, 2)}


def cluster(ongoing: Moves | None = None, **more: Any) -> Cluster:
    unset = {(broker, side): None for broker in BROKERS for side in Side}
    return Cluster(Facts(KNOWN, EMPTY, unset, dict.fromkeys(KNOWN, 0.0)), BROKERS, ongoing or {}, SIZES, **more)


def with_facts(**more: Any) -> Cluster:
    one = cluster()
    return replace(one, facts=replace(one.facts, **more))


def wanted(one: Cluster, *partitions: tuple[str, int]) -> Moves:
    """Broker 3 takes the place of broker 2."""
    current = {tp: facts.replicas for tp, facts in one.facts.known.items()}
    return moves(current, {}, dict.fromkeys(partitions, (1, 3)))


def rates(rate: float) -> dict[tuple[int, Side], float]:
    return {(broker, side): rate for broker in BROKERS for side in Side}


def codes(document: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(one.code, one.topic) for one in document["findings"]]


def test_a_plan_has_a_row_for_each_broker_and_side() -> None:
    """200 MB to broker 3, from two leaders, at 10 MB/s: both formulas, and the range of the narrowest side."""
    one = cluster()
    found = plan(one, wanted(one, ("a", 0), ("a", 1)), 10_000_000, None)
    rows = [(row["broker"], row["side"], row["partitions"], row["bytes"], row["free"]) for row in found["sides"]]
    assert rows == [
        (1, "leader", 1, 100e6, 10e6),
        (2, "leader", 1, 100e6, 10e6),
        (3, "follower", 2, 200e6, 10e6),
    ]
    low, high = found["seconds"]
    assert 19 < low < 20 < high < 30
    assert found["kip_73"] == {"move_ratio": 2 / 3, "move_time": pytest.approx(40), "in": 0.0}
    assert [(row["config"], row["value"]) for row in found["lists"]] == [
        ("follower.replication.throttled.replicas", "0:3,1:3"),
        ("leader.replication.throttled.replicas", "0:1,0:2,1:1,1:2"),
    ]
    assert (found["never_ends"], found["findings"]) == (False, [])


def test_a_rate_above_what_the_kip_asks_for_may_never_end() -> None:
    """1.2 MB/s written, T = 2 MB/s: IN < T holds. The leader sends it to the follower in sync, too."""
    one = with_facts(bytes_in={("a", 0): 1.2 * MB})
    found = plan(one, wanted(one, ("a", 0)), 2_000_000, None)
    assert found["kip_73"]["in"] == 1.2 * MB < 2_000_000 < found["ends_above"] == 2.4 * MB
    assert (found["never_ends"], found["seconds"]) == (True, None)
    assert [finding.broker for finding in found["findings"]] == [1]
    assert "Raise it above 2.4 MB/s" in found["findings"][0].cure


def test_what_is_listed_already_takes_room_in_a_plan() -> None:
    """A list of another topic, and one of this topic, stay."""
    lists = {
        **EMPTY,
        ("b", Side.LEADER): ThrottledReplicas(every=True),
        ("a", Side.LEADER): ThrottledReplicas.read("9:9"),
    }
    one = with_facts(bytes_in={("b", 0): 3 * MB}, lists=lists)
    found = plan(one, wanted(one, ("a", 0)), 10_000_000, None)
    assert [row["free"] for row in found["sides"]] == [7 * MB, 10 * MB]
    assert [row["value"] for row in found["lists"]] == ["0:3", "0:1,0:2"]


@given(st.floats(0.5, 1e6), st.dictionaries(st.sampled_from(list(KNOWN)), st.floats(0, 1e9), min_size=1))
def test_the_rate_of_a_time_keeps_it(within: float, bytes_in: dict[tuple[str, int], float]) -> None:
    """And it ends."""
    one = with_facts(bytes_in=bytes_in)
    found = plan(one, wanted(one, ("a", 0), ("b", 0)), None, within)
    assert not found["never_ends"]
    assert found["rate"] > found["ends_above"]
    assert found["seconds"][1] <= max(within, 2.1) * 1.001


def test_without_a_rate_a_plan_tells_the_lowest() -> None:
    """Nothing is limited yet, and a plan of no move needs nothing."""
    one = with_facts(bytes_in={("a", 0): MB}, rates=rates(5.0))
    found = plan(one, wanted(one, ("a", 0)), None, None)
    assert (found["rate"], found["ends_above"], found["seconds"]) == (None, 2 * MB, None)
    assert found["kip_73"]["move_time"] is None
    assert plan(one, {}, None, None)["sides"] == []


def test_bytes_are_those_that_a_replica_lacks() -> None:
    """One that has a part already; SumReplicaLag adds them up by broker."""
    moving = HERE._replace(replicas=(1, 2, 3))
    one = cluster({("a", 0): (frozenset({1, 2}), frozenset({3}))})
    one = replace(one, facts=replace(one.facts, known={**KNOWN, ("a", 0): moving}, rates=rates(MB)))
    lists = {
        **EMPTY,
        ("a", Side.FOLLOWER): ThrottledReplicas.read("0:3"),
        ("a", Side.LEADER): ThrottledReplicas.read("0:1,0:2"),
    }
    one = replace(one, facts=replace(one.facts, lists=lists), sizes={**SIZES, (("a", 0), 3): 40_000_000})
    found = status(one, {})
    assert [(row["partition"], row["destinations"], row["bytes"]) for row in found["moves"]] == [(0, [3], 60_000_000)]
    assert [row["sum_replica_lag"] for row in found["brokers"]] == [0, 0, 60_000_000]
    assert 58 < found["seconds"][0] < 60
    assert codes(found) == []


def test_what_is_left_is_found() -> None:
    """While a move of the topic runs its lists are none of it."""
    one = with_facts(lists={**EMPTY, ("a", Side.LEADER): ThrottledReplicas.read("0:1")}, rates=rates(MB))
    left_over = [("replication-throttle-left-over", "a"), *[("replication-rate-without-list", None)] * 2]
    assert codes(status(one, {})) == left_over
    running = replace(one, moves={("a", 1): (frozenset({1}), frozenset())})
    assert left_over[0] not in codes(status(running, {}))


def test_a_partition_that_was_not_moved_is_found() -> None:
    """In the order of its replicas; a list that cannot be read is one finding."""
    lists = {key: one for key, one in EMPTY.items() if key != ("b", Side.LEADER)}
    one = with_facts(lists=lists, minimum={"a": 1, "b": 1})
    assert codes(status(one, {("a", 0): (1, 2), ("a", 1): (2, 1)})) == [
        ("replication-list-unreadable", "b"),
        ("replication-not-moved", "a"),
    ]
