"""What a producer says of replication quotas and the in-sync set (KIP-73), on three real nodes."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from integration.conftest import MARKER
from integration.kafka.cluster import KafkaCluster
from integration.kafka.poll import until
from integration.test_lanes import AHEAD, Application, run
from safeproducer import Hook, ReplicationChanged, ReplicationSnapshot, SafeProducer
from safeproducer.kafka.admin import Admin
from safeproducer.pipeline.cluster import replication

MB = 1_000_000
RECORD = os.urandom(10_000)
LISTS = [f"{side}.replication.throttled.replicas" for side in ("leader", "follower")]
RATES = [f"{side}.replication.throttled.rate" for side in ("leader", "follower")]
USER = "writer-only"
LOOK, LOOKS = 6.0, 21.0
"""Seconds between two looks while all is in sync, and until one has told. `tests/pipeline/test_replication.py` holds
the minute of the product."""


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "QUIET", LOOK)


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Kafka's default of replica.lag.time.max.ms, and a listener with rights."""
    with KafkaCluster(3, secure=True, configs={"replica.lag.time.max.ms": "30000"}) as cluster:
        cluster.admin.add_scram_user(USER, MARKER)
        yield cluster


def throttle(cluster: KafkaCluster, topic: str, leaders: str | None, followers: str | None, rate: int | None) -> None:
    cluster.admin.set_topic_config(topic, dict(zip(LISTS, (leaders, followers), strict=True)))
    for broker in cluster.nodes:
        cluster.admin.set_broker_config(dict.fromkeys(RATES, None if rate is None else str(rate)), broker)


@pytest.fixture
def placed(cluster: KafkaCluster) -> Iterator[Callable[..., str]]:
    """Makes a topic of one partition on these brokers, led by the first; without any throttle afterwards."""
    made: list[str] = []

    def make(name: str, brokers: list[int], minimum: int = 1) -> str:
        admin = cluster.admin
        admin.create_topic(name, 1, 2, {"min.insync.replicas": str(minimum)})
        made.append(name)
        admin.requests.reassign(name, 0, brokers)
        until(lambda: sorted(admin.partitions(name)[0].in_sync) == sorted(brokers), "the replicas are in place")
        admin.move_leader(name, 0, brokers[0])
        return name

    yield make
    for node in cluster.nodes.values():
        if node.state == "paused":
            node.resume()
    for name in made:
        throttle(cluster, name, None, None, None)


class Heard(Hook):
    def __init__(self) -> None:
        self.events: list[ReplicationChanged] = []

    def replication_changed(self, event: ReplicationChanged) -> None:
        self.events.append(event)


class Writer:
    """Writes so many bytes/s to a topic until the end of the block."""

    def __init__(self, topics: list[str], rate: float, **config: Any) -> None:
        self.heard = Heard()
        self.producer = SafeProducer({"linger.ms": 5, "log_level": 0, **config}, hooks=[self.heard])
        self._topics, self._rate = topics, rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.failed: list[object] = []
        self.acknowledged_at = time.monotonic()
        self.written = 0

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.producer.close(60)

    def _write(self) -> None:
        began, given = time.monotonic(), 0
        while not self._stop.is_set():
            while given < (time.monotonic() - began) * self._rate:
                for topic in self._topics:
                    self.producer.produce(topic, RECORD, on_delivery=self._told)
                given += len(RECORD) * len(self._topics)
            self.producer.poll(0.02)

    def _told(self, error: object, _: object) -> None:
        self.acknowledged_at = time.monotonic()
        self.written += len(RECORD)
        if error is not None:
            self.failed.append(error)

    def said(self, topic: str) -> ReplicationSnapshot | None:
        rows = self.producer.snapshot().partitions
        return next((row.replication for row in rows if row.topic == topic and row.partition == 0), None)

    def until(self, topic: str, holds: Callable[[ReplicationSnapshot], object], what: str, timeout: float) -> float:
        """Wait until it is said; when."""

        def found() -> bool:
            said = self.said(topic)
            return said is not None and bool(holds(said))

        try:
            until(found, what, timeout, 0.05)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.said(topic)}; {self.producer.explain(topic)}") from None
        return time.monotonic()


def login(cluster: KafkaCluster) -> dict[str, Any]:
    """Of the user that may WRITE and nothing else."""
    return {
        "bootstrap.servers": cluster.secure_bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": MARKER,
        "ssl.ca.location": str(cluster.ca_pem),
    }


def warnings(caplog: pytest.LogCaptureFixture, topic: str) -> list[str]:
    return [text for text in caplog.messages if f" {topic} [0]" in text]


@pytest.mark.timeout(400)
def test_a_move_that_never_ends_is_named_until_its_throttle_is_gone(
    cluster: KafkaCluster, placed: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """3 MB/s are written into a move of 1 MB/s: both figures. A user with WRITE alone hears which right is missing."""
    caplog.set_level(logging.WARNING, "safeproducer")
    name = placed("moving", [1, 2])
    cluster.admin.add_acl(f"User:{USER}", name, AclOperation.WRITE)
    with (
        Writer([name], 3 * MB, **{"bootstrap.servers": cluster.bootstrap}) as writer,
        Writer([name], 10_000, **login(cluster)) as other,
    ):
        for one in (writer, other):
            one.until(name, lambda said: not said.unusual, "all is in sync", 30)
        until(lambda: writer.written > 15 * MB, "there is something to move")
        throttle(cluster, name, "0:1,0:2", "0:3", MB)
        cluster.admin.requests.reassign(name, 0, [1, 3])
        began = time.monotonic()
        named = writer.until(name, lambda said: said.state == "never_ends", "it never ends", LOOKS)
        found = writer.said(name)
        assert found is not None
        assert (found.moving, found.broker, found.limit) == (True, 3, MB)
        assert found.needed is not None
        assert 4 * MB < found.needed < 8 * MB  # to two followers
        assert f"{found.needed / 1e6:.1f} MB/s of it" in writer.producer.explain(name)
        assert "1.0 MB/s" in writer.producer.explain(name)
        print(f"never_ends after {named - began:.1f} s: {found.sentence}")
        other.until(name, lambda said: said.state == "unreadable", "it is unreadable", LOOKS)
        unread = other.said(name)
        assert unread is not None
        assert (unread.moving, unread.minimum) == (True, None)
        assert "DESCRIBE_CONFIGS" in unread.cure

        throttle(cluster, name, "0:1,0:2", "0:3", 200 * MB)
        writer.until(name, lambda said: said.state == "in_sync" and said.left_over, "the throttle is left over", 60)
        throttle(cluster, name, None, None, None)
        writer.until(name, lambda said: not said.unusual, "there is nothing to say", LOOKS)
        assert "replica" not in writer.producer.explain(name)
    assert not writer.failed
    states = [event.after.state.value for event in writer.heard.events]
    assert "never_ends" in states
    assert states[-1] == "in_sync"
    assert len([text for text in warnings(caplog, name) if "never ends" in text]) == 1


@pytest.mark.timeout(400)
def test_a_follower_that_returns_under_a_left_over_throttle_is_the_cause(
    cluster: KafkaCluster, placed: Callable[..., str]
) -> None:
    """It was paused for 8 s. Acknowledgements wait for it, and it is named within 8 s of their end."""
    name = placed("returning", [1, 2])
    throttle(cluster, name, "*", "*", MB)
    with Writer([name], 3 * MB, **{"bootstrap.servers": cluster.bootstrap}) as writer:
        writer.until(name, lambda said: said.state == "in_sync", "all is in sync", 30)
        until(lambda: writer.written > 40 * MB, "its bytes are known", 60)
        cluster.nodes[2].pause()
        try:
            writer.until(name, lambda said: said.state == "broker_down", "the follower is away", 20)
            time.sleep(5)
        finally:
            cluster.nodes[2].resume()
        named = writer.until(name, lambda said: said.delays, "acknowledgements wait for it", 28)
        silent_since, said = writer.acknowledged_at, writer.said(name)
        assert said is not None
        assert (said.broker, said.left_over, said.state) == (2, True, "never_ends")
        print(f"named {named - silent_since:.1f} s after the last acknowledgement: {said.sentence}")
        assert named - silent_since <= 8 + 1.5  # a leader is silent after 1.5 s
        assert "acknowledgements may wait for it" in writer.producer.explain(name)
        assert "acknowledges nothing" not in writer.producer.explain(name)
        throttle(cluster, name, None, None, None)
        writer.until(name, lambda said: not said.unusual, "there is nothing to say", LOOKS)
    assert not writer.failed


@pytest.mark.timeout(400)
def test_writes_below_the_minimum_are_told(
    cluster: KafkaCluster, placed: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """Within 20 s; at the minimum 15 s after a look, and without a warning, for a user with WRITE alone, too.

    Of another topic not a word is said.
    """
    caplog.set_level(logging.WARNING, "safeproducer")
    below, at, other = placed("below", [1, 2], 2), placed("at", [1, 2], 1), placed("other", [1, 3], 1)
    cluster.admin.add_acl(f"User:{USER}", at, AclOperation.WRITE)
    with (
        Writer([below, at, other], 30_000, **{"bootstrap.servers": cluster.bootstrap}) as writer,
        Writer([at], 10_000, **login(cluster)) as unprivileged,
    ):
        unprivileged.until(at, lambda said: not said.unusual, "all is in sync", 30)
        for name in (below, at, other):
            writer.until(name, lambda said: said.state == "in_sync", "all is in sync", 30)
        cluster.nodes[2].pause()
        began = time.monotonic()
        try:
            named = writer.until(below, lambda said: said.delays, "it is below the minimum", 20)
            print(f"below the minimum after {named - began:.1f} s")
            assert "writes with acks=all are refused (NOT_ENOUGH_REPLICAS)" in writer.producer.explain(below)
            assert "acknowledges nothing" not in writer.producer.explain(below)
            writer.until(at, lambda said: said.state == "broker_down" and said.minimum == 1, "at the minimum", LOOKS)
            assert "one more failure" in writer.producer.explain(at)
            assert "replica" not in writer.producer.explain(other)
            told = unprivileged.until(at, lambda said: said.state == "broker_down", "a replica is missing", LOOKS)
            print(f"at the minimum, without rights, after {told - began:.1f} s: {unprivileged.said(at)}")
        finally:
            cluster.nodes[2].resume()
        for name in (below, at):
            writer.until(name, lambda said: not said.unusual, "all is in sync again", 60)
    assert not writer.failed
    assert len(warnings(caplog, below)) == 1
    assert warnings(caplog, at) == warnings(caplog, other) == []
    assert {event.topic for event in writer.heard.events} == {below, at}


@pytest.mark.timeout(300)
def test_many_topics_are_asked_for_in_one_question(
    cluster: KafkaCluster, placed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a user with WRITE alone, and while a follower hangs: each topic below its minimum is named."""
    names = [placed(f"many-{number:02}", [1, 2], minimum=2) for number in range(20)]
    asked: list[int] = []
    replicas = Admin.replicas

    def noted(*args: Any) -> Any:
        asked.append(len(args[1]))
        return replicas(*args)

    monkeypatch.setattr(Admin, "replicas", noted)
    for name in names:
        cluster.admin.add_acl(f"User:{USER}", name, AclOperation.WRITE)
    rights = {"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": 120_000}
    with Writer(names, 50_000, **rights) as writer, Writer(names, 50_000, **login(cluster)) as other:
        for one in (writer, other):
            for name in names:
                one.until(name, lambda said: said.in_sync, "its replicas are known", 30)
        assert 20 in asked
        assert len(asked) < 20
        cluster.nodes[2].pause()
        began = time.monotonic()
        for one in (writer, other):
            for name in names:
                one.until(name, lambda said: len(said.in_sync) == 1, "a replica is out of sync", 90)
        for name in names:
            writer.until(name, lambda said: said.delays and said.minimum == 2, "it is below the minimum", 30)
        print(f"all of them are below their minimum after {time.monotonic() - began:.1f} s; {asked}")
        cluster.nodes[2].resume()
        for one in (writer, other):
            for name in names:
                one.until(name, lambda said: len(said.in_sync) == 2, "all is in sync", 60)


def test_without_the_right_to_ask_the_window_is_five(cluster: KafkaCluster, placed: Callable[..., str]) -> None:
    """A user who may write and not describe configs is told why, and writes."""
    name = placed("window", [1, 2])
    cluster.admin.add_acl(f"User:{USER}", name, AclOperation.WRITE)
    application = Application(cluster.secure_bootstrap, name, config=login(cluster))

    def reason() -> str:
        return "".join(window.reason for window in application.producer.snapshot().windows)

    with application.producer as producer:
        run(application, until=lambda: "did not tell" in reason())
        assert "CLUSTER_AUTHORIZATION_FAILED" in reason()
        (window,) = producer.snapshot().windows
        assert (window.size, window.source, window.age) == (5, "assumed", None)
        run(application, until=lambda: producer.snapshot().delivered > AHEAD)
    assert application.failed == []
    assert application.changes.windows == []
