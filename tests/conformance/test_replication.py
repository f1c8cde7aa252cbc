"""Replication quotas (KIP-73) and moves of replicas: configs, errors, and what three APIs tell."""

from typing import Any

import pytest

from tests.conformance.target import Target, part, produce, until
from tests.conformance.test_configs import (
    APPEND,
    BROKER,
    DEFAULT,
    DELETE,
    INVALID_CONFIG,
    INVALID_REQUEST,
    LIST,
    LONG,
    OF_BROKER,
    SET,
    SUBTRACT,
    TOPIC,
    UNKNOWN,
    alter,
    describe,
    synonyms,
    value,
)
from tests.testing.raw import RawClient, make_batch

LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
INVALID_FACTOR, INVALID_ASSIGNMENT, NO_MOVE = 38, 39, 85
MEGABYTE = 1_000_000


@pytest.mark.parametrize("key", LISTS)
@pytest.mark.parametrize(
    ("replicas", "error"),
    [
        *((text, 0) for text in ("0:1", "0:1,1:1", "0:9,7:1", "*", "", "0:1,", "0:1,,1:1")),
        *((text, INVALID_CONFIG) for text in ("*,0:1", "0:1,*", "**", "0-1", "0", "0:", "0:1:2", "0:-1", "a:b")),
        *((text, INVALID_CONFIG) for text in ("0:1;1:1", "none")),
    ],
)
def test_lists_of_replicas(client: RawClient, untouched: str, key: str, replicas: str, error: int) -> None:
    """Pairs of partition and broker, whether there are such or not, or everything."""
    assert alter(client, TOPIC, untouched, (key, SET, replicas), validate=True) == error


@pytest.mark.parametrize("key", RATES)
@pytest.mark.parametrize(
    ("rate", "error"),
    [
        *((text, 0) for text in ("0", "1000000", str(2**63 - 1))),
        *((text, INVALID_REQUEST) for text in ("-1", "1e6", "1.5", "", "fast", str(2**63))),
    ],
)
def test_rates(client: RawClient, key: str, rate: str, error: int) -> None:
    """Whole bytes per second, 0 included."""
    assert alter(client, BROKER, "1", (key, SET, rate), validate=True) == error


def test_lists_grow_and_shrink(cluster: Target, client: RawClient) -> None:
    """Entries are appended and taken away; everything takes no more entries."""
    name, (key, other) = cluster.topic(), LISTS

    def becomes(replicas: str) -> None:
        until(lambda: value(client, TOPIC, name, key)[0] == replicas, replicas)

    assert (value(client, TOPIC, name, key), value(client, TOPIC, name, other)) == (("", DEFAULT),) * 2
    assert alter(client, TOPIC, name, (key, APPEND, "0:1,1:1")) == 0
    becomes("0:1,1:1")
    assert alter(client, TOPIC, name, (key, APPEND, "1:1,2:1")) == 0
    becomes("0:1,1:1,2:1")
    assert alter(client, TOPIC, name, (key, SUBTRACT, "1:1,7:7")) == 0
    becomes("0:1,2:1")
    assert alter(client, TOPIC, name, (key, SET, "*")) == 0
    becomes("*")
    assert alter(client, TOPIC, name, (key, APPEND, "0:1")) == INVALID_CONFIG
    entry = describe(client, TOPIC, name, [key])[1][key]
    assert (entry["config_type"], synonyms(entry)) == (LIST, [(key, "*", 1)])
    assert alter(client, TOPIC, name, (key, DELETE, None)) == 0
    becomes("")
    assert synonyms(describe(client, TOPIC, name, [key])[1][key]) == []


def test_a_rate_is_listed_while_it_is_set(client: RawClient) -> None:
    """A broker that limits nothing does not name the config."""
    assert not {*RATES} & describe(client, BROKER, "1")[1].keys()
    try:
        assert alter(client, BROKER, "1", (RATES[0], SET, "1000")) == 0
        until(lambda: RATES[0] in describe(client, BROKER, "1")[1], "it is listed")
        entry = describe(client, BROKER, "1")[1][RATES[0]]
        assert (entry["value"], entry["config_source"], entry["config_type"]) == ("1000", OF_BROKER, LONG)
        assert (entry["read_only"], entry["is_sensitive"]) == (False, False)
        assert synonyms(entry) == [(RATES[0], "1000", OF_BROKER)]
    finally:
        assert alter(client, BROKER, "1", (RATES[0], DELETE, None)) == 0
    until(lambda: RATES[0] not in describe(client, BROKER, "1")[1], "it is gone")


# --- moves -----------------------------------------------------------------------------------------------------------


def reassign(client: RawClient, topic: str, replicas: list[int] | None, partition: int = 0, **more: Any) -> int:
    wanted = [{"name": topic, "partitions": [{"partition_index": partition, "replicas": replicas}]}]
    answer = client.ask("AlterPartitionReassignments", 1, timeout_ms=10_000, topics=wanted, **more)
    assert answer["error_code"] == 0
    (found,) = answer["responses"]
    assert (found["name"], found["partitions"][0]["partition_index"]) == (topic, partition)
    error = found["partitions"][0]["error_code"]
    assert isinstance(error, int)
    return error


def moves(client: RawClient, topics: dict[str, list[int]] | None = None) -> dict[str, list[dict[str, Any]]]:
    wanted = None if topics is None else [{"name": name, "partition_indexes": ids} for name, ids in topics.items()]
    answer = client.ask("ListPartitionReassignments", 0, timeout_ms=10_000, topics=wanted)
    assert answer["error_code"] == 0
    return {topic["name"]: topic["partitions"] for topic in answer["topics"]}


def replicas_of(client: RawClient, topic: str) -> tuple[list[int], list[int]]:
    """Replicas, and those in sync, sorted."""
    (found,) = client.ask("Metadata", 12, topics=[{"name": topic}])["topics"]
    return found["partitions"][0]["replica_nodes"], sorted(found["partitions"][0]["isr_nodes"])


@pytest.mark.parametrize(
    ("topic", "partition", "replicas", "error"),
    [
        ("nobody-made-it", 0, [1], UNKNOWN),
        ("t", 7, [1], UNKNOWN),
        ("t", -1, [1], UNKNOWN),
        ("t", 0, [], INVALID_ASSIGNMENT),
        ("t", 0, [1, 1], INVALID_ASSIGNMENT),
        ("t", 0, [1, 9], INVALID_ASSIGNMENT),
        ("t", 0, [-1], INVALID_ASSIGNMENT),
        ("t", 0, None, NO_MOVE),
        ("nobody-made-it", 0, None, UNKNOWN),
        ("t", 0, [1], 0),
    ],
)
def test_moves_that_are_refused(
    client: RawClient, untouched: str, topic: str, partition: int, replicas: list[int] | None, error: int
) -> None:
    name = untouched if topic == "t" else topic
    assert reassign(client, name, replicas, partition) == error
    assert moves(client, {name: [0, 1]}) == {}


def test_a_refused_move_leaves_the_others_alone(cluster3: Target) -> None:
    """One answer for each partition, in the order of the request."""
    name = cluster3.topic(2, 1)
    with cluster3.connect() as client:
        partitions = [{"partition_index": 1, "replicas": [9]}, {"partition_index": 0, "replicas": [1, 2, 3]}]
        answer = client.ask("AlterPartitionReassignments", 0, topics=[{"name": name, "partitions": partitions}])
        (found,) = answer["responses"]
        assert [(one["partition_index"], one["error_code"]) for one in found["partitions"]] == [
            (1, INVALID_ASSIGNMENT),
            (0, 0),
        ]
        assert found["partitions"][0]["error_message"]
        until(lambda: replicas_of(client, name) == ([1, 2, 3], [1, 2, 3]), "it has three replicas")


def test_a_move_may_not_change_the_number_of_replicas_if_told_so(cluster3: Target) -> None:
    """KIP-860; other orders and other brokers are no change."""
    name = cluster3.topic(1, 2)
    with cluster3.connect() as client:
        first, second = replicas_of(client, name)[0]
        (third,) = {1, 2, 3} - {first, second}
        same = {"allow_replication_factor_change": False}
        assert reassign(client, name, [first], **same) == INVALID_FACTOR
        assert reassign(client, name, [first, second, third], **same) == INVALID_FACTOR
        assert reassign(client, name, [second, first], **same) == 0
        until(lambda: replicas_of(client, name)[0] == [second, first], "the order is the new one")
        assert reassign(client, name, [third, first], **same) == 0
        until(lambda: replicas_of(client, name) == ([third, first], sorted([third, first])), "it has moved")


def test_a_move_takes_the_leader_along(cluster3: Target) -> None:
    """The first of the new replicas leads, at a later epoch, and has what was written, sequences included."""
    name = cluster3.topic(1, 1)
    old, epoch = cluster3.leader(name)
    new = old % 3 + 1
    first, second = (make_batch([b"a"], producer_id=7, epoch=0, sequence=sequence) for sequence in (0, 1))
    with cluster3.connect(old) as client:
        assert part(produce(client, 9, name, first))["error_code"] == 0
        assert reassign(client, name, [new]) == 0
        until(lambda: cluster3.leader(name)[0] == new, "the new replica leads")
        assert cluster3.leader(name)[1] > epoch
        until(lambda: replicas_of(client, name) == ([new], [new]), "the old replica is gone")
    assert cluster3.wait_for_leader(name) == new
    with cluster3.connect(new) as client:
        assert [part(produce(client, 9, name, sent))["base_offset"] for sent in (first, second)] == [0, 1]


def sizes(client: RawClient, topic: str, partitions: list[int], version: int = 4) -> dict[int, int]:
    """Partition -> the bytes of the replica of the broker that is asked."""
    answer = client.ask("DescribeLogDirs", version, topics=[{"topic": topic, "partitions": partitions}])
    (directory,) = answer["results"]
    assert (answer.get("error_code", 0), directory["error_code"]) == (0, 0)
    assert directory["log_dir"].startswith("/")
    assert version < 4 or directory["total_bytes"] >= directory["usable_bytes"] > 0
    found = [one for entry in directory["topics"] if entry["name"] == topic for one in entry["partitions"]]
    assert {(one["offset_lag"], one["is_future_key"]) for one in found} <= {(0, False)}
    return {one["partition_index"]: one["partition_size"] for one in found}


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_sizes_of_replicas(cluster: Target, client: RawClient, version: int) -> None:
    """The bytes of the batches as they came; what is not there is left out."""
    name, batch = cluster.topic(2), make_batch([b"a" * 1000])
    for _ in range(2):
        assert part(produce(client, 9, name, batch))["error_code"] == 0
    assert sizes(client, name, [0, 1, 7], version) == {0: 2 * len(batch), 1: 0}
    assert sizes(client, name, [1], version) == {1: 0}
    assert sizes(client, "nobody-made-it", [0], version) == {}


def test_a_move_that_is_held_back(cluster3: Target) -> None:
    """At rate 0 at most a fetch passes: the move is listed until it is ended, or its rates are removed."""
    name = cluster3.topic(1, 1)
    old, _ = cluster3.leader(name)
    new = old % 3 + 1
    with cluster3.connect(old) as leader, cluster3.connect(new) as follower:
        for _ in range(8):
            assert part(produce(leader, 9, name, make_batch([b"a" * MEGABYTE])))["error_code"] == 0
        whole = sizes(leader, name, [0])[0]
        try:
            for client, broker, rate, replicas in (
                (leader, old, RATES[0], LISTS[0]),
                (follower, new, RATES[1], LISTS[1]),
            ):
                assert alter(client, BROKER, str(broker), (rate, SET, "0")) == 0
                assert alter(client, TOPIC, name, (replicas, SET, f"0:{broker}")) == 0
                until(lambda c=client, b=broker, r=rate: r in describe(c, BROKER, str(b))[1], "the rate is known")
                expected = f"0:{broker}"
                until(
                    lambda c=client, k=replicas, e=expected: value(c, TOPIC, name, k)[0] == e, "the replica is listed"
                )
            assert reassign(leader, name, [new]) == 0
            assert moves(leader, {name: [0]}) == {
                name: [
                    {"partition_index": 0, "replicas": [new, old], "adding_replicas": [new], "removing_replicas": [old]}
                ]
            }
            assert name in moves(leader)
            assert moves(leader, {name: [1], "nobody-made-it": [0]}) == {}
            assert replicas_of(leader, name) == ([new, old], [old])
            assert sizes(follower, name, [0]).get(0, 0) < whole == sizes(leader, name, [0])[0]
            assert reassign(leader, name, None) == 0
            until(lambda: replicas_of(leader, name) == ([old], [old]), "it is as before")
            assert reassign(leader, name, None) == NO_MOVE
            assert reassign(leader, name, [new]) == 0
            assert name in moves(leader)
        finally:
            for client, broker, rate in ((leader, old, RATES[0]), (follower, new, RATES[1])):
                assert alter(client, BROKER, str(broker), (rate, DELETE, None)) == 0
        until(lambda: moves(leader, {name: [0]}) == {}, "the move is over", 30)
        until(lambda: sizes(follower, name, [0]) == {0: whole}, "all is there")
