"""Each reason to hold is told while it is one: a scenario for every member of HoldReason."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from safeproducer import HoldReason
from safeproducer.pipeline.cluster.cluster_view import ClusterView, Partitions
from safeproducer.pipeline.dispatch.expiry import Expiry
from safeproducer.pipeline.dispatch.hold_facts import HoldFacts
from safeproducer.policy import decision
from safeproducer.policy.backlog import Backlogs
from safeproducer.policy.pacing import LATE
from safeproducer.policy.types import DIRECT_LANE, NEVER
from safeproducer.producer_ids.guard import Guard
from safeproducer.producer_ids.permit import Answer
from tests.pipeline.cluster import QUOTA
from tests.pipeline.rig import HandMetadata, Rig, RuleError, rigged
from tests.pipeline.test_first_seconds import never_ready
from tests.pipeline.test_sequence_gaps import LEFT_OUT, OTHER, purged
from tests.pipeline.test_switch import far_away

TP, OF_ANOTHER, OF_THE_SAME = ("a", 0), ("a", 1), ("a", 3)
"""Partitions, by the broker that leads them."""
CONFIG = {"message.timeout.ms": 30_000, "linger.ms": 5}
PARTITIONS = {"a": 6, "b": 2}
KEYED = {"safeproducer.ordering": "key"}
REFUSE = {"safeproducer.producer.ids.policy": "refuse", "safeproducer.producer.ids.per.hour": 1}
SOON = 0.05


@contextmanager
def begun(mode: str, **config: object) -> Iterator[Rig]:
    """A producer whose first record was acknowledged, by a broker that answers nothing more."""
    with rigged({"safeproducer.mode": mode, **CONFIG, **config}, partitions=PARTITIONS) as rig:
        assert rig.produce(*TP, b"first")
        rig.flush(5)
        rig.report_queue(1.5)  # behind the first look at replicas
        rig.lossy = True
        rig.cluster.brokers[1].silent = True
        yield rig
        rig.cluster.heal()


def told(rig: Rig, tp: tuple[str, int] = TP, wait: float = SOON) -> HoldReason | None:
    """Why its records wait, `wait` seconds from now."""
    rig.report_queue(wait)
    rows = rig.producer.snapshot().partitions
    return next(row.reason if row.held else None for row in rows if (row.topic, row.partition) == tp)


def accepted(rig: Rig, tp: tuple[str, int] = TP, *keys: bytes) -> None:
    for key in keys or (b"key",):
        assert rig.produce(*tp, key)


def behind(mode: str, *steps: float | tuple[str, int], wait: float = SOON, **config: object) -> HoldReason | None:
    """What the last record waits for; `steps`: records to these partitions, and seconds between them."""
    with begun(mode, **config) as rig:
        tp = TP
        for step in steps:
            if isinstance(step, tuple):
                accepted(rig, tp := step)
            else:
                rig.report_queue(step)
        return told(rig, tp, wait)


def throttled(
    mode: str, seconds: float, rest: float, wait: float = SOON, probes: bool = False, **config: object
) -> HoldReason | None:
    """It is asked `rest` seconds after the throttle time of so many; `probes`: another record is on its way."""
    with begun(mode, **config) as rig:
        rig.engine.updates.holds.cluster.throttle.announce(1, seconds, rig.time.now)
        rig.report_queue(rest)
        if probes:
            accepted(rig)
            rig.report_queue(SOON)
        accepted(rig)
        return told(rig, wait=wait)


def rejected(tp: tuple[str, int], rest: float, wait: float, **config: object) -> HoldReason | None:
    """A record of `tp`, behind one that a quota rejected. That no second attempt was rejected takes statistics."""
    with rigged({**CONFIG, **config}) as rig:
        rig.cluster.brokers[1].script.append((QUOTA, 0.0))
        accepted(rig)
        rig.poll(rest) if tp == TP else rig.report_queue(rest)
        accepted(rig, tp)
        return told(rig, tp, wait)


def outdated(mode: str, lane: int, number: int, wait: float) -> HoldReason | None:
    with begun(mode) as rig:
        outdated = rig.engine.updates.holds.cluster.outdated
        outdated.connect(lambda: (lane, number), lambda *_: None)
        outdated.answered_late(TP, number, rig.time.now, rig.time.now)
        rig.engine.updates.changed = True  # by whoever learns it
        rig.report_queue(SOON)
        accepted(rig)
        reason = told(rig, wait=wait)
        outdated.heard("a", lane, rig.time.now)
        return reason


def one_after_the_other(*keys: bytes, **config: object) -> HoldReason | None:
    with begun("held", **config) as rig:
        for key in keys:
            accepted(rig, TP, key)
            reason = told(rig)
        return reason


def window() -> HoldReason | None:
    return one_after_the_other(
        b"a", b"b", b"c", b"d", b"e", b"f", **KEYED, **{"safeproducer.window": 5, "safeproducer.lanes": 8}
    )


def first_acknowledgement() -> HoldReason | None:
    with rigged({**CONFIG, "batch.num.messages": 2}) as rig:
        accepted(rig, TP, *[b"key"] * 5)
        return told(rig, wait=0)


def long_round_trip() -> HoldReason | None:
    with far_away() as rig:
        accepted(rig)
        return told(rig, wait=0)


def preparing_lane() -> HoldReason | None:
    with never_ready() as rig:
        accepted(rig, TP, *[b"key"] * 30)
        return told(rig)


def preparing_lane_before_a_look() -> HoldReason | None:
    with never_ready() as rig:
        accepted(rig, TP, *[b"key"] * 30)
        rig.dispatcher.recheck(rig.time.now)
        held = rig.dispatcher.record_buffer.buffers[TP].held
        return None if held is None else held.reason


def producer_id_limit() -> HoldReason | None:
    refusal = Answer(None, 9.0, over_limit=True)
    with rigged({**CONFIG, "safeproducer.producer.ids.policy": "delay"}) as rig:
        with mock.patch.object(Guard, "ask", return_value=refusal):
            accepted(rig)
            reason = told(rig)
        rig.close()
        return reason


def renewing(mode: str) -> HoldReason | None:
    """One an hour may come, and two have failed."""
    settings = {"safeproducer.fatal": "renew", "safeproducer.producer.ids.per.hour": 1}
    with begun(mode, **settings) as rig:
        for _ in range(2):
            rig.natives[-1].fail_fatally()
            rig.poll(1.0)
        accepted(rig)
        return told(rig)


def sick_topic() -> HoldReason | None:
    """Its batches made three native producers in a row fail: it waits alone."""
    settings = {"safeproducer.fatal": "renew", "safeproducer.producer.ids.per.hour": 100}
    with begun("auto", **settings) as rig:
        for wait in (1.0, 1.0, 1.0, 0.2):
            rig.natives[-1].fail_fatally(reason=f"ProduceRequest for {TP[0]} [{TP[1]}] with 1 message(s) failed")
            rig.poll(0)
            rig.report_queue(wait)
        accepted(rig)
        return told(rig, wait=0.1)


def backlog() -> HoldReason | None:
    """Its leader answers others, and what it has of this partition has used up a third of its time."""
    with mock.patch.object(Backlogs, "silent", return_value=frozenset()):
        return behind("auto", TP, 11, TP)


def miscounted() -> HoldReason | None:
    with begun("held") as rig:
        outdated = rig.engine.updates.holds.cluster.outdated
        outdated.connect(lambda: (0, 1), lambda *_: None)
        outdated.counted("a", 1, 6, 5, 6, rig.time.now)
        accepted(rig, ("a", -1))
        return told(rig, ("a", -1))


def new_topic() -> HoldReason | None:
    with begun("held") as rig, mock.patch.object(HandMetadata, "answers_after", 1.0):
        accepted(rig, ("b", 0))
        return told(rig, ("b", 0))


def missing_topic() -> HoldReason | None:
    with mock.patch.object(Partitions, "missing_clause", return_value="topic 'b' is not there"):
        return new_topic()


def no_broker() -> HoldReason | None:
    with mock.patch.object(ClusterView, "away", True):
        return new_topic()


def unknown_outcome() -> HoldReason | None:
    with far_away() as rig:
        rig.dispatcher.record_buffer.buffers[TP].unknown_outcome = True
        rig.dispatcher.recheck(rig.time.now)
        accepted(rig)
        return told(rig, wait=0)


def behind_a_gap(mode: str) -> HoldReason | None:
    with purged(mode) as rig:
        rig.cluster.brokers[2].silent = True
        accepted(rig, OTHER)
        rig.report_queue(0.02)
        accepted(rig, LEFT_OUT)
        reason = told(rig, LEFT_OUT, wait=0.01)
        rig.cluster.heal()
        rig.close()
        return reason


def expiry_of_a_batch_lane() -> HoldReason | None:
    with begun("held") as rig, mock.patch.object(Expiry, "purge_lane", return_value=NEVER):  # else it is over at once
        rig.dispatcher.lanes.first.draining = True
        accepted(rig)
        reason = told(rig)
        rig.dispatcher.lanes.first.draining = False
        return reason


def expiry() -> HoldReason | None:
    with begun("auto", **{"message.timeout.ms": 3000}) as rig:
        accepted(rig, OF_ANOTHER)
        accepted(rig)
        end = rig.time.now + 3
        while not rig.engine.updates.holds.direct.draining:
            assert rig.time.now < end
            rig.report_queue(0.01)
        accepted(rig, OF_ANOTHER)
        return told(rig, OF_ANOTHER, wait=0.02)


def lane_change() -> HoldReason | None:
    with far_away() as rig:
        rig.engine.route.go(direct=True)
        accepted(rig)
        rig.engine.route.go(direct=False)
        rig.dispatcher.recheck(rig.time.now)
        accepted(rig)
        return told(rig, wait=0.02)


def turn() -> HoldReason | None:
    with begun("auto") as rig:
        rig.engine.route.hold()
        accepted(rig)
        return told(rig, wait=0)


SCENARIOS: dict[str, tuple[HoldReason, Callable[[], HoldReason | None]]] = {
    "throttled": (HoldReason.THROTTLED, lambda: throttled("auto", 3.0, SOON)),
    "probing": (HoldReason.PROBING, lambda: throttled("held", 1.0, 1.1, probes=True, **{"batch.num.messages": 1})),
    "probing, directly": (HoldReason.PROBING, lambda: throttled("auto", 1.0, 1.1, wait=0)),
    "max_in_flight": (
        HoldReason.MAX_IN_FLIGHT,
        lambda: behind("held", TP, SOON, OF_THE_SAME, **KEYED, **{"max.in.flight.requests.per.connection": 1}),
    ),
    "window": (HoldReason.WINDOW, window),
    "in_flight": (HoldReason.IN_FLIGHT, lambda: one_after_the_other(b"a", b"a")),
    "linger": (HoldReason.LINGER, lambda: behind("held", TP, wait=1, **{"linger.ms": 3000})),
    "mode_held": (HoldReason.MODE_HELD, lambda: behind("held", TP, wait=0)),
    "first_acknowledgement": (HoldReason.FIRST_ACKNOWLEDGEMENT, first_acknowledgement),
    "long_round_trip": (HoldReason.LONG_ROUND_TRIP, long_round_trip),
    "preparing_lane": (HoldReason.PREPARING_LANE, preparing_lane),
    "preparing_lane, before a look": (HoldReason.PREPARING_LANE, preparing_lane_before_a_look),
    "producer_id_quota": (HoldReason.PRODUCER_ID_QUOTA, lambda: rejected(OF_ANOTHER, 1, 0)),
    "producer_id_limit": (HoldReason.PRODUCER_ID_LIMIT, producer_id_limit),
    "quota_retry": (HoldReason.QUOTA_RETRY, lambda: rejected(TP, SOON, SOON, **{"retry.backoff.ms": 1})),
    "renewing": (HoldReason.RENEWING, lambda: renewing("auto")),
    "renewing, of a topic": (HoldReason.RENEWING, sick_topic),
    "renewing, of a batch lane": (HoldReason.RENEWING, lambda: renewing("held")),
    "leader_silent, directly": (HoldReason.LEADER_SILENT, lambda: behind("auto", TP, 3, TP)),
    "leader_silent, by a batch lane": (HoldReason.LEADER_SILENT, lambda: behind("held", TP, 3, TP)),
    "backlog": (HoldReason.BACKLOG, backlog),
    "outdated_metadata": (HoldReason.OUTDATED_METADATA, lambda: outdated("held", 0, 1, SOON)),
    "outdated_metadata, directly": (HoldReason.OUTDATED_METADATA, lambda: outdated("auto", DIRECT_LANE, 0, 0)),
    "outdated_metadata, of a number of partitions": (HoldReason.OUTDATED_METADATA, miscounted),
    "outdated_metadata, of a new topic": (HoldReason.OUTDATED_METADATA, new_topic),
    "unknown_topic": (HoldReason.UNKNOWN_TOPIC, missing_topic),
    "no_broker": (HoldReason.NO_BROKER, no_broker),
    "unknown_outcome": (HoldReason.UNKNOWN_OUTCOME, unknown_outcome),
    "sequence_gap": (HoldReason.SEQUENCE_GAP, lambda: behind_a_gap("auto")),
    "sequence_gap, of a batch lane": (HoldReason.SEQUENCE_GAP, lambda: behind_a_gap("held")),
    "expiry, of a batch lane": (HoldReason.EXPIRY, expiry_of_a_batch_lane),
    "expiry": (HoldReason.EXPIRY, expiry),
    "lane_change": (HoldReason.LANE_CHANGE, lane_change),
    "lanes_busy": (
        HoldReason.LANES_BUSY,
        lambda: one_after_the_other(b"a", b"b", **KEYED, **{"safeproducer.lanes": 1}),
    ),
    "lanes_limited": (
        HoldReason.LANES_LIMITED,
        lambda: one_after_the_other(b"a", b"b", b"c", **KEYED, **REFUSE, **{"safeproducer.lanes": 4}),
    ),
    "key_order": (HoldReason.KEY_ORDER, lambda: one_after_the_other(b"a", b"a", **KEYED, **{"safeproducer.lanes": 2})),
    "turn": (HoldReason.TURN, turn),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_reason_is_told(scenario: str) -> None:
    """By snapshot(), as its code: an operator has nothing else to go by."""
    reason, found = SCENARIOS[scenario]
    assert found() is reason


def hold_times(holds: HoldFacts) -> Counter[HoldReason]:
    found: Counter[HoldReason] = Counter()
    for (_, reason), seconds in holds.hold_times().items():
        found[reason] += seconds  # type: ignore[assignment]
    return found


def test_hold_times_add_up_by_reason() -> None:
    """Of all partitions; those that wait still are included, and what has ended stays as it is."""
    with begun("held", **{"batch.num.messages": 1}) as rig:
        holds, started = rig.engine.updates.holds, rig.time.now
        holds.cluster.throttle.announce(1, 3.0, started)
        accepted(rig)
        accepted(rig, OF_THE_SAME)
        rig.report_queue(1.0)
        assert hold_times(holds)[HoldReason.THROTTLED] == pytest.approx(2.0, abs=0.01)
        rig.report_queue(12.0)  # then one goes, and the other waits until that is late
        times = hold_times(holds)
        assert times[HoldReason.THROTTLED] == pytest.approx(6.0, abs=0.02)
        assert times[HoldReason.PROBING] == pytest.approx(LATE, abs=0.2)


def test_a_hold_time_never_falls_and_ends_with_its_records() -> None:
    """The sender dates what it does by the beginning of its turn, and another thread may have asked after that."""
    with begun("held", **{"message.timeout.ms": 3000}) as rig:
        holds, buffer = rig.engine.updates.holds, rig.dispatcher.record_buffer.buffers[TP]
        accepted(rig)
        rig.report_queue(SOON)
        accepted(rig)
        rig.report_queue(1.0)
        assert buffer.why is not None
        told = hold_times(holds)
        assert told[HoldReason.IN_FLIGHT] == pytest.approx(1.0, abs=0.1)
        buffer.wait_for(None, rig.time.now - 0.5)
        assert hold_times(holds)[HoldReason.IN_FLIGHT] >= told[HoldReason.IN_FLIGHT]
        rig.report_queue(30.0)
        assert not buffer.waiting
        told = hold_times(holds)
        rig.report_queue(5.0)
        assert hold_times(holds) == told


def test_a_partition_that_waits_for_another_one_names_what_is_wrong_there() -> None:
    """By explain(), health() and snapshot(): the lane is about to be purged of what a silent leader owes."""
    with begun("auto", **{"message.timeout.ms": 3000}) as rig:
        accepted(rig)
        while not rig.engine.updates.holds.direct.draining:
            rig.report_queue(0.01)
        accepted(rig, OF_ANOTHER)
        assert told(rig, OF_ANOTHER, wait=0.02) is HoldReason.EXPIRY
        named = "or producer ID expiration): broker 1 acknowledges nothing of a [0]"
        assert named in rig.producer.explain(*OF_ANOTHER)
        assert any(named in one.sentence for one in rig.producer.health(unresolved_for=0).reasons)
        assert [named in str(row.why) for row in rig.producer.snapshot().partitions if row.partition == 1] == [True]


def test_every_reason_has_a_scenario() -> None:
    assert {reason for reason, _ in SCENARIOS.values()} == set(HoldReason)


@pytest.mark.parametrize("rule", decision.RULES, ids=lambda rule: f"{rule.reason}, {rule.closes}")
def test_a_scenario_notices_when_a_rule_is_gone(rule: decision.Rule) -> None:
    """The reason is not told any more, or the records go."""

    def notices(find: Callable[[], HoldReason | None]) -> bool:
        try:
            return find() is not rule.reason
        except (AssertionError, RuleError):
            return True

    without = decision.by_path(tuple(each for each in decision.RULES if each is not rule))
    with mock.patch.object(decision, "_RULES_OF", without):
        assert any(notices(find) for reason, find in SCENARIOS.values() if reason is rule.reason)
