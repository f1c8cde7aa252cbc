"""purge(): its arguments and what becomes of the records."""

from collections import Counter
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import KafkaError

from tests.contract.support import NOWHERE, Reports, poll_until


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((True,), {}),
        ((True, False), {}),
        ((True, False, False), {}),
        ((1, 0, 1), {}),
        ((), {"in_queue": True}),
        ((), {"in_queue": True, "in_flight": False, "blocking": True}),
        ((), {"blocking": False}),
    ],
    ids=str,
)
def test_queued_records_are_reported_purged(make: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Records that were never sent are reported with _PURGE_QUEUE by the next poll() or flush(), not by purge()."""
    producer = make({"bootstrap.servers": NOWHERE})
    reports = Reports()
    for number in range(3):
        producer.produce("t", str(number), b"k", partition=0, on_delivery=reports)
    assert producer.purge(*args, **kwargs) is None
    assert reports == []
    assert len(producer) >= 3
    poll_until(producer, lambda: len(reports) == 3)
    assert reports.codes == [KafkaError._PURGE_QUEUE] * 3
    assert sorted(message.value() for _, message in reports) == [b"0", b"1", b"2"]
    poll_until(producer, lambda: len(producer) == 0)


@pytest.mark.parametrize("kwargs", [{"in_queue": False}, {"in_queue": False, "in_flight": False}], ids=str)
def test_purge_that_spares_the_queue_leaves_queued_records(make: Any, kwargs: dict[str, Any]) -> None:
    """in_queue=False leaves what waits in the queue alone."""
    producer = make({"bootstrap.servers": NOWHERE})
    reports = Reports()
    producer.produce("t", b"v", on_delivery=reports)
    producer.purge(**kwargs)
    producer.poll(0.2)
    assert reports == []
    assert len(producer) >= 1


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1, 1, 1, 1), {}), ((), {"queue": True}), ((True,), {"in_queue": True})],
    ids=["four", "unknown-keyword", "twice"],
)
def test_bad_arguments_raise(make: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Too many, unknown and doubled arguments raise TypeError and purge nothing."""
    producer = make({"bootstrap.servers": NOWHERE})
    reports = Reports()
    producer.produce("t", b"v", on_delivery=reports)
    with pytest.raises(TypeError):
        producer.purge(*args, **kwargs)
    producer.poll(0.1)
    assert reports == []


def test_purge_of_an_empty_producer_does_nothing(producer: Any) -> None:
    """With nothing to purge, purge() returns None."""
    assert producer.purge() is None
    assert len(producer) == 0


def test_producer_goes_on_after_purge(make: Any, cluster: Any, topic: str) -> None:
    """A purged producer takes and delivers new records."""
    producer = make({"linger.ms": 5000})
    reports = Reports()
    producer.produce(topic, b"purged", on_delivery=reports)
    producer.purge()
    poll_until(producer, lambda: len(reports) == 1)  # on a busy machine librdkafka may still be purging
    producer.produce(topic, b"kept", on_delivery=reports)
    assert producer.flush(10) == 0
    assert reports.codes == [KafkaError._PURGE_QUEUE, None]
    assert cluster.values(topic) == [b"kept"]


def test_errors_of_reports_compare_by_their_code(make: Any) -> None:
    """Errors of the same code are equal: in lists, sets, counts and mocks, and beside plain ones and codes."""
    producer = make({"bootstrap.servers": NOWHERE})
    reports = Reports()
    for _ in range(2):
        producer.produce("t", b"v", on_delivery=reports)
    producer.purge()
    poll_until(producer, lambda: len(reports) == 2)
    (one, message), (other, _) = reports
    assert one == other == message.error() == KafkaError(KafkaError._PURGE_QUEUE) == one
    assert one == KafkaError._PURGE_QUEUE
    assert one != KafkaError._PURGE_INFLIGHT
    assert KafkaError(KafkaError._PURGE_INFLIGHT) not in [one, other]
    assert Counter([one, other, KafkaError(KafkaError._PURGE_QUEUE)])[one] == 3
    assert {one, other} == {KafkaError(KafkaError._PURGE_QUEUE)}
    assert sorted([one, KafkaError(KafkaError._DESTROY)])[0].code() == KafkaError._DESTROY
    called = mock.Mock()
    called(one, message)
    called.assert_called_with(other, message)
