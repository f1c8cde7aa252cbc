"""Memory does not grow with calls, records, threads or wrong arguments, in any mode."""

import gc
import time
from typing import Any
from unittest import mock

import pytest

from safeproducer import Hook, SafeProducer
from tests.clusters import cluster_of
from tests.contract.support import poll_until
from tests.inside import engine_of, settings_of

CALLS = 300
MODES: dict[str, dict[str, Any]] = {
    "auto": {},
    "held": {"safeproducer.mode": "held"},
    "passthrough": {"safeproducer.mode": "passthrough"},
    "acks=1": {"acks": 1},
}


class Counting(Hook):
    def __init__(self) -> None:
        self.resolved = 0

    def record_resolved(self, record: object, error: object, message: object) -> None:
        self.resolved += 1


@pytest.mark.parametrize("mode", MODES)
def test_calls_of_produce_batch_are_forgotten(mode: str, mock_bootstrap: str) -> None:
    """What a call took by when is remembered until statistics have counted it, and only where somebody asks for it."""
    producer = SafeProducer({"bootstrap.servers": mock_bootstrap, "log_level": 0, **MODES[mode]})
    try:
        producer.produce("growth", b"x")  # until it is answered, calls are taken apart
        poll_until(
            producer, lambda: engine_of(producer).route.goes_direct or settings_of(producer).delivery.mode == "held"
        )
        for _ in range(CALLS):
            producer.produce_batch("growth", [{"value": b"x"}], partition=0)
        assert producer.flush(10) == 0
        direct = engine_of(producer).holds.direct
        batches = None if direct is None else direct.counts._calls.get(("growth", 0))
        if not settings_of(producer).delivery.owns_timeout:
            assert batches is None
        poll_until(producer, lambda: batches is None or not batches._calls)
    finally:
        producer.close()


def test_released_records_are_noted_only_where_somebody_looks() -> None:
    """Without idempotence librdkafka keeps the deadlines, and nobody needs to know how old its records are."""
    with cluster_of({"t": 2}) as cluster:
        producer = SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "acks": 1})
        release = mock.Mock(wraps=engine_of(producer).dispatcher._send_directly)
        with mock.patch.object(engine_of(producer).dispatcher, "_send_directly", release):
            deadline = time.monotonic() + 20
            while release.call_count < 5:
                assert time.monotonic() < deadline, "nothing was held back"
                engine_of(producer).route.hold()
                producer.produce("t", b"x", partition=0)
                producer.poll(0.05)
        assert producer.flush(10) == 0
        backlogs = engine_of(producer).updates.holds.direct.backlogs
        assert sum(len(backlog.released) for backlog in backlogs._by_tp.values()) == 0
        producer.close()


@pytest.mark.parametrize("partition", ["a", 1.5, None, [1], 2**31, -(2**40)])
def test_a_partition_that_is_no_number_is_not_remembered(partition: Any, producer: SafeProducer) -> None:
    """It is refused, and telling what became of the others goes on working."""
    producer.produce("growth", b"x", partition=1)
    with pytest.raises((TypeError, OverflowError)):
        producer.produce("growth", b"x", partition=partition)
    with pytest.raises((TypeError, OverflowError)):
        producer.produce_batch("growth", [{"value": b"x"}], partition)
    assert list(producer._SafeProducer__counters.topics["growth"].partitions) == [1]
    assert producer.flush(10) == 0
    assert [(row.partition, row.delivered) for row in producer.snapshot().partitions] == [(1, 1)]


def test_a_partition_may_be_any_kind_of_whole_number(producer: SafeProducer) -> None:
    """As librdkafka takes it; the account is that of the number."""

    class Number:
        def __index__(self) -> int:
            return 2

    for partition in (Number(), True, 2, Number()):
        producer.produce("growth", b"x", partition=partition)  # type: ignore[arg-type]
    assert producer.flush(10) == 0
    assert [(row.partition, row.delivered) for row in producer.snapshot().partitions] == [(1, 1), (2, 3)]


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("hooked", [False, True], ids=["plain", "hooked"])
@pytest.mark.parametrize("mode", MODES)
def test_records_leave_nothing_for_the_cyclic_collector(mode: str, hooked: bool, mock_bootstrap: str) -> None:
    """Neither those that were delivered, each with a callback of its own, nor those that were refused."""
    hook = Counting()
    config = {"bootstrap.servers": mock_bootstrap, "log_level": 0, "message.max.bytes": 1000, **MODES[mode]}
    producer = SafeProducer(config, hooks=[hook] if hooked else [])
    told: list[int] = []
    gc.collect()
    for number in range(CALLS):
        producer.produce("growth", b"x", on_delivery=lambda error, message, number=number: told.append(number))
        with pytest.raises(Exception, match="too large"):
            producer.produce("growth", b"x" * 2000, on_delivery=lambda error, message: None)
    assert producer.flush(20) == 0
    assert (len(told), hook.resolved) == (CALLS, CALLS if hooked else 0)
    assert gc.collect() < CALLS / 2
    producer.close()
