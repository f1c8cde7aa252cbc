"""The structlog hook alone: stable events, no content of records, no recursion."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import structlog

from safeproducer.errors import QueueFullError
from safeproducer.hooks import Hooks, ProducerChurn, ProducerIdLimited, RecordsLost, ReplicationChanged, Throttled
from safeproducer.kafka.native import KafkaError, Message
from safeproducer.policy.types import ReplicationState
from safeproducer.records import CallSite, ProducerInfo, Record
from safeproducer.snapshot import CloseReport, ReplicationSnapshot
from safeproducer.telemetry.structlog import StructlogHook

SITE = CallSite("app.py", 7, "main")
INFO = ProducerInfo("billing", "kafka-1:9092", "alice", None, True, SITE)
TIMED_OUT = KafkaError(KafkaError._MSG_TIMED_OUT)


class Log:
    """A hook whose events are collected; `then` runs inside each logging call, as a handler would."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self.events: list[dict[str, Any]] = []
        self.then = then
        self.hook = StructlogHook(structlog.wrap_logger(None, processors=[self.keep]))

    def keep(self, logger: object, level: str, event: dict[str, Any]) -> dict[str, Any]:
        self.events.append({"level": level, **event})
        self.then()
        raise structlog.DropEvent

    @property
    def names(self) -> list[str]:
        return [event["event"] for event in self.events]


def record() -> Record:
    return Record(INFO, "orders", b"s3cr3t-value", b"s3cr3t-key", -1, 0, [("s3cr3t", b"s3cr3t-header")])


def report(**place: int) -> Message:
    return Message(topic="orders", **place)


@pytest.fixture
def log() -> Log:
    return Log()


def event(level: str, told: str, *arguments: Any, event: str = "", client_id: str = "billing", **fields: Any) -> Any:
    """A row: what the hook is told, and the event that it makes of it."""
    found = {"level": level, "event": event or told, **({"client_id": client_id} if client_id else {}), **fields}
    return pytest.param(told, arguments, found, id=f"{told}, {level}")


def record_failed(told: str, *arguments: Any, **fields: Any) -> Any:
    failed = {"partition": -1, "error_code": "_MSG_TIMED_OUT", "outcome": "unknown", "refused": False, **fields}
    return event("error", told, *arguments, event="record_failed", client_id="", topic="orders", **failed)


def producer_churn(pattern: str | None) -> Any:
    names = {"cluster": "kafka-1:9092", "principal": "alice", "site": "app.py:7 in main", "advice": "make one producer"}
    counts = {"made_by_site": 101, "made_in_all": 130, "limit_per_hour": 100}
    churn = replace(CHURN, pattern=pattern)
    return event("warning", "producer_churn", churn, client_id="", pattern=pattern, **names, **counts)


def producer_closed(level: str, left: int) -> Any:
    fields = {"accepted": 5, "delivered": 3, "failed": 2, "left": left, "seconds": 0.5, "suppressed": 0}
    return event(level, "producer_closed", INFO, CloseReport(5, 3, 2, left, 0.5), **fields)


def replication_changed(level: str, delays: bool) -> Any:
    figures, words = (1, 3, "leader", 1e6, 6e6, 0.0, 0.0), {"sentence": "it is slow", "cure": "Raise it."}
    state = ReplicationState.THROTTLED
    after = ReplicationSnapshot(state, True, False, (1,), (1, 3), *figures, delays, *words.values())
    fields = {"state": "throttled", "moving": True, "left_over": False, "broker": 3, "delays": delays, **words}
    told = ReplicationChanged(INFO, "orders", 0, None, after)
    return event(level, "replication_changed", told, topic="orders", partition=0, **fields)


CHURN = ProducerChurn("kafka-1:9092", "alice", SITE, 101, 130, 100, "make one producer")
CREATED = {"bootstrap_servers": "kafka-1:9092", "principal": "alice", "transactional_id": None, "idempotent": True}
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "2/2 brokers are down")
ERROR = {"error_code": "_ALL_BROKERS_DOWN", "error": "2/2 brokers are down", "advice": "check the address"}
LIMITED = {"policy": "refuse", "retry_after": 36.0, "site": "app.py:7 in main", "advice": "make one producer"}
REFUSED = {"error_code": "safeproducer.QueueFullError", "outcome": "not_written", "refused": True}
LOST = {"reason": "garbage collection", "count": 2}
FENCED = KafkaError(KafkaError._FENCED, "fenced")
THROTTLED = {"broker_id": 1, "broker_name": "kafka-1:9092/1", "seconds": 0.25}
EVENTS = [
    event("info", "producer_created", INFO, **CREATED, site="app.py:7 in main"),
    event("warning", "client_error", INFO, DOWN, "check the address", **ERROR),
    event("warning", "throttled", Throttled(INFO, 1, "kafka-1:9092/1", 0.25), **THROTTLED),
    producer_churn(None),
    producer_churn("crash-loop"),
    event("warning", "producer_id_limited", ProducerIdLimited(INFO, "refuse", 36.0, CHURN), **LIMITED),
    record_failed("record_refused", record(), QueueFullError("full"), **REFUSED),
    record_failed("record_resolved", record(), TIMED_OUT, report(partition=3), partition=3),
    record_failed("record_resolved", record(), TIMED_OUT, report()),
    event("error", "fatal_error", INFO, FENCED, error_code="_FENCED", error="fenced"),
    event("error", "records_lost", RecordsLost(INFO, "garbage collection", 2), **LOST),
    producer_closed("info", left=0),
    producer_closed("warning", left=1),
    replication_changed("info", delays=False),
    replication_changed("warning", delays=True),
]


@pytest.mark.parametrize(("told", "arguments", "found"), EVENTS)
def test_an_event_has_stable_name_level_and_fields(told: str, arguments: Any, found: dict[str, Any], log: Log) -> None:
    """Names and fields are an interface for log queries: changing one is a breaking change."""
    getattr(log.hook, told)(*arguments)
    assert log.events == [found]


def test_success_is_not_logged(log: Log):
    """A delivered record says nothing: at a million records an hour that would be the log."""
    sent = record()
    log.hook.record_accepted(sent)
    log.hook.record_resolved(sent, None, report())
    assert log.events == []


def test_content_of_records_is_never_logged(log: Log):
    log.hook.record_resolved(record(), TIMED_OUT, report())
    log.hook.record_refused(record(), UnicodeEncodeError("utf-8", "s3cr3t", 0, 1, "surrogates not allowed"))
    assert len(log.events) == 2
    assert "s3cr3t" not in repr(log.events)


def test_the_default_logger_follows_the_applications_configuration():
    """Without a logger of its own the hook uses structlog as the application configured it, also later."""
    hook = StructlogHook()
    with structlog.testing.capture_logs() as events:
        hook.records_lost(RecordsLost(INFO, "interpreter exit", 1))
    assert [event["event"] for event in events] == ["records_lost"]


def test_an_event_caused_by_logging_is_not_logged_again(log: Log):
    """A handler whose own produce() fails cannot start a recursion; the event is counted, and told at close."""
    log.then = lambda: log.hook.record_refused(record(), QueueFullError("full"))
    log.hook.record_resolved(record(), TIMED_OUT, report())
    assert log.names == ["record_failed"]
    assert log.hook.suppressed == 1
    log.then = lambda: None
    log.hook.producer_closed(INFO, CloseReport(1, 0, 1, 0, 0.1))
    assert log.events[-1]["suppressed"] == 1


def test_the_failure_of_a_produced_log_line_is_not_logged():
    """A log line that was accepted and fails later would make the next line, for ever: it is only counted."""
    lines: list[Record] = []
    log = Log()

    def handler() -> None:
        line = record()
        log.hook.record_accepted(line)
        lines.append(line)

    log.then = handler
    log.hook.record_resolved(record(), TIMED_OUT, report())
    assert len(lines) == 1
    log.hook.record_resolved(lines[0], TIMED_OUT, report())
    assert log.names == ["record_failed"]
    assert log.hook.suppressed == 1


def test_lost_records_and_fatal_errors_are_logged_even_inside_a_logging_call(log: Log):
    """Garbage collection may strike inside a logging call: what happens only once is never suppressed."""
    pending = [
        lambda: log.hook.records_lost(RecordsLost(INFO, "garbage collection", 7)),
        lambda: log.hook.fatal_error(INFO, KafkaError(KafkaError._FENCED)),
    ]
    log.then = lambda: pending.pop()() if pending else None
    log.hook.producer_created(INFO)
    assert log.names == ["producer_created", "fatal_error", "records_lost"]
    assert log.hook.suppressed == 0


def test_a_nested_event_leaves_the_guard_of_the_outer_call_in_place(log: Log):
    def handler() -> None:
        log.then = lambda: None
        log.hook.records_lost(RecordsLost(INFO, "garbage collection", 7))
        log.hook.record_resolved(record(), TIMED_OUT, report())

    log.then = handler
    log.hook.producer_created(INFO)
    assert log.names == ["producer_created", "records_lost"]
    assert log.hook.suppressed == 1


def test_the_guard_is_per_thread(log: Log):
    inside, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        inside.set()
        assert go_on.wait(10)

    log.then = slow
    thread = threading.Thread(target=log.hook.producer_created, args=(INFO,))
    thread.start()
    assert inside.wait(10)
    log.then = lambda: None
    log.hook.record_resolved(record(), TIMED_OUT, report())
    go_on.set()
    thread.join(10)
    assert log.names == ["producer_created", "record_failed"]
    assert log.hook.suppressed == 0


def test_a_logger_that_raises_is_switched_off_and_leaves_the_guard_open(caplog: pytest.LogCaptureFixture, log: Log):
    """A broken logging configuration costs this producer its log, nothing else; another producer can still log."""

    def broken() -> None:
        raise OSError("disk full")

    log.then = broken
    hooks = Hooks([log.hook])
    hooks.call("producer_created", INFO)
    assert not hooks.wants("record_resolved")
    assert len(caplog.records) == 1
    log.then = lambda: None
    Hooks([log.hook]).call("producer_created", INFO)
    assert log.names == ["producer_created", "producer_created"]
