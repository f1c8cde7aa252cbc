"""A purge of what waits for another try leaves a gap in sequence numbers. The batch that finds it is alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from safeproducer.pipeline.lanes.batch_lane import BatchLane
from safeproducer.pipeline.lanes.direct_lane import DirectLane
from safeproducer.policy.decision import Hold, LaneFacts, PartitionFacts
from safeproducer.policy.expiry import BACKSTOP_MARGIN
from safeproducer.policy.hold_reason import HoldReason
from tests.pipeline.cluster import LOSE_ANSWER, LOSE_REQUEST
from tests.pipeline.rig import Rig, RuleError, rigged

ROUND_TRIPS = {1: 0.002, 2: 0.002}
TIMEOUT, SOCKET_TIMEOUT = 2.0, 0.3
CONFIG = {
    "message.timeout.ms": int(TIMEOUT * 1000),
    "socket.timeout.ms": int(SOCKET_TIMEOUT * 1000),
    "retry.backoff.ms": 5_000,
    "linger.ms": 5,
}
PURGED = TIMEOUT + 2 * SOCKET_TIMEOUT + BACKSTOP_MARGIN / 2 + 1
LEFT_OUT, OTHER = ("a", 0), ("a", 1)
"""Partitions: of a broker that gets nothing for a while, and of one that does."""


def say(rig: Rig, *tps: tuple[str, int]) -> None:
    for tp in tps:
        assert rig.produce(*tp, key=b"%d" % tp[1])


@contextmanager
def purged(mode: str, **config: object) -> Iterator[Rig]:
    """A producer with a gap: a batch never arrived, and was purged while it waited for another try."""
    with rigged({"safeproducer.mode": mode, **CONFIG, **config}, ROUND_TRIPS, {"a": 10}) as rig:
        for _ in range(3):
            say(rig, LEFT_OUT, OTHER)
            rig.flush(5)
        rig.lossy = True
        rig.cluster.brokers[1].script.append((LOSE_REQUEST, 0.0))
        say(rig, LEFT_OUT)
        rig.poll(0.1)
        for _ in range(int(PURGED / 0.1)):
            rig.report_queue(0.1)
        rig.poll(0)
        assert {native.epoch for native in rig.natives} == {0}
        assert [record.reports[0].outcome for record in rig.records.values() if record.reports[0]] == ["unknown"]
        yield rig


def wait(rig: Rig, seconds: float) -> None:
    end = rig.time.now + seconds
    while rig.time.now < end:
        rig.poll(0.1)


def written_twice(rig: Rig) -> int:
    return sum(len(values) - len(set(values)) for values in rig.cluster.log.values())


def go_on(rig: Rig) -> None:
    """Both partitions go on, and the other one's answer is lost."""
    rig.cluster.brokers[2].script.append((LOSE_ANSWER, 0.0))
    say(rig, OTHER, LEFT_OUT)
    wait(rig, 10)
    say(rig, LEFT_OUT, OTHER)
    wait(rig, 3)


MODES = [("held", {}), ("auto", {}), ("held", {"safeproducer.ordering": "key", "safeproducer.lanes": 1})]


@pytest.mark.parametrize(("mode", "config"), MODES)
def test_no_record_is_written_twice_when_the_gap_is_found(mode: str, config: dict[str, object]) -> None:
    with purged(mode, **config) as rig:
        go_on(rig)
        assert any(native.epoch for native in rig.natives), "the gap was to be found"


@pytest.mark.parametrize(("mode", "config"), MODES)
def test_without_the_rule_it_is(mode: str, config: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchLane, "takes", lambda *_: True)
    monkeypatch.setattr(DirectLane, "purged", lambda *_: None)
    with pytest.raises(RuleError, match="rule 7"), purged(mode, **config) as rig:  # noqa: PT012 - at its end
        go_on(rig)
        assert written_twice(rig) == 1


def test_others_take_another_lane_while_a_batch_waits_alone_for_its_answer() -> None:
    """The broker that got nothing is still not well: the others wait for a new lane, and not for its answer."""
    with purged("held", **{"safeproducer.producer.ids.per.hour": 1_000_000}) as rig:
        rig.cluster.brokers[1].silent = True
        say(rig, LEFT_OUT)
        rig.poll(0.05)
        before = len(rig.cluster.log[OTHER])
        for _ in range(10):
            say(rig, OTHER)
            rig.poll(0.1)
        rig.poll(0.1)
        assert len(rig.cluster.log[OTHER]) == before + 10
        assert rig.producer.snapshot().lanes == 2
        with mock.patch("safeproducer.policy.lanes.LONGEST_IDLE", 0.1):
            rig.cluster.heal()
            for _ in range(100):
                rig.poll(0.2)
                rig.report_queue(0.2)
        assert rig.producer.snapshot().lanes == 1
        say(rig, LEFT_OUT, OTHER)


@pytest.mark.parametrize(("mode", "config"), [row for row in MODES if row[0] == "held"])
def test_a_lane_that_is_never_idle_is_emptied_for_it(mode: str, config: dict[str, object]) -> None:
    with purged(mode, **config) as rig:
        rig.cluster.brokers[2].round_trip = 0.03
        before = len(rig.cluster.log[LEFT_OUT])

        def others(seconds: float) -> None:
            end = rig.time.now + seconds
            while rig.time.now < end:
                for partition in (1, 3, 5, 7, 9):
                    say(rig, ("a", partition))
                    rig.poll(0.002)

        others(0.2)
        say(rig, LEFT_OUT)
        others(1.0)
        assert len(rig.cluster.log[LEFT_OUT]) == before + 1
        assert written_twice(rig) == 0


def test_a_gap_of_the_direct_lane_wants_no_batch_lane() -> None:
    """It would take a producer ID. A gap of the only batch lane does: others are to go on by another one."""
    with rigged(CONFIG, ROUND_TRIPS, {"a": 1}) as rig:
        dispatcher, waits = rig.dispatcher, Hold(None, HoldReason.SEQUENCE_GAP)
        buffer = dispatcher.record_buffer.find(("a", 0))
        assert dispatcher.lanes.prepare()
        for must_batch, wanted in ((False, 1), (True, 2)):
            facts = PartitionFacts(must_batch=must_batch, lane=LaneFacts(gap=True))
            dispatcher._choice.act_on(waits, facts, buffer, rig.time.now)
            assert dispatcher.lanes.wanted == wanted
