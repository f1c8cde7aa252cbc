"""Rows that cannot be written: each cause alone and among good rows, named by its number in the Spark partition."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from safeproducer.spark import errors, row_check
from safeproducer.spark.bad_rows import SentBatch
from safeproducer.spark.columns import Columns
from safeproducer.spark.errors import BadRow, KafkaWriteError
from safeproducer.spark.options import Options
from safeproducer.spark.task import Task, write_task
from safeproducer.spark.worker_producers import producers
from safeproducer.testing import FakeCluster
from tests.spark.arrow import HEADERS, batch, numbers, rows
from tests.spark.conftest import MakeOptions

TASK = Task(5, 0)
TOPIC_AUTHORIZATION_FAILED = 29
REFUSING = {"INVALID_RECORD": 87, "INVALID_TIMESTAMP": 32, "POLICY_VIOLATION": 44, "RECORD_LIST_TOO_LARGE": 18}
"""What a broker refuses a whole batch with because of one record, beside MSG_SIZE_TOO_LARGE. See also
integration/test_spark_rejected_rows.py for _INVALID_DIFFERENT_RECORD, which is librdkafka's own."""


def failure(batches: Iterable[pa.RecordBatch], options: Options) -> errors.Failure:
    """Of a task that raises; its error travels to the driver as Spark sends it, and its producer is gone."""
    with pytest.raises(KafkaWriteError) as raised:
        write_task(batches, options, TASK)
    assert not producers._idle
    copy = pickle.loads(pickle.dumps(raised.value))  # noqa: S301 - our own
    assert (copy.failure, str(copy)) == (raised.value.failure, str(raised.value))
    return raised.value.failure


def full(count: int, start: int = 0, **changed: Any) -> pa.RecordBatch:
    """Rows with every column, all good but for what is `changed`."""
    columns: dict[str, Any] = {
        "key": [b"k"] * count,
        "topic": ["rows"] * count,
        "partition": pa.array([None] * count, pa.int32()),
        "headers": pa.array([[{"key": "h", "value": b"1"}]] * count, HEADERS),
        "timestamp": pa.array([1_700_000_000_000_000] * count, pa.timestamp("us", tz="UTC")),
    }
    return batch(changed.pop("value", [b"%d-" % (start + n) for n in range(count)]), **{**columns, **changed})


def with_bad(count: int, at: int, start: int, column: str, bad: Any) -> pa.RecordBatch:
    """full() with one bad cell."""
    good = full(count, start)
    kind = good.schema.field(column).type
    cells = good.column(column).to_pylist()
    cells[at] = bad
    return full(count, start, **{column: pa.array(cells, kind)})


CAUSES: list[tuple[str, Any, BadRow]] = [
    ("topic", None, BadRow(5, None, None, None, None, None, "null_topic")),
    ("partition", 3, BadRow(5, None, "rows", 3, None, None, "no_such_partition")),
    ("partition", -1, BadRow(5, None, "rows", -1, None, None, "no_such_partition")),
    ("headers", [{"key": None, "value": b"x"}], BadRow(5, None, "rows", None, None, None, "header_without_name")),
    ("headers", [{"key": "a\0b", "value": b"x"}], BadRow(5, None, "rows", None, None, None, "header_name_with_nul")),
    ("timestamp", 0, BadRow(5, None, "rows", None, None, None, "timestamp_too_old")),
    ("timestamp", 999, BadRow(5, None, "rows", None, None, None, "timestamp_too_old")),
    ("timestamp", -5_000_000, BadRow(5, None, "rows", None, None, None, "timestamp_too_old")),
    ("value", b"x" * 2_000_000, BadRow(5, None, "rows", None, 2_000_041, 1_048_576, "row_too_large")),
]


@pytest.mark.parametrize(("count", "at"), [(1, 0), (100_000, 77_777)], ids=["alone", "of 100 000"])
@pytest.mark.parametrize(("column", "bad", "expected"), CAUSES, ids=lambda part: str(part)[:20])
def test_a_bad_row_of_one_arrow_batch(
    column: str, bad: Any, expected: BadRow, count: int, at: int, cluster: FakeCluster, options: MakeOptions
) -> None:
    """It alone is named, with its cause, and nothing is sent."""
    found = failure([with_bad(count, at, 0, column, bad)], options(topic=None))
    assert found.bad_rows == (BadRow(5, at, *list(vars(expected).values())[2:]),)
    assert (found.codes, found.rows, found.delivered) == ({expected.cause: 1}, count, 0)
    assert (found.not_written, found.unknown, found.reason) == (count, 0, None)
    assert numbers(cluster) == []


@pytest.mark.parametrize(("column", "bad", "expected"), CAUSES, ids=lambda part: str(part)[:20])
def test_a_bad_row_among_good_rows(
    column: str, bad: Any, expected: BadRow, cluster: FakeCluster, options: MakeOptions
) -> None:
    """Its number counts over all Arrow batches of the task, and of its own batch nothing is sent."""
    batches = [full(1000, 0), full(0), full(1000, 1000), with_bad(1000, 17, 2000, column, bad), full(1000, 3000)]
    found = failure(batches, options(topic=None))
    assert [(row.row, row.cause) for row in found.bad_rows] == [(2017, expected.cause)]
    assert (found.rows, found.delivered, found.not_written, found.unknown) == (3000, 2000, 1000, 0)
    assert numbers(cluster) == list(range(2000))
    write_task([full(1000, 2000)], options(topic=None), TASK)  # the cure
    assert numbers(cluster) == list(range(3000))


def test_ten_bad_rows_are_named_and_all_counted(cluster: FakeCluster, options: MakeOptions) -> None:
    """The first ones; a row with two causes counts once."""
    odd = batch(
        [b"0"] * 30,
        partition=pa.array([None, 99] * 15, pa.int32()),
        timestamp=pa.array([0, 0, 1_000_000] * 10, pa.timestamp("us", tz="UTC")),
    )
    found = failure([rows(0, 7), odd], options())
    assert found.codes == {"no_such_partition": 15, "timestamp_too_old": 10}
    bad = [7 + n for n in range(30) if n % 2 or n % 3 < 2]
    assert [row.row for row in found.bad_rows] == bad[:10]
    assert str(KafkaWriteError(found)).count("\n- row ") == 10


def test_no_topic_at_all(cluster: FakeCluster, options: MakeOptions) -> None:
    """Neither option nor column: each row is without a topic."""
    found = failure([batch([b"0", b"1"])], options(topic=None))
    assert found.codes == {"null_topic": 2}


def test_an_empty_topic_is_none(cluster: FakeCluster, options: MakeOptions) -> None:
    """A client that asks for the empty name is told of all topics, and an admin client raises."""
    found = failure([full(5), full(5, topic=["rows", "rows", "", "rows", None])], options(topic=None))
    assert [(row.row, row.topic, row.cause) for row in found.bad_rows] == [(n, None, "null_topic") for n in (7, 9)]
    assert (found.rows, found.delivered) == (10, 5)
    assert failure([full(5, topic=[""] * 5)], options(topic=None)).codes == {"null_topic": 5}


def test_the_message_names_row_cause_and_cure_and_no_payload(cluster: FakeCluster, options: MakeOptions) -> None:
    """One line for each bad row."""
    secret = b"marker-of-a-payload"
    found = failure([rows(0, 3), batch([secret * 100_000], key=[secret])], options())
    told = str(KafkaWriteError(found))
    assert "row 3 of Spark partition 5 for topic rows, 1900055 bytes (limit 1048576): row_too_large: " in told
    assert "raise kafka.max.request.size" in told
    assert "marker" not in told + repr(KafkaWriteError(found))


@pytest.mark.parametrize("key", [None, b"", b"k" * 70])
@pytest.mark.parametrize("headers", [None, [("h", b"")], [("name" * 20, None), ("n", b"v" * 200)]])
def test_sizes_are_exact_at_both_limits(
    key: bytes | None, headers: list[Any] | None, cluster: FakeCluster, options: MakeOptions
) -> None:
    """A row of exactly the limit is sent and taken; one byte more is caught before anything is sent."""
    cluster.set_topic_config("rows", "max.message.bytes", "5000")
    given = None if headers is None else [{"key": name, "value": value} for name, value in headers]

    def row(size: int) -> pa.RecordBatch:
        return batch([b"v" * size], key=pa.array([key], pa.binary()), headers=pa.array([given], HEADERS))

    for made, taken, limit in (
        (options(), row_check.batch_bytes, 5000),
        (options(kafka_max_request_size=4000), row_check.message_bytes, 4000),
    ):
        size = limit - (taken(key, b"v" * 4000, headers) - 4000)
        if taken(key, b"v" * size, headers) > limit:  # the length of the value has a length, too
            size -= 1
        assert taken(key, b"v" * size, headers) == limit
        assert write_task([row(size)], made, TASK).delivered == 1
        found = failure([row(size + 1)], made)
        assert [(bad.size, bad.limit, bad.cause) for bad in found.bad_rows] == [(limit + 1, limit, "row_too_large")]


def test_a_compressed_row_may_be_larger_than_the_topics_limit(cluster: FakeCluster, options: MakeOptions) -> None:
    """The broker looks at the batch as it comes, so only it can tell."""
    cluster.set_topic_config("rows", "max.message.bytes", "5000")
    assert write_task([batch([b"x" * 50_000])], options(kafka_compression_type="gzip"), TASK).delivered == 1


def test_limits_and_partitions_are_looked_up_again_before_a_row_is_refused(
    cluster: FakeCluster, options: MakeOptions
) -> None:
    """Of what was learnt for an earlier task, some may have been changed: a cured topic fails no task."""
    cluster.set_topic_config("rows", "max.message.bytes", "5000")
    write_task([rows(0, 10)], options(), TASK)
    cluster.set_topic_config("rows", "max.message.bytes", None)
    assert write_task([batch([b"x" * 50_000])], options(), TASK).delivered == 1


@pytest.mark.parametrize("topic", ["a", "b", "c", "d"])
def test_rows_go_to_partitions_that_were_added(topic: str, cluster: FakeCluster, options: MakeOptions) -> None:
    """Also where the producer has several native ones, of which some have not heard of them."""
    cluster.create_topic(topic, 3)
    cluster.set_throttle(50)
    made = options(topic, safeproducer_ordering="key", safeproducer_lanes="3")
    first = write_task([rows(0, 300)], made, TASK)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(10)
    asked = batch(
        [b"%d-" % number for number in range(300, 500)], partition=pa.array([n % 4 for n in range(200)], pa.int32())
    )
    second = write_task([rows(500, 100), asked], made, TASK)
    assert (first.delivered, second.delivered, second.producer) == (300, 300, "reused")
    assert numbers(cluster, topic, 4) == list(range(600))
    assert len(cluster.log(topic, 3)) >= 50
    (worker,) = producers._idle.values()
    kafka = worker.kafka
    assert write_task([asked], made, TASK).delivered == 200
    assert worker.kafka is kafka, "renewed once"


# --- what only the broker knows ---------------------------------------------------------------------------------------


@pytest.fixture
def unreadable(cluster: FakeCluster) -> FakeCluster:
    """Without the right to read the topic's configs."""
    cluster.fail_next("DescribeConfigs", TOPIC_AUTHORIZATION_FAILED, 10_000)
    return cluster


def one_too_large(at: int, count: int, start: int) -> pa.RecordBatch:
    """Rows of which one is above a limit of 20 000 bytes."""
    values = [b"%d-" % (start + n) + b"x" * (30_000 if n == at else 20) for n in range(count)]
    return batch(values, key=[b"key-%d" % (n % 97) for n in range(count)])


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_the_range_of_a_batch_that_a_broker_refuses_is_named(
    mode: str, unreadable: FakeCluster, options: MakeOptions
) -> None:
    """With topic and partition: the row is in it. All rows of other batches are delivered."""
    unreadable.set_topic_config("rows", "max.message.bytes", "20000")
    made = options(safeproducer_mode=mode)
    made.config["batch.num.messages"] = "100"
    found = failure([rows(0, 2000), one_too_large(519, 1000, 2000)], made)
    (bad,) = found.bad_rows
    assert bad.row is not None
    named = range(bad.row, (bad.row if bad.last is None else bad.last) + 1)
    assert 2519 in named
    assert (bad.topic, bad.target_partition is None, bad.cause) == ("rows", False, "MSG_SIZE_TOO_LARGE")
    assert 1 <= found.codes["MSG_SIZE_TOO_LARGE"] == found.not_written + found.unknown <= 100
    written = numbers(unreadable)
    assert len(written) == found.delivered == 3000 - found.codes["MSG_SIZE_TOO_LARGE"]
    assert set(range(3000)) - set(written) <= set(named)


def test_rows_that_are_refused_together_are_a_range(cluster: FakeCluster, options: MakeOptions) -> None:
    """Another error that concerns one row and refuses a batch."""
    cluster.set_topic_config("rows", "message.timestamp.after.max.ms", "1000")
    times = pa.array([1_700_000_000] * 4 + [4_000_000_000] + [1_700_000_000] * 4, pa.timestamp("s", tz="UTC"))
    sent = batch([b"%d-" % n for n in range(9)], partition=numbered([1] * 9), timestamp=times)
    found = failure([sent], options(kafka_linger_ms=200))
    assert found.bad_rows == (BadRow(5, 0, "rows", 1, None, None, "INVALID_TIMESTAMP", 8),)
    assert (found.codes, found.delivered) == ({"INVALID_TIMESTAMP": 9}, 0)
    assert "one or more of the rows 0 to 8 of Spark partition 5 for topic rows partition 1" in str(found.bad_rows[0])


def test_a_limit_that_cannot_be_read_is_named_with_its_cure(unreadable: FakeCluster, options: MakeOptions) -> None:
    """Smaller batches are the other way."""
    unreadable.set_topic_config("rows", "max.message.bytes", "9000")
    found = failure([rows(0, 2000, 100)], options(kafka_linger_ms=50))
    assert "set kafka.batch.size below it" in str(KafkaWriteError(found))
    assert write_task([rows(0, 2000, 100)], options(kafka_batch_size=8000), TASK).delivered == 2000


def test_equal_rows_that_ask_for_a_partition_are_told_from_others() -> None:
    """A report of partition 0 may be about a row that asks for it; then the other one is left for a report of any."""
    same = batch([b"same"] * 3, partition=pa.array([None, 0, None], pa.int32()))
    sent = SentBatch(Columns.of(same, "rows"), "rows", range(3))

    def told(partition: int) -> int | None:
        message = mock.Mock(**{f"{name}.return_value": found for name, found in CONTENT.items()})
        message.partition.return_value = partition
        return sent.row_of(message)

    assert [told(0), told(1), told(0), told(0)] == [1, 0, 2, None]


CONTENT = {"topic": "rows", "key": None, "value": b"same"}


@pytest.mark.parametrize("code", REFUSING)
def test_a_row_that_is_refused_by_any_code_is_named(code: str, cluster: FakeCluster, options: MakeOptions) -> None:
    """Where it is the only one of its partition; those of another one are delivered. An answer that comes sooner than
    a second attempt could is to the first one, on a busy machine, too."""
    cluster.fail_next("Produce", REFUSING[code], 10_000, topic="rows", partition=0)
    patient = options(kafka_retry_backoff_ms="5000", kafka_retry_backoff_max_ms="5000")
    found = failure(
        [batch([b"%d-" % n for n in range(50)], partition=numbered([int(n != 7) for n in range(50)]))], patient
    )
    assert [(row.row, row.target_partition, row.cause) for row in found.bad_rows] == [(7, 0, code)]
    assert (found.codes, found.delivered, found.not_written, found.unknown) == ({code: 1}, 49, 1, 0)


def numbered(partitions: list[int]) -> pa.Array:
    """The column `partition`."""
    return pa.array(partitions, pa.int32())


def test_batches_are_cut_to_the_limit_of_the_topic(cluster: FakeCluster, options: MakeOptions) -> None:
    """A limit below batch.size: no batch is refused, all is delivered, each key in its order."""
    cluster.set_topic_config("rows", "max.message.bytes", "9000")
    totals = write_task([rows(0, 3000, 100), rows(3000, 3000, 100)], options(kafka_linger_ms=50), TASK)
    assert totals.delivered == 6000
    assert numbers(cluster) == list(range(6000))
    for partition in range(3):
        last: dict[bytes | None, int] = {}
        for record in cluster.log("rows", partition):
            number = int((record.value or b"").split(b"-")[0])
            assert number > last.get(record.key, -1)
            last[record.key] = number


@pytest.mark.parametrize("tasks", [1, 2], ids=["in one task", "in the next task"])
def test_batches_are_cut_to_the_limit_of_a_topic_that_comes_later(
    tasks: int, cluster: FakeCluster, options: MakeOptions
) -> None:
    """The producer was made for rows of another topic: no batch is refused, so each key keeps its order."""
    cluster.create_topic("small", 1)
    cluster.set_topic_config("small", "max.message.bytes", "9000")
    first = batch([b"x" * 100] * 100, topic=["rows"] * 100)
    later = batch([b"%d-" % n + b"x" * 100 for n in range(300)], key=[b"k"] * 300, topic=["small"] * 300)
    if tasks == 1:
        found = write_task([first, later], options(None), TASK)
    else:
        write_task([first], options(None), TASK)
        found = write_task([later], options(None), TASK)
    assert found.delivered == found.rows
    values = [int((record.value or b"").split(b"-")[0]) for record in cluster.log("small", 0)]
    assert values == list(range(300))
    assert write_task([later], options(None), TASK).producer == "reused"
