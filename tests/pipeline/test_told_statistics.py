"""What stats_cb is told while lanes come and go, speak at different times, and speak nonsense."""

from __future__ import annotations

import gc
import json
import sys
from types import FrameType
from typing import Any

import pytest

from safeproducer.pipeline.cluster import stats_callback
from safeproducer.pipeline.cluster.stats_callback import Elsewhere, Speaker, ToldStatistics
from safeproducer.settings.config import parse
from tests.kafka.test_stats_document import T, broker, document, partition

NOTHING: Elsewhere = (0, 0, {})


def made(interval: int, elsewhere: Elsewhere = NOTHING, **settings: Any) -> ToldStatistics:
    own = {f"safeproducer.{name}": value for name, value in settings.items()}
    config = {"statistics.interval.ms": interval, "stats_cb": print, "queue.buffering.max.messages": 77, **own}
    return ToldStatistics(parse((config,), {}).delivery, lambda: elsewhere)


def tell(told: ToldStatistics, speaker: Speaker, at: int, count: int) -> Any:
    """A tick; the document that the application gets."""
    text = told.tick(speaker, json.dumps(document(at, count)))
    return None if text is None else json.loads(text)


def test_the_only_one_is_not_touched() -> None:
    """At an interval that librdkafka keeps itself, while nothing is held back, the text is librdkafka's."""
    told, direct = made(500), Speaker()
    text = '{ "odd":  1}'
    assert told.tick(direct, text) is text
    assert made(60_000, mode="passthrough").tick(direct, text) is text


def test_each_interval_has_one_document() -> None:
    """Four ticks make one document, which is the last one."""
    told, direct = made(2000), Speaker()
    found = [tell(told, direct, at, at) for at in range(1, 9)]
    assert [index for index, one in enumerate(found) if one] == [3, 7]
    assert [broker(one)["tx"] for one in found if one] == [4, 8]


def test_lanes_that_go_leave_their_counts() -> None:
    told, direct, lane = made(500), Speaker(), Speaker()
    assert told.hear(lane, json.dumps(document(1, 100)))
    both = tell(told, direct, 2, 10)
    assert (both["txmsgs"], broker(both)["waitresp_cnt"], broker(both)["rtt"]["cnt"]) == (110, 2, 2)
    assert (partition(both)["txmsgs"], both["msg_max"]) == (110, 77)
    for number in range(3, 6):
        told.hear(lane, json.dumps(document(number, 100 + number)))
        lane = Speaker()  # that one was closed: nobody holds its callbacks any more
        gc.collect()
        alone = tell(told, direct, number, 10)
        assert broker(alone)["waitresp_cnt"] == 1
    assert alone["txmsgs"] == 10 + 103 + 104 + 105


def test_records_that_no_native_producer_has_are_counted() -> None:
    """At the moment of telling, whatever the lanes said before."""
    there: Elsewhere = (50, 500, {(T, 0): (20, 200)})
    told = tell(made(500, there), Speaker(), 1, 10)
    assert (told["msg_cnt"], told["msg_size"]) == (51, 509)
    assert (partition(told)["msgq_cnt"], partition(told)["msgq_bytes"]) == (20, 200)
    told = tell(made(500, there, mode="held"), Speaker(), 1, 10)
    assert (told["msg_cnt"], told["msg_size"]) == (50, 500)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"brokers": 5}', "{" * 100_000])
def test_statistics_that_cannot_be_read_are_told_as_they_are(text: str) -> None:
    """As confluent_kafka tells it; and it does no harm to what comes later."""
    told, direct = made(1000), Speaker()
    told.hear(Speaker(), text)
    assert told.tick(direct, text) is None
    assert told.tick(direct, text) == text
    assert tell(told, direct, 2, 5) is None
    assert tell(told, direct, 3, 6)["txmsgs"] == 6


class LimitError(Exception):
    """What a signal handler raises."""


def interrupted(call: Any, step: int) -> bool:
    """Run `call` and raise before the step with that number of the module's own code; whether there was one."""
    left = [step]

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != stats_callback.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left[0] -= 1
            if left[0] < 0:
                sys.settrace(None)
                raise LimitError
        return trace

    sys.settrace(trace)
    try:
        call()
    except LimitError:
        return True
    finally:
        sys.settrace(None)
    return False


def test_a_signal_handler_may_raise_anywhere() -> None:
    """A document may be missed then. Counts are right with the next one."""
    step, more = 0, True
    while more:
        told, direct, lane = made(500), Speaker(), Speaker()
        told.hear(lane, json.dumps(document(1, 100)))
        more = interrupted(lambda told=told, direct=direct: tell(told, direct, 2, 10), step)  # type: ignore[misc]
        del lane
        found = tell(told, direct, 3, 11)
        assert (found["txmsgs"], broker(found)["waitresp_cnt"]) == (111, 1)
        step += 1
    assert step > 100


def test_counts_begin_with_the_owner() -> None:
    """What the native producer has counted for a former owner is not told; what has begun anew since is left alone."""
    before = json.dumps(document(1, 100))
    told, direct = made(500), Speaker(before)
    found = tell(told, direct, 2, 130)
    assert (found["txmsgs"], broker(found)["tx"], partition(found)["txmsgs"]) == (30, 30, 30)
    assert broker(found)["waitresp_cnt"] == broker(document(2, 130))["waitresp_cnt"], "a gauge is as it is"
    assert broker(tell(told, direct, 3, 7))["tx"] == 7, "librdkafka has forgotten the broker meanwhile"
    assert tell(told, Speaker("nonsense"), 4, 5)["txmsgs"] == 5 + 7
