"""What a front door, a counter or a view may wait for and read, without polling: each seam by one that uses it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from safeproducer import SafeProducer
from safeproducer.testing import FakeCluster
from tests.inside import engine_of

PATIENCE = 20
HELD = {"safeproducer.mode": "held", "linger.ms": 5, "log_level": 0}


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=1) as made:
        made.create_topic("t", partitions=1)
        yield made


# --- reports are there -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_coroutine_waits_for_a_report_without_polling(cluster: FakeCluster, mode: str) -> None:
    """Its loop runs nothing of the producer until it is woken."""

    async def delivered() -> list[object]:
        loop, there, reports = asyncio.get_running_loop(), asyncio.Event(), list[object]()
        with SafeProducer({**HELD, "bootstrap.servers": cluster.bootstrap, "safeproducer.mode": mode}) as producer:
            engine_of(producer).subscribe(lambda: loop.call_soon_threadsafe(there.set))
            producer.produce("t", b"value", on_delivery=lambda error, _: reports.append(error))
            while not reports:
                await asyncio.wait_for(there.wait(), PATIENCE)
                there.clear()
                producer.poll(0)
        return reports

    assert asyncio.run(delivered()) == [None]


def test_a_waker_that_raises_is_logged_and_stops_nothing(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The report is there all the same, and so is the next waker's call."""
    calls, reports = list[int](), list[object]()

    def raises() -> None:
        raise RuntimeError("not obeyed")

    with SafeProducer({**HELD, "bootstrap.servers": cluster.bootstrap}) as producer:
        engine = engine_of(producer)
        engine.subscribe(raises)
        engine.subscribe(wakes := lambda: calls.append(1))
        producer.produce("t", b"value", on_delivery=lambda error, _: reports.append(error))
        assert producer.flush(PATIENCE) == 0
        engine.unsubscribe(wakes)
        woken = len(calls)
        producer.produce("t", b"value", on_delivery=lambda error, _: reports.append(error))
        assert producer.flush(PATIENCE) == 0
    assert reports == [None, None]
    assert woken == len(calls) == 1
    assert [record.levelno for record in caplog.records if "not obeyed" in str(record.exc_info)] == [logging.ERROR] * 2


def test_a_late_subscriber_is_woken_at_once(cluster: FakeCluster) -> None:
    """What waits already counts as well."""
    with SafeProducer({**HELD, "bootstrap.servers": cluster.bootstrap}) as producer:
        engine = engine_of(producer)
        engine.awake().counters.report_queue.reports.add_event(lambda *_: None, None, None)
        calls = list[int]()
        engine.subscribe(lambda: calls.append(1))
        assert calls == [1]
