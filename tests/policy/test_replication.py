"""Replication quotas (KIP-73): lists, room, moves, and the verdict on a partition in each measured situation."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeproducer.policy import replication
from safeproducer.policy.replication import FETCH, Facts, Replicas, Side, ThrottledReplicas
from safeproducer.policy.types import ReplicationState

NOW = 1000.0
TP = ("orders", 0)
BROKERS = frozenset({1, 2, 3})
MB = 1e6


def listed(leaders: str, followers: str, topic: str = "orders") -> dict[tuple[str, Side], ThrottledReplicas]:
    found = {}
    for side, text in zip(Side, (leaders, followers), strict=True):
        entries = ThrottledReplicas.read(text)
        assert entries is not None
        found[topic, side] = entries
    return found


def rates(rate: float | None) -> dict[tuple[int, Side], float | None]:
    return {(broker, side): rate for broker in BROKERS for side in Side}


def facts(one: Replicas, **more: Any) -> Facts:
    return Facts({TP: one}, **{"minimum": {"orders": 1}, "lists": listed("", ""), "rates": rates(None), **more})


def unread(of: Facts) -> Facts:
    return Facts(of.known, bytes_in=of.bytes_in)


CLEAN = Replicas(1, (1, 2), frozenset({1, 2}), BROKERS)
MOVING = Replicas(1, (1, 2, 3), frozenset({1, 2}), BROKERS, added=frozenset({3}))
GONE = Replicas(1, (1, 2), frozenset({1}), BROKERS - {2}, lost={2: NOW - 5})
MOVE = {"lists": listed("0:1,0:2", "0:3"), "rates": rates(MB)}
SITUATIONS = {
    "clean": (facts(CLEAN), "in_sync", False, "all replicas of orders [0] are in sync"),
    "move under a throttle": (facts(MOVING, **MOVE, bytes_in={TP: 0.2 * MB}), "throttled", True,
        "being added at 0.6 MB/s at most: leader.replication.throttled.rate of broker 1 is 1.0 MB/s"),
    "move without a throttle": (facts(MOVING), "catching_up", True, "being added without a throttle"),
    "move that never ends": (facts(MOVING, **MOVE, bytes_in={TP: 3 * MB}), "never_ends", True,
        "never ends: leader.replication.throttled.rate of broker 1 is 1.0 MB/s, "
        "and this producer alone needs 6.0 MB/s"),
    "throttle left over": (facts(CLEAN, lists=listed("*", "*"), rates=rates(MB)), "in_sync", False, "is still set"),
    "at the minimum": (facts(GONE), "broker_down", False,
        "1 of 2 replicas are in sync, min.insync.replicas is 1: "
        "one more failure, and writes with acks=all are refused"),
    "below the minimum": (facts(GONE, minimum={"orders": 2}), "broker_down", False,
        "min.insync.replicas is 2: writes with acks=all are refused (NOT_ENOUGH_REPLICAS)"),
    "a broker is gone": (facts(GONE), "broker_down", False, "broker 2, which has a replica of orders [0], is not in"),
}  # fmt: skip


@pytest.fixture
def policy() -> ModuleType:
    """The module that is tested; another one where a rule is broken."""
    return replication


def as_of(policy: ModuleType, known: Facts) -> Any:
    """The same facts in the classes of that module."""
    lists = {key: policy.ThrottledReplicas(one.entries, one.every) for key, one in known.lists.items()}
    return policy.Facts(known.known, lists, known.rates, known.bytes_in, known.minimum, known.lag_time)


def judge(policy: ModuleType, known: Facts, tp: tuple[str, int], now: float) -> Any:
    return policy.judge(as_of(policy, known), tp, now)


@pytest.mark.parametrize("rights", [True, False])
@pytest.mark.parametrize("name", SITUATIONS)
def test_a_situation_is_told(name: str, rights: bool, policy: ModuleType) -> None:
    """Eight situations, with DESCRIBE_CONFIGS and without: then only what metadata shows is told."""
    known, state, moving, words = SITUATIONS[name]
    found = judge(policy, known if rights else unread(known), TP, NOW)
    shown = state if rights or state in {"in_sync", "broker_down"} else "unreadable"
    assert (found.state.value, found.moving) == (shown, moving)
    assert found.left_over is (rights and "left over" in name)
    if rights:
        assert words in found.sentence
        assert found.spare == {"clean": 1, "below the minimum": -1, "throttle left over": 1}.get(name, int(moving))
    else:
        assert "min.insync.replicas" not in found.sentence
        assert found.spare is None
        assert ("DESCRIBE_CONFIGS" in found.cure) is (shown == "unreadable")


def test_the_room_of_each_side_is_by_all_that_is_listed(policy: ModuleType) -> None:
    """Rate 2 MB/s, 1.2 MB/s written, one follower in sync, one added: 0.8 for the follower, -0.4 for the leader."""
    known = facts(MOVING, **{**MOVE, "rates": rates(2 * MB)}, bytes_in={TP: 1.2 * MB})
    assert as_of(policy, known).room(Side.FOLLOWER, 3, 2 * MB).free == pytest.approx(0.8 * MB)
    assert as_of(policy, known).room(Side.LEADER, 1, 2 * MB).free == pytest.approx(-0.4 * MB)
    assert judge(policy, known, TP, NOW).state.value == "never_ends"


def test_another_listed_partition_takes_room_and_an_unlisted_one_none(policy: ModuleType) -> None:
    """Bytes of a replica in sync count if it is listed."""
    other, apart = ("orders", 1), ("orders", 2)
    known = Facts(
        {TP: MOVING, other: CLEAN._replace(leader=2, replicas=(2, 3), in_sync=frozenset({2, 3})), apart: MOVING},
        listed("0:1,0:2,1:2", "0:3,1:3"),
        rates(2 * MB),
        {TP: 0.5 * MB, other: 0.7 * MB, apart: 9 * MB},
    )
    assert as_of(policy, known).room(Side.FOLLOWER, 3, 2 * MB).free == pytest.approx(0.8 * MB)
    assert as_of(policy, known).room(Side.LEADER, 1, 2 * MB).free == pytest.approx(1.0 * MB)


def test_a_dead_follower_takes_nothing(policy: ModuleType) -> None:
    one = Replicas(1, (1, 2, 3), frozenset({1}), BROKERS - {2}, lost={2: 0.0, 3: 0.0})
    known = Facts({TP: one}, listed("*", "*"), rates(2 * MB), {TP: 0.5 * MB})
    assert as_of(policy, known).room(Side.LEADER, 1, 2 * MB).free == pytest.approx(1.5 * MB)


def test_rate_zero_lets_one_fetch_through_in_each_window(policy: ModuleType) -> None:
    """Kafka 4.4.0 moved 1 MB each 11 s. More than that is written: then it never ends."""
    known = facts(MOVING, **{**MOVE, "rates": rates(0)})
    assert judge(policy, known, TP, NOW).state.value == "throttled"
    assert as_of(policy, known).room(Side.FOLLOWER, 3, 0).free == pytest.approx(FETCH / 11)
    assert judge(policy, replace(known, bytes_in={TP: 100e3}), TP, NOW).state.value == "never_ends"


BACK = Replicas(1, (1, 2), frozenset({1}), BROKERS, lost={2: NOW - 10})


def test_a_throttle_delays_acknowledgements_by_a_listed_follower_that_came_back(policy: ModuleType) -> None:
    """For replica.lag.time.max.ms after it was in sync; a replica that is being added delays none."""
    left = facts(BACK, lists=listed("*", "*"), rates=rates(MB), bytes_in={TP: 3 * MB})
    found = judge(policy, left, TP, NOW)
    assert (found.state.value, found.moving, found.left_over) == ("never_ends", False, True)
    assert found.delays_until == NOW + 20
    assert "acknowledgements may wait for it for 20 s" in found.sentence
    assert "If no move runs, remove" in found.cure
    assert judge(policy, left, TP, NOW + 20).delays_until is None
    assert judge(policy, replace(left, rates=rates(None)), TP, NOW).delays_until is None
    assert judge(policy, replace(left, lists=listed("1:1", "1:2")), TP, NOW).delays_until is None
    assert judge(policy, facts(MOVING, **MOVE), TP, NOW).delays_until is None
    below = judge(policy, facts(MOVING, **MOVE), TP, NOW)
    assert "acknowledgements" not in below.sentence


def test_a_complete_set_is_healthy_even_at_the_minimum(policy: ModuleType) -> None:
    """Kafka asks for no more than all replicas, so one copy of a topic with a minimum of two takes writes."""
    assert judge(policy, facts(CLEAN, minimum={"orders": 2}), TP, NOW).sentence == SITUATIONS["clean"][3]
    alone = Replicas(1, (1,), frozenset({1}), BROKERS)
    assert judge(policy, facts(alone, minimum={"orders": 2}), TP, NOW).spare == 0


@pytest.mark.parametrize(
    ("leaders", "followers", "moving"),
    [("0:1,0:2", "0:3", True), ("0:1,0:3", "0:3", None), ("*", "*", None), ("*", "0:3", None), ("", "", None)],
)
def test_a_replica_is_being_added_if_the_follower_list_alone_has_it(
    leaders: str, followers: str, moving: bool | None, policy: ModuleType
) -> None:
    """Without an earlier answer; else that decides."""
    one = MOVING._replace(added=frozenset())
    known = facts(one, lists=listed(leaders, followers), rates=rates(MB))
    assert judge(policy, known, TP, NOW).moving is moving
    lost = replace(known, known={TP: one._replace(lost={3: 0.0})})
    assert judge(policy, lost, TP, NOW).moving is False


@pytest.mark.parametrize(
    ("lists", "speeds", "state"),
    [
        (listed("", ""), {}, "catching_up"),
        (listed("*", "*"), {}, "unreadable"),
        ({}, rates(None), "catching_up"),
        ({}, rates(MB), "unreadable"),
        (listed("", "0:3"), {(1, Side.LEADER): MB}, "unreadable"),
        (listed("0:1", "0:3"), {(1, Side.LEADER): MB}, "throttled"),
    ],
)
def test_half_of_the_rights_may_suffice(lists: Any, speeds: Any, state: str, policy: ModuleType) -> None:
    """No list or no rate is enough to know that nothing is limited."""
    assert judge(policy, facts(MOVING, lists=lists, rates=speeds), TP, NOW).state.value == state


def test_the_replica_with_the_least_room_is_named(policy: ModuleType) -> None:
    """Of several; a living one before one that is down."""
    one = Replicas(1, (1, 2, 3, 4), frozenset({1}), BROKERS)
    known = facts(one, lists=listed("", "0:2,0:3"), rates={**rates(MB), (3, Side.FOLLOWER): 0.5 * MB})
    found = judge(policy, known, TP, NOW)
    assert (found.broker, found.room.broker, found.room.side) == (3, 3, Side.FOLLOWER)


# --- lists ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", set()),
        ("0:1", {(0, 1)}),
        ("0:1,0:2,7:11", {(0, 1), (0, 2), (7, 11)}),
        ("0:1,", {(0, 1)}),
        ("0:1,,1:1", {(0, 1), (1, 1)}),
        ("00:1,0:1", {(0, 1)}),
    ],
)
def test_a_list_is_read(text: str, entries: set[tuple[int, int]], policy: ModuleType) -> None:
    """Kafka 4.4.0 takes empty entries, too."""
    assert policy.ThrottledReplicas.read(text).entries == entries
    assert policy.ThrottledReplicas.read("*").every


@pytest.mark.parametrize(
    "text", ["0-1", "0:1,*", "*,", " 0:1", "0:1 ,1:1", "0:-1", "0:1:2", "\u0660:1", "9" * 5000 + ":1"]
)
def test_a_list_that_cannot_be_read_is_no_list(text: str) -> None:
    """KIP-73 writes hyphens, which Kafka refuses."""
    assert ThrottledReplicas.read(text) is None


def test_an_entry_is_taken_away_in_each_form_that_the_list_has() -> None:
    """Kafka 4.4.0 compares texts, and takes one away for each."""
    found = ThrottledReplicas.read("00:1,1:1,0:1,,0:1")
    assert found is not None
    assert found.written({(0, 1)}) == "00:1,0:1,0:1"


@given(st.text(st.sampled_from("0123456789:,*- \u0663") | st.characters()))
def test_no_list_raises(text: str) -> None:
    """One that is read comes back as it is written."""
    found = ThrottledReplicas.read(text)
    assert found is None or ThrottledReplicas.read(str(found)) == found


@given(st.frozensets(st.tuples(st.integers(0, 30), st.integers(0, 30))))
def test_a_list_is_written_sorted_as_text(entries: frozenset[tuple[int, int]]) -> None:
    """10:1 stands before 2:1, as Kafka's tool writes it."""
    written = str(ThrottledReplicas(entries))
    assert ThrottledReplicas.read(written) == ThrottledReplicas(entries)
    assert written.split(",") == sorted(written.split(","))


# --- moves ------------------------------------------------------------------------------------------------------------


def test_lists_of_moves_are_those_of_kafkas_tool(policy: ModuleType) -> None:
    """A move that runs keeps its sources; a destination that is a source already is no follower."""
    current = {("a", 10): (1, 2), ("a", 2): (1, 2, 3), ("b", 0): (2,)}
    found = policy.moves(current, {("a", 2): (3,)}, {("a", 10): (2, 3), ("a", 2): (4,), ("b", 0): (2,)})
    lists = {(topic, side.value): str(one) for (topic, side), one in policy.throttled(found).items()}
    assert lists == {
        ("a", "leader"): "10:1,10:2,2:1,2:2",
        ("a", "follower"): "10:3,2:4",
        ("b", "leader"): "0:2",
        ("b", "follower"): "",
    }
    assert policy.moves(current, {("a", 2): (3,)}, {}) == {("a", 2): (frozenset({1, 2}), frozenset({3}))}


def test_formulas_of_the_kip() -> None:
    """Its own example: 5 brokers, 10 MB, 1 MB/s, a network of 1 Gb/s: 10 s."""
    assert replication.first_answers(5, 10 * MB, MB, 125 * MB) == 10
    assert replication.first_answers(500, 2 * MB, MB, 100 * MB) == 10
    assert replication.move_time(20, 100, 500 * MB, 4, 12 * MB, 2 * MB) == pytest.approx(40)
    assert replication.move_time(20, 100, 500 * MB, 4, 2 * MB, 2 * MB) is None


@pytest.mark.parametrize(
    ("size", "free", "partitions", "measured"),
    [
        (24 * MB, 2 * MB, 12, 12.8),
        (24 * MB, 2 * MB, 4, 13.9),
        (25 * MB, 2 * MB, 1, 16.7),
        (40 * MB, 1.4 * MB, 1, 37.4),
        (25 * MB, 1.4 * MB, 1, 22.9),
    ],
)
def test_an_estimate_holds_for_measured_moves(size: float, free: float, partitions: int, measured: float) -> None:
    """On Kafka 4.3.1; the last two with 0.3 MB/s written and one follower in sync."""
    found = replication.estimate(size, free, partitions)
    assert found is not None
    assert found[0] <= measured <= found[1]


@given(st.floats(0, 1e13), st.floats(1, 1e10), st.integers(0, 10_000))
def test_an_estimate_is_a_range_that_shrinks_with_more_room(size: float, free: float, partitions: int) -> None:
    """None only without room."""
    low, high = replication.estimate(size, free, partitions) or (1.0, 0.0)
    more = replication.estimate(size, 2 * free, partitions)
    assert 0 <= low <= high
    assert more is not None
    assert more[0] <= low
    assert more[1] <= high
    assert replication.estimate(size, -free, partitions) is None


# --- what holds for all facts -----------------------------------------------------------------------------------------


@st.composite
def any_facts(draw: st.DrawFn) -> Facts:
    numbers = st.integers(1, 5)
    known = {}
    for tp in [*draw(st.lists(st.sampled_from([("orders", 1), ("other", 0)]), unique=True)), TP]:
        replicas = draw(st.lists(numbers, unique=True, min_size=1, max_size=4))
        some = st.frozensets(st.sampled_from(replicas))
        lost = dict.fromkeys(draw(some), draw(st.floats(NOW - 60, NOW)))
        leader = draw(st.none() | st.sampled_from(replicas))
        known[tp] = Replicas(leader, replicas, draw(some), draw(st.frozensets(numbers)), draw(some), lost)
    text = st.sampled_from(["", "*", "0:1,0:2", "0:3,1:3", "bad"])
    lists = {(topic, side): ThrottledReplicas.read(draw(text)) for topic in ("orders", "other") for side in Side}
    return Facts(
        known,
        {key: one for key, one in lists.items() if one is not None},
        draw(st.dictionaries(st.tuples(numbers, st.sampled_from(Side)), st.none() | st.floats(0, 1e9))),
        {tp: draw(st.floats(0, 1e9)) for tp in known},
        draw(st.dictionaries(st.just("orders"), numbers)),
    )


@given(any_facts())
def test_each_verdict_follows_from_its_facts(known: Facts) -> None:
    """A throttle is named only with a rate that was read, "never" only with too many bytes, and a cure wherever due."""
    one, found = known.known[TP], replication.judge(known, TP, NOW)
    assert (found.state is ReplicationState.IN_SYNC) is (set(one.replicas) <= one.in_sync)
    assert (found.room is not None) is (found.state in {ReplicationState.THROTTLED, ReplicationState.NEVER_ENDS})
    if found.room is not None:
        assert known.rates[found.room.broker, found.room.side] == found.room.rate
        assert known.limited(found.room.side, TP, found.room.broker)
        assert (found.state is ReplicationState.NEVER_ENDS) is (found.room.free <= 0)
        assert found.room.rate <= found.room.needed or found.room.free > 0
    if found.delays_until is not None:
        assert NOW < found.delays_until <= NOW + known.lag_time
        assert found.broker in one.alive
        assert found.broker in one.lost
    if found.left_over:
        assert any(known.rates.values()) or 0.0 in known.rates.values()
    assert found.broker not in one.in_sync
    assert bool(found.cure) is (
        found.left_over or found.state not in {ReplicationState.IN_SYNC, ReplicationState.CATCHING_UP}
    )


@given(any_facts(), st.floats(1, 1e9))
def test_more_bytes_never_make_more_room(known: Facts, more: float) -> None:
    """And a higher rate never makes less."""
    greater = replace(known, bytes_in={tp: bytes_in + more for tp, bytes_in in known.bytes_in.items()})
    for side in Side:
        for broker in range(1, 6):
            room = known.room(side, broker, MB)
            assert greater.room(side, broker, MB).free <= room.free <= known.room(side, broker, MB + more).free


# --- each rule broken once --------------------------------------------------------------------------------------------


def situation(name: str, rights: bool) -> Callable[..., None]:
    return lambda policy: test_a_situation_is_told(name, rights, policy)


ROOM = test_the_room_of_each_side_is_by_all_that_is_listed
DELAYS = test_a_throttle_delays_acknowledgements_by_a_listed_follower_that_came_back
LISTED = test_another_listed_partition_takes_room_and_an_unlisted_one_none
ZERO = test_rate_zero_lets_one_fetch_through_in_each_window
COMPLETE = test_a_complete_set_is_healthy_even_at_the_minimum
DEAD = test_a_dead_follower_takes_nothing
MOVES = test_lists_of_moves_are_those_of_kafkas_tool
BREACHES: dict[str, tuple[str, str, Callable[..., None]]] = {
    "1: bytes in sync do not count": ("* len(copies)", "* len(copies - one.in_sync)", ROOM),
    "1: an unlisted replica is limited": ("(found is not None and not found.has(tp[1], broker))", "False", DELAYS),
    "1: one side alone is looked at": ("return 0, min(rooms).free, min(rooms)", "return 0, rooms[0].free, rooms[0]",
        ROOM),
    "2: acknowledgements wait for ever": ("now < until", "until > 0", DELAYS),
    "2: acknowledgements wait for one that was never in sync": ("one.lost.get(broker, -inf)",
        "one.lost.get(broker, now)", DELAYS),
    "3: KIP-73's IN < T": ("others if broker == one.leader else", "{broker} if broker == one.leader else", ROOM),
    "3: unlisted bytes count": ("found is not None and found.has(tp[1], broker) and (broker",
        "found is not None and (broker", LISTED),
    "3: dead followers count": ("& one.alive -", "-", DEAD),
    "3: at no room it ends": ("room.free > 0", "room.free > -1e9", ROOM),
    "3: nothing passes at rate zero": ("max(rate, min(behind * FETCH, ANSWER) / WINDOW)", "rate", ZERO),
    "4: a minimum above the replicas": ("min(minimum, len(one.replicas))", "minimum", COMPLETE),
    "4: at the minimum it says nothing": ("spare <= 0", "spare < 0", situation("at the minimum", True)),
    "5: an earlier answer does not count": ("True if broker in one.added else", "",
        situation("move without a throttle", True)),
    "5: the leader list does not count": ("and not leaders.has(partition, broker)", "",
        lambda policy: test_a_replica_is_being_added_if_the_follower_list_alone_has_it("0:1,0:3", "0:3", None, policy)),
    "6: empty entries are refused": ('for entry in text.split(",") if entry)', 'for entry in text.split(","))',
        lambda policy: test_a_list_is_read("0:1,", {(0, 1)}, policy)),
    "6: `*` is a list without entries": ("self.every or (partition", "(partition",
        situation("throttle left over", True)),
    "6: an unread rate is none": ("get((broker, side), 0) is None", "get((broker, side)) is None",
        situation("move under a throttle", False)),
    "moves: a running move loses its sources": ("found[tp][0] if tp in found else frozenset(current[tp])",
        "frozenset(current[tp])", MOVES),
    "moves: a source is a destination": ("frozenset(wanted) - sources", "frozenset(wanted)", MOVES),
}  # fmt: skip


@pytest.mark.parametrize("rule", BREACHES)
def test_a_broken_rule_is_noticed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module is loaded once more with one line changed, and the test of that rule must fail."""
    whole, broken, test = BREACHES[rule]
    source = Path(replication.__file__).read_text()
    assert whole in source
    policy = ModuleType("broken")
    monkeypatch.setitem(sys.modules, "broken", policy)  # dataclasses look their module up
    exec(compile(source.replace(whole, broken), "broken", "exec"), policy.__dict__)  # noqa: S102
    with pytest.raises((AssertionError, ValueError)):
        test(policy=policy)
