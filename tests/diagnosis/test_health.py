"""health(): what probes of a service are told."""

import contextlib
import dataclasses
import json
import math
import re
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.serialization import StringSerializer

from safeproducer import FatalError, Health, SafeProducer, SafeSerializingProducer
from safeproducer.pipeline.health import judge
from safeproducer.pipeline.reports.losses import Losses
from safeproducer.policy.diagnosis import Cause
from safeproducer.runtime import clock
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.contract.support import poll_until, send_one

WORKS = Health(ok=True, ready=True)
Make = Callable[..., SafeProducer]


cluster = fake_cluster({"t": 1})


@pytest.fixture
def make(cluster: FakeCluster) -> Iterator[Make]:
    made: list[SafeProducer] = []

    def build(mode: str = "auto") -> SafeProducer:
        made.append(SafeProducer(config(cluster), **{"safeproducer.mode": mode}))
        return made[-1]

    yield build
    for producer in made:
        with contextlib.suppress(FatalError):
            producer.close(0)


def config(cluster: FakeCluster, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap, "log_level": 0, **more}


def codes(health: Health) -> list[str]:
    return [reason.code for reason in health.reasons]


def when(producer: SafeProducer, true: Callable[[Health], object], polls: bool = True) -> Health:
    """What is told of what has lasted for half a second, once it is so."""
    deadline = time.monotonic() + 20
    while not true(told := producer.health(unresolved_for=0.5)):
        assert time.monotonic() < deadline, (told, producer.explain())
        if polls:
            producer.poll(0.01)
        else:
            time.sleep(0.01)
    return told


@pytest.mark.parametrize("mode", ["auto", "held", "passthrough"])
def test_a_producer_that_works_is_ok_and_ready(cluster: FakeCluster, mode: str) -> None:
    """Before its first record, too: nothing was asked of brokers. Once closed it takes none."""
    with SafeProducer(config(cluster), **{"safeproducer.mode": mode}) as producer:
        assert producer.health() == WORKS
        send_one(producer, "t", b"x")
        assert producer.health(unresolved_for=0) == WORKS
        with pytest.raises(dataclasses.FrozenInstanceError):
            producer.health().ok = False  # type: ignore[misc]
    told = producer.health()
    assert (told.ok, told.ready, codes(told)) == (True, False, ["closed"])


@pytest.mark.parametrize("mode", ["auto", "held", "passthrough"])
def test_brokers_that_nobody_reaches_make_it_unready(unreachable: dict[str, object], mode: str) -> None:
    """At once, with the setting to check; not ok only when a record has waited too long."""
    producer = SafeProducer({**unreachable, "safeproducer.mode": mode})
    producer.produce("t", b"x")
    poll_until(producer, lambda: producer.snapshot().last_error is not None, 20)
    told = producer.health()
    assert (told.ok, told.ready, codes(told)) == (True, False, ["no_broker"])
    assert re.match("No broker has answered yet; the last client error was: The broker 127", told.reasons[0].sentence)
    assert re.match("Check (the host and port in )?bootstrap.servers", str(told.reasons[0].cure))
    told = when(producer, lambda told: not told.ok)
    reason = next(one for one in told.reasons if one.code == "client_error")
    assert "refuses the connection" in reason.sentence
    assert "bootstrap.servers" not in reason.sentence
    assert str(reason.cure).startswith("Check the host and port in bootstrap.servers")
    assert reason.since is not None
    assert reason.since >= 0.5
    assert producer.health().ok
    assert json.loads(json.dumps(told.as_dict()))["reasons"][0].keys() == {"code", "sentence", "since", "cure"}
    producer.close(0)


def test_health_does_not_flap_between_waves_of_records_that_expire(cluster: FakeCluster) -> None:
    """Not ok after half of message.timeout.ms, and until a record gets through, though none waits in between."""
    with SafeProducer(config(cluster, **{"message.timeout.ms": 3_000})) as producer:
        send_one(producer, "t", b"x")
        cluster.pause(1)
        producer.produce("t", b"x")
        began, deadline = time.monotonic(), time.monotonic() + 20
        while producer.health().ok:  # of the 30 s at its default
            assert time.monotonic() < deadline, producer.health()
            producer.poll(0.01)
        assert time.monotonic() - began >= 1.5
        while producer.snapshot().unresolved:
            assert not producer.health().ok
            producer.poll(0.01)
        told = producer.health()
        assert (told.ok, told.ready, codes(told)) == (False, True, ["expired"])
        assert "records of t [0] failed at their deadline, the last 0 s ago, and none" in told.reasons[0].sentence
        assert told.reasons[0].sentence in producer.explain().replace("Records of", "records of")
        assert (told.reasons[0].since or 0, told.reasons[0].cure) > (2.9, "")
        cluster.resume(1)
        send_one(producer, "t", b"x")
        assert producer.health(unresolved_for=0) == WORKS


def test_a_partition_that_lost_records_is_forgotten_where_others_get_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """After message.timeout.ms; its topic that others get through to, at once."""
    delivered, now = [0, 0], 100.0
    losses = Losses(10.0)
    losses.told_by(lambda topic, partition, late: "its leader is broker 1", lambda tp: tuple(delivered))  # type: ignore[arg-type,return-value]
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    assert losses.cause("t", 0, late=True) == "its leader is broker 1"
    assert losses.known(1000.0)["t", 0].since == 910.0
    delivered[1] += 1
    assert losses.known(109.0)
    assert not losses.known(110.0)
    delivered[0] += 1
    assert not losses.known(101.0)


def test_a_partition_that_flows_is_not_called_lost_between_two_deliveries(monkeypatch: pytest.MonkeyPatch) -> None:
    """More is produced than brokers take: what is old fails, and what is younger is delivered a moment later."""
    delivered, now = [0, 0], 100.0
    losses = Losses(10.0)
    losses.told_by(lambda topic, partition, late: "", lambda tp: tuple(delivered))  # type: ignore[arg-type,return-value]
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    losses.cause("t", 0, late=True)
    for _ in range(3):
        delivered[:] = delivered[0] + 1, delivered[1] + 1
        now += 0.5
        losses.cause("t", 0, late=True)
        assert not losses.known(now + 0.9)
        assert losses.known(now + 1.0)
    now += 0.5
    losses.cause("t", 0, late=True)
    assert not losses.known(now)
    now += 0.5
    losses.cause("t", 0, late=True)
    assert losses.known(now)


def test_records_that_are_refused_are_counted_whatever_their_codes() -> None:
    """Neighbours in a batch have another one: ten were never reached, and it was ok by turns."""
    losses = Losses(30.0)
    for number in range(10):
        losses.cause("t", 0, late=False, code=("INVALID_RECORD", "INVALID_TIMESTAMP")[number % 2], reason="x")
    (cause,) = losses.known(clock.monotonic()).values()
    assert cause.harms
    assert "10 record(s) of t [0] were refused" in cause.sentence


def test_what_is_not_ok_is_told_where_there_are_many_reasons() -> None:
    """Five are shown, and the one that it is not ok for came last."""
    account: Any = SimpleNamespace(state="open")
    waits = [Cause("linger", f"t [{number}] gathers a batch") for number in range(6)]
    health = judge(account, [*waits, Cause("not_polled", "1 report(s) wait for poll()")], str)
    assert (health.ok, health.reasons[0].code, len(health.reasons)) == (False, "not_polled", 5)


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf, "30", None])
def test_a_time_that_is_none_is_refused(cluster: FakeCluster, wrong: Any) -> None:
    settings = config(cluster, **{"key.serializer": StringSerializer()})
    with SafeSerializingProducer(settings) as producer:
        assert producer.health(unresolved_for=1) == WORKS
        with pytest.raises(ValueError, match=f"unresolved_for={wrong!r} is no time: give .* 0 or more"):
            producer.health(unresolved_for=wrong)
