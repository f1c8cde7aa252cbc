"""Records of a topic that no broker has told of yet, with a partition and without: they keep their order."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import pytest
from confluent_kafka import KafkaException

from safeproducer import HoldReason
from safeproducer.pipeline.dispatch.placement import Placement
from safeproducer.pipeline.lanes.lane_pool import LanePool
from safeproducer.policy.decision import Wish
from tests.pipeline.rig import Rig, rigged
from tests.pipeline.warmed import warmed

CONFIG = {"message.timeout.ms": 30_000, "socket.timeout.ms": 1000, "linger.ms": 0}
BATCHES = [1, 3]
PATTERNS = [
    (True, False, True, False, False, True),
    (False, True, False, True, True, False),
    (True, True, False, True, False, False),
    (False, False, True, False, True, True),
]


@pytest.mark.parametrize("mode", ["auto", "held"])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("named", PATTERNS)
def test_both_kinds_keep_their_order(mode: str, batch: int, named: tuple[bool, ...]) -> None:
    """The topic has one partition; rule 6 is checked at the end."""
    with rigged({"safeproducer.mode": mode, "batch.num.messages": batch, **CONFIG}, {1: 0.02}, {"c": 1}) as rig:
        for names in named:
            assert rig.produce("c", 0 if names else -1)
        rig.close()
        assert len(rig.cluster.log["c", 0]) == len(named)


def reasons(rig: Rig) -> dict[tuple[str, int], HoldReason]:
    return {tp: reason for tp, (_, _, reason) in rig.dispatcher.record_buffer.waits().items()}


def test_a_topic_that_is_known_not_to_exist_is_refused_until_it_does() -> None:
    """As librdkafka does, which asks again meanwhile."""
    with rigged({"safeproducer.mode": "held", **CONFIG}, partitions={"c": 1}) as rig:
        refused = rig.dispatcher.intake._lanes.refused_topics
        refused.add("c")
        with pytest.raises(KafkaException, match="_UNKNOWN_TOPIC"):
            rig.produce("c")
        rig.time.pass_(1.0)
        assert rig.produce("c"), "a broker has told of it"
        assert not refused
        rig.close()
        assert len(rig.cluster.log["c", 0]) == 1


def test_a_record_that_got_its_partition_waits_for_no_other_broker() -> None:
    """Without a partition it waited for any broker's throttle time. Its own leader, who is known by now, has none."""
    with rigged(CONFIG, partitions={"a": 1, "c": 1}) as rig:
        rig.cluster.leaders["c", 0] = 2
        assert rig.produce("a", 0)
        rig.flush(5)
        rig.report_queue(1)
        rig.engine.updates.holds.cluster.throttle.announce(1, 3.0, rig.time.now)
        rig.report_queue(0.01)
        assert rig.produce("c")
        assert reasons(rig) == {("c", -1): HoldReason.THROTTLED}
        sender = rig.engine.sender
        while ("c", -1) in reasons(rig):
            rig.time.pass_(0.01)
            sender.turn()
        assert reasons(rig) == {("c", 0): HoldReason.TURN}
        sender.turn()
        assert not reasons(rig)


@contextmanager
def nothing_done() -> Iterator[None]:
    """What a look wants is not done meanwhile, by whomever."""
    acts = (Placement, "ask"), (Placement, "place"), (LanePool, "prepare"), (LanePool, "grow")
    with ExitStack() as stack:
        for owner, name in acts:
            stack.enter_context(mock.patch.object(owner, name, side_effect=AssertionError(name)))
        yield


def wishes(rig: Rig) -> dict[tuple[str, int], set[Wish]]:
    """What a look at each partition wants, twice."""
    with nothing_done():
        first, second = (
            {buffer.tp: rig.dispatcher.gather(buffer, rig.time.now) for buffer in rig.dispatcher.record_buffer.all}
            for _ in range(2)
        )
    assert first == second
    return {tp: set(facts.wishes) for tp, (facts, _) in first.items()}


def test_a_look_at_a_partition_does_nothing() -> None:
    """It says what may end the wait. Looks that acted depended on which partition was looked at first."""
    with rigged({"safeproducer.mode": "held", **CONFIG}, partitions={"c": 1}) as rig:
        for partition in (0, -1):
            assert rig.produce("c", partition)
        assert wishes(rig) == {("c", 0): {Wish.ASK}, ("c", -1): {Wish.ASK}}
        rig.engine.sender.turn()
        rig.time.pass_(0.1)
        assert wishes(rig) == {("c", 0): {Wish.PLACE}, ("c", -1): {Wish.PLACE}}
        rig.close()
        assert len(rig.cluster.log["c", 0]) == 2


def test_a_look_makes_no_lane() -> None:
    """The leader throttles, and the direct lane has nothing of the partition: a batch lane is to take over."""
    with warmed(CONFIG, partitions={"a": 1}, rest=1) as rig:
        rig.engine.updates.holds.cluster.throttle.announce(1, 3.0, rig.time.now)
        rig.engine.route.hold()
        assert rig.produce("a", 0)
        rig.time.pass_(0.1)
        assert wishes(rig) == {("a", 0): {Wish.LANE}}
        rig.report_queue(1)
        assert len(rig.dispatcher.lanes) == 1
