"""At no moment is an accepted record counted nowhere: another thread's flush() would end, and close() report a loss."""

import ast
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.cimpl import KafkaError, Message

from safeproducer import pipeline
from safeproducer.pipeline.buffer.in_flight_batch import BatchReports, BatchSinks, InFlightBatch
from safeproducer.pipeline.buffer.partition_buffer import PartitionBuffer
from safeproducer.pipeline.dispatch.dispatcher import Dispatcher
from safeproducer.pipeline.dispatch.record_buffer import RecordBuffer
from safeproducer.pipeline.lanes.batch_lane import BatchLane
from safeproducer.pipeline.lanes.lane_pool import LanePool
from safeproducer.pipeline.record import ReportNumbers
from safeproducer.pipeline.reports.report_queue import ReportQueue, Reports
from safeproducer.policy.pacing import AckTime
from tests.inside import hold
from tests.pipeline.interleaving import between, codes_of
from tests.pipeline.warmed import warmed

LONG_ROUND_TRIP = {1: 0.1, 2: 0.1, 3: 0.1}
CONFIG = {"safeproducer.mode": "held", "message.timeout.ms": 30_000, "linger.ms": 5}
RECORDS = 3


knowing = partial(warmed, CONFIG, LONG_ROUND_TRIP, {"a": 1})
"""A producer that holds everything back, knows the topic, and has nothing under way."""


def everywhere(run: Callable[[int], int], least: int) -> None:
    """`run(step)` for each place at which another thread may come; it gives how many there were."""
    step, steps = 0, 1
    while step < steps:
        steps = run(step)
        step += 1
    assert step > least


@pytest.mark.parametrize("error", [None, KafkaError(KafkaError._PURGE_QUEUE)])
@pytest.mark.parametrize("expires", [False, True])
def test_a_record_is_counted_while_librdkafka_reports_it(error: KafkaError | None, expires: bool) -> None:
    """Reported to this library, and not yet waiting for the application's poll()."""

    def play(step: int) -> int:
        numbers, reports, ended = ReportNumbers(), Reports(), list[Any]()

        def delivered(_: KafkaError | None, message: Message) -> None:
            ended.append(message)

        records = [(b"x", None, hold(numbers, delivered), 1, None, 40, 0.0) for _ in range(RECORDS)]
        batch = InFlightBatch(("a", 0), records, True, 0.0, BatchSinks(reports, numbers), AckTime())
        bound = batch.bind(delivered)
        reported = (bound, InFlightBatch.reported, InFlightBatch.expire, Reports.add, Reports.add_delivered)
        codes = codes_of(*reported, BatchReports.pass_on, BatchReports.add, BatchReports.keep)

        def look() -> None:
            assert batch.open + reports.count >= RECORDS

        with between(codes, step, look) as steps:
            if expires:
                batch.expire(1.0, 0.5, lambda record: reports.add(delivered, error, record))
            for _ in range(RECORDS):
                bound(error, Message(topic="a", partition=0, error=error))
        assert batch.open == 0
        assert reports.count == reports.run() == len(ended) == RECORDS
        return steps[0]

    everywhere(play, 8)


def test_a_record_is_counted_while_another_thread_runs_its_report() -> None:
    """What is run before it is all there is not counted for ever, nor is it for ever missing."""

    def play(step: int) -> int:
        reports, ended = Reports(), list[Any]()
        with between(codes_of(Reports.add, Reports.add_delivered), step, reports.run) as steps:
            reports.add(lambda *_: ended.append(0), None, None)
            reports.add_delivered(lambda _, message: ended.append(message), deque([1, 2, 3]))
        reports.run()
        assert (ended, reports.count) == ([0, 1, 2, 3], 0)
        return steps[0]

    everywhere(play, 4)


def test_a_record_is_counted_while_it_is_handed_over() -> None:
    def play(step: int) -> int:
        with knowing() as rig:
            for _ in range(RECORDS):
                rig.produce("a", 0)
            rig.time.pass_(0.006)

            def look() -> None:
                assert rig.dispatcher.record_buffer.records >= RECORDS, f"step {step}"

            taken = (Dispatcher._give_batch, RecordBuffer.take, RecordBuffer.given, PartitionBuffer.take)
            codes = codes_of(*taken, BatchLane.hand_over, BatchLane._produce)
            with between(codes, step, look) as steps:
                rig.dispatcher.pump(rig.time.monotonic())
            assert rig.dispatcher.lanes.inside == RECORDS
            assert rig.dispatcher.record_buffer.waiting == 0
        return steps[0]

    everywhere(play, 20)


@pytest.mark.parametrize("goes_on", ["handed over", "reported"])
def test_a_record_is_counted_while_its_count_goes_on(goes_on: str) -> None:
    """It goes on from one place to the next while another thread adds up the places."""

    def play(step: int) -> int:
        with knowing() as rig:
            rig.produce("a", 0)
            rig.time.pass_(0.006)
            if goes_on == "reported":
                rig.dispatcher.pump(rig.time.monotonic())
                rig.time.pass_(0.2)

            def go_on() -> None:
                if goes_on == "reported":
                    assert next(iter(rig.dispatcher.lanes)).client.serve()
                else:
                    rig.dispatcher.pump(rig.time.monotonic())

            counts: tuple[Any, ...] = (RecordBuffer.records, LanePool.records, ReportQueue.records)
            codes = codes_of(*(each.fget for each in (*counts, InFlightBatch.open, BatchReports.ended)))
            with between(codes, step, go_on) as steps:
                count = rig.dispatcher.record_buffer.records
            assert count >= 1, f"step {step}"
        return steps[0]

    everywhere(play, 2)


def test_a_record_is_counted_while_its_callback_runs() -> None:
    def play(step: int) -> int:
        with knowing() as rig:
            for _ in range(RECORDS):
                rig.produce("a", 0)
            rig.time.pass_(0.006)
            rig.dispatcher.pump(rig.time.monotonic())
            rig.time.pass_(0.2)
            next(iter(rig.dispatcher.lanes)).client.serve()

            def look() -> None:
                assert rig.dispatcher.record_buffer.records or not rig.open_records, f"step {step}"

            with between(codes_of(ReportQueue.run, Reports.run), step, look) as steps:
                assert rig.engine.counters.report_queue.run() == RECORDS
            assert rig.dispatcher.record_buffer.records == 0
        return steps[0]

    everywhere(play, 8)


def test_counters_change_in_one_step() -> None:
    """`self.count += len(x)` loads the count, calls, and stores: what another thread added meanwhile is lost."""
    found = []
    for path in sorted(Path(pipeline.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.AugAssign) and not isinstance(node.target, ast.Name):
                steps = (ast.Call, ast.ListComp, ast.GeneratorExp)
                if any(isinstance(part, steps) for part in ast.walk(node.value)):
                    found.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    assert found == []


def test_records_that_are_added_while_a_batch_is_taken() -> None:
    """Also between two calls, where an iterator was made and is not used up. Their bytes are counted."""

    def play(step: int) -> int:
        buffer = PartitionBuffer("a", 0)
        numbers = ReportNumbers()

        def accept() -> None:
            buffer.records.append((b"x", None, hold(numbers, int), 1, None, 40, 0.0))
            buffer.bytes += 40

        for _ in range(RECORDS):
            accept()
        taken: list[Any] = []
        with between(codes_of(PartitionBuffer.take, PartitionBuffer._take_first), step, accept) as steps:
            buffer.take(RECORDS, 1000, 0, taken)
        assert buffer.bytes == 40 * buffer.waiting
        assert len(taken) == RECORDS
        return steps[0]

    everywhere(play, 8)
