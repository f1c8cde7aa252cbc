"""Throttle times in the whole pipeline, on scripted brokers: who waits, from when on, and who does not."""

from unittest import mock

import pytest

from safeproducer import HoldReason
from safeproducer.pipeline import turn
from tests.pipeline.cluster import OK
from tests.pipeline.rig import Rig, rigged
from tests.pipeline.warmed import warmed

CONFIG = {"message.timeout.ms": 30_000, "socket.timeout.ms": 1000, "linger.ms": 5}


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_callback_served_with_the_throttle_time_sends_nothing(mode: str) -> None:
    """The throttle time is served before the reports of the same answer, whose callbacks may produce."""
    with warmed({"safeproducer.mode": mode, **CONFIG}, rest=1) as rig:
        rig.cluster.brokers[1].script.append((OK, 3.0))
        assert rig.produce("a", 0)
        rig.producing.append(("a", 0))
        before = len(rig.cluster.log["a", 0])
        rig.poll(1)
        while not rig.told_deadline:
            rig.poll(1)
        assert not rig.producing
        rig.check_remembered()
        rig.flush(2)
        assert len(rig.cluster.log["a", 0]) == before + 1
        rig.close()
        assert len(rig.cluster.log["a", 0]) == before + 2


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_throttle_time_that_another_producer_was_told_of_is_waited_out_carefully(mode: str) -> None:
    """When it is over one batch goes and not all: the quota may be this producer's, too."""
    with rigged({"safeproducer.mode": mode, **CONFIG, "batch.num.messages": 1}) as rig:
        rig.engine.updates.holds.cluster.throttle.announce(1, 3.0, rig.time.now)
        rig.cluster.brokers[1].script.append((OK, 5.0))
        assert rig.produce("a", 0)
        assert rig.produce("b", 0)
        rig.report_queue(4.0)
        assert rig.cluster.requests == 1
        rig.close()
        assert rig.cluster.requests == 2


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_bytes_in_a_lane_count_against_the_buffer(mode: str) -> None:
    """Those of a dead broker's records that librdkafka has, beside those that wait here for the same broker."""
    with rigged({"safeproducer.mode": mode, **CONFIG, "queue.buffering.max.kbytes": 1}) as rig:
        rig.silence()
        for _ in range(5):
            assert rig.produce("a", 0, bytes(100))
        rig.report_queue(3)
        accepted = 0
        while accepted < 10 and rig.produce("a", 0, bytes(100)):
            accepted += 1
        assert 1 <= accepted <= 5
        rig.cluster.heal()


def test_direct_records_share_the_buffer_with_held_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native producer does not know of the records that wait outside of it."""
    monkeypatch.setattr(turn, "_RESTS_AFTER", 60.0)
    with rigged({**CONFIG, "queue.buffering.max.messages": 20}) as rig:
        assert rig.produce("a", 0)
        assert rig.produce("a", 1)
        rig.flush(5)
        rig.report_queue(1)
        rig.cluster.brokers[1].script.append((OK, 10.0))
        assert rig.produce("a", 0)
        rig.poll(1)
        rig.accept(8)
        rig.cluster.brokers[2].silent = True
        accepted = 0
        while accepted < 40 and rig.produce("a", 1):
            accepted += 1
        assert accepted == 12
        rig.check_bound()
        rig.cluster.heal()


@pytest.mark.parametrize("limit", [{"queue.buffering.max.messages": 20}, {"queue.buffering.max.kbytes": 1}])
def test_events_of_the_direct_lane_take_no_room(limit: dict[str, int]) -> None:
    """As with confluent_kafka, records alone count: not what nobody has served beside them."""
    accepted = []
    for events in (0, 10):
        with warmed({**CONFIG, **limit}) as rig:
            rig.engine.updates.holds.cluster.throttle.announce(1, 3.0, rig.time.now)
            rig.engine.route.hold()
            rig.natives[0].queue_events(events)
            while rig.produce("a", 0):
                pass
            accepted.append(len(rig.records) - 1)
    assert accepted[1] == accepted[0] >= 20


def test_a_block_takes_no_more_than_its_brokers_share() -> None:
    """One record more than half of the buffer, for a broker that throttles while another one is well."""
    limit = 20
    settings = {"safeproducer.mode": "held", **CONFIG, "queue.buffering.max.messages": limit}
    with rigged(settings) as rig:
        for topic in ("a", "b"):
            assert rig.produce(topic, 0)
        rig.flush(5)
        rig.engine.updates.holds.cluster.throttle.announce(rig.told_leader["a", 0], 3.0, rig.time.now)
        assert not rig.produce_block("a", 0, None, limit // 2 + 1)
        assert rig.produce_block("a", 0, None, limit // 2)


def held_by(rig: Rig) -> set[int | None]:
    """The brokers of which a partition is held because they throttle."""
    holds = [buffer.held for buffer in rig.dispatcher.record_buffer.all]
    return {hold.node for hold in holds if hold is not None and hold.reason is HoldReason.THROTTLED}


@pytest.mark.parametrize("partitions", [9, 1_000])
def test_a_throttle_time_costs_no_look_at_each_partition(partitions: int) -> None:
    """Partitions of which nothing waits are alike if one broker leads them: one of them is asked for all."""
    with rigged(CONFIG, partitions={"a": partitions}) as rig:
        for number in range(partitions):
            assert rig.produce("a", number)
        rig.flush(30)
        rig.report_queue(3)
        holds = rig.engine.updates.holds
        with mock.patch.object(holds, "direct_hold", wraps=holds.direct_hold) as asked:
            assert rig.engine.updates.throttled(1, "broker 1", 3.0)
            rig.engine.sender.turn()
            assert 0 < asked.call_count <= 2 * len(rig.cluster.brokers)
            assert held_by(rig) == {1}
            asked.reset_mock()
            for _ in range(3):  # it goes on, and its partitions are held anyway
                rig.time.pass_(1.0)
                rig.engine.updates.throttled(1, "broker 1", 3.0)
                assert not rig.dispatcher.intake.suspended
            assert not asked.called
            rig.engine.updates.throttled(2, "broker 2", 0.5)
            assert rig.dispatcher.intake.suspended, "a partition of it may not be held yet"
            rig.engine.sender.turn()
            assert held_by(rig) >= {1, 2}


def test_a_throttle_time_that_ended_before_the_next_one_came_is_a_new_one() -> None:
    """Somebody may have let a partition go meanwhile."""
    with warmed(CONFIG, rest=1) as rig:
        rig.engine.updates.throttled(1, "broker 1", 1.0)
        rig.engine.sender.turn()
        assert not rig.dispatcher.intake.suspended
        rig.time.pass_(1.0)
        rig.engine.updates.throttled(1, "broker 1", 1.0)
        assert rig.dispatcher.intake.suspended
        rig.engine.sender.turn()
        assert rig.produce("a", 0)
        rig.poll(0.5)
        assert rig.open_records, "it waits"
