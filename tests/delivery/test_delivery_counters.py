"""The account of records: nothing is counted twice, nothing goes missing, whatever the order of events."""

from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.cimpl import KafkaError, Message
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from safeproducer import SafeProducer
from safeproducer.kafka.native import WITHOUT_OFFSET
from safeproducer.pipeline.inspection import partition_rows
from safeproducer.pipeline.record import DeliveryCallback
from safeproducer.pipeline.reports.counters import UNASSIGNED, DeliveryCounters
from tests.hammer import hammer
from tests.inside import engine_of

TOPICS = ("a", "b")
PARTITIONS = (0, 1, 2)
TIMED_OUT = KafkaError(KafkaError._MSG_TIMED_OUT)


class AccountOfRecords(RuleBasedStateMachine):
    """Accepts, refuses, resolves and interrupts records against a model that keeps every record by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.counters = DeliveryCounters(only_errors=False)
        self.waiting: list[tuple[str, int, DeliveryCallback]] = []
        self.called: list[Any] = []
        self.expected_calls = 0
        self.delivered: list[tuple[str, int]] = []
        self.failed: list[tuple[str, int]] = []
        self.interrupted: list[tuple[str, int]] = []

    def _account(self, topic: str, partition: int) -> Any:
        account: Any = self.counters.topics.get(topic) or self.counters.open(topic)
        return account if partition == UNASSIGNED else account.explicit(partition)

    @rule(topic=st.sampled_from(TOPICS), partition=st.sampled_from((UNASSIGNED, *PARTITIONS)))
    def accept(self, topic: str, partition: int) -> None:
        account = self._account(topic, partition)
        account.accepted += 1
        report = account.bind(lambda error, message: self.called.append(message))[1]
        self.waiting.append((topic, partition, report))

    @rule(topic=st.sampled_from(TOPICS), partition=st.sampled_from((UNASSIGNED, *PARTITIONS)))
    def refuse(self, topic: str, partition: int) -> None:
        account = self._account(topic, partition)
        account.accepted += 1
        account.accepted -= 1

    @rule(index=st.integers(0, 50), placed=st.sampled_from(PARTITIONS), fails=st.booleans())
    def resolve(self, index: int, placed: int, fails: bool) -> None:
        if not self.waiting:
            return
        topic, partition, report = self.waiting.pop(index % len(self.waiting))
        # A record that fails before it was given a partition is reported on none.
        where = partition if partition != UNASSIGNED else (UNASSIGNED if fails and placed == 0 else placed)
        report(TIMED_OUT if fails else None, Message(topic, where))
        (self.failed if fails else self.delivered).append((topic, where))
        self.expected_calls += 1

    @rule(index=st.integers(0, 50))
    def interrupt(self, index: int) -> None:
        """Ctrl-C lands on the first instruction of the report: librdkafka has released it, nobody counted it."""
        if self.waiting:
            topic, partition, _ = self.waiting.pop(index % len(self.waiting))
            self.interrupted.append((topic, partition))
            self.counters.interrupts += 1

    @invariant()
    def every_record_is_counted_once(self) -> None:
        accepted, delivered, failed = self.counters.totals()
        unresolved, interrupted = self.counters.outstanding(queued=len(self.waiting))
        assert (delivered, failed) == (len(self.delivered), len(self.failed))
        assert (unresolved, interrupted) == (len(self.waiting), len(self.interrupted))
        assert accepted == delivered + failed + unresolved + interrupted
        assert len(self.called) == self.expected_calls

    @invariant()
    def rows_add_up(self) -> None:
        rows = partition_rows(self.counters.topics)
        assert len({(row.topic, row.partition) for row in rows}) == len(rows)
        for row in rows:
            assert row.accepted == row.delivered + row.failed + row.unresolved
            assert row.delivered == self.delivered.count((row.topic, row.partition))
            assert row.failed == self.failed.count((row.topic, row.partition))
        assert sum(row.accepted for row in rows) == self.counters.totals()[0]


TestAccountOfRecords = AccountOfRecords.TestCase
TestAccountOfRecords.settings = settings(max_examples=60, stateful_step_count=40)


def test_counters_survive_threads_that_switch_at_every_chance() -> None:
    """Eight threads count on one account while the interpreter switches threads as often as it can."""
    counters = DeliveryCounters(only_errors=False)
    account = counters.open("t")
    each = 20_000

    def count(_: int) -> None:
        for _ in range(each):
            row = account.explicit(3)
            row.accepted += 1
            account.accepted += 1
            row.placed.delivered += 1

    hammer(count, 8)
    assert account.explicit(3).accepted == account.accepted == account.partitions[3].placed.delivered == 8 * each


def test_two_threads_that_open_the_same_topic_share_its_account() -> None:
    counters = DeliveryCounters(only_errors=False)
    assert counters.open("t") is counters.open("t")
    assert counters.open("t").explicit(1) is counters.open("t").explicit(1)


@dataclass(frozen=True)
class Served:
    """As much of a Message as a report callback asks for."""

    number: int | None
    at: int | None
    value: bytes = b"x"

    def partition(self) -> int | None:
        return self.number

    def offset(self) -> int | None:
        return self.at

    def __len__(self) -> int:
        return len(self.value)


def told(*reports: Any) -> tuple[Any, list[Any]]:
    """(delivered and failed by partition, calls of the callback) where errors alone are told."""
    counters = DeliveryCounters(only_errors=True, offset_proves=True)
    topic = counters.open("t")
    calls: list[Any] = []
    report: Any = topic.bind(lambda error, message: calls.append((error.code(), message)))[1]
    for error, message in reports:
        report(error, message)
    return {number: (row.placed.delivered, row.placed.failed) for number, row in topic.partitions.items()}, calls


def test_a_record_without_an_offset_is_told() -> None:
    """Also behind others of its partition, which are counted and not told."""
    counts, calls = told(*[(None, Served(0, at)) for at in (1, 2, None, 3)])
    assert counts == {0: (3, 1)}
    assert calls == [(WITHOUT_OFFSET.code(), Served(0, None))]


def test_a_failed_record_without_a_partition_is_told() -> None:
    """It failed before it was given one."""
    assert told((TIMED_OUT, Served(None, None))) == ({-1: (0, 1)}, [(TIMED_OUT.code(), Served(None, None))])


@pytest.mark.parametrize("raised", [SystemError("left behind"), KeyboardInterrupt()])
def test_the_first_call_may_raise(raised: BaseException) -> None:
    """The exception that the C client left behind belongs to nobody; a signal handler's goes on."""
    counters = DeliveryCounters(only_errors=True, offset_proves=True)
    topic = counters.open("t")

    class Broken(Served):
        asked = 0

        def offset(self) -> int | None:
            Broken.asked += 1
            if Broken.asked == 1:
                raise raised
            return super().offset()

    report: Any = topic.bind(None)[1]
    if isinstance(raised, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            report(None, Broken(0, 1))
    else:
        report(None, Broken(0, 1))
        assert topic.partitions[0].placed.delivered == 1


def test_header_names_are_remembered_by_topic_and_others_checked(mock_bootstrap: str) -> None:
    """At most about a hundred; one that is new is checked, beside known ones, too."""
    with SafeProducer({"bootstrap.servers": mock_bootstrap, "log_level": 0}) as producer:
        counters = engine_of(producer).counters
        for number in range(300):
            producer.produce("t", b"v", headers=[("good", b"1"), (f"name {number}", b"1")])
        assert "good" in counters.topics["t"].names
        assert 100 <= len(counters.topics["t"].names) <= 101
        with pytest.raises(ValueError, match="NUL"):
            producer.produce("t", b"v", headers=[("good", b"1"), ("a\0b", b"1")])
        producer.produce("u", b"v", headers=[("good", b"1")])
        assert counters.report_queue.rejections.with_headers == {"t", "u"}
