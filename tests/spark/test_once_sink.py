"""The driver's side of an exactly-once sink without Spark: what it refuses, when it asks brokers, its report."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException

from safeproducer import ConfigurationError
from safeproducer.spark import SafeProducerDataSource, SafeProducerSink, sink
from tests.spark.test_doors import OPTIONS, VALUES, Frame, totals

ONCE = {
    **OPTIONS,
    "safeproducer.spark.guarantee": "exactly_once",
    "safeproducer.spark.sink.id": "orders",
    "safeproducer.spark.slots": "2",
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """For which micro-batches brokers were asked; nothing is, and nothing shuffled."""
    found: list[tuple[Any, ...]] = []
    monkeypatch.setattr(sink, "begin", lambda _options, once, *where: found.append((once.slots, *where)) or ())
    monkeypatch.setattr(sink, "_by_content", lambda frame, _slots: frame)
    return found


def slots(*how: str) -> Frame:
    return Frame(*(totals(number, slot=one, rows_before=0, ids_used=0) for number, one in enumerate(how)))


def test_brokers_are_asked_where_a_run_begins(asked: list[tuple[Any, ...]]) -> None:
    """And behind a micro-batch that failed, or was another one's: 57 ms for each would be a third of a small one."""
    write: Any = SafeProducerSink(ONCE)
    for batch in (4, 5, 6):
        write(slots("written", "written"), batch)
    assert asked == [(2, 4, "query")]
    with pytest.raises(RuntimeError):
        write(slots("written"), 7)
    write(slots("already_there", "written"), 7)
    write(slots("written", "written"), 8)
    assert asked == [(2, 4, "query"), (2, 7, "query")]
    other = slots("written", "written")
    other.properties["sql.streaming.queryId"] = "other"
    write(other, 9)
    assert asked[-1] == (2, 9, "other")


def test_the_report_counts_slots_and_no_producer_ids(asked: list[tuple[Any, ...]]) -> None:
    """A failed attempt left nothing that a reader sees."""
    write: Any = SafeProducerSink({**ONCE, "safeproducer.spark.slots": "4"})
    report = write(slots("written", "already_there", "empty", "written"), 0)
    assert report.slots == {"written": 2, "already_there": 1, "empty": 1}
    assert (report.maybe_twice, report.ids_used, report.ids_per_hour) == (0, 0, 0)
    assert report.as_dict()["slots"] == report.slots
    plain: Any = SafeProducerSink(OPTIONS)
    assert plain(Frame(totals()), 0).slots == {}


@pytest.mark.parametrize("found", [("written",), ("written",) * 3])
def test_other_tasks_than_slots_are_an_error(asked: list[tuple[Any, ...]], found: tuple[str, ...]) -> None:
    """A rule of Spark's planner that takes the shuffle away, or cuts it otherwise."""
    write: Any = SafeProducerSink(ONCE)
    with pytest.raises(RuntimeError, match=r"for the slots \[0.*\] of 2"):
        write(slots(*found), 0)


def test_what_has_no_name_for_its_rows_is_refused(asked: list[tuple[Any, ...]]) -> None:
    """A DataFrame at hand, and a query of Spark Connect."""
    write: Any = SafeProducerSink(ONCE)
    with pytest.raises(ConfigurationError, match=r"a DataFrame that is no stream has none. Leave it out"):
        write.write(slots("written", "written"))
    away = slots("written", "written")
    away.properties["sql.streaming.queryId"] = None
    with pytest.raises(ConfigurationError, match=r"Spark Connect does not tell it. Leave it out"):
        write(away, 0)
    assert asked == []


def test_spark_connect_raises_where_it_has_no_context(asked: list[tuple[Any, ...]]) -> None:
    class Session:
        conf = type("Conf", (), {"get": staticmethod(lambda _, default: default)})

        @property
        def sparkContext(self) -> Any:  # noqa: N802 - Spark's name
            raise PySparkException("not there")

    away = slots("written", "written")
    away.sparkSession = Session()  # type: ignore[assignment]
    write: Any = SafeProducerSink(ONCE)
    with pytest.raises(ConfigurationError, match="Spark Connect"):
        write(away, 0)


def test_speculation_is_refused(asked: list[tuple[Any, ...]]) -> None:
    frame = Frame(totals(), **{"spark.speculation": "true"})
    with pytest.raises(ConfigurationError, match=r"'spark.speculation' = 'true': copies of a task fence each other"):
        SafeProducerSink(ONCE)(frame, 0)  # type: ignore[arg-type]


def test_the_data_source_refuses_it() -> None:
    with pytest.raises(ConfigurationError, match=r"Pass a SafeProducerSink to foreachBatch"):
        SafeProducerDataSource(ONCE).streamWriter(VALUES, overwrite=False)
