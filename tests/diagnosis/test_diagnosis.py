"""The commonest troubles: at first nothing false is said; then the cause, by all that tell of it; then no more."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from safeproducer import FatalError, HoldReason, SafeProducer
from safeproducer.kafka.statistics import BrokerStatistics, PartitionStatistics, Statistics
from safeproducer.pipeline.buffer.in_flight_batch import InFlightBatch
from safeproducer.pipeline.cluster.cluster_view import ClusterView
from safeproducer.policy.coordinator import coordinating
from safeproducer.policy.decision import Hold
from safeproducer.policy.diagnosis import Attempts, Cause, told_first
from safeproducer.policy.throttle import Throttle
from safeproducer.policy.types import DIRECT_LANE
from safeproducer.runtime import clock
from safeproducer.settings.config import parse
from safeproducer.testing import FakeCluster
from safeproducer.testing.fake.handlers import metadata
from safeproducer.testing.fake.state.sasl import Credentials
from tests import served
from tests.contract.support import wait_until
from tests.inside import engine_of

MODES = ("auto", "held")
SOON, OVER = 20.0, 2.0
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
USER = {"sasl.username": "alice", "sasl.password": "right"}
BLAMES = re.compile(r"acknowledges n|answers, with|takes [\d.]+ s|is not there|callback|refused|throttles|client error")

Make = Callable[..., SafeProducer]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """Partition 0 of "t" is led by broker 1, 1 by 2, 2 by 3; so are those of "u"."""
    with FakeCluster(brokers=3) as made:
        for topic in "tu":
            made.create_topic(topic, 3, replication_factor=1)
        yield made


@pytest.fixture
def make(cluster: FakeCluster) -> Iterator[Make]:
    made: list[SafeProducer] = []

    def build(mode: str = "auto", warm: bool = True, **more: Any) -> SafeProducer:
        config: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "safeproducer.mode": mode}
        producer = SafeProducer({**config, "reconnect.backoff.max.ms": 200, **more})
        made.append(producer)
        for partition in range(3 * warm):
            producer.produce("t", b"warm", partition=partition)
            producer.produce("u", b"warm", partition=partition)
        assert producer.flush(SOON) == 0
        return producer

    yield build
    end_faults(cluster)
    for producer in made:
        with contextlib.suppress(FatalError):
            producer.close(0)


def end_faults(cluster: FakeCluster) -> None:
    cluster._call(cluster._state.faults._counted["error"].clear)


def until(producer: SafeProducer, true: Callable[[], object], send: Callable[[], object] = bool) -> float:
    """Poll until it is so; after how long."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() < began + SOON, (producer.explain(), producer.health(unresolved_for=0.5))
        with contextlib.suppress(BufferError):
            send()
        served.rest(producer, 0.05)
    return time.monotonic() - began


def codes(producer: SafeProducer, age: float = 0.5) -> set[str]:
    return {reason.code for reason in producer.health(unresolved_for=age).reasons}


def said(producer: SafeProducer, *asked: Any) -> str:
    """Without addresses, and without what is over."""
    return re.sub(r" \(127\.0\.0\.1:\d+\)", "", producer.explain(*asked)).partition("Over by now")[0]


def during(producer: SafeProducer, seconds: float, send: Callable[[], object], *asked: Any) -> Iterator[str]:
    """What is said while records come for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        send()
        served.rest(producer, 0.05)
        yield said(producer, *asked)


def is_over(producer: SafeProducer) -> None:
    """All is delivered, and nobody is blamed any more."""
    until(producer, lambda: producer.snapshot().unresolved == 0)
    assert until(producer, lambda: nothing_blamed(producer)) < OVER


def nothing_blamed(producer: SafeProducer) -> bool:
    return not BLAMES.search(said(producer)) and producer.health(unresolved_for=0).ok


@pytest.mark.parametrize(
    ("error", "named"), [(19, "NOT_ENOUGH_REPLICAS"), (6, "NOT_LEADER_OR_FOLLOWER"), (56, "KAFKA_STORAGE_ERROR")]
)
@pytest.mark.parametrize("warm", [False, True], ids=["first", "later"])
def test_errors_that_are_tried_again_are_told_by_what_librdkafka_does_then(
    cluster: FakeCluster, make: Make, caplog: pytest.LogCaptureFixture, warm: bool, error: int, named: str
) -> None:
    """From the first batch on, too. Nothing that the replicas refute is said, and never that it is silent alone."""
    producer = make(warm=warm)
    cluster.fail_next("Produce", error, n=10**6, topic="t")

    send = partial(producer.produce, "t", b"x", partition=0)
    send()
    assert nothing_blamed(producer)
    took = until(producer, lambda: "broker 1 answers, with errors" in said(producer), send)
    assert took >= 0.9
    until(producer, lambda: named in said(producer) and not producer.health(unresolved_for=0.5).ok, send)
    other = "NOT_LEADER_OR_FOLLOWER" if named == "NOT_ENOUGH_REPLICAS" else "NOT_ENOUGH_REPLICAS"
    assert other not in said(producer)
    assert said(producer).index("answers, with errors") == said(producer).index(": ") + len(": broker 1 ")
    refusing = [one for one in producer.health(unresolved_for=0.5).reasons if one.code == "refusing"]
    assert [
        bool(re.search(r"it acknowledges none of t \[0\] \(\d+ records in requests", one.sentence)) for one in refusing
    ] == [True]
    silent = [one for one in producer.health(unresolved_for=0).reasons if one.code == "leader_silent"]
    assert not any(" answers" in one.sentence for one in silent)
    assert "answers" not in said(producer, "u")
    with caplog.at_level(logging.WARNING, "safeproducer"):
        until(producer, lambda: named in caplog.text, send)
    end_faults(cluster)
    is_over(producer)


def test_a_single_error_that_is_tried_again_blames_nobody(cluster: FakeCluster, make: Make) -> None:
    """A leader that moves."""
    producer = make()
    cluster.fail_next("Produce", 6, n=2, topic="t")
    for told in during(producer, 3.0, partial(producer.produce, "t", b"x", partition=0)):
        assert "answers, with" not in told


def test_what_a_leader_refuses_is_told_while_attempts_go_on() -> None:
    """Records that are in requests for the first time were not refused; metadata that came meanwhile tell the error."""
    seen = Attempts(-1, sent=10).seen(15, 5, since=1.0, at=1.5, asked=1)
    assert (seen.refused, seen.lasts(1.6)) == (0, False)
    seen = seen.seen(20, 5, since=1.5, at=2.0, asked=-1)
    assert (seen.refused, seen.since, seen.lasts(9.0)) == (5, 1.5, False)
    assert not re.search("[A-Z_]{9,}", seen.cause(("t", 0), 1, 3.0).sentence)  # it may be about to ask who leads
    again = seen.seen(25, 0, since=2.0, at=2.5, asked=-1)
    assert [again.lasts(now) for now in (2.4, 2.6, 4.9, 5.1)] == [False, True, True, False]
    assert not re.search("[A-Z_]{9,}", again.cause(("t", 0), 1, 3.0).sentence)  # a disk that fails is answered so, too
    assert "NOT_ENOUGH_REPLICAS" in again.seen(30, 0, 2.5, 3.0, -1).cause(("t", 0), 1, 3.0).sentence
    asked = seen.seen(25, 0, since=2.0, at=2.5, asked=1).seen(30, 0, since=2.5, at=3.0, asked=1)
    assert "NOT_LEADER_OR_FOLLOWER" in asked.cause(("t", 0), None, 3.0).sentence


def test_what_explains_another_cause_is_told_first() -> None:
    """Equal ones as they came."""
    found = [Cause(code, code) for code in ("expired", "leader_silent", "client_error", "callback", "linger")]
    assert [one.code for one in told_first(found)] == ["callback", "client_error", "leader_silent", "linger", "expired"]


@pytest.mark.parametrize("mode", MODES)
def test_a_slow_broker_is_told_with_its_time_and_partitions(
    cluster: FakeCluster, make: Make, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    """It is no reason to be restarted, and acknowledges. Others are not named."""
    producer = make(mode, **{"linger.ms": 0})
    cluster.delay(2.0, broker=2)

    def send() -> None:
        for partition in range(3):
            producer.produce("t", b"x", partition=partition)

    began = time.monotonic()
    send()
    fine, early = nothing_blamed(producer), time.monotonic() < began + 0.5
    assert fine or not early  # where the machine stood still meanwhile it is the truth
    until(producer, lambda: "broker 2 takes 2.0 s for each answer" in said(producer), send)
    assert re.search(r"acknowledgements of t \[1\][.;]", said(producer))
    assert "takes" not in said(producer, "t", 0)
    until(producer, lambda: "slow" in codes(producer), send)
    until(producer, lambda: "broker 2 " in caplog.text and " s for each answer, and so for" in caplog.text, send)
    for told in during(producer, 3.0, send):
        assert not ("takes 2.0 s" in told and "acknowledges nothing" in told), told
    cluster.delay(0, broker=2)
    is_over(producer)


@pytest.mark.parametrize("mode", MODES)
def test_a_topic_that_was_deleted_is_told_as_by_the_log(
    cluster: FakeCluster, make: Make, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    """Its leaders are not called silent; the error of a record says it, too. Made anew it is well."""
    producer, errors = make(mode, **{"message.timeout.ms": 6_000}), list[Any]()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics(["t"])["t"].result()

    report = lambda error, _: error and errors.append(error)  # noqa: E731
    send = partial(producer.produce, "t", b"x", partition=0, on_delivery=report)
    until(producer, lambda: "topic 't' is not there" in said(producer), send)
    assert "acknowledges n" not in said(producer)
    until(producer, lambda: codes(producer) == {"unknown_topic"}, send)
    assert {row.reason for row in producer.snapshot().partitions if row.unresolved} == {HoldReason.UNKNOWN_TOPIC}
    until(producer, lambda: "topic 't' is not there. Create the topic, or grant DESCRIBE on it." in caplog.text)
    until(producer, lambda: errors)
    assert "topic 't' is not there" in errors[0].str()
    cluster.create_topic("t", 3, replication_factor=1)
    send()
    is_over(producer)


@pytest.mark.parametrize("serve", ["poll", "flush", "close"])
@pytest.mark.parametrize("mode", MODES)
def test_a_callback_that_blocks_is_named(
    cluster: FakeCluster, make: Make, caplog: pytest.LogCaptureFixture, mode: str, serve: str
) -> None:
    """With its file and line, since when, and how many reports wait behind it: they are acknowledged."""
    producer, free, called = make(mode), threading.Event(), threading.Event()

    def blocks(*_: Any) -> None:
        called.set()
        free.wait(60)

    cluster.delay(0.3)  # all acknowledgements are there when the first callback runs
    producer.produce("t", b"x", partition=0, on_delivery=blocks)
    for _ in range(100):
        producer.produce("t", b"x", partition=0)
    server = threading.Thread(target=getattr(producer, serve), args=(SOON,))
    server.start()
    assert called.wait(SOON)
    where = rf"callback \S+blocks \({re.escape(__file__)}:\d+\)"
    named = rf"{where} has been running for \d+ s, and 100 report\(s\) wait behind"
    wait_until(lambda: re.search(named, producer.explain()), SOON)
    told = producer.explain()
    assert "no acknowledgement yet" not in told
    assert "Call poll()" not in told
    assert codes(producer) == {"callback"}
    assert not producer.health(unresolved_for=0.5).ok
    wait_until(lambda: re.search(named, caplog.text), SOON)
    free.set()
    server.join()
    if serve != "close":
        until(producer, lambda: nothing_blamed(producer))


def test_a_callback_that_keeps_nobody_waiting_is_not_told(make: Make) -> None:
    producer = make()
    free, called = threading.Event(), threading.Event()
    producer.produce("t", b"x", partition=0, on_delivery=lambda *_: (called.set(), free.wait(60)))
    server = threading.Thread(target=producer.poll, args=(SOON,))
    server.start()
    assert called.wait(SOON)
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        assert "callback" not in producer.explain()
        time.sleep(0.05)
    free.set()
    server.join()


@pytest.mark.parametrize("error", [10, 29, 44, 87])
def test_a_producer_whose_every_record_is_refused_is_not_ok(cluster: FakeCluster, make: Make, error: int) -> None:
    """Once ten were; one alone is only told. What it means and what to do reaches the error of the record."""
    producer, errors = make(), list[Any]()

    def send() -> None:
        with contextlib.suppress(Exception):
            producer.produce("t", b"x", partition=0, on_delivery=lambda error, _: error and errors.append(error))

    cluster.fail_next("Produce", error, topic="t")
    send()
    until(producer, lambda: errors)
    assert (producer.health().ok, codes(producer, 30)) == (True, {"refused"})
    assert re.search(r"1 record\(s\) of t \[0\] were refused with [A-Z_]+, the last 0 s ago", producer.explain())
    cluster.fail_next("Produce", error, n=10**6, topic="t")
    until(producer, lambda: not producer.health().ok, send)
    told = producer.health()
    for _ in during(producer, 2.5, send):
        assert "tries again" not in producer.explain()
    assert len(errors) >= 10
    assert told.ready
    (reason,) = told.reasons
    assert reason.cure
    assert reason.cure in producer.explain()
    meaning = reason.sentence.rpartition("since: ")[2].partition(" (")[0]  # the error itself is not quoted in it again
    assert meaning in errors[-1].str()
    assert reason.cure.rstrip(".")[1:] in errors[-1].str()
    end_faults(cluster)
    until(
        producer, lambda: producer.health() == producer.health(unresolved_for=0) and not producer.health().reasons, send
    )


@pytest.mark.parametrize("mode", MODES)
def test_a_producer_that_gets_no_permit_in_time_is_not_ok(make: Make, mode: str, tmp_path: Path) -> None:
    """Its records fail at once, and no broker has refused any."""
    limit = {"safeproducer.producer.ids.policy": "delay", "safeproducer.producer.ids.ledger": str(tmp_path)}
    make("auto", **limit, **{"safeproducer.producer.ids.per.hour": 1})
    producer = make(mode, warm=False, **limit, **{"safeproducer.producer.ids.per.hour": 1})
    until(producer, lambda: not producer.health().ok, lambda: producer.produce("t", b"x", partition=0))
    assert codes(producer, 30) == {"refused"}
    assert "a limit on producer IDs is used up. Keep producers, or have it raised." in producer.explain()


def test_a_topic_that_is_refused_beside_one_that_is_not_is_only_told(cluster: FakeCluster, make: Make) -> None:
    producer, refused = make(), list[Any]()
    cluster.fail_next("Produce", 44, n=10**6, topic="t")

    def send() -> None:
        producer.produce("t", b"x", partition=0, on_delivery=lambda error, _: refused.append(error))
        producer.produce("u", b"x", partition=0)

    until(producer, lambda: len(refused) > 20, send)
    until(producer, lambda: not producer.snapshot().unresolved)
    assert (producer.health().ok, codes(producer, 30)) == (True, {"refused"})


@pytest.mark.parametrize("mode", MODES)
def test_a_name_that_a_broker_advertises_is_not_looked_for_in_the_configuration(
    cluster: FakeCluster, make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    """It is told whose it is, where to correct it, and who told it; also once records have expired."""
    monkeypatch.setattr(metadata, "LOOPBACK", "no-such-host.invalid")
    producer, errors = make(mode, warm=False, **{"message.timeout.ms": 4_000}), list[Any]()
    producer.produce("t", b"x", partition=0, on_delivery=lambda error, _: errors.append(error))
    until(producer, lambda: "no-such-host.invalid" in said(producer) or errors)
    told = producer.explain()
    assert re.search(r"advertised.listeners of broker \d \(its address was told by 127.0.0.1", told)
    assert "bootstrap.servers" not in told
    until(producer, lambda: "advertised.listeners of broker" in caplog.text)
    until(producer, lambda: not producer.health(unresolved_for=0.5).ok)
    assert any("advertised.listeners" in str(one.cure) for one in producer.health(unresolved_for=0.5).reasons)
    until(producer, lambda: errors)
    assert "no-such-host.invalid" in errors[0].str()
    assert "advertised.listeners" in producer.explain()


def test_brokers_that_all_stop_are_not_a_topic_that_is_not_there(cluster: FakeCluster, make: Make) -> None:
    """Also when all that librdkafka knew of topics has expired, with the records."""
    producer, errors = make(**{"message.timeout.ms": 4_000}), list[Any]()
    for number in (1, 2, 3):
        cluster._await(cluster._brokers[number].stop)

    send = partial(producer.produce, "t", b"x", on_delivery=lambda error, _: errors.append(error))
    until(producer, lambda: "no broker is connected" in said(producer), send)
    until(producer, lambda: errors, send)
    assert "no broker is connected" in errors[0].str()
    reasons, end = set[Any](), time.monotonic() + 3.0
    for told in during(producer, 23.0, send):
        reasons |= {row.reason for row in producer.snapshot().partitions}
        assert "no broker is connected" in told
        assert "Create the topic" not in told
        assert "no broker has given" not in told  # a producer ID: that is no cause
        if time.monotonic() >= end and HoldReason.NO_BROKER in reasons:
            break
    assert not reasons & {HoldReason.UNKNOWN_TOPIC, HoldReason.LEADER_SILENT}
    assert HoldReason.NO_BROKER in reasons


def test_a_full_queue_behind_a_silent_leader_names_it(cluster: FakeCluster, make: Make) -> None:
    """To call poll() would make no room."""
    producer, told = make(**{"queue.buffering.max.messages": 50}), [""]
    cluster.pause(1)

    def send() -> None:
        try:
            producer.produce("t", b"x", partition=0)
        except BufferError as error:
            told.append(str(error))

    until(producer, lambda: re.search(r"acknowledges nothing.*Look at that broker", told[-1]), send)
    assert "Call poll()" not in told[-1]
    cluster.resume(1)
    until(producer, lambda: producer.snapshot().unresolved == 0)


def test_acknowledged_records_of_a_broker_that_throttles_wait_for_nobody(cluster: FakeCluster, make: Make) -> None:
    """Their reports wait for poll(): the row of snapshot() has no reason."""
    producer = make()
    cluster.set_throttle(60_000, broker=1)
    producer.produce("t", b"x", partition=0)
    wait_until(
        lambda: "1 report(s) wait for poll()" in producer.explain() and producer.snapshot().throttled_brokers, SOON
    )
    assert {row.reason for row in producer.snapshot().partitions} == {None}


def test_nobody_is_told_to_create_a_topic_before_a_broker_was_asked(cluster: FakeCluster, make: Make) -> None:
    """It waits for the answer, in the first milliseconds and as long as that takes."""
    cluster.delay(1.0, api="Metadata")
    producer = make("held", warm=False)
    producer.produce("t", b"x", key=b"k")
    known, told = engine_of(producer).holds.partitions.known, set[str]()

    def answered() -> bool:
        told.update(str(reason.cure) for reason in producer.health(unresolved_for=0).reasons)
        told.add(producer.explain())
        return known("t")

    until(producer, answered)
    assert any("waits until its lane has learned of the partitions of its topic" in sentence for sentence in told)
    assert not any("Create the topic" in sentence for sentence in told)


@pytest.mark.parametrize(
    ("partition", "left", "served", "owed"), [(0, 1, 0, True), (-1, 1, 0, False), (0, 0, 0, False), (0, 1, 59, False)]
)
def test_what_no_leader_owes(make: Make, partition: int, left: int, served: float, owed: bool) -> None:
    """Records without a partition, as nobody leads them; an answer that the sender has, or that waits for it."""
    engine = engine_of(producer := make("held"))
    producer.close()  # or its sender would serve meanwhile
    buffer = engine.dispatcher.record_buffer.find(("t", partition))
    sinks: Any = None
    buffer.unresolved.append(InFlightBatch(buffer.tp, [], True, clock.monotonic() - 60, sinks, buffer.ack))
    buffer.unresolved[0].left, engine.holds.served_at = left, clock.monotonic() - served
    assert engine.holds.is_owed(buffer, Hold(None, HoldReason.IN_FLIGHT), clock.monotonic()) is owed
    buffer.unresolved.clear()


def test_a_leader_that_acknowledged_is_silent_no_more(
    cluster: FakeCluster, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the next statistics say so: what came then was held, for a leader that had acknowledged all."""
    producer = make("auto")
    direct = engine_of(producer).holds.direct
    assert direct is not None
    cluster.pause(1)
    producer.produce("t", b"x", partition=0)
    until(producer, lambda: "acknowledges nothing" in said(producer))
    monkeypatch.setattr(type(direct), "update", lambda *_: frozenset())  # no statistics any more
    assert direct.silent == {("t", 0)}
    cluster.resume(1)
    assert producer.flush(SOON) == 0
    assert not direct.silent
    producer.produce("t", b"x", partition=0)
    assert "acknowledges nothing" not in said(producer)


def test_records_that_failed_before_are_told_beside_those_that_wait(cluster: FakeCluster, make: Make) -> None:
    """With the error, also while others wait for something else."""
    producer = make("auto")
    cluster.fail_next("Produce", 10, n=1, topic="t")
    producer.produce("t", b"refused", partition=0)
    until(producer, lambda: producer.snapshot().failed)
    cluster.delay(5.0, api="Produce")
    producer.produce("t", b"waits", partition=0)
    told = "1 record(s) wait for t [0] (1 record(s) delivered, 1 failed, lately with MSG_SIZE_TOO_LARGE): "
    until(producer, lambda: told in said(producer, "t", 0))
    cluster.end_faults()


def test_a_full_queue_names_the_cause_that_explain_names(cluster: FakeCluster, make: Make) -> None:
    """It said that a leader acknowledges nothing, which answers with errors."""
    producer = make("held", **{"queue.buffering.max.messages": 50})
    cluster.fail_next("Produce", 19, n=1_000_000, topic="t")

    send = partial(producer.produce, "t", b"x", partition=0)
    until(producer, lambda: "answers, with errors" in said(producer), send)
    told = set[str]()

    def full() -> bool:
        try:
            send()
        except BufferError as error:
            told.add(str(error))
        return any("answers, with errors" in each for each in told)

    until(producer, full)
    assert not any("most of the memory" in each and "acknowledges nothing" in each for each in told)


@pytest.mark.parametrize(("rest", "error"), [(0.0, 32), (5.0, 32), (0.0, -1)])
def test_a_topic_that_was_refused_goes_on_beside_a_broker_that_hangs(
    cluster: FakeCluster, make: Make, rest: float, error: int
) -> None:
    """librdkafka's counts never tell that a record was refused: the topic counted as silent for good, and was held."""
    producer, ended = make(), list[Any]()
    cluster.pause(3)
    producer.produce("u", b"x", partition=2)  # the lane is never empty
    cluster.fail_next("Produce", error, n=10**6, topic="t")

    def send() -> None:
        for partition in (0, 1):
            producer.produce("t", b"x", partition=partition, on_delivery=lambda error, _: ended.append(error))

    end = time.monotonic() + 5.0
    while time.monotonic() < end or len(ended) < 30:
        send()
        served.rest(producer, 0.05)
        assert "acknowledges nothing" not in said(producer, "t")
    cluster.fail_next("Produce", error, n=0, topic="t")
    end = time.monotonic() + rest
    while time.monotonic() < end:
        producer.poll(0.02)
    until(producer, lambda: ended[-1] is None, send)
    assert "acknowledges nothing" not in said(producer, "t")
    cluster.resume(3)
    until(producer, lambda: nothing_blamed(producer), send)


class Deaf(dict[Any, Any]):
    """It keeps nothing."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_brokers_that_hang_up_on_a_client_without_sasl_are_no_silence(mode: str, told: bool) -> None:
    """librdkafka calls each connection up, and may tell no error where it tries others meanwhile."""
    with FakeCluster(brokers=3, users={"u": "right"}) as cluster:
        cluster.create_topic("t")
        config = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "safeproducer.mode": mode}
        producer = SafeProducer(config)
        if not told:
            engine_of(producer).holds.cluster.errors = Deaf()
        try:
            producer.produce("t", b"x")
            causes = r"cannot be reached|hung up before|no broker has answered|for a broker: none is connected"
            until(producer, lambda: re.search(causes, said(producer)) and "security.protocol" in said(producer))
            until(producer, lambda: not producer.health(unresolved_for=0.5).ok)
            assert codes(producer) <= {"no_broker", "client_error", "outdated_metadata"}
        finally:
            producer.close(0)


@pytest.mark.parametrize(
    ("api", "error", "method", "how"),
    [
        ("FindCoordinator", 15, "init_transactions", r"no broker tells who that is"),
        ("InitProducerId", 14, "init_transactions", r"it \(127.0.0.1:\d+\) answers with errors that"),
        ("InitProducerId", None, "init_transactions", r"it \(127.0.0.1:\d+\) has not answered a request for \d s"),
        ("AddPartitionsToTxn", 51, "commit_transaction", r"it \(127.0.0.1:\d+\) answers with errors that"),
        ("AddPartitionsToTxn", None, "commit_transaction", r"it \(127.0.0.1:\d+\) has not answered a request for \d s"),
        ("EndTxn", 51, "commit_transaction", r"it \(127.0.0.1:\d+\) answers with errors that"),
        ("EndTxn", None, "commit_transaction", r"it \(127.0.0.1:\d+\) has not answered a request for \d s"),
    ],
)
def test_a_coordinator_that_keeps_a_transaction_waiting_is_named(
    cluster: FakeCluster,
    make: Make,
    caplog: pytest.LogCaptureFixture,
    api: str,
    error: int | None,
    method: str,
    how: str,
) -> None:
    """It was told nowhere: no leader is asked meanwhile, and no record waits for one."""
    producer = make(warm=False, **{"transactional.id": "orders"})

    def transaction() -> None:
        producer.begin_transaction()
        producer.produce("t", b"x", partition=0)
        producer.commit_transaction(60)

    if method == "commit_transaction":
        producer.init_transactions(SOON)
        transaction()
    if error is None:
        cluster.hold_next(api)
    else:
        cluster.fail_next(api, error, n=10**6)
    waits = transaction if method == "commit_transaction" else lambda: producer.init_transactions(60)
    call = threading.Thread(target=waits)
    call.start()
    named = rf"he transaction coordinator keeps {method}\(\) waiting, for \d s so far: {how}"
    took = until(producer, lambda: re.search(named, producer.explain()))
    assert took >= 0.9
    assert "acknowledges nothing" not in producer.explain()
    until(producer, lambda: "coordinator" in codes(producer) and not producer.health(unresolved_for=0.5).ok)
    until(producer, lambda: re.search(named, caplog.text))
    end_faults(cluster)
    cluster.release()
    until(producer, lambda: not call.is_alive())
    assert nothing_blamed(producer)
    assert "coordinator" not in producer.explain()


@pytest.mark.parametrize("mode", MODES)
def test_a_broker_that_owes_all_is_named_before_it_is_silent(cluster: FakeCluster, make: Make, mode: str) -> None:
    """Nor does a record at another broker wait for it. Until then it is no reason to be restarted."""
    producer, told = make(mode), set[str]()

    def named() -> bool:
        text, ok = said(producer), producer.health(unresolved_for=0).ok
        told.update(["soon"] if ok and "broker 2 has not answered for" in text else [])
        assert "acknowledgements of t [0]" not in text
        return "broker 2 acknowledges nothing of t [1]" in text and not producer.health(unresolved_for=0).ok

    for _ in range(5):  # a machine that is busy may show no statistics in between
        cluster.pause(2)
        for partition in range(3):
            producer.produce("t", b"x", partition=partition)
        until(producer, named)
        cluster.resume(2)
        until(producer, lambda: producer.snapshot().unresolved == 0)
        if told:
            break
    assert told == {"soon"}
    assert until(producer, lambda: nothing_blamed(producer)) < OVER


@pytest.mark.parametrize("mode", MODES)
def test_brokers_that_hang_are_named_for_a_topic_that_none_told_of(cluster: FakeCluster, make: Make, mode: str) -> None:
    """It was to be created, or nothing was said: nobody leads it, as far as is known."""
    producer = make(mode)
    cluster.create_topic("new", 3, replication_factor=1)
    for number in (1, 2, 3):
        cluster.pause(number)
    producer.produce("new", b"x")
    until(producer, lambda: re.search(r"no broker has told of new: broker \d has not answered for \d", said(producer)))
    assert "Create the topic" not in said(producer)
    until(producer, lambda: "no_broker" in codes(producer) and not producer.health(unresolved_for=0.5).ok)
    for number in (1, 2, 3):
        cluster.resume(number)
    is_over(producer)


@pytest.mark.parametrize("mode", MODES)
def test_a_client_that_sends_nothing_until_a_broker_that_hangs_answers_names_that_one(
    cluster: FakeCluster, make: Make, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    """librdkafka takes another epoch after a refusal, once all is answered: each leader was called silent."""
    producer = make(mode)
    cluster.pause(2)
    producer.produce("t", b"x", partition=1)
    for _ in range(50):  # it is under way to broker 2 by then, or nothing would wait for it
        producer.poll(0.02)
    cluster.fail_next("Produce", 10, topic="u")
    refused = next(number for number in range(3) if cluster.leader("u", number)[0] != 2)
    producer.produce("u", b"x", partition=refused)

    send = partial(producer.produce, "t", b"x", partition=0)
    named = "nothing is sent until broker 2 has answered what is under way"
    until(producer, lambda: named in said(producer), send)
    for told in during(producer, 4.0, send, "t", 0):
        assert named in told
        assert not re.search(r"broker [13](, its leader,)? acknowledges", said(producer))
    assert codes(producer) >= {"coordinator", "refused"}
    assert not producer.health(unresolved_for=0.5).ok
    until(producer, lambda: named in re.sub(r" \(127\.0\.0\.1:\d+\)", "", caplog.text))
    cluster.resume(2)
    until(producer, lambda: producer.snapshot().unresolved == 0)
    until(producer, lambda: named not in said(producer))


def statistics(at: float, sent: int, age: float, disconnects: int) -> Statistics:
    """Of a client that has given its leader, which is broker 1, records of t [0]; broker 2 was lost so often."""
    broker = BrokerStatistics("b", "UP", 0, 9, 9, None)
    brokers = {1: broker, 2: dataclasses.replace(broker, disconnects=disconnects)}
    rows = {("t", 0): PartitionStatistics(1, 0, 0, 0, sent, 5, 0)}
    return Statistics(at, 7, 0, 0, 0, brokers, rows, {"t": age})


@pytest.mark.parametrize("lost", [0, 1])
def test_what_librdkafka_asks_for_as_it_lost_a_broker_tells_no_error(lost: int) -> None:
    """It asks who leads, then: KAFKA_STORAGE_ERROR was named where replicas were missing."""
    cluster = ClusterView(parse(({"bootstrap.servers": "x"},), {}).delivery, Throttle())
    for look in range(4):
        cluster.update(DIRECT_LANE, statistics(100.0 + look / 2, 5 * look, 0.1, lost if look else 0))
    told = cluster.attempts["t", 0].cause(("t", 0), 1, 102.0).sentence
    assert ("KAFKA_STORAGE_ERROR" in told) is not bool(lost)


def test_what_leaders_refuse_is_counted_from_the_first_statistics_on() -> None:
    """Those of a new producer show three attempts, and the next one comes a second later."""
    cluster = ClusterView(parse(({"bootstrap.servers": "x"},), {}).delivery, Throttle())
    for at, sent, age in (100.5, 3, 0.1), (101.0, 4, 0.6):
        cluster.update(DIRECT_LANE, statistics(at, sent, age, 0))
    (told,) = cluster.sick(("t", 0), 101.0)
    assert not re.search("[A-Z_]{9,}", told.sentence)  # metadata are asked for at first whatever is answered


def test_no_broker_is_blamed_for_an_id_by_statistics_that_are_old() -> None:
    """It was, on a long link, where a busy machine had shown none since the first ones."""
    old, lasts = (
        dataclasses.replace(statistics(at, 0, 0.1, 0), asks_id=(100.0, "RequestPID")) for at in (100.5, 101.0)
    )
    assert [coordinating({}, {0: each}, 103.0) is not None for each in (old, lasts)] == [False, True]


@pytest.mark.parametrize("bootstrap", ["advertises", "127.0.0.1:1"])
def test_records_that_wait_for_a_broker_that_is_not_reached_are_counted_as_that(
    cluster: FakeCluster, make: Make, monkeypatch: pytest.MonkeyPatch, bootstrap: str
) -> None:
    """Metrics and spans have the code of the first cause: they called its leader silent."""
    monkeypatch.setattr(metadata, "LOOPBACK", "no-such-host.invalid")
    servers = cluster.bootstrap if bootstrap == "advertises" else bootstrap
    producer = make("held", warm=False, **{"bootstrap.servers": servers})

    send = partial(producer.produce, "t", b"x", partition=0)
    until(producer, lambda: (("t", 0), "client_error") in engine_of(producer).holds.hold_times(), send)
    assert (("t", 0), HoldReason.LEADER_SILENT) not in engine_of(producer).holds.hold_times()


def test_what_a_broker_answers_is_told_by_the_lane_that_meets_it() -> None:
    """On a long link the direct lane has no record, and connects to no broker again."""
    with FakeCluster(brokers=3, users={"alice": "right"}) as cluster:
        cluster.create_topic("t", 1, replication_factor=1)
        config = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200}
        producer = SafeProducer({**config, **LOGIN, **USER})

        def send() -> None:
            producer.produce("t", b"x", partition=0)

        cluster.delay(0.1)
        until(producer, lambda: engine_of(producer).holds.prefers_batches, send)
        until(producer, lambda: not (producer.snapshot().unresolved or len(engine_of(producer).native)))
        cluster._state.access.credentials = Credentials({"alice": "other"})
        cluster._await(cluster._brokers[cluster.leader("t")[0]].cut)
        until(producer, lambda: "refused the user name or the password" in said(producer), send)
        until(producer, lambda: "client_error" in codes(producer), send)
        assert producer.snapshot().last_error is not None
        assert engine_of(producer).events.logins_refused
        producer.close(0)
