"""Tasks of an exactly-once sink on FakeCluster: readers of committed records see each row once, whatever ended when."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from safeproducer.errors import ConfigurationError
from safeproducer.kafka import positions
from safeproducer.kafka.native import KafkaError, KafkaException
from safeproducer.spark import run_start, slot
from safeproducer.spark.errors import KafkaWriteError, NonDeterministicReplay
from safeproducer.spark.markers import Marker, Print, Step
from safeproducer.spark.options import Options
from safeproducer.spark.report import TaskTotals, TopicTotals
from safeproducer.spark.run_start import begin
from safeproducer.spark.task import Task, write_task
from safeproducer.spark.worker_producers import producers
from safeproducer.testing import FakeCluster
from tests.spark.arrow import batch, rows
from tests.spark.conftest import MakeOptions

MARKERS = "safeproducer-markers"
Once = Callable[..., Options]


@pytest.fixture
def once(cluster: FakeCluster, options: MakeOptions) -> Once:
    """Options of a sink with two slots, and its marker topic."""
    cluster.create_topic(MARKERS, 2)

    def make(topic: str | None = "rows", **more: Any) -> Options:
        return options(
            topic,
            **{
                "safeproducer_spark_guarantee": "exactly_once",
                "safeproducer_spark_sink_id": "sink",
                "safeproducer_spark_slots": "2",
                **more,
            },
        )

    return make


def attempt(options: Options, batches: Sequence[pa.RecordBatch], number: int = 0, batch_id: int = 0) -> TaskTotals:
    return write_task(iter(batches), options, Task(1, number, "query", batch_id, "run"))


def seen(cluster: FakeCluster, isolation: Any = "read_committed") -> list[int]:
    """The numbers of rows() that such a reader sees, ascending."""
    log = [record for partition in range(3) for record in cluster.log("rows", partition, isolation=isolation)]
    return sorted(int((record.value or b"").split(b"-")[0]) for record in log)


ROWS = [rows(0, 60), rows(60, 0), rows(60, 40)]
WHOLE = list(range(100))


def test_rows_are_committed_when_a_task_returns_and_a_repetition_finds_them(cluster: FakeCluster, once: Once) -> None:
    """In another order, and in other Arrow batches; then it tells the same totals. The next micro-batch goes on."""
    first = attempt(once(), ROWS)
    assert seen(cluster) == WHOLE
    again = attempt(once(), [rows(30, 70), rows(0, 30)], 1)
    assert seen(cluster, "read_uncommitted") == WHOLE
    assert [first.slot, again.slot] == ["written", "already_there"]
    assert (again.rows, again.delivered, again.bytes, again.topics) == (100, 100, first.bytes, first.topics)
    assert [one.rows_before for one in (first, again)] == [0, 0]
    assert attempt(once(), [rows(100, 5)], batch_id=1).slot == "written"
    assert seen(cluster) == list(range(105))
    assert not producers._idle


def test_a_slot_without_rows_has_a_marker_too(cluster: FakeCluster, once: Once) -> None:
    """Else nobody could tell it from one that was forgotten."""
    assert [attempt(once(), batches).slot for batches in ([], [rows(0, 0)])] == ["empty", "already_there"]
    with pytest.raises(NonDeterministicReplay, match=r"slot 1 has committed 0 rows of micro-batch 0, .* gives 5 rows"):
        attempt(once(), [rows(0, 5)])
    assert seen(cluster, "read_uncommitted") == []


def test_a_replay_with_other_rows_writes_nothing(cluster: FakeCluster, once: Once) -> None:
    """A changed constant: as many rows, found by their sum."""
    attempt(once(), ROWS)
    with pytest.raises(
        NonDeterministicReplay, match="100 rows of micro-batch 0, and the query gives 100 rows now with"
    ):
        attempt(once(), [rows(0, 100, size=21)])
    assert seen(cluster, "read_uncommitted") == WHOLE


def test_the_same_rows_for_another_topic_are_not_there_already(cluster: FakeCluster, once: Once) -> None:
    """Two sinks in one query, by mistake with one name; or the option was changed in the middle of a micro-batch."""
    cluster.create_topic("other", 1)
    attempt(once(), ROWS)
    with pytest.raises(NonDeterministicReplay):
        attempt(once("other"), ROWS, 1)


def test_rows_of_a_topic_column(cluster: FakeCluster, once: Once) -> None:
    """Several topics in one transaction; a row that changes its topic is another row."""
    cluster.create_topic("other", 1)
    mixed = batch([b"1-", b"2-", b"3-"], key=[b"k", None, b"k"], topic=["rows", "other", "rows"])
    found = [attempt(once(None), [mixed], number) for number in (0, 1)]
    assert [one.topics for one in found] == [{"rows": TopicTotals(2, 2, 6), "other": TopicTotals(1, 1, 2)}] * 2
    assert (seen(cluster), len(cluster.log("other", isolation="read_committed"))) == ([1, 3], 1)
    moved = batch([b"1-", b"2-", b"3-"], key=[b"k", None, b"k"], topic=["rows", "other", "other"])
    with pytest.raises(NonDeterministicReplay):
        attempt(once(None), [moved], 2)


def test_a_slot_keeps_its_producer_id(cluster: FakeCluster, once: Once) -> None:
    """Each task has a new producer, as one that was killed would; brokers count one ID (KIP-936)."""
    for number in range(5):
        attempt(once(), [rows(number, 1)], batch_id=number)
    found = cluster.transactions()
    assert list(found) == ["sink-1"]
    assert slot._positions.cache_info().misses == 1
    assert found["sink-1"].epoch >= 4
    used = {producer for partition in range(3) for producer in cluster.producer_state("rows", partition)}
    assert used == {found["sink-1"].producer_id}


class Killed(BaseException):
    """The process is gone."""


STEPS: list[Any] = [Step.INIT, Step.READ, Step.WRITE, Marker]


def at(monkeypatch: pytest.MonkeyPatch, step: Any, happens: Callable[[], object], *, behind: bool = False) -> None:
    """What happens before a session carries out this step, or behind it. Sessions that begin then are left alone."""
    carry_out = slot._Session.carry_out

    def stopped(session: slot._Session, command: Any) -> Any:
        here = command is step or (isinstance(command, Marker) and step is Marker)
        if not here:
            return carry_out(session, command)
        answer = carry_out(session, command) if behind else None
        with monkeypatch.context() as patch:
            patch.setattr(slot._Session, "carry_out", carry_out)
            happens()
        return answer if behind else carry_out(session, command)

    monkeypatch.setattr(slot._Session, "carry_out", stopped)


def die(*_: object) -> None:
    raise Killed


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("step", STEPS, ids=["init", "read", "write", "commit"])
def test_an_attempt_that_is_killed_at_a_step(
    cluster: FakeCluster, once: Once, monkeypatch: pytest.MonkeyPatch, step: Any, behind: bool
) -> None:
    """And the next one goes on. Nothing is closed: what is open stays so until then."""
    left: list[slot._Session] = []
    with monkeypatch.context() as patch:
        at(patch, step, die, behind=behind)
        patch.setattr(slot._Session, "close", lambda *sessions: left.extend(sessions))
        with pytest.raises(Killed):
            attempt(once(), ROWS)
    is_there = step is Marker and behind
    assert seen(cluster) == (WHOLE if is_there else [])
    assert attempt(once(), ROWS, 1).slot == ("already_there" if is_there else "written")
    assert seen(cluster) == WHOLE
    left[0].close()
    assert seen(cluster) == WHOLE


@pytest.mark.parametrize("step", STEPS, ids=["init", "read", "write", "commit"])
def test_an_attempt_that_was_stopped_and_goes_on_behind_the_next_one(
    cluster: FakeCluster, once: Once, monkeypatch: pytest.MonkeyPatch, step: Any
) -> None:
    """It fences the other, or is fenced, and has nothing to write; nothing is there twice."""
    ended = list[TaskTotals]()
    at(monkeypatch, step, lambda: ended.append(attempt(once(), ROWS, 1)))
    if step in (Step.INIT, Step.READ):
        assert attempt(once(), ROWS).slot == "already_there"
    else:
        with pytest.raises(
            KafkaWriteError, match=r"another writer took over slot 1 of safeproducer.spark.sink.id=sink"
        ):
            attempt(once(), ROWS)
    assert [one.slot for one in ended] == ["written"]
    assert seen(cluster) == WHOLE


@pytest.mark.parametrize("done", [True, False], ids=["answer lost", "request late"])
def test_a_commit_of_unknown_end(cluster: FakeCluster, once: Once, done: bool) -> None:
    """The attempt fails and says so; the next one knows. The request that comes late commits nothing."""
    short = once(safeproducer_spark_deadline="2")
    if done:
        cluster.lose_acks(1_000, api="EndTxn")
    else:
        cluster.hold_next("EndTxn", 1_000)
    with pytest.raises(KafkaWriteError) as raised:
        attempt(short, ROWS)
    failure = raised.value.failure
    assert (failure.rows, failure.delivered, failure.not_written, failure.unknown) == (100, 0, 0, 100)
    cluster.end_faults()
    if not done:
        cluster.hold_next("EndTxn", 0)
    assert attempt(once(), ROWS, 1).slot == ("already_there" if done else "written")
    cluster.release()
    assert attempt(once(), [rows(100, 1)], batch_id=1).slot == "written"
    assert seen(cluster) == list(range(101))


def test_rows_that_fail_end_the_attempt_and_are_not_written(cluster: FakeCluster, once: Once) -> None:
    """Whatever was acknowledged: no reader of committed records sees it."""
    cluster.fail_next("Produce", 87, 1, topic="rows")  # INVALID_RECORD
    with pytest.raises(KafkaWriteError) as raised:
        attempt(once(), ROWS)
    failure = raised.value.failure
    assert (failure.delivered, failure.not_written, failure.unknown) == (0, failure.rows, 0)
    assert attempt(once(), ROWS, 1).slot == "written"
    assert seen(cluster) == WHOLE


@pytest.mark.parametrize(("ends", "fail"), [(False, 1), (True, 2)], ids=["one process", "processes that end"])
def test_a_topic_that_takes_smaller_batches_and_comes_later(
    cluster: FakeCluster, once: Once, monkeypatch: pytest.MonkeyPatch, ends: bool, fail: int
) -> None:
    """Another producer would end the transaction: the next attempt knows from the start how large batches may be. One
    that remembers nothing, as Spark ends each process in which a task failed, makes smaller batches the second time."""
    cluster.create_topic("small", 1, config={"max.message.bytes": "5000"})
    later = [batch([b"1-"], topic=["rows"]), batch([b"x" * 400] * 50, topic=["small"] * 50)]
    for number in range(fail + 1):
        if ends or number == 0:
            monkeypatch.setattr(slot, "_names", set())
        if number < fail:
            with pytest.raises(KafkaWriteError, match="OUTGROWN"):
                attempt(once(None), later, number)
    assert attempt(once(None), later, fail).slot == "written"
    assert (seen(cluster), len(cluster.log("small", isolation="read_committed"))) == ([1], 50)


def test_what_spark_raises_in_the_middle_ends_the_attempt(cluster: FakeCluster, once: Once) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield rows(0, 60)
        raise ValueError("as planned")

    with pytest.raises(ValueError, match="as planned"):
        write_task(broken(), once(), Task(1, 0, "query", 0, "run"))
    assert attempt(once(), ROWS, 1).slot == "written"
    assert seen(cluster) == WHOLE


RIGHTS = [
    ("InitProducerId", 53, "--operation Describe --operation Write --transactional-id 'sink-' --resource-pattern-type"),
    ("OffsetFetch", 30, "--operation Describe --operation Read --group 'sink-' --resource-pattern-type prefixed"),
    ("TxnOffsetCommit", 29, "--operation Describe --operation Read --topic 'safeproducer-markers'"),
    ("Produce", 29, "--operation Describe --operation Write --topic 'rows'"),
    ("InitProducerId", 50, "transaction.timeout=60 is above the brokers' transaction.max.timeout.ms. Make it shorter"),
]


@pytest.mark.parametrize(("api", "code", "told"), RIGHTS)
def test_a_refusal_says_what_to_do(cluster: FakeCluster, once: Once, api: str, code: int, told: str) -> None:
    """Of a right that is missing, the command that grants it."""
    cluster.fail_next(api, code, 3)
    with pytest.raises(KafkaWriteError) as raised:
        attempt(once(), ROWS)
    assert told in str(raised.value)
    cluster.end_faults()
    assert attempt(once(), ROWS).slot == "written"


def test_no_secret_key_or_value_is_told(cluster: FakeCluster, once: Once) -> None:
    """Neither in a marker nor in an error, nor in the frames of one."""
    assert Marker(0, "query", Print(2, 3)).text() == "1 0 query 2 3"
    attempt(once(), ROWS)
    with pytest.raises(NonDeterministicReplay) as raised:
        attempt(once(), [batch([b"secret-value"], key=[b"secret-key"])])
    frame, told = raised.value.__traceback__, str(raised.value)
    while frame is not None:
        if "safeproducer/spark" in frame.tb_frame.f_code.co_filename:
            told += repr(frame.tb_frame.f_locals)
        frame = frame.tb_next
    assert "secret-" not in told


# --- the driver ------------------------------------------------------------------------------------------------------


def start(options: Options, batch_id: int, query: str = "query") -> tuple[str, ...]:
    assert options.exactly_once is not None
    return begin(options, options.exactly_once, batch_id, query)


def write_all(options: Options, batch_id: int) -> None:
    for number in range(2):
        write_task(iter([rows(10 * batch_id + number, 1)]), options, Task(number, 0, "query", batch_id, "run"))


def test_a_run_goes_on_where_the_slots_are(cluster: FakeCluster, once: Once) -> None:
    """At the start, after an end of a driver behind any slot, and not anywhere else."""
    start(once(), 0)
    write_all(once(), 0)
    start(once(), 0)
    start(once(), 1)
    for batch_id, query, told in ((2, "query", "did not reach this sink"), (0, "other", "checkpoint was deleted")):
        with pytest.raises(ConfigurationError, match=told):
            start(once(), batch_id, query)
    start(once(safeproducer_spark_adopt_from="2"), 2)


@pytest.mark.parametrize("batch_id", [0, 1])
def test_another_number_of_slots_is_refused(cluster: FakeCluster, once: Once, batch_id: int) -> None:
    """Also when the first micro-batch was never finished; taking over says from which one on."""
    cluster.create_topic("more-markers", 4)
    start(once(), 0)
    if batch_id:
        write_all(once(), 0)
    other = once(safeproducer_spark_slots="1")
    with pytest.raises(ConfigurationError, match=r"sink has 2 slots, whose rows would be written twice. Set it to 2"):
        start(other, batch_id)
    start(once(safeproducer_spark_slots="1", safeproducer_spark_adopt_from=str(batch_id)), batch_id)
    with pytest.raises(ConfigurationError, match="sink has 1 slots"):
        start(once(), batch_id)


def test_another_number_of_slots_in_the_middle_of_a_micro_batch_is_refused(cluster: FakeCluster, once: Once) -> None:
    """Also with the option that takes over: slots that have committed would be written twice."""
    start(once(), 0)
    write_all(once(), 0)
    write_task(iter([rows(10, 1)]), once(), Task(1, 0, "query", 1, "run"))
    other = once(safeproducer_spark_slots="1", safeproducer_spark_adopt_from="1")
    with pytest.raises(ConfigurationError, match=r"slot 1 of the 2 before has written micro-batch 1 .*adopt.from=2"):
        start(other, 1)
    write_task(iter([]), once(), Task(0, 0, "query", 1, "run"))
    start(once(safeproducer_spark_slots="1", safeproducer_spark_adopt_from="2"), 2)


def test_a_driver_with_former_slots_that_goes_on_writes_nothing(cluster: FakeCluster, once: Once) -> None:
    """It stood still before its tasks while another one took over with another number. Back is possible, too."""
    start(once(), 0)
    write_all(once(), 0)
    start(once(), 1)
    other = {"safeproducer_spark_slots": "1", "safeproducer_spark_adopt_from": "1"}
    start(once(**other), 1)
    write_task(iter([rows(10, 2)]), once(**other), Task(0, 0, "query", 1, "run"))
    for number in range(2):
        with pytest.raises(ConfigurationError, match=r"another query \(slots=1; "):
            write_task(iter([rows(10 + number, 1)]), once(), Task(number, 0, "query", 1, "run"))
    assert seen(cluster) == [0, 1, 10, 11]
    back = once(safeproducer_spark_adopt_from="2")
    start(back, 2)
    write_all(back, 2)
    start(once(), 3)
    assert seen(cluster) == [0, 1, 10, 11, 20, 21]


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("step", ["_owner", "_markers", "_commit"])
def test_of_two_drivers_that_begin_at_once_with_other_slots_one_goes_on(
    cluster: FakeCluster, once: Once, monkeypatch: pytest.MonkeyPatch, step: str, behind: bool
) -> None:
    """The second one begins before or behind a step of the first, of a sink that nobody has begun before."""
    known, began = getattr(run_start, step), list[int]()

    def begins(options: Options) -> None:
        assert options.exactly_once is not None
        start(options, 0)
        began.append(options.exactly_once.slots)

    def stopped(*given: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(run_start, step, known)
            found = known(*given) if behind else None
            begins(once(safeproducer_spark_slots="1"))
            return found if behind else known(*given)

    monkeypatch.setattr(run_start, step, stopped)
    late = step == "_commit" and behind
    told = "has 2 slots, whose" if late else "has 1 slots, whose" if step == "_owner" else "same moment"
    with pytest.raises(ConfigurationError, match=told):
        begins(once())
    assert len(began) == (0 if late else 1)
    assert cluster.groups()["sink-slots"].offsets == {(MARKERS, 0): 2 if late else 1}


def test_a_driver_that_takes_over_with_other_slots_ends_what_those_before_have_open(
    cluster: FakeCluster, once: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task of the former driver stood still with its rows sent, and goes on behind the first rows of the new one."""
    start(once(), 0)
    write_all(once(), 0)
    other = {"safeproducer_spark_slots": "1", "safeproducer_spark_adopt_from": "1"}

    def takes_over() -> None:
        start(once(**other), 1)
        write_task(iter([rows(10, 2)]), once(**other), Task(0, 0, "query", 1, "run"))

    at(monkeypatch, Marker, takes_over)
    with pytest.raises(KafkaWriteError, match=r"another writer took over slot 1"):
        write_task(iter([rows(11, 1)]), once(), Task(1, 0, "query", 1, "run"))
    assert seen(cluster) == [0, 1, 10, 11]


def test_a_driver_that_is_refused_fences_nobody(
    cluster: FakeCluster, once: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another number of slots, by mistake, while a task writes."""
    start(once(), 0)

    def refused() -> None:
        with pytest.raises(ConfigurationError, match="has 2 slots"):
            start(once(safeproducer_spark_slots="1"), 0)

    at(monkeypatch, Marker, refused)
    assert attempt(once(), ROWS).slot == "written"
    assert seen(cluster) == WHOLE


def test_an_offset_that_says_nothing_of_slots_is_refused(cluster: FakeCluster, once: Once) -> None:
    """Somebody else commits in this group: 4 000 000 000 of them would be fenced one by one."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "sink-slots", "log_level": 0})
    consumer.commit(offsets=[TopicPartition(MARKERS, 0, 4_000_000_000)], asynchronous=False)
    consumer.close()
    with pytest.raises(ConfigurationError, match=r"one of its groups has an offset in safeproducer-markers that is no"):
        start(once(safeproducer_spark_adopt_from="0"), 0)


def test_a_refusal_of_the_driver_says_one_thing(cluster: FakeCluster, once: Once) -> None:
    """It is no error of brokers, and no right is missing."""
    start(once(), 0)
    with pytest.raises(ConfigurationError) as raised:
        start(once(safeproducer_spark_slots="1"), 0)
    assert raised.value.setting == "safeproducer.spark.slots"
    assert "cannot be read" not in str(raised.value)


def test_a_run_begins_behind_a_worker_that_died_with_its_marker_sent(
    cluster: FakeCluster, once: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers tell no marker of the slot until its transaction times out; the driver waits for that."""
    left: list[slot._Session] = []
    start(once(), 0)
    with monkeypatch.context() as patch:
        patch.setattr(slot, "commit", die)
        patch.setattr(slot._Session, "close", lambda *sessions: left.extend(sessions))
        with pytest.raises(Killed):
            attempt(once(), ROWS)
    monkeypatch.setattr(run_start, "_WITHIN", 2.0)
    timer = threading.Timer(4.0, cluster.advance, [120])
    timer.start()
    start(once(), 0)
    timer.join()
    assert attempt(once(), ROWS, 1).slot == "written"
    left[0].close()
    assert seen(cluster) == WHOLE


@pytest.mark.parametrize("code", [14, 15, 16])
@pytest.mark.parametrize("api", ["OffsetFetch", "InitProducerId", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"])
def test_a_run_begins_while_the_coordinator_moves(cluster: FakeCluster, once: Once, api: str, code: int) -> None:
    cluster.fail_next(api, code, 3)
    start(once(), 0)
    assert cluster.groups()["sink-slots"].offsets == {(MARKERS, 0): 2}


@pytest.mark.parametrize(("name", "change"), [("none", "--partitions 2 --create"), (MARKERS, "--partitions 3 --alter")])
def test_a_marker_topic_that_does_not_do(cluster: FakeCluster, once: Once, name: str, change: str) -> None:
    """It is not there, or has too few partitions: the command that changes it."""
    with pytest.raises(ConfigurationError, match=f"kafka-topics.sh --bootstrap-server .* --topic {name} {change}"):
        start(once(safeproducer_spark_marker_topic=name, safeproducer_spark_slots="3" if name == MARKERS else "2"), 0)


@pytest.mark.parametrize(("minutes", "told"), [("1439", "brokers forget its markers 1439 minutes after"), ("1440", "")])
def test_markers_that_would_not_last_a_day_are_refused(
    once: Once, monkeypatch: pytest.MonkeyPatch, minutes: str, told: str
) -> None:
    known = run_start.ClusterReader.configs

    def configs(reader: Any, brokers: Any, timeout: float) -> Any:
        found = known(reader, brokers, timeout)
        return {one: it._replace(values={"offsets.retention.minutes": minutes}) for one, it in found.items()}

    monkeypatch.setattr(run_start.ClusterReader, "configs", configs)
    if told:
        with pytest.raises(ConfigurationError, match=told):
            start(once(), 0)
    else:
        assert start(once(), 0) == ()


def test_retention_that_cannot_be_read_is_a_note(cluster: FakeCluster, once: Once) -> None:
    """A right may be missing."""
    (note,) = start(once(), 0)
    assert "offsets.retention.minutes" in note


def test_a_driver_without_rights_is_told_which(cluster: FakeCluster, once: Once) -> None:
    cluster.fail_next("OffsetFetch", 30, 3)
    with pytest.raises(ConfigurationError, match=r"markers cannot be read: .* --group 'sink-'"):
        start(once(), 0)


def test_a_right_that_is_missing_for_the_group_is_no_time_out(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka refuses it where the coordinator is asked for, which librdkafka goes on to do until the time is over."""
    monkeypatch.setattr(positions, "_ROUND", 0.5)
    cluster.fail_next("FindCoordinator", 30, 1_000)
    markers = positions.Positions({"bootstrap.servers": cluster.bootstrap}, "group", MARKERS, 10)
    with closing(markers), pytest.raises(KafkaException) as raised:
        markers.committed(range(1))
    assert raised.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
