"""No retry that its leader has forgotten (KIP-854), on FakeCluster, which forgets producer IDs as Kafka does.

Lost acknowledgements wait in real time: `advance()` moves the clock of the brokers alone, and the guard gives a record
up by the clock of the producer.
"""

import time
from typing import Any
from unittest import mock

import pytest

from safeproducer import ConfigurationError, DeliveryError, SafeProducer
from safeproducer.pipeline import turn
from safeproducer.pipeline.cluster import id_expirations
from safeproducer.policy.outcome import Outcome
from safeproducer.policy.pacing import AckTime
from safeproducer.policy.probation import FREE, Probation
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.contract.support import send_one
from tests.inside import engine_of
from tests.served import rest, serve

AGE_MS = 3000
AWAY = 4.0
NOT_ENOUGH_REPLICAS = 19
AGE, CHECK = "producer.id.expiration.ms", "producer.id.expiration.check.interval.ms"

Report = tuple[bytes, Any]


forgetful = fake_cluster({"t": 1}, broker_config={AGE: str(AGE_MS), CHECK: "100"})
"""A broker that remembers a producer ID for three seconds."""


def made(cls: Any, cluster: FakeCluster, **config: Any) -> Any:
    """A producer of either class. It finds a broker again sooner than the guard gives the next record up."""
    base = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 500}
    return cls({**base, "enable.idempotence": True, **config})


def lose_an_acknowledgement(producer: Any, cluster: FakeCluster, lost: int = 1, age: float = 0) -> list[Report]:
    """One record is written, but its answer and the broker are gone until it has been forgotten; all reports.

    `age`: of its timestamp, in seconds; 0 for one that the application does not give.
    """
    reports: list[Report] = []

    def report(error: Any, message: Any) -> None:
        reports.append((message.value(), error))

    send_one(producer, "t", b"warm", on_delivery=report)
    rest(producer, 0.6)
    cluster.lose_acks(1)
    for _ in range(lost):
        timestamp = int((time.time() - age) * 1000) if age else 0
        producer.produce("t", b"lost", on_delivery=report, timestamp=timestamp)
    producer.poll(0)
    serve(producer, lambda: len(cluster.log("t")) == 1 + lost)
    cluster.stop(1)
    rest(producer, AWAY)
    cluster.start(1)
    assert producer.flush(20) == 0
    return reports


def written(cluster: FakeCluster) -> list[bytes | None]:
    return [record.value for record in cluster.log("t")]


def test_guard_gives_up_what_its_leader_is_about_to_forget(forgetful: FakeCluster) -> None:
    """Once in the log, and reported as unknown: nothing is sent again after the leader came back. No deadline counts
    here; tests/contract has those with one."""
    config = {"message.timeout.ms": 0, "safeproducer.expiry.ms": AGE_MS}
    with made(SafeProducer, forgetful, **config) as producer:
        reports = lose_an_acknowledgement(producer, forgetful, lost=1)
        (warm, lost) = reports
        assert warm == (b"warm", None)
        assert isinstance(lost[1], DeliveryError)
        assert lost[1].outcome is Outcome.UNKNOWN
        assert not lost[1].possibly_twice
        assert "KIP-854" in lost[1].str()
        assert written(forgetful) == [b"warm", b"lost"]
        send_one(producer, "t", b"next", on_delivery=lambda error, _: reports.append((b"next", error)))
        assert reports[-1] == (b"next", None)
        assert written(forgetful)[-1] == b"next"


remembering = fake_cluster({"t": 1}, broker_config={AGE: "100000", CHECK: "100"})
"""A broker that remembers a producer ID for longer than the acknowledgement is away."""


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_guard_counts_from_the_record_s_own_timestamp(remembering: FakeCluster, mode: str) -> None:
    """As its leader does, which forgets the ID at its next check: it was written twice, and told delivered."""
    config = {"safeproducer.expiry.ms": 100_000, "safeproducer.mode": mode}
    with made(SafeProducer, remembering, **config) as producer:
        (_, lost) = lose_an_acknowledgement(producer, remembering, age=200)
        assert isinstance(lost[1], DeliveryError)
        assert lost[1].outcome is Outcome.UNKNOWN
        assert "KIP-854" in lost[1].str()
    assert written(remembering) == [b"warm", b"lost"]


def test_guard_lets_old_timestamps_through(remembering: FakeCluster) -> None:
    """As long as answers come: an import of old events is healthy traffic."""
    errors: list[Any] = []
    remembering.delay(0.3, api="Produce")
    with made(SafeProducer, remembering, **{"safeproducer.expiry.ms": 100_000}) as producer:
        end = time.monotonic() + 5
        while time.monotonic() < end:
            stamp = int((time.time() - 200) * 1000)
            producer.produce("t", b"x", timestamp=stamp, on_delivery=lambda error, _: error and errors.append(error))
            producer.poll(0.005)
        assert producer.flush(20) == 0
    assert errors == []


REST_CONFIGS: dict[str, dict[str, Any]] = {
    "direct": {"linger.ms": 0},
    "held": {"safeproducer.mode": "held", "batch.num.messages": 1},
}
"""With each of them several small batches of a partition are in flight at once."""


def reject_the_first_after_a_rest(cluster: FakeCluster, **config: Any) -> list[Report]:
    """The leader has forgotten the producer, and rejects the first batch for now; reports of both partitions."""
    cluster.create_topic("rested", partitions=2)
    reports: list[Report] = []
    with mock.patch.object(turn, "rest", return_value=0.3), made(SafeProducer, cluster, **config) as producer:

        def send(*values: bytes) -> None:
            for value in values:
                for partition in (0, 1):
                    report = lambda error, message: reports.append((message.value(), error))  # noqa: E731
                    producer.produce("rested", value, partition=partition, on_delivery=report)
                time.sleep(0.01)  # a batch of its own

        for _ in range(5):  # until several may be in flight
            send(b"0", b"1", b"2", b"3")
            assert producer.flush(10) == 0
        rest(producer, 1.3)
        cluster.advance(200)
        assert not cluster.producer_state("rested", 1)
        reports.clear()
        cluster.fail_next("Produce", NOT_ENOUGH_REPLICAS, topic="rested", partition=1)
        cluster.pause(1)
        send(b"a", b"b", b"c", b"d")
        cluster.resume(1)
        assert producer.flush(10) == 0
    return reports


def ends(cluster: FakeCluster) -> list[list[bytes | None]]:
    return [[record.value for record in cluster.log("rested", partition)][-4:] for partition in (0, 1)]


@pytest.mark.parametrize("config", REST_CONFIGS.values(), ids=REST_CONFIGS)
def test_after_a_rest_the_first_batch_is_alone(remembering: FakeCluster, config: dict[str, Any]) -> None:
    """Else a later one would be the leader's new beginning, and the rejected one would be missing."""
    reports = reject_the_first_after_a_rest(remembering, **config)
    assert ends(remembering) == [[b"a", b"b", b"c", b"d"]] * 2
    assert [error for _, error in reports] == [None] * 8


@pytest.mark.parametrize(
    ("owner", "rule", "broken", "mode"), [(Probation, "takes", FREE, "direct"), (AckTime, "rested", False, "held")]
)
def test_otherwise_it_is_missing(remembering: FakeCluster, owner: type, rule: str, broken: int, mode: str) -> None:
    """Planted bugs: the test above can fail. It is not told as delivered."""
    with mock.patch.object(owner, rule, return_value=broken):
        reports = reject_the_first_after_a_rest(remembering, **REST_CONFIGS[mode])
    assert b"a" not in ends(remembering)[1]
    assert [value for value, error in reports if error is not None] == [b"a"]


def test_warn_retries_and_says_possibly_twice(forgetful: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever prefers a duplicate to an unknown outcome is told of it."""
    config = {"safeproducer.expiry.ms": AGE_MS, "safeproducer.expiry": "warn"}
    with made(SafeProducer, forgetful, **config) as producer:
        assert lose_an_acknowledgement(producer, forgetful)[-1] == (b"lost", None)
    assert written(forgetful) == [b"warm", b"lost", b"lost"]
    assert sum("possibly twice" in record.getMessage() for record in caplog.records) == 1


def test_warn_says_of_a_failed_record_that_it_may_be_there_twice(forgetful: FakeCluster) -> None:
    """Its time is over after a retry that its leader may have taken for a new batch."""
    told: list[Any] = []
    config = {"safeproducer.expiry.ms": 2000, "safeproducer.expiry": "warn", "message.timeout.ms": 4000}
    with made(SafeProducer, forgetful, **config) as producer:
        send_one(producer, "t", b"warm")
        rest(producer, 0.6)
        forgetful.lose_acks(1)
        producer.produce("t", b"x", on_delivery=lambda error, _: told.append(error))
        producer.poll(0)
        serve(producer, lambda: len(forgetful.log("t")) == 2)
        forgetful.stop(1)
        serve(producer, lambda: told)
    (error,) = told
    assert error.outcome is Outcome.UNKNOWN
    assert error.possibly_twice
    assert "possibly twice" in str(error)


def test_off_neither_guards_nor_tells(forgetful: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    """As plain confluent_kafka does."""
    config = {"safeproducer.expiry.ms": AGE_MS, "safeproducer.expiry": "off"}
    with made(SafeProducer, forgetful, **config) as producer:
        assert lose_an_acknowledgement(producer, forgetful)[-1] == (b"lost", None)
        assert "KIP-854" not in producer.explain()
    assert written(forgetful) == [b"warm", b"lost", b"lost"]
    assert not [record for record in caplog.records if "KIP-854" in record.getMessage()]


def test_healthy_traffic_is_never_purged(forgetful: FakeCluster) -> None:
    """Though there is always something under way, and answers take a while."""
    forgetful.delay(0.05)
    errors: list[Any] = []
    with made(SafeProducer, forgetful, **{"safeproducer.expiry.ms": AGE_MS}) as producer:
        end = time.monotonic() + 6
        while time.monotonic() < end:
            producer.produce("t", b"x", on_delivery=lambda error, _: error and errors.append(error))
            producer.poll(0.002)
        assert producer.flush(10) == 0
    assert errors == []


def test_the_horizon_is_asked_for_after_a_minute(
    forgetful: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not before; then the guard holds as if it had been given, and one warning has the numbers of the broker."""
    monkeypatch.setattr(id_expirations, "NOT_BEFORE", 2.0)
    with made(SafeProducer, forgetful) as producer:
        send_one(producer, "t", b"first")
        rest(producer, 1.0)
        assert not forgetful.journal("DescribeConfigs")
        serve(producer, lambda: engine_of(producer).questions.expirations.current)
        assert len(forgetful.journal("DescribeConfigs")) == 1
        serve(producer, lambda: "KIP-854" in caplog.text)  # another thread writes it
        found = [record.getMessage() for record in caplog.records if "KIP-854" in record.getMessage()]
        assert len(found) == 1
        assert f"{AGE} of broker 1 is {AGE_MS}" in found[0]
        assert "430 s" in found[0]
        assert "KIP-854" in producer.explain()
        forgetful.lose_acks(1)
        told: list[Any] = []
        producer.produce("t", b"lost", on_delivery=lambda error, _: told.append(error))
        producer.poll(0)
        serve(producer, lambda: len(forgetful.log("t")) == 2)
        forgetful.stop(1)
        serve(producer, lambda: told)
        assert told[0].outcome is Outcome.UNKNOWN
        forgetful.start(1)
        rest(producer, 1.0)
        assert len(forgetful.log("t")) == 2


def test_day_old_timestamps_are_told_once_unless_the_broker_s_count(
    forgetful: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """There the leader forgets the ID at its next check, and all is delivered."""
    forgetful.create_topic("appended", partitions=1, config={"message.timestamp.type": "LogAppendTime"})
    with made(SafeProducer, forgetful, **{"safeproducer.expiry.ms": AGE_MS}) as producer:
        timestamps = engine_of(producer).questions.expirations.timestamps
        for topic in ("appended", "t"):
            producer.produce(topic, b"old", timestamp=int((time.time() - 86_400) * 1000))
            assert producer.flush(20) == 0
            serve(producer, lambda: not timestamps.too_old(AGE_MS / 1000))
        serve(producer, lambda: "records for t have timestamps of 86400 s ago" in caplog.text)
        rest(producer, 0.2)
        assert [bool(forgetful.producer_state(topic)) for topic in ("appended", "t")] == [True, False]
    assert "records for appended have" not in caplog.text


def test_passthrough_is_told_too(
    forgetful: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It reads no statistics, which tell others who leads."""
    monkeypatch.setattr(id_expirations, "NOT_BEFORE", 0.5)
    with made(SafeProducer, forgetful, **{"safeproducer.mode": "passthrough"}) as producer:
        send_one(producer, "t", b"first")
        serve(producer, lambda: engine_of(producer).questions.expirations.current)
        rest(producer, 1.0)
        assert len(forgetful.journal("DescribeConfigs")) == 1
        (found,) = [record.getMessage() for record in caplog.records if "KIP-854" in record.getMessage()]
        assert f"{AGE} of broker 1 is {AGE_MS}" in found
        assert "safeproducer.mode=passthrough" in found


def test_short_lived_producers_that_are_reused_are_told_once(
    forgetful: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The age that counts is that of the native producer, and the answer goes over."""
    monkeypatch.setattr(id_expirations, "NOT_BEFORE", 1.0)
    knew: list[bool] = []
    deadline = time.monotonic() + 40
    while knew.count(True) < 5 and time.monotonic() < deadline:
        with made(SafeProducer, forgetful, **{"safeproducer.producer.ids.policy": "reuse"}) as producer:
            send_one(producer, "t", b"x")
            rest(producer, 0.1 + len(knew) / 100)  # on a busy machine an answer takes longer than one lives
            knew.append(engine_of(producer).questions.expirations.current is not None)
    assert knew.count(True) == 5
    assert not knew[0]
    assert len({batch.producer_id for entry in forgetful.journal("Produce") for batch in entry.batches}) == 1
    assert len(forgetful.journal("DescribeConfigs")) == 1
    assert len([record for record in caplog.records if "KIP-854" in record.getMessage()]) == 1


@pytest.mark.parametrize(("horizon", "warns"), [(440_000, True), (440_001, False)])
def test_the_static_rule_is_told_at_construction(horizon: int, warns: bool, caplog: pytest.LogCaptureFixture) -> None:
    """When the horizon is given; strictly below, and the defaults take 430 s."""
    with SafeProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "safeproducer.expiry.ms": horizon}):
        found = [record for record in caplog.records if "KIP-854" in record.getMessage()]
    assert len(found) == warns


@pytest.mark.parametrize("wrong", [0, -1, "x", 1.5e10, True, None])
def test_a_horizon_is_a_number(wrong: Any) -> None:
    """Setting, value, way out."""
    with pytest.raises(ConfigurationError) as raised:
        SafeProducer({"bootstrap.servers": "x", "safeproducer.expiry.ms": wrong})
    for part in ("safeproducer.expiry.ms", repr(wrong), "'discover'", "from 1"):
        assert part in str(raised.value)


def test_an_unknown_policy_is_refused() -> None:
    """Setting, value, way out."""
    with pytest.raises(ConfigurationError, match=r"safeproducer.expiry.*'refuse'.*guard, warn, off"):
        SafeProducer({"bootstrap.servers": "x", "safeproducer.expiry": "refuse"})


@pytest.mark.parametrize("config", [{"enable.idempotence": False}, {"transactional.id": "x"}])
def test_no_warning_comes_where_no_retry_is_at_risk(config: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """Without idempotence nothing is promised; an ID with an open transaction is not forgotten."""
    config = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "safeproducer.expiry.ms": 1000, **config}
    with SafeProducer(config):
        pass
    assert not [record for record in caplog.records if "KIP-854" in record.getMessage()]
