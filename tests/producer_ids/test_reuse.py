"""Producers one after another write with one producer ID, and none hears of another's records."""

import contextlib
import gc
import json
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from safeproducer import DeliveryError, FatalError, ProducerClosedError, SafeProducer
from safeproducer.kafka.statistics import BrokerStatistics, Statistics
from safeproducer.pipeline import reuse
from safeproducer.pipeline.reuse import Parking
from safeproducer.policy.types import DIRECT_LANE
from safeproducer.runtime.patience import Patience
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.contract.support import poll_until, send_one, together, wait_until
from tests.inside import engine_of
from tests.threads.test_lifetime import run

T = "t"
WAYS = ["auto", "held", "passthrough"]
pytestmark = pytest.mark.usefixtures("parking")


@pytest.fixture
def parking(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parking]:
    own = Parking()
    monkeypatch.setattr(reuse, "parking", own)
    yield own
    own.end()


cluster = fake_cluster({T: 3})


def config(cluster: FakeCluster, **more: Any) -> dict[str, Any]:
    named = {name.replace("__", "."): value for name, value in more.items()}
    own = {"safeproducer.producer.ids.policy": "reuse", "safeproducer.producer.ids.per.hour": 100_000, "log_level": 0}
    return {"bootstrap.servers": cluster.bootstrap, **own, **named}


def ids(cluster: FakeCluster) -> set[int]:
    return {batch.producer_id for number in range(3) for batch in cluster.batches(T, number)}


def written(cluster: FakeCluster) -> Counter[bytes]:
    return Counter(record.value or b"" for number in range(3) for record in cluster.log(T, number))


def native_of(producer: SafeProducer) -> Any:
    return engine_of(producer).route.native


def send(producer: SafeProducer, value: bytes = b"v", **more: Any) -> None:
    send_one(producer, T, value, **more)


def writer(settings: dict[str, Any]) -> SafeProducer:
    """A producer that has sent a record."""
    producer = SafeProducer(settings)
    send(producer)
    return producer


def one_after_another(
    settings: dict[str, Any], count: int, told: dict[str, Counter[Any]], collected: Callable[[int], bool]
) -> None:
    """`told`: by kind, how often the callbacks of each producer were called while it was the owner, and afterwards."""
    present = [0]

    def note(kind: str, number: int) -> Callable[..., None]:
        def callback(*arguments: Any) -> None:
            told[kind][number == present[0]] += 1
            if kind == "delivered":
                assert arguments[0] is None
                assert arguments[1].value() == b"%d" % number

        return callback

    for number in range(1, count + 1):
        present[0] = number
        callbacks = {f"{kind}_cb": note(kind, number) for kind in ("error", "stats", "throttle")}
        producer = SafeProducer(settings | callbacks)
        send(producer, b"%d" % number, partition=number % 3, on_delivery=note("delivered", number))
        if not collected(number):
            assert producer.close(10)
        present[0] = 0
        del producer


@pytest.mark.parametrize("mode", WAYS)
def test_many_one_after_another_are_one_producer_id(
    cluster: FakeCluster, parking: Parking, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Two hundred, half of them never closed: each record once, and no callback of a former owner."""
    # On a busy machine, too.
    monkeypatch.setattr(reuse, "Patience", lambda seconds, starved: Patience(100 * seconds, starved))
    count = 200
    told: dict[str, Counter[Any]] = {kind: Counter() for kind in ("delivered", "error", "stats", "throttle")}
    settings = config(cluster, safeproducer__mode=mode, statistics__interval__ms=20)
    one_after_another(settings, count, told, lambda number: bool(number % 2))
    assert told["delivered"] == {True: count}
    assert not any(kinds[False] for kinds in told.values()), told
    assert told["stats"][True], "or nothing is shown"
    assert len(ids(cluster)) == 1
    assert written(cluster) == {b"%d" % number: 1 for number in range(1, count + 1)}
    assert len(parking) == 1


def test_threads_take_as_many_as_are_alive_at_once(cluster: FakeCluster) -> None:
    settings, delivered = config(cluster), Counter[int]()

    def work(thread: int) -> None:
        for number in range(25):
            producer = SafeProducer(settings)
            here = threading.get_ident()

            def report(error: Any, _: Any, here: int = here) -> None:
                delivered[error is None and threading.get_ident() == here] += 1

            send(producer, b"%d" % thread, on_delivery=report)
            if number % 2:
                producer.close()
            del producer

    together(*(partial(work, number) for number in range(8)))
    assert delivered == {True: 200}
    assert len(ids(cluster)) <= 8
    assert written(cluster) == {b"%d" % number: 25 for number in range(8)}


def test_a_thread_that_polls_is_waited_for(cluster: FakeCluster) -> None:
    """As many applications have one, which ends after close(): nobody takes over what it is inside."""
    settings = config(cluster, statistics__interval__ms=10)
    told, present = Counter[bool](), [0]

    def note(number: int) -> Callable[[str], None]:
        return lambda _: told.update([number == present[0]])

    for number in range(1, 21):
        present[0] = number
        producer = SafeProducer(settings | {"stats_cb": note(number)})

        def poll(polled: SafeProducer = producer) -> None:
            with contextlib.suppress(ProducerClosedError):
                while True:
                    polled.poll(0.1)

        thread = threading.Thread(target=poll)
        thread.start()
        send(producer)
        time.sleep(0.02)
        producer.close()
        following = SafeProducer(settings | {"stats_cb": note(0)})
        present[0] = 0  # until then the thread may have been inside a callback that began before close()
        send(following)
        following.close()
        thread.join()
        del producer, following, poll, thread
    assert len(ids(cluster)) == 1
    assert told[True]
    assert not told[False]


def test_a_producer_that_takes_over_asks_for_no_permit(cluster: FakeCluster) -> None:
    """At one an hour: the others write at once. One beside them is told as by `delay` that its deadline comes first."""
    settings = config(cluster, safeproducer__producer__ids__per__hour=1)
    for number in range(10):
        producer = writer(settings)
        assert producer.snapshot().producer_ids == int(not number)
        producer.close()
    first, second = SafeProducer(settings), SafeProducer(settings)
    send(first)
    told: list[Any] = []
    send_one(second, T, b"too late", on_delivery=lambda error, _: told.append(error))
    assert [(error.name(), error.outcome) for error in told] == [("THROTTLING_QUOTA_EXCEEDED", "not_written")]
    assert len(ids(cluster)) == 1
    first.close()
    second.close()


def test_close_says_what_it_says_without_reuse(cluster: FakeCluster) -> None:
    """The report, the state, what every call raises then; a second close() leaves the next owner alone."""
    first = writer(config(cluster))
    report = first.close()
    assert (report.accepted, report.delivered, report.failed, report.left) == (1, 1, 0, 0)
    second = SafeProducer(config(cluster))
    assert first.close() is report
    assert first.snapshot().state == "closed"
    assert len(first) == 0
    for call in (first.poll, first.flush, first.purge, first.list_topics, first.cluster_id):
        with pytest.raises(ProducerClosedError):
            call()
    with pytest.raises(ProducerClosedError):
        first.set_sasl_credentials("a", "b")
    send(second)
    del first
    gc.collect()
    send(second)
    assert second.snapshot().accepted == second.snapshot().delivered == 2
    assert second.close()
    assert len(ids(cluster)) == 1


@pytest.mark.parametrize("collected", [False, True], ids=["closed", "collected"])
@pytest.mark.parametrize(
    "settings",
    [
        {"safeproducer.producer.ids.policy": "warn"},
        {"safeproducer.producer.ids.policy": "delay"},
        {"safeproducer.producer.ids.reuse.ms": 0},
        {"enable.idempotence": False},
    ],
    ids=str,
)
def test_no_producer_is_parked_unless_it_was_asked_for(
    cluster: FakeCluster, parking: Parking, settings: dict[str, Any], collected: bool
) -> None:
    producer = writer(config(cluster) | settings)
    if not collected:
        producer.close()
    del producer
    assert not len(parking)


@pytest.mark.parametrize("collected", [False, True], ids=["closed", "collected"])
@pytest.mark.parametrize(
    "setting", [{"linger.ms": 7}, {"client.id": "b"}, {"acks": "-1"}, {"safeproducer.mode": "held"}], ids=str
)
def test_another_configuration_gets_its_own(
    cluster: FakeCluster, parking: Parking, setting: dict[str, Any], collected: bool
) -> None:
    first = writer(config(cluster))
    native = native_of(first)
    if not collected:
        first.close()
    del first
    second = SafeProducer(config(cluster) | setting)
    assert native_of(second) is not native
    assert len(parking) == 1
    second.close()
    third = SafeProducer(config(cluster))
    assert native_of(third) is native, "it waits on"
    third.close()


def fails(producer: SafeProducer, cluster: FakeCluster) -> None:
    cluster.fail_next("Produce", 87)  # INVALID_RECORD
    producer.produce(T, b"v")
    producer.flush(20)


def purges(producer: SafeProducer, cluster: FakeCluster) -> None:
    send(producer)
    cluster.pause(1)
    producer.produce(T, b"v")
    producer.purge()
    while producer.flush(1):  # librdkafka's may miss a record that is just going from one of its queues to another
        producer.purge()
    cluster.resume(1)


def leaves_at_its_deadline(producer: SafeProducer, cluster: FakeCluster) -> None:
    send(producer)
    cluster.pause(1)
    producer.produce(T, b"v")


def sends_nothing(producer: SafeProducer, cluster: FakeCluster) -> None:
    producer.list_topics(timeout=10)


def changes_credentials(producer: SafeProducer, cluster: FakeCluster) -> None:
    send(producer)
    producer.set_sasl_credentials("a", "b")


@pytest.mark.parametrize("mode", WAYS)
@pytest.mark.parametrize("what", [fails, purges, leaves_at_its_deadline, sends_nothing, changes_credentials])
def test_a_producer_in_doubt_is_not_parked(
    cluster: FakeCluster, parking: Parking, mode: str, what: Callable[[SafeProducer, FakeCluster], None]
) -> None:
    """A record failed or was purged, nothing was sent, or who logs in was changed."""
    producer = SafeProducer(config(cluster, safeproducer__mode=mode))
    what(producer, cluster)
    producer.close(0.1)
    assert not len(parking)


def test_one_that_is_collected_with_records_under_way_is_not_parked(cluster: FakeCluster, parking: Parking) -> None:
    """Its callbacks would run under the next owner."""
    told: list[Any] = []
    first = writer(config(cluster))
    cluster.pause(1)
    first.produce(T, b"v", on_delivery=lambda *_: told.append("the former one's"))
    with pytest.warns(ResourceWarning, match="1 record"):
        del first
    parked, second = len(parking), SafeProducer(config(cluster))
    cluster.resume(1)
    send(second)
    second.poll(0.5)
    second.close()
    assert not parked
    assert not told


def test_reports_that_nobody_has_polled_keep_it_from_being_parked(cluster: FakeCluster, parking: Parking) -> None:
    producer = writer(config(cluster))
    producer.produce(T, b"v")
    cluster.wait(lambda one: sum(written(one).values()) == 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # where the report had come, the record is not lost
        del producer
    assert not len(parking)


def test_parked_ones_end_with_their_time_and_with_credentials(cluster: FakeCluster, parking: Parking) -> None:
    for settings in (config(cluster, safeproducer__producer__ids__reuse__ms=200), config(cluster)):
        producer = writer(settings)
        native = native_of(producer)
        producer.close()
        del producer
        assert len(parking) == 1
        if settings == config(cluster):
            other = SafeProducer(config(cluster, client__id="other"))
            other.set_sasl_credentials("a", "b")
            other.close()
        wait_until(lambda: not len(parking))
        closed(native)


def closed(native: Any) -> None:
    with pytest.raises(RuntimeError):
        wait_until(lambda: native.poll(0) < 0)


def test_statistics_go_on_while_parked(cluster: FakeCluster, parking: Parking) -> None:
    """They are taken, 50 a second, and told to nobody. Counts are librdkafka's: those of the next owner go on."""
    told: list[dict[str, Any]] = []
    settings = config(cluster, statistics__interval__ms=20, stats_cb=lambda text: told.append(json.loads(text)))
    first = SafeProducer(settings)
    for _ in range(50):
        first.produce(T, b"v")
    assert first.flush(10) == 0
    native = native_of(first)
    first.close()
    told.clear()
    most = 0
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        most = max(most, len(native))
        time.sleep(0.02)
    assert most <= 20
    assert not told
    second = writer(settings)
    poll_until(second, lambda: told and told[-1]["txmsgs"] == 51)
    assert second.snapshot().accepted == 1
    second.close()


@pytest.mark.parametrize("mode", WAYS)
def test_a_deadline_is_the_new_owners_own(cluster: FakeCluster, parking: Parking, mode: str) -> None:
    """Records of the former owner were counted, some by a batch call; the new one's end when their time is over."""
    settings = config(
        cluster, safeproducer__mode=mode, message__timeout__ms=1500, socket__timeout__ms=1000, linger__ms=0
    )
    first = SafeProducer(settings)
    first.produce_batch(T, [{"value": b"v"} for _ in range(20)], partition=0)
    for _ in range(20):
        first.produce(T, b"v", partition=0)
    assert first.flush(10) == 0
    first.close()
    time.sleep(2)
    second = SafeProducer(settings)
    send(second, partition=0)
    told: list[Any] = []
    cluster.pause(1)
    began = time.monotonic()
    second.produce(T, b"late", partition=0, on_delivery=lambda error, _: told.append((error, time.monotonic())))
    while not told and time.monotonic() < began + 30:
        second.poll(0.1)
    ((error, at),) = told
    assert isinstance(error, DeliveryError)
    assert at - began > 1.3, "not sooner than its own time"
    if mode != "passthrough":
        assert at - began < 6
    cluster.resume(1)
    second.close(1)
    assert not len(parking)


def test_far_from_the_brokers_batch_lanes_go_over(cluster: FakeCluster) -> None:
    """Two IDs for all: the direct lane's and the batch lane's."""
    cluster.delay(0.03)
    settings = config(cluster, linger__ms=1)

    def produce_for(producer: SafeProducer, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            producer.produce(T, b"v", partition=0)
            producer.poll(0.002)
        assert producer.flush(10) == 0

    first = SafeProducer(settings)
    deadline = time.monotonic() + 20
    while len(ids(cluster)) < 2 and time.monotonic() < deadline:
        produce_for(first, 0.5)
    known = ids(cluster)
    assert len(known) == 2, "it uses a batch lane"
    first.close()
    for _ in range(3):
        following = SafeProducer(settings)
        assert len(engine_of(following).dispatcher.lanes) == 1
        assert engine_of(following).updates.holds.round_trip.long
        produce_for(following, 0.7)
        account = following.snapshot()
        assert account.accepted == account.delivered
        assert account.handed_over > 0, "its batches, not those of former owners"
        assert account.handed_over <= account.accepted
        assert following.close()
        del following
    assert ids(cluster) == known


def test_one_late_answer_makes_the_next_owner_no_lane(cluster: FakeCluster) -> None:
    """A busy machine makes any round trip late, and a batch lane is one more producer ID."""
    first = writer(config(cluster))
    engine, native = engine_of(first), native_of(first)
    late = Statistics(time.monotonic(), 1, 0, 0, 0, {1: BrokerStatistics("", "UP", 0, 9, 9, 0.09)}, {})
    round_trip = engine.updates.holds.round_trip
    engine.sender.run(lambda: round_trip.update(DIRECT_LANE, late))
    engine.sender.run(lambda: round_trip.measure(time.monotonic() + 1))
    assert (round_trip.seconds, round_trip.long) == (0.09, False)
    first.close()
    second = SafeProducer(config(cluster))
    assert native_of(second) is native
    assert not engine_of(second).updates.holds.far


def test_lanes_go_over_together(cluster: FakeCluster) -> None:
    cluster.delay(0.03)
    settings = config(cluster, safeproducer__ordering="none", safeproducer__lanes=4, safeproducer__mode="held")
    settings["batch.num.messages"] = 10
    first = SafeProducer(settings)
    engine = engine_of(first)
    deadline = time.monotonic() + 20
    while not (len(engine.dispatcher.lanes) == 4 and all(lane.counts.batches for lane in engine.dispatcher.lanes)):
        for number in range(200):
            first.produce(T, b"%d" % number, partition=0)
        assert first.flush(10) == 0
        assert time.monotonic() < deadline
    known = {id(native) for native in engine.natives}
    del engine
    first.close()
    second = SafeProducer(settings)
    assert {id(native) for native in engine_of(second).natives} == known
    for number in range(200):
        second.produce(T, b"%d" % number, partition=0)
    assert second.flush(10) == 0
    assert {id(native) for native in engine_of(second).natives} == known
    second.close()


def test_a_lane_that_never_wrote_does_not_go_over(cluster: FakeCluster) -> None:
    """Nobody has asked for its permit; one that a former owner wrote with goes over though this one did not need it."""
    settings = config(cluster)
    first = writer(settings)
    lanes = engine_of(first).dispatcher.lanes
    engine_of(first).sender.run(lanes.prepare)
    (unused,) = lanes.natives
    first.close()
    closed(unused)
    second = SafeProducer(settings)
    assert not engine_of(second).dispatcher.lanes.natives
    engine_of(second).sender.run(engine_of(second).dispatcher.lanes.prepare)
    for lane in engine_of(second).dispatcher.lanes:
        lane.counts.handed_over(1)  # as if it had
        known = lane.client.native
    send(second)
    second.close()
    for _ in range(2):
        third = SafeProducer(settings)
        assert engine_of(third).dispatcher.lanes.natives == [known]
        send(third)
        third.close()


def test_a_handler_that_raises_in_close_makes_no_second_owner(
    cluster: FakeCluster, parking: Parking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes when the native producer is parked already: close() is called again, and leaves the next owner alone."""
    first = writer(config(cluster))
    park = parking.park

    def interrupted(*arguments: Any) -> bool:
        park(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(parking, "park", interrupted)
    with pytest.raises(KeyboardInterrupt):
        first.close()
    monkeypatch.setattr(parking, "park", park)
    second = SafeProducer(config(cluster))
    assert first.close()
    assert not len(parking)
    send(second)
    assert second.snapshot().delivered == 1
    second.close()
    assert len(ids(cluster)) == 1


def test_a_callback_of_the_client_may_make_the_next_one(cluster: FakeCluster) -> None:
    """And a destructor may leave one, on whichever thread: here inside a delivery callback."""
    made: list[SafeProducer] = [SafeProducer(config(cluster))]
    send(made[0])
    outer = SafeProducer(config(cluster))

    def callback(*_: Any) -> None:
        made.clear()
        made.append(SafeProducer(config(cluster)))

    send(outer, on_delivery=callback)
    send(made[0])
    assert len(ids(cluster)) == 2
    made[0].close(), outer.close()


def test_a_fatal_error_ends_it(cluster: FakeCluster, parking: Parking, plant_fatal: Any) -> None:
    producer = writer(config(cluster))
    plant_fatal(producer)
    with pytest.raises(FatalError):
        producer.close(1)
    assert not len(parking)


def test_a_forked_child_leaves_them_alone(cluster: FakeCluster) -> None:
    """And makes its own; the parent goes on with what it parked."""
    script = f"""
    import os
    from safeproducer import SafeProducer
    config = {config(cluster)!r}
    def send(value):
        producer = SafeProducer(config)
        told = []
        producer.produce({T!r}, value, on_delivery=lambda error, message: told.append(error))
        assert producer.flush(20) == 0 and told == [None]
        return producer
    send(b"parent").close()
    for _ in range(3):
        child = os.fork()
        if child == 0:
            send(b"child").close()
            send(b"child").close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    send(b"parent").close()
    """
    ended = run(script)
    assert ended.returncode == 0, ended.stderr
    assert len(ids(cluster)) == 4
    assert written(cluster) == {b"parent": 2, b"child": 6}


def test_the_interpreter_ends_at_once(cluster: FakeCluster) -> None:
    script = f"""
    import gc, time
    from safeproducer import SafeProducer
    producers = [SafeProducer({config(cluster)!r}) for _ in range(5)]
    for producer in producers:
        producer.produce({T!r}, b"v")
    for producer in producers:
        assert producer.flush(20) == 0
    producers.pop().close()
    producers.pop()
    del producer
    print(time.time())
    """
    ended = run(script)
    assert ended.returncode == 0, ended.stderr
    assert not ended.stderr
    assert time.time() - float(ended.stdout) < 3
