"""The producers of a worker: kept after a success, gone after an error, four at most, renewed secrets."""

from __future__ import annotations

import os
import pickle
import select
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from safeproducer.runtime import clock
from safeproducer.spark import topic_limits
from safeproducer.spark.errors import KafkaWriteError
from safeproducer.spark.options import Options
from safeproducer.spark.report import TopicTotals
from safeproducer.spark.task import Task, write_task
from safeproducer.spark.worker_producers import MOST_PRODUCERS, Secrets, WorkerProducer, producers
from safeproducer.testing import FakeCluster
from tests.inside import engine_of
from tests.spark.arrow import batch, numbers, rows
from tests.spark.conftest import MakeOptions, end_producers, failure_of, quiet

TASK = Task(0, 0)
TOPIC_AUTHORIZATION_FAILED = 29
OUT_OF_ORDER_SEQUENCE_NUMBER = 45


def kept() -> list[WorkerProducer]:
    return list(producers._idle.values())


def test_a_producer_is_kept_over_tasks_and_shared_by_equal_options(cluster: FakeCluster, options: MakeOptions) -> None:
    """Options that travelled in a pickle are equal ones."""
    assert write_task([rows(0, 10)], options(), TASK).producer == "new"
    (worker,) = kept()
    again = pickle.loads(pickle.dumps(options()))  # noqa: S301 - our own
    assert write_task([rows(10, 10)], again, Task(1, 0)).producer == "reused"
    assert kept() == [worker]
    assert write_task([rows(20, 10)], options(kafka_linger_ms=7), TASK).producer == "new"
    assert len(kept()) == 2


def test_a_producer_is_dropped_after_an_error(cluster: FakeCluster, options: MakeOptions) -> None:
    """Whatever of the failed attempt is still on its way must not land in the middle of the next one."""
    write_task([rows(0, 10)], options(), TASK)
    (worker,) = kept()
    with pytest.raises(KafkaWriteError):
        write_task([rows(0, 10), batch([b"x" * 2_000_000])], options(), TASK)
    assert kept() == []
    assert worker.kafka.snapshot().state == "closed"
    assert write_task([rows(0, 10)], options(), TASK).producer == "new"


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_no_row_of_a_failed_attempt_is_written_later(mode: str, cluster: FakeCluster, options: MakeOptions) -> None:
    """Rows that had no report at the deadline are gone with their producer, or were written before. They are named,
    wherever they were waiting."""
    made = replace(options(safeproducer_mode=mode), deadline=0.3)
    made.config["delivery.timeout.ms"] = "60000"
    cluster.pause(1)
    cluster.pause(2)
    try:
        producers.keep(_warm(made, cluster), 600_000)
        failure = failure_of([rows(0, 100)], made, TASK)
    finally:
        cluster.resume(1)
        cluster.resume(2)
    assert (failure.rows, failure.delivered, failure.not_written + failure.unknown) == (100, 0, 100)
    assert failure.reason is not None
    assert "safeproducer.spark.deadline" in failure.reason
    assert len({row.row for row in failure.bad_rows} & set(range(100))) == 10
    assert kept() == []


def test_a_fatal_error_is_told_as_any_other(cluster: FakeCluster, options: MakeOptions) -> None:
    """close() raised it when nobody had been told of it yet: then there was no count, and no cause."""
    for _ in range(5):  # it was not each time
        cluster.fail_next("Produce", OUT_OF_ORDER_SEQUENCE_NUMBER)
        found = failure_of([rows(0, 3000)], options(), TASK)
        assert found.rows == 3000 == found.delivered + found.not_written + found.unknown
        assert kept() == []
        cluster.reset()
        cluster.create_topic("rows", 3)


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_task_goes_on_with_a_renewed_producer(
    cluster: FakeCluster, options: MakeOptions, plant_fatal: Callable[[Any], None], mode: str
) -> None:
    """Its totals are right, and name both producer IDs; the producer is kept."""
    made = options(safeproducer_fatal="renew", safeproducer_mode=mode)
    write_task([rows(0, 300)], made, TASK)
    (worker,) = kept()

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(300, 300)
        assert worker.kafka.flush(10) == 0
        direct = engine_of(worker.kafka).holds.direct
        plant_fatal(worker.kafka if direct is not None else engine_of(worker.kafka).dispatcher.lanes.first)
        yield rows(600, 300)

    totals = write_task(batches(), made, Task(1, 0))
    assert (totals.producer, totals.rows, totals.delivered, totals.ids_used) == ("reused", 600, 600, 2)
    assert totals.topics == {"rows": TopicTotals(600, 600, totals.bytes)}
    assert worker.kafka.snapshot().renewals == 1
    assert kept() == [worker]
    assert numbers(cluster) == list(range(900))


def _warm(options: Options, cluster: FakeCluster) -> WorkerProducer:
    """A producer that knows its topic already; the brokers are paused meanwhile."""
    cluster.resume(1)
    cluster.resume(2)
    worker = WorkerProducer(options, ["rows"], Secrets())
    worker.know(["rows"])
    cluster.pause(1)
    cluster.pause(2)
    return worker


def test_at_most_four(cluster: FakeCluster, options: MakeOptions) -> None:
    """The one that was used longest ago is closed for a fifth."""
    made = [options(kafka_linger_ms=n) for n in range(MOST_PRODUCERS + 1)]
    for one in made[:MOST_PRODUCERS]:
        write_task([rows(0, 1)], one, TASK)
    write_task([rows(0, 1)], made[0], TASK)  # the second one is the oldest now
    oldest = kept()[0]
    assert write_task([rows(0, 1)], made[-1], TASK).producer == "new"
    assert len(kept()) == MOST_PRODUCERS
    assert oldest.kafka.snapshot().state == "closed"
    assert [write_task([rows(0, 1)], one, TASK).producer for one in (made[0], made[-1])] == ["reused"] * 2


def test_an_unused_producer_is_closed_by_a_timer(options: MakeOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """After idle.ms without a task, and no task is needed for it."""
    now = [1000.0]
    write_task([rows(0, 1)], options(safeproducer_spark_idle_ms=60_000), TASK)
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    (worker,) = kept()
    worker.idle_until = 1060.0
    now[0] = 1059.0
    producers.close_idle()
    assert kept() == [worker]
    timer = producers._timer
    assert timer is not None
    assert timer.is_alive()
    assert timer.daemon
    assert timer.interval == 1.0
    now[0] = 1060.0
    producers.close_idle()
    assert kept() == []


def test_for_want_of_a_thread_no_task_fails(
    cluster: FakeCluster, options: MakeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers limit how many there are. All rows were written, and Spark would write them again."""

    def start(timer: threading.Timer) -> None:
        raise RuntimeError("can't start new thread")

    made = options(safeproducer_spark_idle_ms=0)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Timer, "start", start)
        assert write_task([rows(0, 10)], made, TASK).delivered == 10
    assert len(kept()) == 1
    assert write_task([rows(10, 10)], made, TASK).delivered == 10
    timer = producers._timer
    assert timer is not None
    timer.join(30)
    assert kept() == []
    assert numbers(cluster) == list(range(20))


def test_idle_zero_keeps_nothing_for_long(cluster: FakeCluster, options: MakeOptions) -> None:
    write_task([rows(0, 1)], options(safeproducer_spark_idle_ms=0), TASK)
    timer = producers._timer
    if timer is not None:
        timer.join(10)
    assert kept() == []


def test_a_forked_child_makes_its_own_producer(cluster: FakeCluster, options: MakeOptions) -> None:
    """Its parent's has no threads there; and the parent goes on with its own."""
    write_task([rows(0, 10)], options(), TASK)
    said = ""
    for _ in range(3):
        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                totals = write_task([rows(10, 10)], options(), TASK)
                os.write(write, f"{totals.producer} {totals.delivered}".encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as told:
            # If a thread of this process was resolving a name, glibc's lock is held in the child for ever, and it sends
            # nothing.
            if not select.select([told], [], [], 30)[0]:
                os.kill(child, signal.SIGKILL)
            said = told.read()
        os.waitpid(child, 0)
        if said:
            break
    assert said == "new 10"
    assert write_task([rows(20, 10)], options(), TASK).producer == "reused"
    assert numbers(cluster) == list(range(30))


# --- secrets ----------------------------------------------------------------------------------------------------------


def jaas(password: str) -> str:
    return f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{password}";'


def logging_in(cluster: FakeCluster, place: str) -> Options:
    given: dict[str, Any] = {
        "topic": "rows",
        "kafka.bootstrap.servers": cluster.bootstrap,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
    }
    return quiet(Options.parse({**given, "kafka.sasl.jaas.config": place}))


def test_secrets_come_from_their_place_and_a_new_one_goes_to_the_living_producer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No new producer, and so no new producer ID; what is wrong with a place is told without what is there."""
    place = tmp_path / "jaas"
    place.write_text(jaas("first-marker"))
    try:
        with FakeCluster(brokers=1, users={"u": "first-marker"}) as cluster:
            cluster.create_topic("rows", 3)
            made = logging_in(cluster, f"file:{place}")
            assert write_task([rows(0, 10)], made, TASK).producer == "new"
            (worker,) = kept()
            given: list[tuple[str, str]] = []
            real = worker.kafka.set_sasl_credentials

            def note(user: str, password: str) -> None:
                given.append((user, password))
                real(user, password)

            class Noting:
                set_sasl_credentials = staticmethod(note)

                def __getattr__(self, name: str) -> Any:
                    return getattr(kafka, name)

            kafka = worker.kafka
            worker.kafka = Noting()  # type: ignore[assignment]
            assert write_task([rows(10, 10)], made, TASK).producer == "reused"
            assert given == []
            place.write_text(jaas("second-marker"))
            assert write_task([rows(20, 10)], made, TASK).producer == "reused"
            assert given == [("u", "second-marker")]
            shown = repr(worker._secrets) + repr(made) + repr(producers.__dict__)
            assert "marker" not in shown
            place.unlink()
            with pytest.raises(KafkaWriteError, match="no secret at") as raised:
                write_task([rows(30, 10)], made, TASK)
            assert "marker" not in str(raised.value)
    finally:
        end_producers()


def test_a_new_password_that_is_given_as_it_is_goes_to_the_living_producer() -> None:
    """A producer is one for each set of options without secrets. Another user has another one."""
    try:
        with FakeCluster(brokers=1, users={"u": "first-marker", "v": "first-marker"}) as cluster:
            cluster.create_topic("rows", 3)
            assert write_task([rows(0, 10)], logging_in(cluster, jaas("first-marker")), TASK).producer == "new"
            (worker,) = kept()
            assert write_task([rows(10, 10)], logging_in(cluster, jaas("second-marker")), TASK).producer == "reused"
            assert kept() == [worker]
            assert worker._secrets["sasl.password"] == "second-marker"
            another = logging_in(cluster, jaas("first-marker").replace('"u"', '"v"'))
            assert write_task([rows(20, 10)], another, TASK).producer == "new"
            assert "marker" not in repr([one.key for one in kept()])
    finally:
        end_producers()


def test_a_producer_that_cannot_take_new_secrets_is_closed(
    options: MakeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when that raises: nobody else would close it."""
    write_task([rows(0, 1)], options(), TASK)
    (worker,) = kept()

    def broken(secrets: Secrets) -> bool:
        raise RuntimeError("not this one")

    monkeypatch.setattr(worker, "renewed", broken)
    with pytest.raises(RuntimeError, match="not this one"):
        write_task([rows(1, 1)], options(), TASK)
    assert kept() == []
    assert worker.kafka.snapshot().state == "closed"


def test_the_timer_leaves_a_producer_alone_that_came_in_place_of_an_idle_one(
    options: MakeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the timer's thread closed another one, a task has taken the idle one and kept a new one."""
    write_task([rows(0, 1)], options(), TASK)
    (idle,) = kept()
    idle.idle_until = 0.0
    fresh = WorkerProducer(options(), ["rows"], Secrets())
    fresh.idle_until = clock.monotonic() + 600
    seen = producers._here()
    monkeypatch.setattr(producers, "_here", lambda: seen)  # as the timer saw them
    producers._idle[idle.key] = fresh
    producers.close_idle()
    assert kept() == [fresh]
    assert fresh.kafka.snapshot().state == "open"
    idle.end()


def test_another_changed_secret_makes_a_new_producer(cluster: FakeCluster, options: MakeOptions) -> None:
    """A key's password is read once, when a producer is made."""
    worker = WorkerProducer(options(), ["rows"], Secrets({"ssl.key.password": "a"}))
    assert worker.renewed(Secrets({"ssl.key.password": "a"}))
    assert not worker.renewed(Secrets({"ssl.key.password": "b"}))
    worker.end()


# --- brokers and topics -----------------------------------------------------------------------------------------------


def test_brokers_that_cannot_be_reached_end_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the servers and this host's name; no producer is left."""
    monkeypatch.setattr(topic_limits, "ANSWER_WITHIN", 1.0)
    monkeypatch.setattr(topic_limits, "LIMITS_WITHIN", 0.5)
    made = quiet(Options.parse({"topic": "rows", "kafka.bootstrap.servers": "127.0.0.1:1"}))
    failure = failure_of([rows(0, 3)], made, TASK)
    assert failure.codes == {"unreachable": 3}
    assert failure.reason is not None
    assert f"no broker of 127.0.0.1:1 answered {failure.host} within 1 s" in failure.reason
    assert "refuses the connection" in failure.reason
    assert kept() == []


def test_a_topic_that_is_not_there_ends_a_task(options: MakeOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its name and this host's; one that the column names, with the row."""
    monkeypatch.setattr(topic_limits, "APPEARS_WITHIN", 0.3)
    failure = failure_of([rows(0, 3)], options("missing"), TASK, "topic 'missing' cannot be used")
    assert failure.codes == {"UNKNOWN_TOPIC_OR_PART": 3}
    assert failure.host in str(failure.reason)
    assert (failure.delivered, failure.not_written) == (0, 3)
    mixed, told = (
        batch([b"0"] * 3, topic=["rows", "missing", "rows"]),
        "row 1 of Spark partition 0 for topic missing: unkn",
    )
    failure = failure_of([mixed], options(None), TASK, told)
    assert failure.codes == {"unknown_topic": 1}
    assert (failure.delivered, failure.not_written) == (0, 3)


def test_many_topics_that_are_not_there_end_a_task_in_time(
    options: MakeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is asked for by itself, so the time is looked at between two of them."""
    now = [1000.0]
    asked: list[str] = []
    real = topic_limits._listed

    def slow(producer: Any, name: Any, *rest: Any) -> Any:
        asked.append(name)
        now[0] += 1.0
        return real(producer, name, *rest)

    monkeypatch.setattr(topic_limits, "_listed", slow)
    monkeypatch.setattr(topic_limits.clock, "monotonic", lambda: now[0])
    missing = batch([b"0"] * 100, topic=[f"missing-{n}" for n in range(100)])
    told = "row 0 of Spark partition 0 for topic missing-0: unknown_topic"
    assert failure_of([missing], options(None), TASK, told).codes == {"unknown_topic": 100}
    assert len(asked) <= topic_limits.APPEARS_WITHIN + 2


def test_a_topic_that_appears_is_waited_for(cluster: FakeCluster, options: MakeOptions) -> None:
    """It may have been made a moment before the query."""
    asked: list[object] = []

    def then_make(seconds: float) -> None:
        asked.append(seconds)
        if len(asked) == 2:
            cluster.create_topic("late", 3)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "sleep", then_make)
        assert write_task([rows(0, 3)], options("late"), TASK).delivered == 3
    assert len(asked) >= 2


def test_a_configuration_that_librdkafka_refuses(cluster: FakeCluster, options: MakeOptions) -> None:
    """Its sentence, and nothing of the configuration."""
    made = options()
    made.config["linger.ms"] = "-5"
    with pytest.raises(KafkaWriteError, match=r"cannot make a producer: setting 'linger\.ms'"):
        write_task([rows(0, 3)], made, TASK)
