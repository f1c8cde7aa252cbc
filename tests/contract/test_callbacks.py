"""Delivery callbacks: which one is called, when, on which thread, and what it may do."""

import functools
import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError

from tests.contract.support import NOWHERE, Reports, poll_until, send_one, wait_until


class Collector:
    """A callback as a bound method and as a callable object."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any]] = []

    def method(self, error: Any, message: Any) -> None:
        self.calls.append((error, message))

    __call__ = method


@pytest.mark.parametrize("form", ["function", "lambda", "method", "object", "partial"])
@pytest.mark.parametrize("keyword", ["callback", "on_delivery"])
def test_any_callable_is_called_once_with_error_and_message(producer: Any, topic: str, form: str, keyword: str) -> None:
    """Whatever can be called with (error, message) serves, under both names of the argument."""
    collector = Collector()

    def function(error: Any, message: Any) -> None:
        collector.method(error, message)

    callback = {
        "function": function,
        "lambda": lambda error, message: collector.calls.append((error, message)),
        "method": collector.method,
        "object": collector,
        "partial": functools.partial(Collector.method, collector),
    }[form]
    send_one(producer, topic, b"v", **{keyword: callback})
    [(error, message)] = collector.calls
    assert error is None
    assert message.value() == b"v"


def test_callback_wins_over_on_delivery(producer: Any, topic: str) -> None:
    """With both names given, `callback` is the one that is called."""
    first, second = Reports(), Reports()
    send_one(producer, topic, b"v", callback=first, on_delivery=second)
    assert (len(first), len(second)) == (1, 0)


@pytest.mark.parametrize("arguments", [{}, {"callback": None}, {"on_delivery": None}])
def test_configured_callback_serves_records_without_one(make: Any, topic: str, arguments: dict[str, Any]) -> None:
    """`on_delivery` of the configuration is called for every record whose own callback is missing or None."""
    configured = Reports()
    producer = make({"on_delivery": configured})
    send_one(producer, topic, b"v", **arguments)
    assert configured.message.value() == b"v"


def test_own_callback_replaces_the_configured_one(make: Any, topic: str) -> None:
    """A record's own callback is called instead of the configured one, not beside it."""
    configured, own = Reports(), Reports()
    producer = make({"on_delivery": configured})
    send_one(producer, topic, b"v", on_delivery=own)
    assert (len(configured), len(own)) == (0, 1)


@pytest.mark.parametrize("given", ["configured", "own"])
def test_only_error_reports_are_called_when_asked_for(make: Any, topic: str, given: str) -> None:
    """With delivery.report.only.error=true a delivered record calls nobody and a failed one does."""
    reports = Reports()
    config = {"on_delivery": reports} if given == "configured" else {}
    arguments = {"on_delivery": reports} if given == "own" else {}
    producer = make({"delivery.report.only.error": True, **config})
    send_one(producer, topic, b"v", **arguments)
    assert len(producer) == 0
    assert reports == []
    failing = make({"delivery.report.only.error": True, "bootstrap.servers": NOWHERE, **config})
    failing.produce(topic, b"v", **arguments)
    failing.purge()
    assert failing.flush(10) == 0
    assert reports.codes == [KafkaError._PURGE_QUEUE]


def test_produce_calls_nobody(producer: Any, cluster: Any, topic: str) -> None:
    """A callback is called by poll() or flush() only, however long ago the record was delivered."""
    reports = Reports()
    producer.produce(topic, b"first", on_delivery=reports)
    wait_until(lambda: sum(cluster.end_offsets(topic)) == 1)
    producer.produce(topic, b"second")
    assert reports == []
    poll_until(producer, lambda: reports)


@pytest.mark.parametrize("call", ["poll", "flush"])
def test_callbacks_run_on_the_thread_that_asks(producer: Any, topic: str, call: str) -> None:
    """A callback runs on the thread that called poll() or flush(), not on the producing one."""
    threads: list[int] = []
    producer.produce(topic, b"v", on_delivery=lambda _error, _message: threads.append(threading.get_ident()))

    def serve() -> None:
        if call == "flush":
            producer.flush(10)
        else:
            poll_until(producer, lambda: threads)

    server = threading.Thread(target=serve)
    server.start()
    ident = server.ident
    server.join(15)
    assert threads == [ident]


def test_callbacks_of_a_partition_run_in_order_of_produce(producer: Any, topic: str) -> None:
    """Reports of one partition come in the order in which its records were produced."""
    reports = Reports()
    for number in range(200):
        producer.produce(topic, str(number), partition=1, on_delivery=reports)
    assert producer.flush(10) == 0
    assert [int(message.value()) for _, message in reports] == list(range(200))
    assert [message.offset() for _, message in reports] == list(range(200))


def test_produce_inside_a_callback(producer: Any, cluster: Any, topic: str) -> None:
    """A callback may produce; the new record is delivered and reported like any other, by the same flush()."""
    seen: list[bytes] = []

    def chain(error: Any, message: Any) -> None:
        assert error is None
        seen.append(message.value())
        if len(seen) < 4:
            producer.produce(topic, b"x" * (len(seen) + 1), partition=0, on_delivery=chain)

    send_one(producer, topic, b"x", partition=0, on_delivery=chain)
    assert seen == [b"x", b"xx", b"xxx", b"xxxx"]
    assert cluster.values(topic) == seen


def test_produce_inside_a_callback_served_by_poll(producer: Any, topic: str) -> None:
    """A record produced by a callback that poll() called is accepted and counted."""
    reports = Reports()
    producer.produce(topic, b"a", on_delivery=lambda *_: producer.produce(topic, b"b", on_delivery=reports))
    poll_until(producer, lambda: reports)
    assert reports.message.value() == b"b"


def test_len_inside_a_callback_counts_its_own_record(producer: Any, topic: str) -> None:
    """Seen from inside, the record whose callback runs is still counted; the ones before are not."""
    lengths: list[int] = []
    for _ in range(3):
        producer.produce(topic, b"v", partition=0, on_delivery=lambda *_: lengths.append(len(producer)))
    assert producer.flush(10) == 0
    assert lengths == [3, 2, 1]


def test_purge_inside_a_callback(make: Any, topic: str) -> None:
    """purge() may be called inside a callback: the rest is reported purged."""
    producer = make({"bootstrap.servers": NOWHERE})
    reports = Reports()
    producer.produce(topic, b"first", on_delivery=lambda *_: producer.purge())
    producer.purge()
    send_one(producer, topic, b"second", on_delivery=reports)
    assert reports.codes == [KafkaError._PURGE_QUEUE]


def test_list_topics_inside_a_callback(producer: Any, topic: str) -> None:
    """A callback may ask for metadata."""
    found: list[Any] = []
    send_one(producer, topic, b"v", on_delivery=lambda *_: found.append(producer.list_topics(topic, 10)))
    assert topic in found[0].topics
