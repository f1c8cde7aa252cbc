"""Statistics of several native producers as one document: what is added up, and what is the newest."""

from __future__ import annotations

from typing import Any

from safeproducer.kafka.statistics import add_held, left_behind, summed

WINDOW = {
    **dict.fromkeys(("min", "max", "avg", "p50", "p75", "p90", "p95", "p99", "p99_99"), 5),
    **{"sum": 10, "stddev": 0, "outofrange": 0, "hdrsize": 1000, "cnt": 2},
}
B, T = "b:9092/1", "t"


def document(at: int, count: int, **changes: Any) -> dict[str, Any]:
    """What a client tells that was made at 0 and has sent `count` records of one partition, and waits for one more.

    `changes` by the name of a field, wherever it is.
    """
    broker: dict[str, Any] = {
        "name": B,
        "nodeid": 1,
        "state": "UP",
        "stateage": at,
        "outbuf_cnt": 0,
        "waitresp_cnt": 1,
        "tx": count,
        "rxidle": 10,
        "rtt": WINDOW,
        "int_latency": WINDOW,
        "req": {"Produce": count, "Metadata": 1},
        "toppars": {"t-0": {"topic": T, "partition": 0}},
    }
    partition = {
        "partition": 0,
        "leader": 1,
        "leader_epoch": 0,
        "txmsgs": count,
        "msgs_inflight": 1,
        "msgq_cnt": 0,
        "msgq_bytes": 0,
    }
    topic = {"topic": T, "age": at, "metadata_age": at, "batchsize": WINDOW, "partitions": {"0": partition}}
    whole: dict[str, Any] = {
        "name": f"client-{at}",
        "ts": at,
        "age": at,
        "msg_cnt": 1,
        "msg_size": 9,
        "txmsgs": count,
        "metadata_cache_cnt": 1,
        "brokers": {B: broker},
        "topics": {T: topic},
        "eos": {"producer_id": at},
    }
    for name, value in changes.items():
        for entry in (whole, broker, partition, topic):
            if name in entry:
                entry[name] = value
    return whole


def broker(told: dict[str, Any]) -> Any:
    return told["brokers"][B]


def partition(told: dict[str, Any]) -> Any:
    return told["topics"][T]["partitions"]["0"]


def test_counts_and_gauges_are_added_up() -> None:
    told = summed([document(100, 30), document(90, 12)])
    assert (told["txmsgs"], told["msg_cnt"], told["msg_size"]) == (42, 2, 18)
    assert (broker(told)["tx"], broker(told)["waitresp_cnt"]) == (42, 2)
    assert broker(told)["req"] == {"Produce": 42, "Metadata": 2}
    assert (partition(told)["txmsgs"], partition(told)["msgs_inflight"]) == (42, 2)
    assert told["eos"] == {"producer_id": 100}


def test_brokers_and_topics_of_any_of_them_are_there() -> None:
    other = document(90, 1)
    other["brokers"] = {"c:9092/2": {**broker(other), "nodeid": 2}}
    other["topics"] = {"u": other["topics"][T]}
    told = summed([document(100, 30), other])
    assert set(told["brokers"]) == {B, "c:9092/2"}
    assert set(told["topics"]) == {T, "u"}
    assert broker(told)["tx"] == 30


def test_figures_that_cannot_be_added_are_those_of_the_first() -> None:
    """A window is not added up with others: it has the samples of one lane."""
    other = document(90, 1, state="DOWN", leader=2, rtt={**WINDOW, "cnt": 40})
    told = summed([document(100, 30), other])
    assert (broker(told)["state"], broker(told)["rtt"], partition(told)["leader"]) == ("UP", WINDOW, 1)
    assert told["topics"][T]["batchsize"] == WINDOW


def test_the_sum_keeps_the_name_and_age_of_the_oldest() -> None:
    """A lane that took the place of the first one is the same producer."""
    younger = document(100, 1, age=20)
    told = summed([younger, document(90, 1)])
    assert (told["name"], told["age"], told["ts"]) == ("client-90", 100, 100)


def test_a_retired_lane_counts_on_and_holds_nothing() -> None:
    """Counts never go back, and nothing is in flight on a connection that is closed."""
    gone = left_behind(summed([left_behind(document(80, 5)), left_behind(document(90, 12))]))
    told = summed([document(100, 30), gone])
    assert (told["txmsgs"], told["msg_cnt"]) == (47, 1)
    assert (broker(told)["tx"], broker(told)["waitresp_cnt"], broker(told)["state"]) == (47, 1, "UP")
    assert (partition(told)["txmsgs"], partition(told)["msgs_inflight"]) == (47, 1)
    assert "toppars" not in broker(gone)


def test_no_document_is_changed() -> None:
    first, second = document(100, 30), document(90, 12)
    before = repr((first, second))
    told = summed([first, second])
    add_held(told, {(T, 0): (3, 30), ("elsewhere", 1): (1, 1)})
    assert (partition(told)["msgq_cnt"], partition(told)["msgq_bytes"]) == (3, 30)
    assert repr((first, second)) == before
