"""Bad rows that do not fail their task: each is in the dead-letter topic once, and every good row in its own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from safeproducer.spark import bad_rows, topic_limits
from safeproducer.spark.attempt import Attempt
from safeproducer.spark.bad_rows import Aside, Refused, SentBatch, fitting, groups
from safeproducer.spark.columns import Columns
from safeproducer.spark.errors import BadRow, KafkaWriteError
from safeproducer.spark.options import BadRows, Options
from safeproducer.spark.report import TaskTotals
from safeproducer.spark.row_check import CLOCKS, TopicFacts, batch_bytes, check
from safeproducer.spark.task import Task, write_task
from safeproducer.testing import FakeCluster
from tests.spark.arrow import HEADERS, batch, numbers, rows
from tests.spark.conftest import MakeOptions, failure_of

TASK = Task(5, 0, "the-query", 7)
TO_TOPIC = {"safeproducer_spark_bad_rows": "topic", "safeproducer_spark_bad_rows_topic": "dead"}
SKIP = {"safeproducer_spark_bad_rows": "skip"}
MOMENT = pa.timestamp("us", tz="UTC")
ANY_NUMBER = {"safeproducer_spark_bad_rows_max": "100%"}


@pytest.fixture(autouse=True)
def _dead(cluster: FakeCluster) -> None:
    cluster.create_topic("dead", 1)


def letters(cluster: FakeCluster) -> list[dict[str, Any]]:
    """The headers of each record of the dead-letter topic, and its key and value."""
    found = []
    for record in cluster.log("dead", 0):
        found.append({**dict(record.headers or ()), "key": record.key, "value": record.value})
    return found


def asked(partitions: Sequence[int | None], start: int = 0) -> pa.RecordBatch:
    """Numbered rows that ask for these partitions."""
    count = len(partitions)
    return batch([b"%d-" % (start + n) for n in range(count)], partition=pa.array(partitions, pa.int32()))


def test_a_bad_row_goes_to_the_dead_letter_topic_and_all_others_to_theirs(
    cluster: FakeCluster, options: MakeOptions
) -> None:
    """With its key, value and headers, and why; numbered over the Arrow batches of the task."""
    odd = batch(
        [b"%d-" % n for n in range(1000, 2000)],
        key=[b"k"] * 1000,
        headers=pa.array([[{"key": "h", "value": b"1"}]] * 1000, HEADERS),
        timestamp=pa.array([int(n != 17) * 10**15 for n in range(1000)], pa.timestamp("us", tz="UTC")),
    )
    totals = write_task([rows(0, 1000), odd, rows(2000, 500)], options(**TO_TOPIC), TASK)
    assert numbers(cluster) == [n for n in range(2500) if n != 1017]
    assert letters(cluster) == [
        {
            "key": b"k",
            "value": b"1017-",
            "h": b"1",
            "sp-error-code": b"timestamp_too_old",
            "sp-error": str(BadRow(5, 1017, "rows", None, None, None, "timestamp_too_old")).encode(),
            "sp-topic": b"rows",
            "sp-query": b"the-query",
            "sp-batch": b"7",
            "sp-partition": b"5",
            "sp-row": b"1017",
        }
    ]
    assert (totals.rows, totals.delivered, totals.bad_rows) == (2500, 2499, {"timestamp_too_old": 1})
    assert {name: (sums.rows, sums.delivered) for name, sums in totals.topics.items()} == {"rows": (2499, 2499)}


def test_skipped_rows_are_counted_by_code(cluster: FakeCluster, options: MakeOptions) -> None:
    many = asked([None, 9, None, -1] + [None] * 400)
    totals = write_task([many, batch([b"x" * 2_000_000])], options(**SKIP), TASK)
    assert numbers(cluster) == [n for n in range(404) if n not in (1, 3)]
    assert (totals.rows, totals.delivered) == (405, 402)
    assert totals.bad_rows == {"no_such_partition": 2, "row_too_large": 1}
    assert letters(cluster) == []


@pytest.mark.parametrize("mode", ["auto", "held"])
@pytest.mark.parametrize("extras", [False, True], ids=["plain", "with headers"])
def test_rows_that_a_broker_refuses_are_told_from_their_neighbours(
    mode: str, extras: bool, cluster: FakeCluster, options: MakeOptions
) -> None:
    """A broker refuses all rows of a batch for one: each good one is in its topic, once."""
    cluster.fail_next("DescribeConfigs", 29, 10_000)
    cluster.set_topic_config("rows", "max.message.bytes", "20000")
    bad = {5, 519, 520, 2999}
    values = [b"%d-" % n + b"x" * (30_000 if n in bad else 20) for n in range(3000)]
    more = {"headers": pa.array([[{"key": "h", "value": b"1"}]] * 3000, HEADERS)} if extras else {}
    sent = batch(values, key=[b"key-%d" % (n % 97) for n in range(3000)], **more)
    totals = write_task([sent, rows(3000, 10)], options(safeproducer_mode=mode, **TO_TOPIC), TASK)
    assert numbers(cluster) == [n for n in range(3010) if n not in bad]
    found = letters(cluster)
    assert sorted(int(one["sp-row"]) for one in found) == sorted(bad)
    assert {one["value"] for one in found} == {values[n] for n in bad}
    assert {one["sp-error-code"] for one in found} == {b"MSG_SIZE_TOO_LARGE"}
    assert all(dict(record.headers or ()).get("h") == (b"1" if extras else None) for record in cluster.log("dead", 0))
    assert (totals.delivered, totals.bad_rows) == (3006, {"MSG_SIZE_TOO_LARGE": 4})
    assert totals.topics["rows"].delivered == totals.topics["rows"].rows == 3006
    log = [record for partition in range(3) for record in cluster.log("rows", partition)]
    assert totals.topics["rows"].bytes == sum(len(record.key or b"") + len(record.value or b"") for record in log)


def test_rows_have_their_numbers_behind_a_bad_one_of_the_same_batch(cluster: FakeCluster, options: MakeOptions) -> None:
    """Also those that a broker refuses: they were sent without it."""
    cluster.set_topic_config("rows", "message.timestamp.after.max.ms", "1000")
    seconds = [{3: 0, 7: 4_000_000_000}.get(n, 1_700_000_000) for n in range(10)]
    sent = batch([b"%d-" % n for n in range(10)], timestamp=pa.array(seconds, pa.timestamp("s", tz="UTC")))
    totals = write_task([rows(10, 5), sent], options(**TO_TOPIC, **ANY_NUMBER), TASK)
    assert totals.bad_rows == {"timestamp_too_old": 1, "INVALID_TIMESTAMP": 1}
    assert {(one["sp-row"], one["value"]) for one in letters(cluster)} == {(b"8", b"3-"), (b"12", b"7-")}
    assert len(numbers(cluster)) == 13


def test_batches_that_are_too_large_have_no_bad_row(cluster: FakeCluster, options: MakeOptions) -> None:
    """Where the limit cannot be read: the rows go in smaller ones."""
    cluster.fail_next("DescribeConfigs", 29, 10_000)
    cluster.set_topic_config("rows", "max.message.bytes", "9000")
    totals = write_task([rows(0, 2000, 100)], options(kafka_linger_ms=50, **TO_TOPIC), TASK)
    assert (totals.delivered, totals.bad_rows) == (2000, {})
    assert numbers(cluster) == list(range(2000))


@pytest.mark.parametrize(
    ("most", "bad", "fails"),
    [("2%", 100, False), ("2%", 101, True), ("2%, 0", 20, False), ("2%,0", 21, True), ("3", 3, False), ("3", 4, True)],
)
def test_more_bad_rows_than_allowed_fail_the_task(most: str, bad: int, fails: bool, options: MakeOptions) -> None:
    sent = [asked([99] * bad + [None] * (500 - bad)), rows(500, 500)]
    made = options(**TO_TOPIC, safeproducer_spark_bad_rows_max=most)
    if not fails:
        assert write_task(sent, made, TASK).bad_rows == {"no_such_partition": bad}
        return
    failure = failure_of(sent, made, TASK)
    assert failure.codes == {"no_such_partition": bad}
    assert [row.row for row in failure.bad_rows] == list(range(min(bad, 10)))
    assert failure.delivered + failure.not_written == failure.rows
    assert f"{bad} of {failure.rows} rows are bad, and safeproducer.spark.bad.rows.max allows" in str(
        KafkaWriteError(failure)
    )


def test_a_number_fails_before_anything_goes_to_the_dead_letter_topic(
    cluster: FakeCluster, options: MakeOptions
) -> None:
    """A share does from a thousand bad rows on: how many good ones come is not known."""
    for most, count in (("50", 51), ("1%", 1001)):
        with pytest.raises(KafkaWriteError):
            write_task([asked([99] * count)], options(**TO_TOPIC, safeproducer_spark_bad_rows_max=most), TASK)
        assert letters(cluster) == []


@pytest.mark.parametrize("most", ["100%", "1000"])
def test_no_good_row_at_all(most: str, cluster: FakeCluster, options: MakeOptions) -> None:
    """Also then each is in the dead-letter topic, and the task goes on."""
    made = options(**TO_TOPIC, safeproducer_spark_bad_rows_max=most)
    totals = write_task([asked([99] * 100), asked([99] * 100, 100), asked([None], 200)], made, TASK)
    assert [int(one["sp-row"]) for one in letters(cluster)] == list(range(200))
    assert (totals.rows, totals.delivered) == (201, 1)


@pytest.mark.parametrize("why", ["gone", "refuses"])
def test_a_dead_letter_topic_that_cannot_be_written_fails_the_task(
    why: str, cluster: FakeCluster, options: MakeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safeproducer.spark.topic_limits.APPEARS_WITHIN", 0.2)
    made = options(**{**TO_TOPIC, "safeproducer_spark_bad_rows_topic": "missing" if why == "gone" else "dead"})
    if why == "refuses":
        cluster.fail_next("Produce", 29, 10_000, topic="dead")
    failure = failure_of([rows(0, 500), asked([99], 500)], made, TASK)
    assert (repr("missing") if why == "gone" else "the dead-letter topic 'dead' cannot be written") in failure.reason
    assert failure.codes
    assert failure.delivered + failure.not_written + failure.unknown == failure.rows == 501


@pytest.mark.parametrize("attempt", range(3))
def test_letters_leave_in_batches_that_their_topic_takes(
    attempt: int, cluster: FakeCluster, options: MakeOptions
) -> None:
    """Its limit is below the size of a batch, and many bad rows come at once, in the first attempt and later."""
    cluster.set_topic_config("dead", "max.message.bytes", "100000")
    bad = batch([b"%04d-" % n + b"x" * 20_000 for n in range(200)], timestamp=pa.array([0] * 200, MOMENT))
    for _ in range(attempt):
        write_task([rows(0, 1)], options(**TO_TOPIC, **ANY_NUMBER), TASK)  # the producer is kept
    totals = write_task([rows(0, 1), bad], options(**TO_TOPIC, **ANY_NUMBER), TASK)
    assert totals.bad_rows == {"timestamp_too_old": 200}
    assert sorted(int(one["sp-row"]) for one in letters(cluster)) == list(range(1, 201))


@pytest.mark.parametrize(
    ("name", "cause"),
    [("no name!", "invalid_topic"), ("x" * 250, "invalid_topic"), (".", "invalid_topic"), ("gone", "unknown_topic")],
)
def test_a_topic_of_the_column_that_cannot_be_is_a_bad_row(
    name: str, cause: str, cluster: FakeCluster, options: MakeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other rows are written. One that was waited for is not waited for again, and found when it is there."""
    waited: list[tuple[bool, float]] = []
    real = topic_limits.partition_counts

    def counted(producer: Any, names: Sequence[str], *, appears_within: float, answer_within: float) -> Any:
        waited.append((name in names, appears_within))
        return real(producer, names, appears_within=appears_within, answer_within=answer_within)

    monkeypatch.setattr("safeproducer.spark.topic_limits.APPEARS_WITHIN", 0.3)
    monkeypatch.setattr(topic_limits, "partition_counts", counted)
    made = options(None, **TO_TOPIC)
    for start in (0, 100):
        sent = batch([b"%d-" % (start + n) for n in range(100)], topic=["rows"] * 50 + [name] + ["rows"] * 49)
        totals = write_task([sent, sent.slice(0, 10)], made, TASK)
        assert (totals.bad_rows, totals.delivered) == ({cause: 1}, 109)
        assert [within for asked, within in waited if asked] == _waits(cause, start)
        waited.clear()
    assert [one["sp-error-code"] for one in letters(cluster)] == [cause.encode()] * 2
    assert [one["sp-topic"] for one in letters(cluster)] == [name.encode()] * 2
    if cause == "unknown_topic":
        cluster.create_topic(name, 1)
        assert write_task([sent], made, TASK).bad_rows == {}
        assert len(cluster.log(name, 0)) == 1


def _waits(cause: str, start: int) -> list[float]:
    """For how long the topic was waited for, each time that brokers were asked for it."""
    return [] if cause == "invalid_topic" else [0.0 if start else 0.3]


def test_a_topic_of_the_column_that_may_not_be_written_has_bad_rows(cluster: FakeCluster, options: MakeOptions) -> None:
    """Its rows are set aside; that the option names it ends the task."""
    cluster.create_topic("secret", 1)
    cluster.fail_next("Produce", 29, 10_000, topic="secret")
    sent = batch([b"%d-" % n for n in range(300)], topic=["rows", "secret", "rows"] * 100)
    totals = write_task([sent], options(None, **TO_TOPIC), TASK)
    assert (totals.bad_rows, totals.delivered) == ({"TOPIC_AUTHORIZATION_FAILED": 100}, 200)
    assert sorted(int(one["sp-row"]) for one in letters(cluster)) == list(range(1, 300, 3))
    with pytest.raises(KafkaWriteError, match="TOPIC_AUTHORIZATION_FAILED"):
        write_task([rows(0, 3)], options("secret", **TO_TOPIC), TASK)


@pytest.mark.parametrize("column", [False, True], ids=["option", "column"])
def test_rows_that_the_configs_of_their_topic_refuse_are_not_sent(
    column: bool, cluster: FakeCluster, options: MakeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock two hours ahead, null keys of a compacted topic; no broker refuses anything."""
    now = int(time.time())
    real = topic_limits.read_limits

    def compacted(config: Any, names: Sequence[str]) -> dict[str, TopicFacts]:  # FakeCluster compacts none
        return {name: replace(one, needs_keys=name == "rows") for name, one in real(config, names).items()}

    monkeypatch.setattr(topic_limits, "read_limits", compacted)
    cluster.create_topic("others", 1)
    far = {7: now + 7_200, 8: now + 3_700, 9: now + 3_590, 10: now - 86_390}
    sent = batch(
        [b"%d-" % n for n in range(20)],
        key=pa.array([None if n == 3 else b"k" for n in range(20)], pa.binary()),
        timestamp=pa.array([far.get(n, now) for n in range(20)], pa.timestamp("s", tz="UTC")),
        **({"topic": ["others" if n in (4, 5) else "rows" for n in range(20)]} if column else {}),
    )
    totals = write_task([sent], options(None if column else "rows", **TO_TOPIC), TASK)
    assert totals.bad_rows == {"INVALID_RECORD": 1, "INVALID_TIMESTAMP": 2}
    assert sorted(int(one["sp-row"]) for one in letters(cluster)) == [3, 7, 8]
    assert totals.delivered == 17
    without_keys = batch([b"a", b"b"], **({"topic": ["rows", "others"]} if column else {}))
    totals = write_task([without_keys], options(None if column else "rows", **TO_TOPIC), TASK)
    assert totals.bad_rows == {"INVALID_RECORD": 1 if column else 2}


def test_a_timestamp_near_the_limit_is_left_to_the_broker() -> None:
    """Clocks differ. What a topic's configs say of timestamps counts on both sides, where they are not the broker's."""
    now = int(time.time()) * 1000
    beyond = {0: 0, 1: -10_000 - CLOCKS // 2, 2: -10_000 - 2 * CLOCKS, 3: 5_000 + CLOCKS // 2, 4: 5_000 + 2 * CLOCKS}
    sent = batch([b"x"] * 5, timestamp=pa.array([now + beyond[n] for n in range(5)], pa.timestamp("ms", tz="UTC")))
    configs = {"message.timestamp.type": "CreateTime", "cleanup.policy": "delete,compact"}
    assert topic_limits.limits_of(configs).needs_keys
    configs["cleanup.policy"] = "delete"
    assert topic_limits.limits_of({**configs, "message.timestamp.before.max.ms": str(2**63 - 1)}).before is None
    configs |= {"message.timestamp.before.max.ms": "10000", "message.timestamp.after.max.ms": "5000"}
    for kind, found in (("CreateTime", [2, 4]), ("LogAppendTime", [])):
        limits = topic_limits.limits_of({**configs, "message.timestamp.type": kind})
        facts = topic_limits.facts({"t": 1}, {"t": limits}, False)
        assert [one.row for one in check(Columns.of(sent, "t"), "t", facts, 10**6, apart=True)] == found
        assert check(Columns.of(sent, "t"), "t", facts, 10**6) == [], (
            "a row fails its task only when a broker refuses it"
        )


def test_rows_of_other_partitions_are_sorted_out_together(
    cluster: FakeCluster, options: MakeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad row in each of eight partitions takes about as many waits as one in one."""
    cluster.create_topic("eight", 8)
    cluster.fail_next("DescribeConfigs", 29, 10_000)
    cluster.set_topic_config("eight", "max.message.bytes", "20000")
    waits: list[int] = []
    real = Attempt._settle
    monkeypatch.setattr(Attempt, "_settle", lambda self: waits.append(1) or real(self))
    taken = []
    for bad in (range(1), range(8)):
        values = [b"%d-" % n + b"x" * (30_000 if n in bad else 20) for n in range(64)]
        sent = batch(values, partition=pa.array([n % 8 for n in range(64)], pa.int32()))
        assert write_task([sent], options("eight", **TO_TOPIC), TASK).bad_rows == {"MSG_SIZE_TOO_LARGE": len(bad)}
        taken.append(len(waits))
        waits.clear()
    assert taken[1] <= taken[0] * 2 + 2, "one after another they take eight times as many"
    assert numbers(cluster, "eight", 8) == sorted([*range(1, 64), *range(8, 64)])


def test_what_is_no_utf8_is_a_bad_row(cluster: FakeCluster, options: MakeOptions) -> None:
    """A topic, or the name of a header: Spark makes strings of any bytes."""

    def texts(*given: bytes | None) -> pa.Array:
        return pa.array(given, pa.binary()).cast(pa.binary()).view(pa.string())

    names = pa.StructArray.from_arrays([texts(b"h", b"\xff", b"\xc3\xa9"), pa.array([b"1"] * 3)], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array([0, 0, 1, 1, 2, 3], pa.int32()), names)
    sent = batch(
        [b"0-", b"1-", b"2-", b"3-", b"4-"],
        topic=texts(b"rows", b"rows", b"\xff\xfe", b"rows", b"rows"),
        headers=headers,
    )
    totals = write_task([sent], options(None, **TO_TOPIC, **ANY_NUMBER), TASK)
    assert totals.bad_rows == {"null_topic": 1, "header_without_name": 1}
    assert [int(one["sp-row"]) for one in letters(cluster)] == [2, 3]
    assert numbers(cluster) == [0, 1, 4]
    assert "é" in {
        name for part in range(3) for record in cluster.log("rows", part) for name, _ in record.headers or ()
    }


def test_the_dead_letter_topic_may_be_one_of_the_topics_of_the_rows(cluster: FakeCluster, options: MakeOptions) -> None:
    """Its own rows are counted apart from the bad ones."""
    sent = batch(
        [b"%d-" % n for n in range(300)],
        topic=["dead"] * 300,
        partition=pa.array([99, 99] + [0] * 298, pa.int32()),
    )
    totals = write_task([sent], options(None, **TO_TOPIC), TASK)
    assert (totals.delivered, totals.topics["dead"].delivered) == (298, 298)
    assert len(letters(cluster)) == 300


# --- pure ------------------------------------------------------------------------------------------------------------


def one_row(key: bytes | None, value: bytes | None, headers: list[tuple[str | None, bytes]] = []) -> Columns:  # noqa: B006
    """As Columns."""
    given = [{"key": name, "value": content} for name, content in headers]
    return Columns.of(batch([value], key=pa.array([key], pa.binary()), headers=pa.array([given], HEADERS)), "rows")


MARKS = [("sp-error-code", b"row_too_large"), ("sp-batch", None)]


@pytest.mark.parametrize(("key", "value"), [(b"k" * 10, b"v" * 5000), (None, b"v" * 990), (b"k" * 4000, b"v" * 100)])
@pytest.mark.parametrize("headers", [[], [("h", b"x" * 100)], [("h", b"x" * 5000)]], ids=len)
def test_what_is_too_large_is_cut(key: bytes | None, value: bytes, headers: list[tuple[str | None, bytes]]) -> None:
    """Value first, then headers, then the key; what is left fits, and is no smaller than it must be."""
    limit = 1000
    cut_key, cut_value, cut_headers = fitting(one_row(key, value, headers), MARKS, limit)
    assert cut_headers[-2:] == MARKS
    assert limit - 40 <= batch_bytes(cut_key, cut_value, cut_headers) <= limit
    assert (key or b"").startswith(cut_key or b"")
    assert value.startswith(cut_value or b"")
    if key is None or len(key) < 100:
        assert cut_key == key
    assert (len(cut_headers) > 2) == (bool(headers) and len(headers[0][1]) < 1000 and len(key or b"") < 1000)


def test_what_fits_is_whole() -> None:
    """Names that librdkafka would not take are written otherwise."""
    row = one_row(b"k", None, [("a\0b", b"1"), (None, b"2")])
    assert fitting(row, MARKS, 10_000) == (b"k", None, [("a\\0b", b"1"), ("", b"2"), *MARKS])


@pytest.mark.parametrize(
    ("most", "rows", "allowed"),
    [(Decimal("0.01"), 0, 0), (Decimal("0.01"), 1, 1), (Decimal("0.01"), 100, 1), (Decimal("0.01"), 101, 2), (3, 1, 3)],
)
def test_a_share_of_few_rows_lets_one_be_bad(most: Decimal | int, rows: int, allowed: int) -> None:
    assert BadRows("skip", None, most).allowed(rows) == allowed


def test_groups_get_smaller_and_keep_the_order() -> None:
    """A stack: the first rows are its last group."""
    sent = SentBatch(Columns.of(rows(0, 10), "rows"), "rows", range(100, 110))
    refused = [Refused(sent, row, BadRow(5, 100 + row, None, None, None, None, "X")) for row in (3, 1, 2, 9, 5)]
    assert [[one.row for one in group] for group in groups(refused)] == [[5, 9], [1, 2, 3]]
    assert [len(group) for group in groups(refused, 2)] == [1, 2, 2]
    assert groups([]) == []


def parsed(**given: Any) -> BadRows:
    more = {f"safeproducer.spark.{name.replace('_', '.')}": text for name, text in given.items()}
    return Options.parse({"kafka.bootstrap.servers": "localhost:1", "topic": "orders", **more}).bad_rows


def test_a_task_may_always_have_some_bad_rows() -> None:
    """Beside a share: two of the 75 rows of a small task are no reason to stop. A share of nothing means it."""
    assert (parsed().floor, parsed(bad_rows="skip", bad_rows_max="5%").floor) == (100, 100)
    assert parsed(bad_rows="skip", bad_rows_max="5%, 20") == BadRows("skip", None, Decimal("0.05"), 20)
    assert parsed(bad_rows="skip", bad_rows_max="0%").floor == parsed(bad_rows="skip", bad_rows_max="7").floor == 0
    aside = Aside(BadRows("skip"), TASK)
    for row in range(100):
        aside.rows.add(BadRow(5, row, None, None, None, None, "x"))
    assert not aside.is_too_much(100, at_the_end=True)
    aside.rows.add(BadRow(5, 100, None, None, None, None, "x"))
    assert aside.is_too_much(101, at_the_end=True)
    assert aside.reason(101) is not None
    assert "allows 1%, and 100 of a task always" in str(aside.reason(101))


@pytest.mark.parametrize(("text", "most"), [("1%", "0.01"), ("0.5 %", "0.005"), ("0", 0), ("20", 20), ("100%", "1")])
def test_the_options(text: str, most: str | int) -> None:
    assert parsed() == BadRows("fail", None, Decimal("0.01"))
    expected = most if isinstance(most, int) else Decimal(most)
    assert parsed(bad_rows="Topic", bad_rows_topic="dead", bad_rows_max=text) == BadRows("topic", "dead", expected)
    assert str(BadRows("skip", None, Decimal("0.005"))) == "0.5%"
    assert str(BadRows("skip", None, Decimal("1"))) == "100%"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"bad_rows": "drop"}, "must be one of fail, topic, skip"),
        ({"bad_rows": "topic"}, "bad.rows is topic"),
        ({"bad_rows": "fail", "bad_rows_max": "5"}, "bad.rows.max' = '5': safeproducer.spark.bad.rows is fail"),
        ({"bad_rows_max": "5"}, "bad.rows is fail"),
        ({"bad_rows": "skip", "bad_rows_topic": "dead"}, "bad.rows is skip"),
        ({"bad_rows": "topic", "bad_rows_topic": "orders"}, "the good rows go there"),
        *[
            ({"bad_rows": "skip", "bad_rows_max": text}, "a share of them")
            for text in ("-1", "101%", "many", "", "nan", "1.5", "nan%", "1%,", "1%,x", "1%,-1", "5,5")
        ],
    ],
    ids=str,
)
def test_mistakes_in_the_options(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        parsed(**given)


def test_totals_of_bad_rows_travel() -> None:
    totals = TaskTotals(1, 2, bad_rows={"a": 3, "b": 1})
    assert TaskTotals.from_row(totals.to_arrow().to_pylist()[0]) == totals


def test_a_share_counts_in_the_end() -> None:
    aside = Aside(BadRows("skip"), TASK)
    for row in range(bad_rows.BEFORE_A_SHARE_COUNTS):
        aside.rows.add(BadRow(5, row, None, None, None, None, "x"))
    assert not aside.is_too_much(1000, at_the_end=False)
    assert aside.is_too_much(1000, at_the_end=True)
    assert aside.rows.codes == Counter({"x": 1000})
