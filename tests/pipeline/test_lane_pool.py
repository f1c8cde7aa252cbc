"""Several lanes on scripted brokers: window, budget and keys, and what the rules say when one of them is broken."""

from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import pytest
from confluent_kafka.cimpl import KafkaError, KafkaException

from safeproducer.kafka import lane_client
from safeproducer.pipeline.cluster.cluster_view import ClusterView
from safeproducer.pipeline.dispatch import updates
from safeproducer.pipeline.dispatch.lane_choice import LaneChoice
from safeproducer.policy.affinity import Affinity
from safeproducer.policy.lanes import IdleLanes
from safeproducer.policy.outcome import Outcome
from tests.inside import of_whoever_said_most
from tests.pipeline.cluster import DELAY, LOSE_REQUEST, QUOTA
from tests.pipeline.fake_native import FakeNative
from tests.pipeline.rig import Rig, RuleError, rigged
from tests.pipeline.warmed import warmed

CONFIG = {
    "safeproducer.mode": "held",
    "safeproducer.ordering": "key",
    "message.timeout.ms": 60_000,
    "batch.num.messages": 10,
    "linger.ms": 5,
}
LONGEST_IDLE = "safeproducer.policy.lanes.LONGEST_IDLE"
MANY_IDS = {"safeproducer.producer.ids.per.hour": 1_000_000}
"""So that lanes which idle are given up soon."""
LONG_ROUND_TRIP = {1: 0.1, 2: 0.1, 3: 0.1}
WAITING = 600
real_budget = LaneChoice.budget


def stream(rig: Rig, seconds: float, topic: str = "a", keys: int = 5000) -> None:
    """An application that always has more for partition 0."""
    end = rig.time.now + seconds
    number = len(rig.records)
    while rig.time.now < end:
        while rig.dispatcher.record_buffer.waiting + inside_direct(rig) < WAITING:
            assert rig.produce(topic, 0, b"%d" % (number % keys))
            number += 1
        rig.poll(0.02)


def inside_direct(rig: Rig) -> int:
    return sum(len(native) for native in rig.natives if not native.fed)


def under_way(rig: Rig, topic: str = "a") -> int:
    return sum(native.batches((topic, 0)) for native in rig.natives if native.fed)


def grows_to_the_window() -> None:
    """The leader of `a` remembers 20 batches, that of `b` says nothing of it: they are the same broker."""
    with rigged({**CONFIG, "queue.buffering.max.messages": 100_000}, LONG_ROUND_TRIP) as rig:
        rig.cluster.windows[1, "a"] = 20
        stream(rig, 3.0)
        assert under_way(rig) == 20
        assert rig.producer.snapshot().lanes == 20
        for _ in range(100):
            rig.produce("b", 0, b"%d" % len(rig.records))
        most = 0
        for _ in range(20):
            rig.poll(0.01)
            most = max(most, under_way(rig, "b"))
        assert most == 5


def leader_moves() -> None:
    """From one that remembers 20 batches to one that does not know the KIP."""
    with rigged(CONFIG, LONG_ROUND_TRIP) as rig:
        rig.cluster.windows[1, "a"] = 20
        stream(rig, 3.0)
        rig.engine.questions.asker.answers_after = 1.0
        rig.cluster.move(("a", 0), 2)
        stream(rig, 3.0)
        assert under_way(rig) == 5


def hot_key() -> None:
    """Few keys: most records must wait for the lane that has an earlier one."""
    with rigged(CONFIG, LONG_ROUND_TRIP) as rig:
        rig.cluster.windows[1, "a"] = 20
        stream(rig, 3.0, keys=7)


def late_copy() -> None:
    """A record ends unknown, its lane is busy, and its copy arrives when the key's next record has been sent."""
    with rigged({**CONFIG, "message.timeout.ms": 3000, "socket.timeout.ms": 1000, "safeproducer.lanes": 3}) as rig:
        rig.produce("a", 0, b"warm")
        rig.flush(2)
        rig.report_queue(1)
        script = rig.cluster.brokers[1].script
        script.extend([(DELAY, 14.5), *[(LOSE_REQUEST, 0.0)] * 20])
        assert rig.produce("a", 0, b"x")
        rig.flush(0.1)
        rig.report_queue(13.5)
        rig.poll(0)
        assert rig.producer.snapshot().lanes == 3
        ended: Any = rig.records[b"1"].reports[0]
        assert ended.outcome is Outcome.UNKNOWN
        script.clear()
        script.append((LOSE_REQUEST, 0.0))
        assert rig.produce("a", 0, b"y")
        rig.flush(0.1)
        assert rig.produce("a", 0, b"x")
        rig.flush(5)


def released_early(self: Affinity, keys: Iterable[bytes]) -> None:
    for key in keys:
        self._bound.pop(key, None)


def undoubted(self: Affinity, keys: Iterable[bytes], lane: int) -> None:
    for key in keys:
        self.release(key)


PLANTS: dict[str, tuple[Callable[[], None], Any, str, Any, str]] = {
    "one batch more than the budget": (grows_to_the_window, LaneChoice, "budget", lambda *of: real_budget(*of) + 1,
        "rule 2"),
    "the budget for each lane": (grows_to_the_window, LaneChoice, "budget",
        lambda self, *of: real_budget(self, *of) * max(1, len(self._lanes)), "rule 2"),
    "the window of the old leader": (leader_moves, ClusterView, "window", of_whoever_said_most, "rule 2"),
    "a key released early": (hot_key, Affinity, "release_all", released_early, "rule 6"),
    "a key of unknown outcome released": (late_copy, Affinity, "note_unknown", undoubted, "rule 6"),
}  # fmt: skip


@pytest.mark.parametrize("scenario", [grows_to_the_window, leader_moves, hot_key, late_copy])
def test_the_rules_hold_over_lanes(scenario: Callable[[], None]) -> None:
    """Never more batches than the leader remembers, and each key in order, whatever becomes of its records."""
    scenario()


@pytest.mark.parametrize("bug", PLANTS)
def test_the_rules_find_a_planted_bug(bug: str) -> None:
    scenario, owner, name, planted, rule = PLANTS[bug]
    with mock.patch.object(owner, name, planted), pytest.raises(RuleError, match=rule):
        scenario()


def test_lanes_that_idle_are_given_up() -> None:
    """One after the other, as long as nothing is bound to them; and order is kept when they come again."""
    with (
        rigged({**CONFIG, **MANY_IDS}, LONG_ROUND_TRIP) as rig,
        mock.patch("safeproducer.policy.lanes.LONGEST_IDLE", 1.0),
    ):
        rig.cluster.windows[1, "a"] = 20
        stream(rig, 2.0)
        many = rig.producer.snapshot().lanes
        rig.flush(10)
        rig.report_queue(20)
        assert many == 20
        assert rig.producer.snapshot().lanes == 1
        stream(rig, 2.0, keys=50)
        assert rig.producer.snapshot().lanes > 1
        rig.close()


def test_a_lane_that_fails_for_good_is_replaced() -> None:
    """Its fatal error is not the producer's; what it had is of unknown outcome."""
    with rigged(CONFIG, LONG_ROUND_TRIP) as rig:
        rig.cluster.windows[1, "a"] = 20
        stream(rig, 2.0)
        rig.natives[3].fail_fatally()
        stream(rig, 2.0)
        snapshot = rig.producer.snapshot()
        assert (snapshot.state, snapshot.lanes) == ("open", 20)
        assert 0 < snapshot.unknown <= 10


def test_the_first_lane_is_replaced_too() -> None:
    """It answers what is no record when everything is held: its successor does that, and tells of the cluster."""
    with rigged(CONFIG, LONG_ROUND_TRIP) as rig:
        stream(rig, 2.0)
        failed = rig.engine.route.native
        assert failed is rig.dispatcher.lanes.first.client.native
        failed.fail_fatally()
        stream(rig, 2.0)
        first = rig.dispatcher.lanes.first.client.native
        assert first is not failed
        assert rig.engine.route.native is first
        assert not any(native.closed for native in rig.natives if native is not failed)


def test_what_a_failed_lane_refuses_keeps_its_callbacks() -> None:
    """librdkafka knows of the fatal error before its event is served, and produce() raises it."""
    with rigged({**CONFIG, "safeproducer.lanes": 1}, LONG_ROUND_TRIP) as rig:
        rig.produce("a", 0, b"x")
        rig.flush(10)
        rig.dispatcher.lanes.first.client.native.fail_fatally(tell=False)
        got: list[tuple[int, bytes]] = []
        for number in range(4):
            rig.producer.produce(
                "a",
                b"own %d" % number,
                b"x",
                0,
                lambda _, message, number=number: got.append((number, message.value())),
            )
        rig.flush(10)
        assert got == [(number, b"own %d" % number) for number in range(4)]
        assert not rig.dispatcher.record_buffer.numbers.uses
        rig.producer.close(10)
        rig.closed = True  # its rules are about records that it produced itself


@pytest.mark.parametrize("again", [True, False], ids=["goes again", "is given up"])
@pytest.mark.parametrize("fails", [True, False], ids=["failed", "idle"])
def test_a_lane_stays_while_a_refused_record_belongs_to_it(again: bool, fails: bool) -> None:
    """A quota rejected it (KIP-936), and it waits for a batch of its partition on another lane. Then it goes again,
    unless the refusal may have answered a second attempt."""
    config = {**CONFIG, "safeproducer.lanes": 3, "retry.backoff.ms": 300 if again else 10}
    with rigged(config, LONG_ROUND_TRIP) as rig, mock.patch.object(IdleLanes, "spare", return_value=False) as spare:
        rig.produce("a", 0, b"warm")
        rig.flush(2)
        rig.report_queue(2)
        rig.cluster.brokers[1].script.extend([(DELAY, 1.0), (QUOTA, 0.0)])
        assert rig.produce("a", 0, b"x")
        rig.flush(0.02)
        assert rig.produce("a", 0, b"y")
        rig.flush(0.02)
        rig.poll(0.3)
        (refusal,) = rig.dispatcher.quota_retry.rejections.tps["a", 0].rejections
        assert refusal.record[0] == b"2"
        (lane,) = [lane for lane in rig.dispatcher.lanes if lane.number == refusal.lane]
        spare.return_value = not fails
        if fails:
            lane.client.native.fail_fatally()
        assert rig.produce("a", 0, b"y")
        rig.report_queue(0.3)
        assert lane in list(rig.dispatcher.lanes)
        rig.flush(10)
        rig.report_queue(2)
        assert lane not in list(rig.dispatcher.lanes)
        rig.flush(10)
        outcomes = [getattr(rig.records[value].reports[0], "outcome", None) for value in (b"1", b"2", b"3")]
        assert outcomes == [None, None if again else Outcome.UNKNOWN, None]
        rig.close()


def test_a_lane_that_is_let_go_serves_nothing_more() -> None:
    """A thread that looked at the lanes before, and comes to it now, does not meet a closed native producer."""
    with (
        rigged({**CONFIG, **MANY_IDS}, LONG_ROUND_TRIP) as rig,
        mock.patch("safeproducer.policy.lanes.LONGEST_IDLE", 1.0),
    ):
        stream(rig, 2.0)
        seen = tuple(rig.dispatcher.lanes)
        rig.flush(10)
        rig.report_queue(20)
        gone = [lane for lane in seen if lane.client.native.closed]
        assert gone
        for lane in gone:
            lane.client.native.poll = lane.client.native.flush = _is_closed
            assert lane.client.serve() == 0
            lane.client.wait(1)
            lane.client.trigger_flush()
        rig.close()


def _is_closed(timeout: float) -> int:
    raise RuntimeError("Producer has been closed")


def test_statistics_not_read_while_idle_are_read_before_the_next_record() -> None:
    """Statistics that take long are mostly skipped by an idle producer; a leader that changed is known in time."""
    with (
        rigged(CONFIG, LONG_ROUND_TRIP) as rig,
        mock.patch.object(updates, "read", wraps=updates.read) as read,
        mock.patch("safeproducer.runtime.clock.thread_time", lambda: rig.time.now),  # noqa: PT008 - it moves
    ):

        def taking_long(*_: object) -> Any:
            rig.time.now += 0.001
            return mock.DEFAULT

        read.side_effect = taking_long
        rig.cluster.windows[1, "a"] = 20
        stream(rig, 3.0)
        rig.flush(10)
        rig.report_queue(10)
        before = read.call_count
        rig.report_queue(10)
        assert 1 <= read.call_count - before <= 3
        before = read.call_count
        while read.call_count == before:
            rig.report_queue(0.5)
        rig.cluster.move(("a", 0), 2)
        for native in rig.natives:
            native.hears_of("a")
        rig.report_queue(4)
        assert rig.producer.snapshot().windows[0].size == 20, "not read yet"
        rig.produce("a", 0, b"k")
        rig.poll(0.01)
        assert rig.producer.snapshot().windows[0].size == 5
        rig.close()


def test_statistics_that_are_read_at_once_are_all_read() -> None:
    with rigged(CONFIG, LONG_ROUND_TRIP) as rig, mock.patch.object(updates, "read", wraps=updates.read) as read:
        stream(rig, 1.0)
        rig.flush(10)
        rig.report_queue(10)
        before = read.call_count
        rig.report_queue(10)
        assert read.call_count - before >= 19
        rig.close()


def test_a_user_set_cap_is_for_all_lanes_together() -> None:
    """max.in.flight.requests.per.connection counts what a broker has unanswered, over lanes and partitions."""
    with rigged({**CONFIG, "max.in.flight.requests.per.connection": 3}, LONG_ROUND_TRIP) as rig:
        rig.cluster.windows[1, "a"] = 20
        most = 0
        for _ in range(60):
            stream(rig, 0.05)
            most = max(most, under_way(rig))
        assert most == 3


def test_records_without_a_key_take_any_lane() -> None:
    """And with ordering=none all do."""
    for ordering in ("key", "none"):
        with rigged({**CONFIG, "safeproducer.ordering": ordering}, LONG_ROUND_TRIP) as rig:
            rig.cluster.windows[1, "a"] = 20
            for _ in range(2000):
                assert rig.produce("a", 0, None if ordering == "key" else b"k")
            rig.poll(0.05)
            for _ in range(20):
                rig.poll(0.02)
            assert under_way(rig) > 5


def test_lanes_are_asked_for_their_ids_until_they_have_them() -> None:
    """Without waiting, some times at most, and no more once they are ready; nobody comes back for nothing."""
    with rigged(CONFIG, LONG_ROUND_TRIP) as rig:
        rig.cluster.windows[1, "a"] = 20
        asked: dict[int, int] = {}

        def list_topics(native: FakeNative, topic: str, timeout: float) -> None:
            asked[native.producer_id] = asked.get(native.producer_id, 0) + 1
            raise KafkaException(KafkaError(KafkaError._TRANSPORT if asked[native.producer_id] == 1 else timed_out))

        timed_out = KafkaError._TIMED_OUT
        with mock.patch.object(FakeNative, "list_topics", list_topics):
            stream(rig, 1.0)
            for _ in range(200):
                rig.engine.turns.turn(rig.time.monotonic())
                rig.time.pass_(0.01)
        lanes = rig.dispatcher.lanes
        assert len(lanes) == 20
        assert asked[rig.natives[0].producer_id] == 1 + lane_client._QUESTIONS
        assert not lanes.ask_for_ids("a", rig.time.monotonic())


def test_a_fatal_error_that_the_sender_meets_is_no_failed_turn() -> None:
    """The application does not poll, and another native producer takes over: the rig raises what a turn fails with."""
    config = {"message.timeout.ms": 8000, "safeproducer.fatal": "renew", "safeproducer.producer.ids.ledger": "off"}
    with warmed(config, dict.fromkeys((1, 2, 3), 0.001)) as rig:
        rig.engine.route.native.fail_fatally()
        rig.report_queue(5)
        assert rig.producer.snapshot().renewals == 1
