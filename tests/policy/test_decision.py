"""Records go unless there is a named reason to hold them."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from safeproducer.policy.decision import (
    BATCH,
    CHANGE,
    DIRECT,
    IN_PLACE,
    LONGEST_DEPTH,
    LOOK_AGAIN,
    BatchFacts,
    Hold,
    LaneFacts,
    PartitionFacts,
    decide,
    depth,
    hold,
    path,
)
from safeproducer.policy.hold_reason import HoldReason
from safeproducer.policy.types import NEVER

NOW = 100.0
SOON = NOW + LOOK_AGAIN
FULL = BatchFacts()
RIPE = FULL._replace(full=False, due=NOW - 1)
BEHIND = FULL._replace(on_lane=1, depth=2)

times = st.floats(0, 1000)
batches = st.builds(
    BatchFacts,
    st.integers(0, 5),
    st.just(NEVER) | st.integers(1, 5),
    st.integers(0, 5),
    st.integers(5, 9),
    st.integers(0, 5),
    st.integers(1, LONGEST_DEPTH),
    times | st.just(-NEVER) | st.just(NEVER),
    st.booleans(),
    times,
    st.booleans(),
)


def of_batch(batch: BatchFacts, **more: Any) -> PartitionFacts:
    return PartitionFacts(node=7, batch=batch, **more)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (of_batch(RIPE), BATCH),
        (of_batch(FULL), BATCH),
        (of_batch(RIPE._replace(due=NOW + 0.004)), Hold(NOW + 0.004, HoldReason.LINGER, 7, NOW + 0.004)),
        (of_batch(RIPE, throttled_until=NOW + 2), Hold(NOW + 2, HoldReason.THROTTLED, 7, NOW + 2)),
        (of_batch(RIPE, probing=True), BATCH),
        (of_batch(RIPE._replace(in_flight=1, probe_is_out=True), probing=True), Hold(None, HoldReason.PROBING, 7)),
        (of_batch(RIPE._replace(in_flight=9)), BATCH),
        (of_batch(RIPE._replace(on_lane=1)), Hold(None, HoldReason.IN_FLIGHT, 7)),
        (of_batch(BEHIND), BATCH),
        (of_batch(BEHIND._replace(on_lane=2)), Hold(None, HoldReason.IN_FLIGHT, 7)),
        (of_batch(BEHIND._replace(leaves_by=NEVER)), Hold(None, HoldReason.IN_FLIGHT, 7)),
        (of_batch(BEHIND._replace(leaves_by=NOW + 1)), Hold(NOW + 1, HoldReason.IN_FLIGHT, 7, NOW + 1)),
        (of_batch(BEHIND._replace(leaves_by=NOW)), BATCH),
        (of_batch(BEHIND._replace(full=False)), Hold(None, HoldReason.IN_FLIGHT, 7)),
        (of_batch(RIPE._replace(cap=2, in_flight=2)), Hold(None, HoldReason.MAX_IN_FLIGHT, 7)),
        (of_batch(RIPE._replace(outstanding=5, budget=5)), Hold(None, HoldReason.WINDOW, 7)),
        (of_batch(FULL, unknown=True), Hold(None, HoldReason.OUTDATED_METADATA, 7, SOON)),
        (of_batch(FULL, lane=LaneFacts(busy=True)), Hold(None, HoldReason.LANES_BUSY, 7)),
        (of_batch(FULL, lane=LaneFacts(busy=True, lanes_come=True)), Hold(None, HoldReason.LANES_BUSY, 7, SOON)),
        (PartitionFacts(id_at=NOW + 9, asks_at=NOW + 3), Hold(NOW + 9, HoldReason.PRODUCER_ID_LIMIT, None, NOW + 3)),
        (PartitionFacts(rejected=True), Hold(None, HoldReason.QUOTA_RETRY, None, SOON)),
    ],
)
def test_each_reason(facts: PartitionFacts, expected: object) -> None:
    """Until when, where that is known, and when to look again where nothing tells of its end."""
    assert decide(facts, NOW) == expected


@pytest.mark.parametrize(
    ("lane", "more", "way"),
    [
        (LaneFacts(), {}, DIRECT),
        (LaneFacts(), {"must_batch": True}, BATCH),
        (LaneFacts(), {"probing": True}, CHANGE),
        (LaneFacts(emptied=True), {"throttled_until": NOW + 1}, BATCH),
        (LaneFacts(emptied=True, batch_lane=False), {"throttled_until": NOW + 1}, IN_PLACE),
        (LaneFacts(keeps=True, emptied=True), {"throttled_until": NOW + 1}, DIRECT),
        (LaneFacts(prefers_batches=True), {}, CHANGE),
        (LaneFacts(outdated=True, emptied=True), {}, BATCH),
        (LaneFacts(id_rejected=True, emptied=True), {}, BATCH),
        (LaneFacts(id_rejected=True, emptied=True, batch_lane=False), {}, CHANGE),
        (LaneFacts(gaps=True, emptied=True, batch_lane=False), {}, CHANGE),
    ],
)
def test_each_path(lane: LaneFacts, more: dict[str, Any], way: int) -> None:
    """The direct lane is left only when it has nothing of the partition, and not for a lane that cannot be made."""
    assert path(PartitionFacts(**{"must_batch": False, "lane": lane, **more})) == way


def test_the_end_of_a_throttle_time_is_no_reason_to_leave_a_lane_with_records() -> None:
    """While the partition changes its path the broker's throttle time is told, and then the change."""
    facts = PartitionFacts(must_batch=False, probing=True, throttled_until=NOW + 2)
    assert decide(facts, NOW) == Hold(NOW + 2, HoldReason.THROTTLED, None, SOON)
    assert decide(facts._replace(throttled_until=None), NOW) == Hold(None, HoldReason.LANE_CHANGE, None, SOON)


def test_a_throttle_time_is_blamed_while_it_lasts_and_no_longer() -> None:
    """What lies unread at a broker that throttles makes it no silent one; the hold of a time that is over is none."""
    facts = PartitionFacts(must_batch=False, throttled_until=NOW + 2, lane=LaneFacts(silent=True, keeps=True))
    throttled = decide(facts, NOW)
    assert isinstance(throttled, Hold)
    assert throttled.reason is HoldReason.THROTTLED
    assert [throttled.lasts(None, now) for now in (NOW, NOW + 2)] == [True, False]
    assert not throttled.lasts(1, NOW), "it is that of any broker, and now the leader is known"
    silent = decide(facts._replace(throttled_until=None, probing=True), NOW)
    assert isinstance(silent, Hold)
    assert (silent.reason, silent.lasts(None, NOW + 60)) == (HoldReason.LEADER_SILENT, True)


@given(batches, st.none() | st.floats(0.001, 1000), st.booleans(), times)
def test_batches_that_go_break_no_rule(batch: BatchFacts, throttled: float | None, probing: bool, now: float) -> None:
    """Not to a throttled broker, not beyond the depth, not a partial batch behind another one."""
    if decide(of_batch(batch, throttled_until=throttled, probing=probing), now) == BATCH:
        assert throttled is None
        assert not (probing and batch.probe_is_out)
        assert batch.on_lane == 0 or (batch.on_lane < batch.depth and batch.full and batch.leaves_by <= now)


@given(batches, st.just(0.0) | st.floats(0.001, 100), st.booleans(), times)
@example(BEHIND._replace(leaves_by=0.0), 0.0, False, 0.0)
def test_a_held_partition_is_looked_at_again_later(batch: BatchFacts, left: float, probing: bool, now: float) -> None:
    """A time that is past would be asked for again at once, for ever."""
    throttled = now + left if left else None
    verdict = hold(of_batch(batch, throttled_until=throttled, probing=probing), BATCH, now)
    if verdict is not None:
        assert verdict.sentence(now)
        assert verdict.until is None or verdict.until > now
        assert verdict.again > now


@given(st.floats(0, 100), st.floats(0.01, 10))
def test_a_batch_behind_another_is_younger_than_the_guard(ack_time: float, guard: float) -> None:
    """It waits for those in front of it, and librdkafka spins when it is older."""
    found = depth(ack_time, guard)
    assert 1 <= found <= LONGEST_DEPTH
    assert found == 1 or found * ack_time <= guard / 2 * (1 + 1e-9)


def test_without_an_acknowledgement_nothing_waits_behind_another() -> None:
    """It is not known yet how long it would."""
    assert depth(None, 1.0) == 1
    assert depth(0.0, 1.0) == LONGEST_DEPTH
