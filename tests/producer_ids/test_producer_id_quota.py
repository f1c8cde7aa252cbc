"""KIP-936 from the producer's side: a refused producer ID costs confluent_kafka its records, and SafeProducer some
time."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import Producer

from safeproducer import DeliveryError, Outcome, SafeProducer
from safeproducer.hooks import Hook
from safeproducer.pipeline import turn
from safeproducer.pipeline.lanes.direct_lane import DirectLane
from safeproducer.records import Record
from safeproducer.testing import FakeCluster
from tests.clusters import cluster_of
from tests.contract.support import poll_until, send_one
from tests.inside import engine_of
from tests.testing.raw import RawClient, make_batch

RATE = 900
"""New producer IDs per hour: as many at once and one more, then one every four seconds."""
RECORDS = 40
REST = 3 * 3600.0


def use_up(cluster: FakeCluster, address: str) -> None:
    """The anonymous user's new producer IDs on this broker, which leads the topic `used`."""
    cluster.set_quota("producer_ids_rate", RATE, user="ANONYMOUS")
    with RawClient(address) as client:
        for producer_id in range(1_000_000, 1_000_000 + RATE + 3):
            batch = make_batch([b"x"], producer_id=producer_id, epoch=0, sequence=0)
            data = [{"name": "used", "partition_data": [{"index": 0, "records": batch}]}]
            answer = client.ask("Produce", 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
            if answer["throttle_time_ms"]:
                break


@pytest.fixture
def exhausted() -> Iterator[FakeCluster]:
    """A cluster on which that is so."""
    with cluster_of({"t": 2, "used": 1}) as cluster:
        use_up(cluster, cluster.bootstrap)
        yield cluster


def produced(
    cluster: FakeCluster, make: Callable[[dict[str, Any]], Any], partitions: int = 2, **config: Any
) -> list[tuple[Any, bytes]]:
    """(error, value) of each report, in order of arrival."""
    reports: list[tuple[Any, bytes]] = []
    producer = make({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0, **config})
    for number in range(RECORDS):
        producer.produce(
            "t",
            b"%d" % number,
            key=b"%d" % (number % 3),
            partition=number % partitions,
            headers=[("number", b"%d" % number)],
            on_delivery=lambda error, message: reports.append((error, message.value())),
        )
    poll_until(producer, lambda: len(reports) >= RECORDS, 20)
    producer.close()
    return reports


def test_stock_loses_what_was_refused(exhausted: FakeCluster) -> None:
    """The trap: librdkafka takes error 89 for permanent, so the first records of a new producer fail at once."""
    reports = produced(exhausted, Producer)
    assert {error.name() for error, _ in reports if error is not None} == {"THROTTLING_QUOTA_EXCEEDED"}


@pytest.mark.parametrize("config", [{}, {"safeproducer.mode": "held"}, {"safeproducer.ordering": "key"}], ids=str)
def test_safeproducer_sends_them_again(exhausted: FakeCluster, config: dict[str, Any]) -> None:
    """They are certainly not written, wait for the broker's throttle time, and are delivered in order and once."""
    reports = produced(exhausted, SafeProducer, **config)
    assert [error for error, _ in reports if error is not None] == []
    for partition in (0, 1):
        records = exhausted.log("t", partition)
        expected = [b"%d" % number for number in range(partition, RECORDS, 2)]
        assert [record.value for record in records] == expected
        assert [dict(record.headers) for record in records] == [{"number": value} for value in expected]
    refused = [entry for entry in exhausted.journal("Produce") for batch in entry.batches if batch.error_code == 89]
    assert [entry for entry in refused if entry.batches[0].topic == "t"]


class Watching(Hook):
    """Wants records, and adds no header."""

    def record_accepted(self, record: Record) -> None:
        pass


LATER = pytest.mark.parametrize(
    ("config", "hooks"),
    [({}, []), ({"safeproducer.mode": "held"}, []), ({}, [Watching()])],
    ids=["direct", "held", "hooks"],
)


def later(
    cluster: FakeCluster, config: dict[str, Any], hooks: list[Hook], again: Callable[[SafeProducer], object]
) -> None:
    """Half of the records, then `again()` has the ID counted once more, and the quota used up; then the others."""
    settings = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, **config}
    direct = "safeproducer.mode" not in config
    with SafeProducer(settings, hooks=hooks) as producer:
        for number in range(RECORDS):
            if number == RECORDS // 2:
                assert producer.flush(20) == 0
                poll_until(producer, lambda: engine_of(producer).route.goes_direct is direct)
                again(producer)
            producer.produce("t", b"%d" % number)
        assert producer.flush(30) == 0
        account = producer.snapshot()
    assert (account.delivered, account.failed) == (RECORDS, 0)
    assert [record.value for record in cluster.log("t")] == [b"%d" % number for number in range(RECORDS)]
    refused = [batch for entry in cluster.journal("Produce") for batch in entry.batches if batch.error_code == 89]
    assert {batch.topic for batch in refused} == {"t", "used"}


@LATER
def test_records_that_another_leader_counts_again_are_sent_again(config: dict[str, Any], hooks: list[Hook]) -> None:
    """The guard counts an ID once in its life, each leader for itself: the new one refuses what the former one knew."""
    with cluster_of({"t": 1}, 2) as cluster:
        cluster.create_topic("used", 1)  # led by 2
        use_up(cluster, cluster.bootstrap.split(",")[1])

        def again(producer: SafeProducer) -> None:
            cluster.move_leader("t", to=2)
            producer.list_topics("t", 10)
            known = engine_of(producer).updates.holds.cluster
            # Or the refusal answers a second attempt, which proves less.
            poll_until(producer, lambda: {one.partitions["t", 0].leader for one in known.statistics.values()} == {2})

        later(cluster, config, hooks, again)


@LATER
def test_records_that_a_leader_counts_after_a_rest_are_sent_again(config: dict[str, Any], hooks: list[Hook]) -> None:
    """It knows an ID for as long as its windows go back, and others have used the quota up meanwhile."""
    with cluster_of({"t": 1, "used": 1}) as cluster:

        def again(producer: SafeProducer) -> None:
            cluster.advance(REST)
            use_up(cluster, cluster.bootstrap)
            lane = engine_of(producer).updates.holds.direct
            poll_until(producer, lambda: lane is None or lane.probation.open)  # it has noticed a rest, too

        with mock.patch.object(turn, "rest", return_value=0.3):
            later(cluster, config, hooks, again)


@pytest.mark.parametrize("hooks", [[], [Watching()]], ids=["alone", "hooks"])
def test_headers_go_again_with_the_first_records(exhausted: FakeCluster, hooks: list[Hook]) -> None:
    """Those are remembered until a broker knows the ID."""
    settings = {"bootstrap.servers": exhausted.bootstrap, "log_level": 0}
    with SafeProducer(settings, hooks=hooks) as producer:
        for number in range(RECORDS):
            producer.produce("t", b"%d" % number, partition=0, headers={"number": b"%d" % number})
        assert producer.flush(30) == 0
        assert producer.snapshot().failed == 0
    assert [dict(record.headers) for record in exhausted.log("t")] == [{"number": b"%d" % n} for n in range(RECORDS)]


def test_a_later_record_with_headers_is_certainly_not_written() -> None:
    """librdkafka does not report headers: without them it must not go again."""
    reports: list[Any] = []
    with (
        cluster_of({"t": 1, "used": 1}) as cluster,
        mock.patch.object(DirectLane, "rest"),  # on probation it would be remembered
        SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0}) as producer,
    ):
        send_one(producer, "t", b"first")
        poll_until(producer, lambda: engine_of(producer).route.goes_direct)
        cluster.advance(REST)
        use_up(cluster, cluster.bootstrap)
        send_one(
            producer, "t", b"v", headers={"a": b"b"}, on_delivery=lambda error, _: reports.append(error), seconds=30
        )
    assert [error.outcome for error in reports] == [Outcome.NOT_WRITTEN]


def test_a_deadline_ends_the_waiting(exhausted: FakeCluster) -> None:
    """A record whose time is over before the quota lets it through fails, and is certainly not written."""
    exhausted.set_quota("producer_ids_rate", 1, user="ANONYMOUS")
    reports = produced(exhausted, SafeProducer, partitions=1, **{"message.timeout.ms": 2000})
    assert len(reports) == RECORDS
    assert all(isinstance(error, DeliveryError) and error.outcome is Outcome.NOT_WRITTEN for error, _ in reports)
    assert exhausted.log("t") == []
