"""What statistics of several lanes say of the distance to the brokers."""

import itertools
import json
import time
from collections.abc import Callable
from unittest import mock

import pytest
from confluent_kafka.cimpl import Producer

from safeproducer import SafeProducer
from safeproducer.kafka import statistics as reading
from safeproducer.pipeline.dispatch.updates import ClientUpdates
from safeproducer.pipeline.reports.counters import DeliveryCounters
from safeproducer.policy.types import DIRECT_LANE
from tests.clusters import cluster_of
from tests.contract.support import poll_until
from tests.inside import engine_of

LONG_ROUND_TRIP, NEAR = 30_000, 100
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
    now = int(time.monotonic() * 1e6)
    return json.dumps({"ts": now, "msg_cnt": 0, "msg_size": 0, "brokers": {"b": broker}, "topics": {}, "eos": eos})


def tell(updates: ClientUpdates, text: str) -> None:
    """Statistics of the direct lane, and the sender's next turn."""
    updates.statistics(text)
    updates.read_arrived()


def tell_twice(updates: ClientUpdates, measured: Callable[[], bool], floor: int, requests: int = 4) -> bool:
    """Two statistics of the direct lane; whether the second one says that round trips are long."""
    tell(updates, statistics(requests, floor))
    assert not measured()
    tell(updates, statistics(requests and requests + 1, floor))
    return measured()


def tell_of_fed(updates: ClientUpdates, text: str) -> None:
    """Statistics of a lane for batches."""
    updates.statistics(text, beside=True)
    updates.read_arrived()


@pytest.fixture
def updates(unreachable: dict[str, object]) -> ClientUpdates:
    return engine_of(SafeProducer({**unreachable, "linger.ms": 5})).updates


@pytest.fixture
def measured(updates: ClientUpdates) -> Callable[[], bool]:
    moments = itertools.count(100)

    def long_round_trip() -> bool:
        updates.holds.round_trip.measure(next(moments))
        return updates.holds.round_trip.long

    return long_round_trip


def test_a_lane_that_sends_nothing_tells_no_distance(updates: ClientUpdates, measured: Callable[[], bool]) -> None:
    """A new lane has only connected, and was answered at once: taken for the distance, it ended all holding back."""
    assert tell_twice(updates, measured, LONG_ROUND_TRIP)
    tell_of_fed(updates, statistics(0, NEAR))
    assert measured()
    tell_of_fed(updates, statistics(0, None))
    tell(updates, statistics(9, LONG_ROUND_TRIP))
    assert measured()


def test_the_lane_that_sends_tells_the_distance(updates: ClientUpdates, measured: Callable[[], bool]) -> None:
    """The directly one before, the batch lane while its records are held back, and nobody when nothing is sent."""
    assert tell_twice(updates, measured, LONG_ROUND_TRIP)
    tell_of_fed(updates, statistics(3, LONG_ROUND_TRIP))
    tell(updates, statistics(5, NEAR))  # a question for metadata
    assert measured()
    tell_of_fed(updates, statistics(9, NEAR))  # its leader is a near one now
    assert not measured()


def test_a_late_answer_is_no_distance(updates: ClientUpdates, measured: Callable[[], bool]) -> None:
    """A busy machine makes any of them late: each of many producers near their brokers took a second producer ID."""
    tell(updates, statistics(0, 100_000))
    assert not measured()
    for number, floor in enumerate((100_000, NEAR, 100_000, NEAR, 100_000), 1):
        updates._idle = 0  # or some are skipped
        tell(updates, statistics(number, floor))
        for _ in range(2):  # the same ones are judged again while nothing is sent
            assert not measured()
    updates.holds.round_trip.guess(1.0)
    assert measured(), "the first question asks several times"


def test_before_the_first_record_any_answer_counts(updates: ClientUpdates, measured: Callable[[], bool]) -> None:
    assert tell_twice(updates, measured, LONG_ROUND_TRIP, 0)


BATCH = 10_000
"""Records of one."""
RUSHES: dict[str, tuple[int, list[tuple[int, int, float, bool]]]] = {
    "a high rate": (LONG_ROUND_TRIP, [(0, BATCH, 0, False), (25_000, BATCH, 0.05, False), (25_000, BATCH, 0.2, True)]),
    "slower": (LONG_ROUND_TRIP, [(0, BATCH, 0, False), (15_000, BATCH, 0.05, False), (15_000, BATCH, 0.2, False)]),
    "a slow second": (LONG_ROUND_TRIP, [(0, BATCH, 0, False), (100, BATCH, 1, False), (25_100, BATCH, 1.2, True)]),
    "less than a batch waits": (
        LONG_ROUND_TRIP,
        [(0, BATCH, 0, False), (100_000, BATCH - 1, 0.05, False), (100_000, BATCH, 0.2, False)],
    ),
    "a long round trip": (100_000, [(0, BATCH, 0, False), (100_000, BATCH, 0.2, False)]),
}
"""Round trip; accepted records, those that wait, after so many seconds, and whether the rate is high."""


@pytest.mark.parametrize("name", RUSHES)
def test_a_rush_is_noticed_before_statistics(updates: ClientUpdates, measured: Callable[[], bool], name: str) -> None:
    """A burst is none. Held back until then, a saturated producer lost a third of a second at half of its speed. It is
    measured over the last tenth of a second, and with so long a round trip it is no reason."""
    floor, looks = RUSHES[name]
    assert tell_twice(updates, measured, floor)
    assert updates.delivery.batch_records == BATCH
    for accepted, waiting, after, rushes in looks:
        with mock.patch.object(DeliveryCounters, "accepted", accepted):
            assert updates.holds.round_trip.has_high_rate(waiting, 200.0 + after) is rushes
    assert updates.holds.round_trip.long is not looks[-1][-1]


def test_statistics_that_cost_much_are_read_less_often(updates: ClientUpdates, measured: Callable[[], bool]) -> None:
    """Those of 5 000 partitions take 40 ms, and the interpreter stands still. What needs them has them at once."""
    tell(updates, statistics(1, NEAR))
    assert not measured()
    now = updates._last_read[0]
    with (
        mock.patch.object(updates.holds, "any", return_value=False) as held,
        mock.patch.object(DeliveryCounters, "accepted", 1),
        mock.patch("safeproducer.runtime.clock.monotonic", lambda: now),  # noqa: PT008 - it moves
    ):

        def is_read(cost: float, after: float) -> bool:
            nonlocal now
            read_until, updates._idle = updates._last_read[0], 0
            now, updates._last_read = read_until + after, (read_until, cost)
            before = updates.holds.cluster.statistics.get(DIRECT_LANE)
            tell(updates, statistics(2, NEAR))
            return updates.holds.cluster.statistics.get(DIRECT_LANE) is not before

        assert is_read(0.004, 0.5), "it costs less than 1 %"
        assert not is_read(0.04, 3.9)
        assert is_read(0.04, 4.1)
        assert is_read(1.0, 5.1), "the rest has an end"
        updates.failures.unknown += 1
        assert is_read(0.04, 0.5), "what has failed is to be explained"
        assert not is_read(0.1, 0.8), "at a tenth of the time"
        assert is_read(0.1, 1.0)
        updates.failures.unknown, held.return_value = 0, True
        assert is_read(0.04, 0.5), "records are held"
        assert not is_read(0.1, 0.8), "at a tenth of the time"
        updates.catch_up(1)
        assert updates._last_read[1] == 0.1, "also those that records wait for"
        now += 0.2
        updates.catch_up(1)
        assert updates.skipped is None
        assert updates._last_read[0] == now


def test_the_newest_statistics_of_a_lane_wait_alone(updates: ClientUpdates) -> None:
    """Sixteen texts waited where the sender was busy: 30 KB for each topic."""
    for number in range(5):
        updates.statistics(statistics(number, NEAR))
        updates.statistics(statistics(number + 10, LONG_ROUND_TRIP), beside=True)
    newest = dict(updates._arrived)
    assert [json.loads(text)["brokers"]["b"]["req"]["Produce"] for text in newest.values()] == [4, 14]
    with mock.patch("safeproducer.pipeline.dispatch.updates.read", wraps=reading.read) as read:
        updates.read_arrived()
    assert [call.args[0] for call in read.call_args_list] == list(newest.values())
    assert not updates._arrived


def test_to_read_both_lanes_takes_a_tenth_of_the_time(updates: ClientUpdates) -> None:
    """Each alone takes less than that."""
    for beside, took, both in ((False, 0.06, 0.06), (True, 0.07, 0.13)):
        updates.statistics(statistics(1, NEAR), beside)
        with (
            mock.patch("safeproducer.runtime.clock.thread_time", side_effect=[0.0, took]),
            mock.patch("safeproducer.runtime.clock.monotonic", side_effect=itertools.count()),
        ):
            updates.read_arrived()
        assert updates._last_read[1] == pytest.approx(both)
    updates.failures.unknown += 1
    assert updates._pause(0.0) == pytest.approx(9 * 0.125)


def test_an_idle_producer_has_read_that_none_is_under_way(updates: ClientUpdates, measured: Callable[[], bool]) -> None:
    """With many partitions the last reading was from the middle of a burst: the sender never rested, and the lane was
    emptied when the record that it had shown reached its deadline."""
    direct, now = updates.holds.direct, time.monotonic()
    assert direct is not None
    tell(updates, statistics(1, NEAR))
    assert not measured()
    direct.backlogs.observe(("t", 0), 2, 1, now)
    assert direct.backlogs.earliest() is not None
    with (
        mock.patch.object(updates.holds, "any", return_value=False),
        mock.patch("safeproducer.runtime.clock.monotonic", lambda: now),  # noqa: PT008 - it moves
    ):
        for _ in range(20):
            now, updates._last_read = now + 0.5, (updates._last_read[0], 0.05)
            tell(updates, statistics(1, NEAR))
        assert direct.backlogs.earliest() is None
        assert updates.skipped is not None


@pytest.mark.parametrize("because", ["a broker throttles", "records were accepted"])
def test_statistics_in_use_are_read_though_nothing_is_under_way(updates: ClientUpdates, because: str) -> None:
    """An idle producer skips what takes a while to read; here each record has ended, and yet it is not idle."""
    if because == "a broker throttles":
        updates.throttled(1, "broker", 5.0)  # other tests have this cluster, too
    for count in range(10):
        accepted = count if because == "records were accepted" else 0
        totals = accepted, accepted, 0
        with (
            mock.patch.object(DeliveryCounters, "accepted", accepted + 1),
            mock.patch.object(DeliveryCounters, "totals", return_value=totals),
        ):
            updates._last_read = (time.monotonic() - 0.5, 0.05)
            updates.statistics(statistics(1, NEAR))
        assert updates.skipped is None
        updates.read_arrived()


def test_statistics_of_another_clock_are_put_on_ours(updates: ClientUpdates) -> None:
    """librdkafka takes the time of day where there is no monotonic clock."""
    before = time.monotonic()
    told = json.loads(statistics(1, NEAR))
    tell(updates, json.dumps({**told, "ts": told["ts"] + int(50 * 365 * 86_400 * 1e6)}))
    assert before <= updates.holds.cluster.statistics[DIRECT_LANE].at <= time.monotonic()


def test_a_shortened_document_says_the_same() -> None:
    """What a real one says of consumers is left out before it is read."""
    texts: list[str] = []
    with cluster_of({"t": 500}) as cluster:
        native = Producer(
            {"bootstrap.servers": cluster.bootstrap, "statistics.interval.ms": 50, "stats_cb": texts.append}
        )
        native.produce("t", b"v", partition=7)
        poll_until(native, lambda: texts and '"499"' in texts[-1])
        native.flush(10)
        native.close()
    short = reading._shortened(texts[-1])
    assert len(short) < 0.6 * len(texts[-1])
    with mock.patch.object(reading, "_shortened", str):
        found = reading.read(texts[-1])
    assert len(found.partitions) >= 500
    assert reading.read(texts[-1]) == found
