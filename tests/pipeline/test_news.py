"""What statistics of several lanes say of the distance to the brokers."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from unittest import mock

import pytest

from safeproducer import SafeProducer
from safeproducer.pipeline.ledger import Ledger
from safeproducer.pipeline.news import ClientNews
from tests.inside import lane_of

FAR, NEAR = 30_000, 100
"""Microseconds. Acknowledgements take as long as followers do; other requests are answered at once."""


def statistics(produce_requests: int, floor: int | None) -> str:
    window = {"cnt": 0 if floor is None else 1, "min": floor or 0, "p50": floor or 0}
    broker = {
        "name": "b:9092/1",
        "nodeid": 1,
        "state": "UP",
        "waitresp_cnt": 0,
        "rx": 1,
        "tx": 1,
        "req": {"Produce": produce_requests},
        "txretries": 0,
        "req_timeouts": 0,
        "rtt": window,
        "throttle": {"cnt": 0, "max": 0},
    }
    eos = {"producer_id": 1, "producer_epoch": 0}
    moment = int(time.monotonic() * 1e6)
    return json.dumps({"ts": moment, "msg_cnt": 0, "msg_size": 0, "brokers": {"b": broker}, "topics": {}, "eos": eos})


def tell(news: ClientNews, text: str) -> None:
    """Statistics of the straight lane, and the sender's next turn."""
    news.statistics(text)
    news.read_arrived()


def tell_of_fed(news: ClientNews, text: str) -> None:
    """Statistics of a lane for batches."""
    news.fed_statistics(text)
    news.read_arrived()


@pytest.fixture
def news(unreachable: dict[str, object]) -> ClientNews:
    return lane_of(SafeProducer({**unreachable, "linger.ms": 5})).news


@pytest.fixture
def measured(news: ClientNews) -> Callable[[], bool]:
    moments = itertools.count(100)

    def far() -> bool:
        news.measure(next(moments))
        return news.holds.far

    return far


def test_a_lane_that_sends_nothing_tells_no_distance(news: ClientNews, measured: Callable[[], bool]) -> None:
    """A new lane has only connected, and was answered at once: taken for the distance, it ended all holding back."""
    tell(news, statistics(5, FAR))
    assert measured()
    tell_of_fed(news, statistics(0, NEAR))
    assert measured()
    tell_of_fed(news, statistics(0, None))
    tell(news, statistics(9, FAR))
    assert measured()


def test_the_lane_that_sends_tells_the_distance(news: ClientNews, measured: Callable[[], bool]) -> None:
    """The straight one before, the fed one while its records are held back, and nobody when nothing is sent."""
    tell(news, statistics(5, FAR))
    assert measured()
    tell_of_fed(news, statistics(3, FAR))
    tell(news, statistics(5, NEAR))  # a question for metadata
    assert measured()
    tell_of_fed(news, statistics(9, NEAR))  # its leader is a near one now
    assert not measured()


def test_before_the_first_record_any_answer_counts(news: ClientNews, measured: Callable[[], bool]) -> None:
    tell(news, statistics(0, FAR))
    assert measured()


@pytest.mark.parametrize(("accepted", "far"), [(25_000, False), (15_000, True)])
def test_a_rush_is_noticed_before_statistics_come(
    news: ClientNews, measured: Callable[[], bool], accepted: int, far: bool
) -> None:
    """A burst is none. Held back until then, a saturated producer lost a third of a second at half of its speed."""
    tell(news, statistics(5, FAR))
    assert measured()
    batch = news._delivery.batch_records
    with mock.patch.object(Ledger, "accepted", 0):
        assert not news.rushes(batch, 200.0)
    with mock.patch.object(Ledger, "accepted", accepted):
        assert not news.rushes(batch, 200.05)
        assert news.rushes(batch, 200.2) is not far
    assert news.holds.far is far


def test_it_is_no_rush_while_less_than_a_batch_waits(news: ClientNews, measured: Callable[[], bool]) -> None:
    tell(news, statistics(5, FAR))
    assert measured()
    batch = news._delivery.batch_records
    with mock.patch.object(Ledger, "accepted", 0):
        assert not news.rushes(batch, 200.0)
    with mock.patch.object(Ledger, "accepted", 100_000):
        assert not news.rushes(batch - 1, 200.05)
        assert not news.rushes(batch, 200.2)
    assert news.holds.far


def test_a_rush_is_no_reason_very_far_away(news: ClientNews, measured: Callable[[], bool]) -> None:
    tell(news, statistics(5, 100_000))
    assert measured()
    with mock.patch.object(Ledger, "accepted", 0):
        assert not news.rushes(10_000, 200.0)
    with mock.patch.object(Ledger, "accepted", 100_000):
        assert not news.rushes(10_000, 200.2)
    assert news.holds.far
