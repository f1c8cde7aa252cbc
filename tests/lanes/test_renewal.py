"""safeproducer.fatal=renew: another native producer follows one that failed, and every record has a true end."""

import contextlib
import re
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from safeproducer import FatalError, HoldReason, Hook, SafeProducer
from safeproducer.hooks import ProducerRenewed
from safeproducer.pipeline import sender, turn
from safeproducer.pipeline.calls import Calls
from safeproducer.pipeline.dispatch.lane_choice import LaneChoice
from safeproducer.pipeline.dispatch.record_buffer import RecordBuffer
from safeproducer.pipeline.lanes import lane_pool, native_producers
from safeproducer.pipeline.lanes.lane import LaneFailure, Renewing
from safeproducer.pipeline.renewal import Former
from safeproducer.policy.types import UNPLACED, TopicPartition
from safeproducer.producer_ids.lane_permits import LanePermits
from safeproducer.testing import FakeCluster
from tests.clusters import cluster_of, fake_cluster
from tests.contract.support import uncollected, wait_until
from tests.inside import engine_of
from tests.lanes.test_lane_not_made import Cannot
from tests.lanes.traffic import Traffic

OUT_OF_ORDER, INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING = 45, 47, 49
Plant = Callable[[Any], None]


class Renewals(Hook):
    def __init__(self) -> None:
        self.events: list[ProducerRenewed] = []
        self.fatal: list[Any] = []
        self.errors: list[str] = []

    def client_error(self, producer: Any, error: Any, advice: str) -> None:
        self.errors.append(advice)

    def producer_renewed(self, event: ProducerRenewed) -> None:
        self.events.append(event)

    def fatal_error(self, producer: Any, error: Any) -> None:
        self.fatal.append(error)


running = fake_cluster({}, brokers=2, scope="module")


@pytest.fixture
def cluster(running: FakeCluster) -> FakeCluster:
    running.reset()
    running.delay(0.005, api="Produce")
    running.create_topic("t", 2)
    return running


@pytest.fixture
def told() -> Renewals:
    return Renewals()


@pytest.fixture
def make(told: Renewals) -> Iterator[Callable[..., SafeProducer]]:
    made: list[SafeProducer] = []

    def make_one(cluster: FakeCluster, mode: str = "auto", ordering: str = "partition", **more: Any) -> SafeProducer:
        config = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "safeproducer.fatal": "renew"}
        own = {"safeproducer.mode": mode, "safeproducer.ordering": ordering}
        others = {name.replace("_", "."): value for name, value in more.items()}
        made.append(SafeProducer({**config, **own, **others}, hooks=[told]))
        return made[-1]

    yield make_one
    for producer in made:
        producer.close(5)


CELLS = [("auto", "partition"), ("auto", "key"), ("held", "partition"), ("held", "key"), ("held", "none")]


def failing(producer: SafeProducer) -> Any:
    """The native producer that sends, or its lane."""
    engine = engine_of(producer)
    return producer if engine.holds.direct is not None else next(iter(engine.dispatcher.lanes))


@pytest.mark.parametrize(("mode", "ordering"), CELLS)
def test_a_producer_goes_on_after_each_fatal_error(
    cluster: FakeCluster, make: Any, told: Renewals, plant_fatal: Plant, mode: str, ordering: str
) -> None:
    """Planted, and answered by a broker; no call raises, and hook and snapshot tell of each."""
    producer = make(cluster, mode, ordering)
    load = Traffic(producer, "t", 50)
    load.send(20)
    load.finish()
    for number in range(1, 5):
        cluster.fail_next("Produce", OUT_OF_ORDER) if number % 2 else plant_fatal(failing(producer))
        load.until(lambda n=number: producer.snapshot().renewals == n, backlog=50)
        before = load.accepted
        load.send(100)
        load.until(lambda n=before: "delivered" in list(load.ended.values())[n:])
    ended = load.finish()
    load.until(lambda: len(told.events) == 4)
    assert [event.number for event in told.events] == [1, 2, 3, 4]
    assert {event.error.name() for event in told.events} == {"OUT_OF_ORDER_SEQUENCE_NUMBER"}
    assert told.fatal == []
    assert ended["unknown"] == sum(event.unknown for event in told.events)
    assert ended["not_written"] == sum(event.not_written for event in told.events)
    account = producer.snapshot()
    assert (account.state, account.unresolved, account.interrupted) == ("open", 0, 0)
    assert account.accepted == account.delivered + account.failed == load.accepted
    if ordering != "none":
        load.check(cluster, partitions=2)


@pytest.mark.parametrize(("mode", "ordering"), CELLS[:3])
def test_a_topic_whose_batches_fail_one_native_producer_after_the_other_waits_alone(
    cluster: FakeCluster, make: Any, mode: str, ordering: str
) -> None:
    """A healthy one used up all renewals of the hour with it, and waited for the next one."""
    cluster.create_topic("sick", 1)
    producer = make(cluster, mode, ordering)
    healthy, sick = Traffic(producer, "t", 50), Traffic(producer, "sick", 50)
    healthy.send(20)
    healthy.finish()
    apart = engine_of(producer).holds.apart
    cluster.fail_next("Produce", OUT_OF_ORDER, n=5, topic="sick")
    longest, waited = 0, set()

    def happened() -> bool:
        nonlocal longest, before
        sick.send(5 - min(5, sick.waiting))
        before = before if apart else len(healthy.ended)
        longest = max(longest, len(healthy.ended) - before)
        if apart:
            waited.update(row.topic for row in producer.snapshot().partitions if row.reason is HoldReason.RENEWING)
        return producer.snapshot().renewals == 5 and longest >= 10

    before = len(healthy.ended)
    healthy.until(happened, backlog=5)
    assert "sick" in waited
    sick.until(lambda: "delivered" in sick.ended.values(), backlog=5)
    healthy.finish()
    assert producer.snapshot().renewals == 5


@pytest.mark.parametrize(("mode", "ordering"), CELLS[:3])
def test_the_neighbours_of_a_partition_that_waits_alone_go_on(
    cluster: FakeCluster, make: Any, mode: str, ordering: str
) -> None:
    """Their deliveries ended each row, so that nobody waited, and all renewals of the hour were used up."""
    cluster.create_topic("mixed", 4)
    producer = make(cluster, mode, ordering)
    load = Traffic(producer, "mixed", 50)
    load.send(50)
    load.finish()
    apart = engine_of(producer).holds.apart
    cluster.fail_next("Produce", OUT_OF_ORDER, n=1_000, topic="mixed", partition=0)
    load.until(lambda: max(apart.values(), default=0.0) > time.monotonic() + 0.5, backlog=20)
    assert {partition for _, partition in apart} == {0}
    before = producer.snapshot().delivered
    load.until(lambda: producer.snapshot().delivered > before + 50, backlog=100)
    assert 4 <= producer.snapshot().renewals <= 7
    cluster.end_faults()
    load.finish()


def test_a_topic_of_which_many_partitions_fail_waits_as_a_whole() -> None:
    """They would use up all renewals, one after the other."""
    apart: dict[TopicPartition, float] = {}
    delivered = dict.fromkeys([("sick", number) for number in range(50)], 9)
    renewing = Renewing(LanePermits, _delivered=lambda tp: delivered[tp] if tp else 0, _apart=apart)
    for number in range(4):
        failed = f"ProduceRequest for sick [{number}] with 1 message(s) failed"
        renewing.used(LaneFailure(KafkaError(OUT_OF_ORDER, failed)), float(number))
    assert apart == {("sick", UNPLACED): 3.8}
    delivered.update({("sick", number): 10 for number in range(4)})
    renewing.used(LaneFailure(KafkaError(OUT_OF_ORDER, failed)), 9.0)
    assert apart == {("sick", UNPLACED): 3.8}, "a record of each was delivered"


@pytest.mark.parametrize("code", [INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH])
@pytest.mark.parametrize(("mode", "ordering"), [CELLS[0], CELLS[2]])
def test_a_producer_id_that_a_broker_refuses_for_ever_is_replaced(
    cluster: FakeCluster, make: Any, mode: str, ordering: str, code: int
) -> None:
    producer = make(cluster, mode, ordering)
    load = Traffic(producer, "t", 50)
    load.send(20)
    load.finish()
    cluster.fail_next("Produce", code, n=1_000_000)
    load.until(lambda: producer.snapshot().renewals >= 2, backlog=5)
    identities = {batch.producer_id for entry in cluster.journal("Produce") for batch in entry.batches}
    assert len(identities) >= 2


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_failed_native_producer_ends_without_the_collector(cluster: FakeCluster, make: Any, mode: str) -> None:
    """It has threads and connections; and in a child of a fork, the collector would destroy it without its threads."""
    load = Traffic(producer := make(cluster, mode), "t", 50)
    load.send(20)
    load.finish()
    former = weakref.ref(engine_of(producer).natives[0])
    with uncollected():
        cluster.fail_next("Produce", OUT_OF_ORDER)
        load.until(lambda: producer.snapshot().renewals == 1, backlog=50)
        load.finish()
        load.until(lambda: former() is None)


def test_what_librdkafka_purged_is_not_written_by_proof(
    cluster: FakeCluster, make: Any, told: Renewals, plant_fatal: Plant
) -> None:
    """Of those behind a request in flight statistics show that they were in none."""
    producer = make(cluster)
    load = Traffic(producer, "t", 1)
    load.send(10)
    load.finish()
    load.until(lambda: engine_of(producer).route.goes_direct, timeout=5)
    cluster.delay(0.5, api="Produce")
    load.send(10)
    load.keep(0.1, backlog=0)
    load.send(500)  # behind the first request
    load.keep(0.05, backlog=0)
    plant_fatal(producer)
    load.until(lambda: told.events)
    cluster.delay(0, api="Produce")
    assert load.finish() == {"delivered": 20, "not_written": 500}
    assert (told.events[0].not_written, told.events[0].unknown) == (500, 0)
    load.check(cluster, partitions=2)


def calls(load: Traffic) -> list[str]:
    """Of one produce() on the direct path, in order."""
    load.until(lambda: engine_of(load.producer).route.goes_direct, timeout=5)
    entered: list[str] = []

    def trace(frame: FrameType, event: str, called: Any) -> None:
        if event in ("call", "c_call"):
            entered.append(frame.f_code.co_qualname if event == "call" else called.__qualname__)

    former = sys.getprofile()
    sys.setprofile(trace)
    try:
        load.send(1)
    finally:
        sys.setprofile(former)
    load.finish()
    return entered


def test_the_direct_path_comes_back(cluster: FakeCluster, make: Any, plant_fatal: Plant) -> None:
    """By one more producer ID, and without a batch lane. produce() calls the same functions as before."""
    producer = make(cluster)
    load = Traffic(producer, "t")
    load.send(1)
    load.finish()
    before = calls(load)
    for number in range(1, 4):
        load.send(100)
        load.finish()
        plant_fatal(producer)
        load.until(lambda n=number: producer.snapshot().renewals == n)
    load.send(100)
    load.finish()
    assert calls(load) == before
    account = producer.snapshot()
    assert (account.producer_ids, account.lanes, account.handed_over) == (4, 0, 0)


def test_a_fatal_error_that_a_signal_handler_took_away_is_followed_all_the_same(
    cluster: FakeCluster, make: Any, monkeypatch: pytest.MonkeyPatch, plant_fatal: Plant
) -> None:
    """It is served once, by a poll() that raised what the handler did. produce() only tells that there is one."""
    fatal_in, lost = Calls.fatal_in, list[Any]()

    def taken_away(calls: Calls, error: Any) -> Exception | None:
        cause = error.args[0] if isinstance(error, KafkaException) else error
        if not (isinstance(cause, KafkaError) and cause.fatal()):
            return fatal_in(calls, error)
        lost.append(cause)
        return TimeoutError()

    monkeypatch.setattr(Calls, "fatal_in", taken_away)
    producer = make(cluster)
    assert producer.flush(5) == 0
    producer.produce("t", b"first", partition=0)
    assert producer.flush(5) == 0
    plant_fatal(producer)
    ends = time.monotonic() + 20
    told: list[Any] = []
    while not (lost and told):
        with contextlib.suppress(TimeoutError):
            producer.produce("t", b"next", partition=0, on_delivery=lambda error, _: told.append(error))
            producer.poll(0.1)
        assert time.monotonic() < ends, producer.explain()
    assert producer.snapshot().renewals == 1


def test_a_produce_batch_that_meets_the_error_is_taken_whole(
    cluster: FakeCluster, make: Any, plant_fatal: Plant
) -> None:
    """What the native call refuses goes the other way."""
    producer = make(cluster)
    ended: list[Any] = []
    for partition in (0, 0, -1):
        messages = [{"value": b"%d" % number} for number in range(100)]
        assert producer.produce_batch("t", messages, partition, on_delivery=lambda *report: ended.append(report)) == 100
        assert not any("_error" in message for message in messages)
        assert producer.flush(10) == 0
        plant_fatal(producer)
    assert [error for error, _ in ended] == [None] * 300
    assert Counter(message.value() for _, message in ended) == {b"%d" % number: 3 for number in range(100)}


class Watch(Renewals):
    def __init__(self) -> None:
        super().__init__()
        self.accepted = self.resolved = 0

    def record_accepted(self, record: Any) -> None:
        self.accepted += 1

    def record_refused(self, record: Any, error: BaseException) -> None:
        raise AssertionError(error)

    def record_resolved(self, record: Any, error: Any, message: Any) -> None:
        self.resolved += 1


def test_hooks_see_each_record_once(cluster: FakeCluster, plant_fatal: Plant) -> None:
    """Also the one whose produce() met the error."""
    watch = Watch()
    config = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "safeproducer.fatal": "renew"}
    producer = SafeProducer(config, hooks=[watch])
    load = Traffic(producer, "t")
    for _ in range(3):
        load.send(50)
        load.finish()
        plant_fatal(producer)
    load.send(50)
    load.finish()
    assert (watch.accepted, watch.resolved) == (200, 200)
    producer.close(5)


@pytest.mark.parametrize(("mode", "policy"), [("auto", "off"), ("auto", "delay"), ("held", "delay")])
def test_nothing_but_fatal_errors_takes_few_ids(cluster: FakeCluster, make: Any, mode: str, policy: str) -> None:
    """A bucket of a quarter of the rate; records wait, as is said, and end at their deadline, not written."""
    cluster.delay(0.01)  # so far that records of `auto` would have a batch lane
    ids = {"safeproducer_producer_ids_policy": policy, "safeproducer_producer_ids_per_hour": 20}
    producer = make(cluster, mode, delivery_timeout_ms=2500, **ids)
    load = Traffic(producer, "t", 50)
    load.send(5)
    load.finish()
    cluster.fail_next("Produce", OUT_OF_ORDER, n=1000)
    said: set[HoldReason | None] = set()

    def ended() -> bool:
        said.update(row.reason for row in producer.snapshot().partitions)
        return producer.snapshot().renewals >= 4 and "not_written" in load.ended.values()

    load.until(ended, timeout=30, backlog=20)
    load.keep(1.2, backlog=20)
    account = producer.snapshot()
    assert (account.renewals in (4, 5), account.state) == (True, "open")
    assert 6 <= account.producer_ids <= 8, "and a batch lane"
    assert HoldReason.RENEWING in said

    def told_how_long() -> bool:
        load.send(1)  # each waits for its deadline alone
        return bool(re.search(r"waits since a native producer failed, for another [4-7]\d\d", producer.explain()))

    load.until(told_how_long)
    cluster.reset()


def test_the_policy_refuse_stops(cluster: FakeCluster, make: Any, told: Renewals, plant_fatal: Plant) -> None:
    """Without a permit the fatal error is the producer's end, as with `stop`."""
    more = {"safeproducer_producer_ids_policy": "refuse", "safeproducer_producer_ids_per_hour": 1}
    producer = make(cluster, **more)
    load = Traffic(producer, "t")
    load.send(5)
    load.finish()
    plant_fatal(producer)
    with pytest.raises(FatalError, match="OUT_OF_ORDER"):
        load.until(lambda: False, timeout=10)
    with pytest.raises(FatalError):
        producer.produce("t", b"late")
    assert producer.snapshot().state == "fatal"
    load.until(lambda: len(told.fatal) == 1)


def stays_in_front(cluster: FakeCluster, producer: SafeProducer, plant: Plant) -> None:
    """A request that is late when its native producer fails: later records of the partition wait for its answer."""
    load = Traffic(producer, "t", 1)
    load.send(5)
    load.finish()
    cluster.delay(0.8, api="Produce", side="request")
    load.send(1)
    load.keep(0.1, backlog=0)  # it has left
    plant(failing(producer))
    engine = engine_of(producer)
    direct, lanes = engine.holds.direct, engine.dispatcher.lanes
    load.until(lambda: any(lane.client.failed for lane in lanes) if direct is None else direct.failure)
    cluster.delay(0, api="Produce", side="request")
    load.send(5)
    assert load.finish() == {"delivered": 11}
    load.check(cluster, partitions=2)


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_request_on_its_way_stays_in_front(cluster: FakeCluster, make: Any, plant_fatal: Plant, mode: str) -> None:
    stays_in_front(cluster, make(cluster, mode), plant_fatal)


def any_lane(self: LaneChoice, *_: Any) -> Any:
    return next((lane for lane in self._lanes if lane.ready), None)


@pytest.mark.parametrize(
    ("mode", "owner", "name", "planted"),
    [("auto", RecordBuffer, "has_left_direct", lambda *_: True), ("held", LaneChoice, "_only_lane", any_lane)],
)
def test_a_partition_that_is_let_go_early_is_noticed(
    cluster: FakeCluster, make: Any, plant_fatal: Plant, mode: str, owner: Any, name: str, planted: Any
) -> None:
    """By the order of its records."""
    with mock.patch.object(owner, name, planted), pytest.raises(AssertionError, match="is behind"):
        stays_in_front(cluster, make(cluster, mode), plant_fatal)


def test_what_was_purged_is_told_though_the_sender_may_sleep(
    cluster: FakeCluster, make: Any, monkeypatch: pytest.MonkeyPatch, plant_fatal: Plant
) -> None:
    """The statistics of the former native producer wake nobody: reports came up to a second late."""
    producer = make(cluster)
    load = Traffic(producer, "t", 1)
    load.send(10)
    load.finish()
    for module in (sender, turn):
        for name in ("LONGEST_SLEEP", "LONGEST_IDLE_SLEEP"):
            monkeypatch.setattr(module, name, 60.0)
    load.send(10)
    plant_fatal(producer)
    load.until(lambda: producer.snapshot().renewals == 1)
    wait_until(lambda: not engine_of(producer).counters.report_queue.deferred, 15)
    load.finish()


def test_each_native_producer_proves_for_its_own_records_alone(
    cluster: FakeCluster, make: Any, monkeypatch: pytest.MonkeyPatch, plant_fatal: Plant
) -> None:
    """Reports of several wait at once: records that were sent were *not written* by the proof of an earlier one."""
    cluster.create_topic("one")
    known: list[bool] = []
    never_sent = Former.never_sent
    monkeypatch.setattr(Former, "never_sent", lambda *args: never_sent(*args) if known else None)
    producer = make(cluster, linger_ms=200)
    load = Traffic(producer, "one")
    for number in range(1, 4):
        load.send(5)
        load.until(lambda n=number: len(load.ended) == 5 * n and not engine_of(producer).holds.slow_start)
        load.send(5)
        if number == 3:  # they are written, and nobody is told
            cluster.delay(20, api="Produce")
            load.until(lambda: len(cluster.log("one", 0)) == 20)
            cluster.cut()
        plant_fatal(producer)
        load.until(lambda n=number: producer.snapshot().renewals == n)
    cluster.delay(0, api="Produce")
    known.append(True)
    assert load.finish() == {"delivered": 15, "not_written": 10, "unknown": 5}
    load.check(cluster)


@pytest.mark.parametrize(("mode", "ordering"), CELLS[:4:2] + CELLS[3:4])
def test_records_wait_while_a_file_of_the_configuration_is_gone(
    cluster: FakeCluster,
    make: Any,
    told: Renewals,
    monkeypatch: pytest.MonkeyPatch,
    plant_fatal: Plant,
    mode: str,
    ordering: str,
) -> None:
    """The next native producer cannot be made: that is told, and tried again. No call raises."""
    monkeypatch.setattr(lane_pool, "_FIRST_PAUSE", 0.05)
    producer = make(cluster, mode, ordering)
    load = Traffic(producer, "t", 50)
    load.send(20)
    load.finish()
    real, gone = native_producers.NativeProducer, Cannot()
    monkeypatch.setattr(native_producers, "NativeProducer", gone)
    plant_fatal(failing(producer))
    load.until(lambda: len(gone.times) >= 3, backlog=20)
    account = producer.snapshot()
    assert (account.state, account.renewals, account.producer_ids) == ("open", 0, 2), "one permit for all attempts"
    assert HoldReason.RENEWING in {row.reason for row in account.partitions}
    load.until(lambda: told.errors)
    assert "another native producer could not be made (ssl.ca.location failed" in told.errors[0]
    monkeypatch.setattr(native_producers, "NativeProducer", real)
    load.until(lambda: producer.snapshot().renewals == 1)
    waiting = load.waiting
    ended = load.finish()
    assert ended["delivered"] >= 20 + min(waiting, 1)
    load.check(cluster, partitions=2)


@pytest.mark.parametrize("held", ["send", "fail"])
@pytest.mark.parametrize(("mode", "ordering"), CELLS)
def test_what_waits_behind_an_unknown_record(
    cluster: FakeCluster, make: Any, told: Renewals, mode: str, ordering: str, held: str
) -> None:
    """With safeproducer.fatal.held=fail it ends, in order, not written; with `key` other keys go on."""
    producer = make(cluster, mode, ordering, safeproducer_fatal_held=held, linger_ms=1)
    engine = engine_of(producer)
    load = Traffic(producer, "t", 1, first=1)
    load.send(2)
    load.finish()
    other = Traffic(producer, "t", 1)
    cluster.delay(0.2, api="Produce")
    cluster.fail_next("Produce", OUT_OF_ORDER)
    load.send(1)
    in_lanes = engine.dispatcher.lanes
    load.until(lambda: any(lane.batches for lane in in_lanes) if mode == "held" else engine.holds.direct.failure)
    load.send(10)
    other.send(10)
    load.until(lambda: told.events)
    load.finish()
    load.send(5)
    behind = {"send": "delivered", "fail": "not_written"}[held if ordering != "none" else "send"]
    assert Counter(load.ended.values()) == Counter(["delivered"] * 2 + ["unknown"] + [behind] * 10)
    load.finish()
    assert held == "send" or list(load.ended) == [b"k1:%d" % number for number in range(18)]
    assert set(other.ended.values()) == {"delivered" if ordering == "key" else behind}
    load.check(cluster, partitions=2)


@pytest.mark.parametrize("mode", ["auto", "held"])
@pytest.mark.parametrize("fatal", ["stop", "renew"])
def test_a_lane_whose_epochs_end_is_replaced_in_time(make: Any, told: Renewals, mode: str, fatal: str) -> None:
    """Each rejected batch takes an epoch: at 0 again, brokers would refuse every batch.

    A rejection proves that its batch is not written if it comes sooner than a retry can, here within 0.8 s.
    """
    with cluster_of({"t": 1}, first_epoch=31_999) as late:
        producer = make(late, mode, safeproducer_fatal=fatal, retry_backoff_ms=1000)
        load = Traffic(producer, "t")
        for number in range(1, 4):
            load.send(20)
            load.until(lambda n=number: len(engine_of(producer).failures.identities) == n)
            late.fail_next("Produce", 10)  # MSG_SIZE_TOO_LARGE
            load.send(5)
            load.until(lambda n=number: producer.snapshot().renewals == n, timeout=20, backlog=10)
        ended = load.finish()
        account = producer.snapshot()
        assert ended["unknown"] == 0
        assert account.producer_ids <= 5
        assert {event.error.code() for event in told.events} == {INVALID_PRODUCER_EPOCH}
        load.check(late)


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_lane_whose_epochs_have_ended_is_replaced_at_once(make: Any, mode: str) -> None:
    """At most the batches that were refused are of unknown outcome."""
    with cluster_of({"t": 1}, first_epoch=32_767) as last:
        producer = make(last, mode, safeproducer_fatal="stop", linger_ms=1)
        load = Traffic(producer, "t")
        load.send(20)
        load.finish()
        last.fail_next("Produce", 10)
        load.send(5)
        load.until(lambda: producer.snapshot().renewals == 1, timeout=20, backlog=10)
        load.send(20)
        before = load.waiting
        ended = load.finish()
        assert ended["delivered"] > 20 + before / 2
        load.check(last)
