"""Metrics tell what producers count: all of them, those that are gone, and nothing twice."""

import gc
import math
import os
import random
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from safeproducer import Hook, SafeProducer, TransactionUnknown
from safeproducer.kafka.native import KafkaError
from safeproducer.pipeline import bulk
from safeproducer.pipeline.record import ACCEPTED_AT
from safeproducer.pipeline.reports.hooked_send import Durations
from safeproducer.runtime.totals import Totals
from safeproducer.telemetry import OpenTelemetryMetrics, figures, metrics
from safeproducer.telemetry.metrics import INSTRUMENTS
from safeproducer.testing import FakeCluster
from tests import inside
from tests.clusters import cluster_of, fake_cluster
from tests.contract.support import send_one, wait_until

DEADLINE, SCHEMA = 30, "https://opentelemetry.io/schemas/1.44.0"
SENT, DURATION = "messaging.client.sent.messages", "messaging.client.operation.duration"
ACCEPTED, ENDED = "safeproducer.records.accepted", "safeproducer.records.ended"
COUNTERS = {each.name for each in INSTRUMENTS if each.kind == "counter"}
TOPIC, OUTCOME = "messaging.destination.name", "safeproducer.outcome"
Point = tuple[str, frozenset[tuple[str, Any]]]


class Collector:
    """A meter provider, and what it collected last. No counter may ever have fallen."""

    def __init__(self, **options: Any) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)
        self.hook = OpenTelemetryMetrics(self.provider, **options)
        self.before: dict[Point, float] = {}

    def collect(self) -> dict[Point, Any]:
        """(instrument, attributes) -> value, a histogram's data point."""
        data = self.reader.get_metrics_data()
        found: dict[Point, Any] = {}
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                assert (scope.scope.name, scope.schema_url) == ("safeproducer", SCHEMA)
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        key = metric.name, frozenset((point.attributes or {}).items())
                        assert key not in found
                        found[key] = getattr(point, "value", point)
        for key, value in found.items():
            if key[0] in COUNTERS:
                assert value >= self.before.get(key, 0), key
                self.before[key] = value
        return found

    def total(self, name: str, **attributes: Any) -> float:
        """The sum of an instrument's points with these attributes, whose dots are written as two underscores."""
        wanted = {(each.replace("__", "."), value) for each, value in attributes.items()}
        return sum(value for (of, has), value in self.collect().items() if of == name and wanted <= has)

    def outcomes(self) -> dict[str, float]:
        """Outcome -> records that ended so, of all topics."""
        names = ("delivered", "not_written", "unknown", "lost")
        return {name: self.total(ENDED, safeproducer__outcome=name) for name in names}


cluster = fake_cluster({"a": 2, "b": 1}, brokers=3, scope="module")


def producer_of(cluster: FakeCluster, *hooks: Hook, **more: Any) -> SafeProducer:
    config = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 0}
    return SafeProducer({**config, **{name.replace("_", "."): value for name, value in more.items()}}, hooks=hooks)


def down(*hooks: Hook, **more: Any) -> SafeProducer:
    config = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "message.timeout.ms": 200, **more}
    return SafeProducer(config, hooks=hooks)


# --- sums ------------------------------------------------------------------------------------------------------------


def test_figures_are_those_of_the_accounts(cluster: FakeCluster) -> None:
    """By topic; of several producers added up, and with closed ones."""
    collector = Collector()
    accepted = 0
    for _ in range(2):
        with producer_of(cluster, collector.hook) as producer:
            for number in range(10):
                producer.produce("a", b"x", partition=number % 2)
            send_one(producer, "b", b"x")
            accepted += producer.snapshot().accepted
            assert collector.total(ACCEPTED) == accepted
    del producer
    gc.collect()
    assert collector.total(ACCEPTED) == collector.total(SENT) == accepted == 22
    assert collector.total(ACCEPTED, **{"messaging__destination__name": "b"}) == 2
    assert collector.outcomes() == {"delivered": 22, "not_written": 0, "unknown": 0, "lost": 0}
    assert collector.total("safeproducer.records.unresolved") == 0
    assert collector.total("safeproducer.producer_ids", safeproducer__principal="User:ANONYMOUS") == 2


STEPS = st.lists(
    st.sampled_from(["open", "produce", "produce", "batch", "flush", "close", "drop", "cycle", "fork"]),
    min_size=3,
    max_size=10,
)


def test_a_child_begins_at_zero(cluster: FakeCluster) -> None:
    """Its parent's producers do not work there."""
    collector = Collector()
    with producer_of(cluster, collector.hook) as producer:
        producer.produce("a", b"x")
        assert collector.total(ACCEPTED) == 1
        assert in_child(lambda: collector.total(ACCEPTED) == 0)


@settings(
    max_examples=15,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS, seed=st.integers(0, 99))
def test_whatever_producers_do_sums_are_right_and_never_fall(cluster: FakeCluster, steps: list[str], seed: int) -> None:
    """Producers come and go under a collector; one that is dropped with records loses them."""
    collector, chance, accepted = Collector(), random.Random(seed), 0
    alive: list[SafeProducer] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # records that are dropped are lost
        for step in steps:
            if step == "open" or not alive:
                alive.append(producer_of(cluster, collector.hook, safeproducer_producer_ids_per_hour=100_000))
            number = chance.randrange(len(alive))
            if step == "produce":
                alive[number].produce("a", b"x", partition=chance.choice((-1, 0, 1)))
                accepted += 1
            elif step == "batch":
                accepted += alive[number].produce_batch("b", [{"value": b"x"}] * 3)
            elif step == "flush":
                assert alive[number].flush(DEADLINE) == 0
            elif step == "close":
                alive.pop(number).close(DEADLINE)
            elif step == "drop":
                del alive[number]
            elif step == "cycle":  # all references to its parts are cleared before its destructor
                ring: list[Any] = [alive.pop(number)]
                ring.append(ring)
                del ring
                gc.collect()
            elif step == "fork":
                assert in_child(lambda: collector.total(ACCEPTED) == 0)
            assert collector.total(ACCEPTED) == accepted
        for producer in alive:
            producer.close(DEADLINE)
        alive.clear()
        producer = None  # type: ignore[assignment]
        gc.collect()
    assert collector.total(ACCEPTED) == accepted == sum(collector.outcomes().values())
    assert collector.total("safeproducer.records.unresolved") == 0
    assert len(collector.hook._collection.totals.known()[0]) == 0


def in_child(holds: Any) -> bool:
    """Whether it does in a child of a fork."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if holds() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_sum_never_falls_while_a_source_leaves() -> None:
    """The collector of garbage clears references first; also when produce() takes back what it refused."""
    totals: Totals[str] = Totals(lambda source: {"x": source.count})
    assert [totals.risen("x", value) for value in (1, 3, 2, 4)] == [1, 3, 3, 4]


def test_a_collection_in_which_a_producer_is_destroyed_has_its_counters(cluster: FakeCluster) -> None:
    """References to it are cleared by then, and its counts are not added up yet."""
    collector, told = Collector(), list[float]()

    class Collects(Hook):
        def _producer_ended(self, engine: Any) -> None:
            told.append(collector.total(ENDED))

    producer: Any = producer_of(cluster, Collects(), collector.hook)
    for _ in range(5):
        producer.produce("a", b"x")
    assert producer.flush(DEADLINE) == 0
    assert collector.total(ENDED) == 5
    producer.itself = producer
    del producer
    gc.collect()
    assert told == [5]


def test_two_hooks_on_one_producer_count_once(cluster: FakeCluster) -> None:
    """Also with all durations. Either hook counts where it is alone."""
    collector = Collector(durations=1)
    second = OpenTelemetryMetrics(collector.provider, durations=1)
    with producer_of(cluster, collector.hook, second) as producer, producer_of(cluster, second) as other:
        send_one(other, "b", b"x")
        for _ in range(5):
            producer.produce("a", b"x")
        assert producer.flush(DEADLINE) == 0
        assert collector.total(ACCEPTED) == collector.total(SENT) == 6
        counts = [point.count for (name, _), point in collector.collect().items() if name == DURATION]
        assert sorted(counts) == [1, 5]


def test_records_that_expire_with_all_brokers_down_were_not_sent() -> None:
    """They are not written, and no lost or unknown one is among them."""
    collector = Collector(durations=1)
    producer = down(collector.hook)
    for _ in range(7):
        producer.produce("a", b"x")
    producer.flush(DEADLINE)
    producer.close(DEADLINE)
    assert collector.outcomes() == {"delivered": 0, "not_written": 7, "unknown": 0, "lost": 0}
    assert collector.total(SENT) == 0
    (has,) = [has for name, has in collector.collect() if name == DURATION]
    assert ("error.type", "_MSG_TIMED_OUT") in has


def test_topics_beyond_the_limit_share_a_name(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    """The first ones keep theirs; it is said once."""
    collector = Collector(topics=1)
    with producer_of(cluster, collector.hook) as producer:
        producer.produce("a", b"x")
        assert collector.total(ACCEPTED, messaging__destination__name="a") == 1
        for topic in ("b", "c", "a"):
            producer.produce(topic, b"x", partition=0)
        assert collector.total(ACCEPTED, messaging__destination__name="a") == 2
        assert collector.total(ACCEPTED, messaging__destination__name="_OTHER") == 2
        producer.purge()
    assert sum("_OTHER" in line.message for line in caplog.records) == 1


def test_partitions_and_client_ids_are_told_on_demand(cluster: FakeCluster) -> None:
    """A record is accepted on the partition that its caller named, and delivered on the one it got."""
    collector = Collector(partitions=True, client_ids=True)
    with producer_of(cluster, collector.hook, client_id="billing") as producer:
        producer.produce("a", b"x", partition=1)
        send_one(producer, "b", b"x")
    partition, client = "messaging__destination__partition__id", "messaging__client__id"
    assert collector.total(ACCEPTED, **{partition: "1", client: "billing", "messaging__destination__name": "a"}) == 1
    assert collector.total(ACCEPTED, **{partition: "0", "messaging__destination__name": "b"}) == 0
    assert collector.total(ENDED, **{partition: "0", client: "billing", "messaging__destination__name": "b"}) == 1
    assert collector.total(ACCEPTED) == collector.total(ENDED) == 2


def test_what_waits_and_who_throttles_is_told() -> None:
    """And zero once it is over; a broker's name is an address. All producers of a cluster would wait for its broker."""
    collector, more = Collector(), {"linger_ms": 60_000, "safeproducer_mode": "held"}
    with cluster_of({"a": 2}, 3) as own, producer_of(own, collector.hook, **more) as producer:
        producer.produce("a", b"x", partition=0)
        assert collector.total("safeproducer.records.held") == collector.total("safeproducer.records.unresolved") == 1
        assert collector.total("safeproducer.buffer.records") == 1
        assert 0 < collector.total("safeproducer.buffer.bytes") < collector.total("safeproducer.buffer.limit")
        engine = inside.engine_of(producer)
        engine.events.on_throttle(SimpleNamespace(broker_id=1, broker_name="kafka:9094/1", throttle_time=30.0))
        assert collector.total("safeproducer.throttle.time", server__address="kafka", server__port=9094) == 30
        assert 0 < collector.total("safeproducer.throttle.remaining", server__address="kafka") <= 30
        wait_until(lambda: collector.total("safeproducer.hold.time"), DEADLINE)
        assert collector.total("safeproducer.hold.time") > 0
        producer.purge()
        producer.flush(DEADLINE)
    held = {has: value for (name, has), value in collector.collect().items() if name == "safeproducer.records.held"}
    assert held
    assert set(held.values()) == {0} == {collector.total("safeproducer.records.unresolved")}


def test_transactions_are_counted_by_what_became_of_them(cluster: FakeCluster) -> None:
    """Also when the producer is gone; one without a transactional.id tells nothing of them."""
    collector = Collector()
    with producer_of(cluster, collector.hook) as plain:
        assert not any(name == "safeproducer.transactions" for name, _ in collector.collect())
        assert plain.snapshot().transactions is None
    with producer_of(cluster, collector.hook, transactional_id="metrics", socket_timeout_ms=500) as producer:
        producer.init_transactions(DEADLINE)
        for _ in range(2):
            with producer.transaction(DEADLINE):
                producer.produce("a", b"x")
        with pytest.raises(ZeroDivisionError), producer.transaction(DEADLINE):
            raise ZeroDivisionError
        cluster.hold_next("EndTxn", 9)
        with pytest.raises(TransactionUnknown), producer.transaction(1.2):
            producer.produce("a", b"x")
        cluster.release()
        with producer.transaction(DEADLINE):
            producer.produce("a", b"x")
    del producer, plain
    gc.collect()
    outcomes = ("committed", "aborted", "unknown")
    found = [collector.total("safeproducer.transactions", safeproducer__outcome=outcome) for outcome in outcomes]
    assert found == [3, 1, 1]
    assert collector.total("safeproducer.epochs.renewed") == 1


# --- durations -------------------------------------------------------------------------------------------------------


class Taken:
    def __init__(self, share: float) -> None:
        self.share, self.seconds = share, list[float]()

    def took(self, one_in: int, producer: Any, topic: Any, partition: Any, seconds: float, error: Any) -> None:
        self.seconds.append(seconds)


def reported(durations: Durations, seconds: list[float]) -> None:
    """Natively, one by one."""
    report = durations.sampled(lambda *_: None, set())
    for each in seconds:
        message: Any = SimpleNamespace(topic=lambda: "a", partition=lambda: 0, latency=lambda each=each: each)
        report(lambda *_: None, None, message)


def in_batches(durations: Durations, seconds: list[float]) -> None:
    """Of ten records, which were accepted so long ago."""
    for first in range(0, len(seconds), 10):
        records = [(*[None] * ACCEPTED_AT, -each) for each in seconds[first : first + 10]]
        durations.of_batch(("a", 0), records, 0.0)


def with_errors(durations: Durations, seconds: list[float]) -> None:
    explain = durations.explaining(lambda error, _: error)
    for each in seconds:
        message: Any = SimpleNamespace(topic=lambda: "a", partition=lambda: 0, latency=lambda each=each: each)
        explain(KafkaError(KafkaError._MSG_TIMED_OUT), message)


@pytest.mark.parametrize("share", [1, 1 / 2, 1 / 64, 1 / 8192])
@pytest.mark.parametrize("way", [reported, in_batches, with_errors])
def test_a_sample_is_as_all_durations_are(way: Callable[[Durations, list[float]], None], share: float) -> None:
    """Of records that always cycle through 64 durations: p50 and p95 are within 10 %, and no place is preferred."""
    taken, durations = Taken(share), [0.001 * (1 + number % 64) ** 2 for number in range(100_000)]
    way(measuring := Durations(taken, None), durations)  # type: ignore[arg-type]
    assert share <= 1 / measuring.period <= 2.4 * share or measuring.period == 127
    assert len(taken.seconds) == pytest.approx(100_000 / measuring.period, abs=1)
    if share > 0.01:
        assert len(set(taken.seconds)) == 64
        for percent in (49, 94):
            whole, part = (statistics.quantiles(each, n=100)[percent] for each in (durations, taken.seconds))
            assert part == pytest.approx(whole, rel=0.1)


def test_the_first_record_of_an_account_is_no_other_one() -> None:
    """One of each topic: as many are measured as of one topic."""
    durations = Durations(taken := Taken(1 / 64), None)  # type: ignore[arg-type]
    for _ in range(3_000):
        reported(durations, [0.1])
        in_batches(durations, [0.1])
    assert len(taken.seconds) == pytest.approx(2 * 3_000 / durations.period, rel=0.5)


def test_too_many_durations_are_thinned_fairly() -> None:
    """The sample of one collection is bounded, and the next one begins with the whole share."""
    collector = Collector(durations=1 / 2)
    collection, producer = collector.hook._collection, SimpleNamespace(client_id="")
    for _ in range(30_000):
        collection.took(2, producer, "a", 0, 0.1, None)  # type: ignore[arg-type]
    assert 1_000 <= len(collection._durations) <= 2_000
    assert collection.share < 1 / 16
    (point,) = [each for (name, _), each in collector.collect().items() if name == DURATION]
    assert 1_000 <= point.count <= 2_000
    assert collection.share == 1 / 2
    for _ in range(1_000):
        collection.took(1, producer, "a", 0, 0.1, None)  # type: ignore[arg-type]
    assert 400 < len(collection._durations) < 600, "more was offered than it wants"


def measured(collector: Collector, error: str | None = None) -> list[Any]:
    points = [(dict(has), point) for (name, has), point in collector.collect().items() if name == DURATION]
    return [point for has, point in points if has.get("error.type") == error]


@pytest.mark.parametrize("way", ["produce", "produce_batch"])
def test_metrics_leave_the_native_calls(cluster: FakeCluster, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report is measured now and then, and each application's callback is called once, in order."""
    collector, got, together = Collector(durations=1 / 16), list[bytes](), list[int]()
    native = bulk._native
    monkeypatch.setattr(bulk, "_native", lambda *call: (together.append(len(call[3])), native(*call))[1])

    def report(error: object, message: Any) -> None:
        got.append(message.value())

    with producer_of(cluster, collector.hook) as it:
        send_one(it, "b", b"first", on_delivery=report)
        route = inside.engine_of(it).route
        wait_until(lambda: it.poll(0.01) == 0 and route.goes_direct)
        assert route.observed is None
        assert route.send == route.native.produce
        values = [b"%d" % number for number in range(800)]
        if way == "produce":
            for value in values:
                it.produce("b", value, on_delivery=report)
        else:
            assert it.produce_batch("b", [{"value": value} for value in values], callback=report) == 800
        assert it.flush(DEADLINE) == 0
        assert got[1:] == values
        assert together == ([800] if way == "produce_batch" else [])
        (point,) = measured(collector)
        assert 25 <= point.count <= 100
        assert collector.total(SENT) == 801
        assert point.explicit_bounds[0] == 0.005


@pytest.mark.parametrize("only_errors", [False, True])
@pytest.mark.parametrize("mode", ["auto", "held", "passthrough"])
def test_a_duration_is_from_produce_to_the_end(mode: str, only_errors: bool) -> None:
    """Also of what waits in this process, and of what is only counted; each record once."""
    collector = Collector(durations=1)
    with cluster_of({"a": 1}) as cluster:
        own = {"safeproducer.mode": mode, "delivery.report.only.error": only_errors}
        with producer_of(cluster, collector.hook, **own) as producer:
            send_one(producer, "a", b"first")
            cluster.stop(1)
            for _ in range(10):
                producer.produce("a", b"x", partition=0)
            time.sleep(0.5)
            cluster.start(1)
            assert producer.flush(DEADLINE) == 0
            wait_until(lambda: [point.count for point in measured(collector)] == [11])
            (point,) = measured(collector)
            assert point.count == 11
            assert 10 * 0.5 < point.sum < 10 * DEADLINE


@pytest.mark.parametrize("mode", ["auto", "held", "passthrough"])
def test_a_failed_record_is_measured_once(mode: str) -> None:
    collector = Collector(durations=1)
    with down(collector.hook, **{"safeproducer.mode": mode, "message.timeout.ms": 1000}) as producer:
        for _ in range(7):
            producer.produce("a", b"x")
        producer.flush(DEADLINE)
        (point,) = measured(collector, "_MSG_TIMED_OUT")
        assert point.count == 7
        assert point.sum > 7 * 0.9
        assert not measured(collector)


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_record_that_its_leader_refuses_is_measured_once(mode: str) -> None:
    collector = Collector(durations=1)
    with FakeCluster(1) as cluster:
        cluster.create_topic("a", 1, config={"max.message.bytes": "1000"})
        with producer_of(cluster, collector.hook, **{"safeproducer.mode": mode}) as producer:
            for _ in range(7):
                producer.produce("a", bytes(2_000))
            assert producer.flush(DEADLINE) == 0
            assert not measured(collector)
            (point,) = measured(collector, "MSG_SIZE_TOO_LARGE")
            assert point.count == 7


@pytest.mark.parametrize("durations", [0, 1 / 64])
def test_a_sample_costs_no_route(cluster: FakeCluster, durations: float) -> None:
    with producer_of(cluster, OpenTelemetryMetrics(durations=durations)) as producer:
        assert inside.engine_of(producer).route.observed is None


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [("durations", -0.1), ("durations", 1.5), ("durations", math.nan), ("durations", "all"), ("topics", 0)],
)
def test_an_option_that_cannot_be_is_refused(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{option}={value!r}.*pass"):
        OpenTelemetryMetrics(**{option: value})


def test_what_is_no_provider_is_refused() -> None:
    with pytest.raises(TypeError, match=r"meter_provider=.*MeterProvider"):
        OpenTelemetryMetrics(object())  # type: ignore[arg-type]


def test_what_cannot_be_read_is_told_once_and_the_others_go_on(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One part of a producer's figures, and one instrument."""

    def lanes(*_: object) -> Iterator[Any]:
        raise RuntimeError("planted")
        yield

    monkeypatch.setattr(metrics, "SECTIONS", (lanes, *(each for each in figures.SECTIONS if each is not figures.lanes)))
    collector = Collector()
    told = collector.hook._collection._told
    collector.hook._collection._told = lambda name: 1 / 0 if name == ENDED else told(name)  # type: ignore[assignment]
    with producer_of(cluster, collector.hook) as producer:
        producer.produce("a", b"x")
        for _ in range(3):
            assert collector.total(ACCEPTED) == 1
        assert producer.flush(DEADLINE) == 0
    lines = [line.message for line in caplog.records if "cannot be read" in line.message]
    assert sorted(lines) == sorted(f"metrics: {name} cannot be read; the others go on" for name in ("lanes", ENDED))


def test_an_instrument_that_cannot_be_made_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Also the histogram; the others go on."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    meter = provider.get_meter("m")

    class Poor:
        def get_meter(self, *_: object, **__: object) -> Any:
            made = ("create_observable_counter", "create_observable_up_down_counter")
            return SimpleNamespace(**{name: getattr(meter, name) for name in made})

    producer = down(OpenTelemetryMetrics(Poor(), durations=1))  # type: ignore[arg-type]
    producer.produce("a", b"x")
    producer.flush(DEADLINE)
    producer.close(DEADLINE)
    data: Any = reader.get_metrics_data()
    made = {metric.name for each in data.resource_metrics for scope in each.scope_metrics for metric in scope.metrics}
    assert ACCEPTED in made
    failed = [line.message for line in caplog.records if "cannot be made" in line.message]
    assert len(failed) == sum(each.kind in ("gauge", "histogram") for each in INSTRUMENTS)
