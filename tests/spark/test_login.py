"""A login that brokers refuse: the attempt ends soon, by its cause, and does not try again and again."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from safeproducer.runtime import clock
from safeproducer.spark import attempt, pace, topic_limits
from safeproducer.spark.errors import Failure, KafkaWriteError
from safeproducer.spark.options import Options
from safeproducer.spark.task import Task, write_task
from safeproducer.spark.worker_producers import WorkerProducer
from safeproducer.testing import FakeCluster
from safeproducer.testing.fake.state.sasl import Credentials
from tests.contract.support import poll_until
from tests.spark.arrow import numbers, rows
from tests.spark.conftest import end_producers, failure_of, quiet

TASK = Task(0, 0)


@pytest.fixture(scope="module")
def secured() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=1, users={"alice": "right"}) as cluster:
        yield cluster


@pytest.fixture
def cluster(secured: FakeCluster) -> Iterator[FakeCluster]:
    secured.reset()
    secured._state.access.credentials = Counting("right")
    secured.create_topic("rows", 3)
    yield secured
    end_producers()


def options(cluster: FakeCluster, password: str) -> Options:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return quiet(
        Options.parse(
            {
                "kafka.bootstrap.servers": cluster.bootstrap,
                "topic": "rows",
                "kafka.security.protocol": "SASL_PLAINTEXT",
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.jaas.config": f'{module} required username="alice" password="{password}";',
            }
        )
    )


def failure(cluster: FakeCluster, batches: Iterator[pa.RecordBatch], password: str) -> tuple[Failure, float]:
    began = clock.monotonic()
    found = failure_of(batches, options(cluster, password), TASK, "brokers refuse the login of ")
    return found, clock.monotonic() - began


class Counting(Credentials):
    """It counts logins, and knows alice by this password."""

    def __init__(self, password: str) -> None:
        super().__init__({"alice": password})
        self.tried: list[str] = []

    def verify(self, user: str, password: str) -> bool:
        self.tried.append(password)
        return super().verify(user, password)


def test_a_wrong_password_ends_the_attempt_with_few_logins(cluster: FakeCluster) -> None:
    """No producer is made after it, and the client that asks for limits tries no more."""
    cluster._state.access.credentials = guard = Counting("right")
    found, seconds = failure(cluster, iter([rows(0, 10)]), "marker")
    assert (found.codes, found.delivered, found.rows) == ({"_AUTHENTICATION": 1}, 0, 0)
    assert "marker" not in str(KafkaWriteError(found))
    assert topic_limits.LOGIN_LASTS <= seconds < 10.0
    assert 1 <= guard.tried.count("marker") == len(guard.tried) <= 2
    assert write_task([rows(0, 10)], options(cluster, "right"), TASK).delivered == 10


@pytest.mark.parametrize("told", ["each time", "once"])
def test_a_password_that_changed_under_a_kept_producer_ends_the_attempt(
    cluster: FakeCluster, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before the deadline, once its connections are gone. librdkafka tells a refusal that recurs at the same
    broker once in half a minute."""
    real = WorkerProducer._on_error

    def note(worker: WorkerProducer, error: KafkaError) -> None:
        if told == "each time" or worker.login_refused is None:
            real(worker, error)

    monkeypatch.setattr(WorkerProducer, "_on_error", note)
    if told == "once":
        monkeypatch.setattr(pace, "ASK_AFTER", 2.0)
    assert write_task([rows(0, 10)], options(cluster, "right"), TASK).delivered == 10
    cluster._state.access.credentials = Counting("another")
    cluster.cut()
    found, seconds = failure(cluster, iter([rows(10, 10)]), "right")
    assert (found.codes, found.delivered) == ({"_AUTHENTICATION": 10}, 0)
    assert seconds < pace.UNREACHABLE_AFTER
    assert numbers(cluster) == list(range(10))


def test_a_login_that_works_again_within_three_seconds_ends_nothing(cluster: FakeCluster) -> None:
    """As when a broker has not heard of a new user yet."""
    assert write_task([rows(0, 10)], options(cluster, "right"), TASK).delivered == 10
    cluster._state.access.credentials = guard = Counting("another")
    cluster.cut()

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(10, 10)
        cluster.wait(lambda _: bool(guard.tried))
        cluster._state.access.credentials = Counting("right")
        yield rows(20, 10)

    totals = write_task(batches(), options(cluster, "right"), TASK)
    assert (totals.delivered, totals.producer) == (20, "reused")


def test_one_refusal_ends_no_task_whose_broker_throttles_it_and_answers_late(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, begun: list[WorkerProducer]
) -> None:
    """It was of a former login, and nothing tells that the next one was taken."""
    seen: list[tuple[bool, bool]] = []
    real = attempt.Attempt._ask

    def ask(task: attempt.Attempt, patience: pace.TaskPatience) -> None:
        seen.append((task._worker.login_refused is not None, bool(task._worker.throttled)))
        real(task, patience)

    monkeypatch.setattr(attempt.Attempt, "_ask", ask)
    monkeypatch.setattr(pace, "ASK_AFTER", 0.3)
    monkeypatch.setattr(attempt, "_ANSWER", 0.2)
    cluster.set_throttle(200)

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(0, 10)
        poll_until(begun[0].kafka, lambda: begun[0].throttled and begun[0].kafka.snapshot().delivered == 10)
        cluster._state.access.credentials = Counting("another")
        cluster.cut()
        poll_until(begun[0].kafka, lambda: begun[0].login_refused is not None)
        cluster.delay(1.5, api="Metadata")
        cluster.delay(1.5, api="Produce")
        cluster._state.access.credentials = Counting("right")
        yield rows(10, 10)

    assert write_task(batches(), options(cluster, "right"), TASK).delivered == 20
    assert (True, True) in seen
