"""No retry that its leader has forgotten (KIP-854), on Kafka that forgets producer IDs after ten seconds."""

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import read_records
from integration.tap import Tap
from safeproducer import SafeProducer
from safeproducer.pipeline.cluster import id_expirations, round_trip
from safeproducer.policy.outcome import Outcome
from tests.inside import engine_of
from tests.served import rest, serve

AGE_MS = 10_000
CUT = IDLE = 15.0
TRANSACTIONAL_AGE_MS = 5000
DAY_MS = 86_400_000

TopicFactory = Callable[..., str]


@pytest.fixture(scope="module")
def forgetful() -> Iterator[KafkaCluster]:
    """One node behind a tap."""
    configs = {
        "producer.id.expiration.ms": str(AGE_MS),
        "producer.id.expiration.check.interval.ms": "500",
        "transactional.id.expiration.ms": str(TRANSACTIONAL_AGE_MS),
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    }
    with KafkaCluster(tapped=True, configs=configs) as cluster:
        yield cluster


@pytest.fixture
def tap(forgetful: KafkaCluster) -> Iterator[Tap]:
    with Tap(forgetful) as made:
        yield made


def values(cluster: KafkaCluster, topic: str) -> list[bytes | None]:
    """What is in the log of partition 0."""
    return [record.value for record in read_records(cluster.direct_bootstrap, topic)[0]]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Log lines about expiry."""
    return [record.getMessage() for record in caplog.records if "KIP-854" in record.getMessage()]


def configured(tap: Tap, **config: Any) -> dict[str, Any]:
    """Of either class."""
    always = {"enable.idempotence": True, "reconnect.backoff.max.ms": 500, "log_level": 0}
    return {"bootstrap.servers": tap.bootstrap, **always, **config}


@pytest.fixture(params=["stock", "given", "discovered", "held"])
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, dict[str, Any]]:
    """Class and configuration; the minute before brokers are asked is a second here."""
    monkeypatch.setattr(id_expirations, "NOT_BEFORE", 1.0)
    given = {"safeproducer.expiry.ms": AGE_MS}
    cases: dict[str, tuple[Any, dict[str, Any]]] = {
        "stock": (Producer, {}),
        "given": (SafeProducer, given),
        "discovered": (SafeProducer, {}),
        "held": (SafeProducer, {**given, "safeproducer.mode": "held"}),
    }
    return cases[request.param]


def test_an_acknowledgement_lost_and_a_connection_cut_for_longer(
    forgetful: KafkaCluster, tap: Tap, topic: TopicFactory, case: tuple[Any, dict[str, Any]]
) -> None:
    """confluent_kafka writes twice and says delivered; ours once, unknown, and goes on."""
    cls, config = case
    place = topic(on=forgetful)
    ended: dict[bytes, list[Any]] = {}

    def produce(value: bytes) -> None:
        producer.produce(place, value, on_delivery=lambda error, m: ended.setdefault(m.value(), []).append(error))

    producer = cls(configured(tap, **config))
    produce(b"warm")
    assert producer.flush(30) == 0
    if cls is SafeProducer:
        serve(producer, lambda: engine_of(producer).questions.expirations.current)
    tap.drop_answers("Produce")
    produce(b"lost")
    serve(producer, lambda: not tap.drops_left)
    tap.pause()  # not refuse(): a connection that is being accepted then is closed by nobody
    tap.cut()
    rest(producer, CUT)
    tap.resume()
    produce(b"next")
    assert producer.flush(60) == 0
    assert ended[b"warm"] == ended[b"next"] == [None]
    if cls is Producer:
        assert ended[b"lost"] == [None]
        assert values(forgetful, place) == [b"warm", b"lost", b"lost", b"next"]
    else:
        (error,) = ended[b"lost"]
        assert error.outcome is Outcome.UNKNOWN
        assert values(forgetful, place) == [b"warm", b"lost", b"next"]
    producer.close()


def test_idling_for_longer_is_delivered_and_nothing_is_told(
    forgetful: KafkaCluster, tap: Tap, topic: TopicFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """But for the warning that the settings are not safe on this cluster."""
    place = topic(on=forgetful)
    with SafeProducer(configured(tap, **{"safeproducer.expiry.ms": AGE_MS})) as producer:
        assert len(told(caplog)) == 1
        errors: list[Any] = []
        for value in (b"1", b"2"):
            producer.produce(place, value, on_delivery=lambda error, _: errors.append(error))
            assert producer.flush(30) == 0
            rest(producer, IDLE)
        assert errors == [None, None]
    assert values(forgetful, place) == [b"1", b"2"]
    assert len(told(caplog)) == 1


def test_no_batch_passes_an_earlier_one_after_the_leader_forgot(
    forgetful: KafkaCluster, tap: Tap, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader without a memory would take the later batch for a new beginning, and the retry of the earlier one for a
    fault: confluent_kafka ends fatally."""
    place = topic(on=forgetful)
    ended: dict[Any, Any] = {}
    # A busy machine's broker may look far, and a batch lane has one batch on the wire: nothing would pass.
    monkeypatch.setattr(round_trip, "is_long", lambda *_, **__: False)

    def produce(value: bytes) -> None:
        producer.produce(place, value, on_delivery=lambda error, m: ended.update({m.value(): error}))

    # Time for both to be sent before the first is sent again, and that before the guard gives it up.
    config = {"safeproducer.expiry.ms": AGE_MS, "socket.timeout.ms": 4000, "linger.ms": 0}
    with closing(SafeProducer(configured(tap, **config))) as producer:
        produce(b"warm")
        assert producer.flush(30) == 0
        assert forgetful.admin.describe_producers(place, 0)
        serve(producer, lambda: not forgetful.admin.describe_producers(place, 0))
        rest(producer, 2.0)
        tap.drop_requests("Produce", keep_open=True)
        produce(b"lost")
        serve(producer, lambda: not tap.drops_left)
        produce(b"follows")
        serve(producer, lambda: len(ended) == 3)
        assert ended == {b"warm": None, b"lost": None, b"follows": None}
        assert values(forgetful, place) == [b"warm", b"lost", b"follows"]


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_day_old_timestamps_are_told_once_unless_the_broker_s_count(
    forgetful: KafkaCluster, tap: Tap, topic: TopicFactory, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """For each topic once."""
    places = [topic(on=forgetful, configs={"message.timestamp.type": kind}) for _ in range(2)]
    with SafeProducer(configured(tap, **{"safeproducer.expiry.ms": AGE_MS})) as producer:
        for _ in range(5):
            for place in places:
                producer.produce(place, b"old", timestamp=int(time.time() * 1000) - DAY_MS)
            assert producer.flush(30) == 0
            rest(producer, 1.0)
        serve(producer, lambda: not engine_of(producer).questions.expirations.timestamps.too_old(1.0))
        rest(producer, 1.0)
    lines = [line for line in told(caplog) if "timestamps" in line]
    assert len(lines) == (2 if kind == "CreateTime" else 0)
    assert all("86400 s ago" in line for line in lines)


def test_a_transaction_after_too_long_a_rest(
    forgetful: KafkaCluster, tap: Tap, topic: TopicFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """Begin warns, commit says what to do, its record is unknown, and the next transaction works."""
    place, name = topic(on=forgetful), f"rest-{uuid.uuid4().hex[:8]}"
    config = {"transactional.id": name, "safeproducer.expiry.ms": TRANSACTIONAL_AGE_MS}
    outcomes: list[Any] = []
    with SafeProducer(configured(tap, **config)) as producer:
        producer.init_transactions(30)
        for rests, value in ((12.0, b"1"), (0.0, b"2"), (0.0, b"2")):
            caplog.clear()
            producer.begin_transaction()
            producer.produce(place, value, on_delivery=lambda error, _: outcomes.append(error))
            if len(outcomes) == 1:
                assert len([line for line in told(caplog) if "after a rest of" in line]) == 1
                with pytest.raises(KafkaException, match=r"abort it and run it again") as raised:
                    producer.commit_transaction(30)
                error = raised.value.args[0]
                assert (error.name(), error.txn_requires_abort()) == ("INVALID_PRODUCER_ID_MAPPING", True)
                producer.abort_transaction(30)
            else:
                assert not told(caplog)
                producer.commit_transaction(30)
            rest(producer, rests)
    assert [error and error.outcome for error in outcomes] == [None, Outcome.UNKNOWN, None]


def test_the_default_of_a_day_changes_nothing(
    kafka: KafkaCluster, topic: TopicFactory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked, and safe."""
    monkeypatch.setattr(id_expirations, "NOT_BEFORE", 1.0)
    with SafeProducer({"bootstrap.servers": kafka.bootstrap, "log_level": 0}) as producer:
        place = topic()
        for _ in range(2):
            producer.produce(place, b"x", timestamp=int(time.time() * 1000) - DAY_MS)
            assert producer.flush(30) == 0
            serve(producer, lambda: engine_of(producer).questions.expirations.current)
            rest(producer, 2.0)
        assert engine_of(producer).questions.expirations.current.seconds == DAY_MS / 1000
        assert "KIP-854" not in producer.explain()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
