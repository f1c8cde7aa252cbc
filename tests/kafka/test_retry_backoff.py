"""What the outcome of a refused record rests on: librdkafka never sends a record again before 0.8 of its back-off."""

import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.cimpl import KafkaError, Message, Producer

from safeproducer.policy.outcome import SHORTEST_BACKOFF, Outcome, outcome_of
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.contract.support import send_one

BACKOFF = 0.2
MSG_SIZE_TOO_LARGE, TOPIC_AUTHORIZATION_FAILED = 10, 29

Disturbance = Callable[[FakeCluster, str], Iterator[None]]
"""A fault in up to three steps: before a record of this topic is produced, while its request is under way, after."""


cluster = fake_cluster({}, brokers=3, scope="module")
"""Three brokers for all tests here; each test takes the faults back that it made."""


def patient(cluster: FakeCluster, idempotent: bool, backoff: float = BACKOFF) -> Producer:
    """A producer with a long back-off, in seconds, and a short socket time-out."""
    return Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": idempotent,
            "retry.backoff.ms": int(backoff * 1000),
            "retry.backoff.max.ms": int(backoff * 1000),
            "socket.timeout.ms": 300,
            "linger.ms": 1,
            "log_level": 0,
        }
    )


@pytest.fixture(scope="module")
def producers(cluster: FakeCluster) -> Iterator[dict[bool, Producer]]:
    """Idempotent or not -> one producer for all tests here."""
    made = {idempotent: patient(cluster, idempotent) for idempotent in (True, False)}
    yield made
    for producer in made.values():
        producer.close()


@pytest.fixture
def topic(cluster: FakeCluster, producers: dict[bool, Producer]) -> str:
    """A topic of one partition that both producers have written to."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, partitions=1)
    for producer in producers.values():
        send_one(producer, name, b"warm")
    return name


def requests(cluster: FakeCluster) -> int:
    """How many Produce requests the cluster got."""
    return len(cluster.journal("Produce"))


def lost_acknowledgement(cluster: FakeCluster, _topic: str) -> Iterator[None]:
    cluster.lose_acks(1)
    yield


def late_answer(cluster: FakeCluster, _topic: str) -> Iterator[None]:
    cluster.delay(5)
    yield
    cluster.delay(0)


def leader_stopped(cluster: FakeCluster, topic: str) -> Iterator[None]:
    leader, _ = cluster.leader(topic)
    cluster.delay(0.1)
    yield
    cluster.delay(0)
    cluster.move_leader(topic)
    cluster.stop(leader)
    yield
    cluster.start(leader)


def connections_cut(cluster: FakeCluster, _topic: str) -> Iterator[None]:
    cluster.delay(0.1)
    yield
    cluster.delay(0)
    cluster.cut()


def leader_moved_before(cluster: FakeCluster, topic: str) -> Iterator[None]:
    cluster.move_leader(topic)
    yield


def refused_with(code: int) -> Disturbance:
    def refuse(cluster: FakeCluster, _topic: str) -> Iterator[None]:
        cluster.fail_next("Produce", code)
        yield

    return refuse


PATHS: dict[str, Disturbance] = {
    "lost acknowledgement": lost_acknowledgement,
    "connections cut": connections_cut,
    "leader moved": leader_moved_before,
    "KAFKA_STORAGE_ERROR": refused_with(56),
    "REQUEST_TIMED_OUT": refused_with(7),
    "request time-out": late_answer,
    "leader stopped": leader_stopped,
}


@pytest.mark.parametrize(
    ("path", "idempotent"),
    [*((path, True) for path in PATHS), ("lost acknowledgement", False), ("REQUEST_TIMED_OUT", False)],
)
def test_no_second_attempt_before_the_back_off(
    cluster: FakeCluster, producers: dict[bool, Producer], topic: str, path: str, idempotent: bool
) -> None:
    """A record whose second attempt is refused is reported later than 0.8 of the back-off after it was handed over."""
    producer = producers[idempotent]
    before = requests(cluster)
    fault = PATHS[path](cluster, topic)
    next(fault)
    reports: list[tuple[KafkaError | None, Message]] = []
    producer.produce(topic, b"v", on_delivery=lambda *report: reports.append(report))
    cluster.wait(lambda now: requests(now) > before)
    cluster.fail_next("Produce", MSG_SIZE_TOO_LARGE)
    next(fault, None)
    assert producer.flush(10) == 0
    next(fault, None)
    ((error, message),) = reports
    assert error is not None
    assert error.code() == MSG_SIZE_TOO_LARGE
    assert message.latency() >= SHORTEST_BACKOFF * BACKOFF
    found = outcome_of(error.name(), elapsed=message.latency(), retry_backoff=BACKOFF)
    assert found is Outcome.UNKNOWN


def test_requests_behind_a_failed_one_wait_too(cluster: FakeCluster) -> None:
    """Of four requests in flight the first fails, so the others are out of order: none comes again too soon."""
    cluster.create_topic("behind", partitions=1)
    producer = patient(cluster, idempotent=True)
    send_one(producer, "behind", b"warm")
    sent = requests(cluster)
    cluster.delay(0.1)
    cluster.fail_next("Produce", 7)
    latencies: list[float] = []
    for number in range(4):
        producer.produce("behind", str(number), on_delivery=lambda _, message: latencies.append(message.latency()))
        sent += 1
        cluster.wait(lambda now: requests(now) >= sent)  # noqa: B023 - called at once
    cluster.delay(0)
    assert producer.flush(10) == 0
    producer.close()
    assert len(latencies) == 4
    assert min(latencies) >= SHORTEST_BACKOFF * BACKOFF


def test_a_refusal_at_the_first_attempt_is_reported_at_once(cluster: FakeCluster, topic: str) -> None:
    """So it is proven not written, and it is not."""
    backoff = 10.0  # seconds: no slow machine answers later
    producer = patient(cluster, idempotent=True, backoff=backoff)
    cluster.fail_next("Produce", MSG_SIZE_TOO_LARGE)
    outcomes: list[Outcome] = []

    def report(error: KafkaError, message: Message) -> None:
        elapsed = message.latency()
        outcomes.append(outcome_of(error.name(), elapsed=elapsed, retry_backoff=backoff))

    send_one(producer, topic, b"refused", on_delivery=report)
    assert outcomes == [Outcome.NOT_WRITTEN]
    assert [record.value for record in cluster.log(topic)] == [b"warm", b"warm"]


def test_metadata_gives_an_authorization_error_to_a_record_that_is_in_the_log(
    cluster: FakeCluster, producers: dict[bool, Producer], topic: str
) -> None:
    """Acknowledgement lost, then no right to the topic: one attempt, written, and refused by its error's name."""
    before = requests(cluster)
    cluster.lose_acks(1)
    cluster.fail_next("Metadata", TOPIC_AUTHORIZATION_FAILED)
    names: list[str] = []
    producer = producers[True]
    send_one(producer, topic, b"lost", on_delivery=lambda error, _: names.append(error.name()))
    assert names == ["TOPIC_AUTHORIZATION_FAILED"]
    assert requests(cluster) == before + 1
    assert [record.value for record in cluster.log(topic)] == [b"warm", b"warm", b"lost"]
    assert outcome_of(names[0], elapsed=0.0, retry_backoff=BACKOFF) is Outcome.UNKNOWN
