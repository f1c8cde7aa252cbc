"""error_cb, stats_cb, oauth_cb and logger: called when, with what, on which thread; and when they raise."""

import json
import logging
import threading
import time
from typing import Any

import pytest
from confluent_kafka import KafkaError

from tests.contract.support import NOWHERE, poll_until, wait_until


class Calls(list[tuple[Any, int]]):
    """A callback of one argument that keeps the argument and the thread."""

    def __call__(self, argument: Any) -> None:
        self.append((argument, threading.get_ident()))


class OddError(Exception):
    """An exception that only these tests raise."""


def test_error_cb_hears_of_unreachable_brokers(make: Any) -> None:
    """error_cb is called with a KafkaError, on the polling thread, and only from poll() or flush()."""
    calls = Calls()
    producer = make({"bootstrap.servers": NOWHERE, "error_cb": calls})
    wait_until(lambda: len(producer) > 0)
    assert calls == []
    # On a busy machine the connection may fail once more before librdkafka has counted the brokers.
    poll_until(producer, lambda: any(error.code() == KafkaError._ALL_BROKERS_DOWN for error, _ in calls))
    assert {thread for _, thread in calls} == {threading.get_ident()}
    assert all(isinstance(error, KafkaError) for error, _ in calls)
    codes = [error.code() for error, _ in calls]
    assert codes[0] == KafkaError._TRANSPORT
    assert set(codes) == {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}
    assert not any(error.fatal() for error, _ in calls)


def test_error_cb_is_called_on_the_flushing_thread(make: Any) -> None:
    """A flush() in another thread runs error_cb there."""
    calls = Calls()
    producer = make({"bootstrap.servers": NOWHERE, "error_cb": calls})
    producer.produce("t", b"v")
    flusher = threading.Thread(target=lambda: producer.flush(0.5))
    flusher.start()
    ident = flusher.ident
    flusher.join(10)
    assert calls
    assert {thread for _, thread in calls} == {ident}


def test_exception_of_error_cb_comes_out_of_poll(make: Any) -> None:
    """poll() raises what error_cb raised, and goes on the next time."""

    codes: list[int] = []

    def raising(error: KafkaError) -> None:
        if KafkaError._ALL_BROKERS_DOWN not in codes:  # the fixture's close() is to end
            raise OddError(error.code())

    producer = make({"bootstrap.servers": NOWHERE, "error_cb": raising})

    def both_raised() -> bool:
        try:
            producer.poll(0.1)
        except OddError as error:
            codes.append(error.args[0])
        return KafkaError._ALL_BROKERS_DOWN in codes

    wait_until(both_raised)
    assert codes[0] == KafkaError._TRANSPORT


def test_errors_without_error_cb_are_silent(make: Any) -> None:
    """Without error_cb, connection errors neither raise nor disturb."""
    producer = make({"bootstrap.servers": NOWHERE})
    for _ in range(3):
        producer.poll(0.1)


def test_stats_cb_gets_json_text(make: Any) -> None:
    """stats_cb is called with a JSON text each statistics.interval.ms, on the polling thread, from poll() only."""
    calls = Calls()
    producer = make({"stats_cb": calls, "statistics.interval.ms": 20, "client.id": "stats-of-mine"})
    wait_until(lambda: len(producer) > 0)
    assert calls == []
    poll_until(producer, lambda: len(calls) >= 3)
    assert {thread for _, thread in calls} == {threading.get_ident()}
    for text, _ in calls:
        assert isinstance(text, str)
        statistics = json.loads(text)
        assert statistics["type"] == "producer"
        assert statistics["client_id"] == "stats-of-mine"


def test_statistics_count_what_is_produced(make: Any, topic: str, is_held: bool) -> None:
    """The statistics' msg_cnt is of all records that wait, but for those that are held back (test_differences.py)."""
    if is_held:
        pytest.skip("librdkafka has none of them")
    calls = Calls()
    producer = make({"bootstrap.servers": NOWHERE, "stats_cb": calls, "statistics.interval.ms": 20})
    for _ in range(7):
        producer.produce(topic, b"v")
    poll_until(producer, lambda: calls and json.loads(calls[-1][0])["msg_cnt"] == 7)
    assert json.loads(calls[-1][0])["msg_size"] >= 7
    assert topic in json.loads(calls[-1][0])["topics"]


def test_statistics_tell_of_everything_that_was_sent(make: Any, cluster: Any, topic: str) -> None:
    """Their counts are of all records, whatever the interval."""
    calls = Calls()
    producer = make({"stats_cb": calls, "statistics.interval.ms": 1200})
    for _ in range(30):
        producer.produce(topic, b"v")
        producer.poll(0.05)
    assert producer.flush(10) == 0
    poll_until(producer, lambda: calls and json.loads(calls[-1][0])["txmsgs"] == 30)
    last = json.loads(calls[-1][0])
    assert sum(entry["txmsgs"] for entry in last["topics"][topic]["partitions"].values()) == 30
    assert sum(broker["req"]["Produce"] for broker in last["brokers"].values()) > 0
    assert 0.96e6 < last["age"] / len(calls) < 2e6  # a busy machine tells late, never early


def test_no_statistics_without_an_interval(make: Any) -> None:
    """stats_cb alone is never called: the interval is 0 by default."""
    calls = Calls()
    producer = make({"stats_cb": calls})
    producer.poll(0.3)
    assert calls == []


def test_exception_of_stats_cb_comes_out_of_poll(make: Any) -> None:
    """poll() raises what stats_cb raised, once."""
    errors = [OddError("statistics")]

    def raising(_text: str) -> None:
        if errors:
            raise errors.pop()

    producer = make({"stats_cb": raising, "statistics.interval.ms": 200})
    with pytest.raises(OddError):
        poll_until(producer, lambda: False, timeout=5)
    producer.poll(0)


def test_callbacks_of_the_configuration_may_produce(make: Any, cluster: Any, topic: str) -> None:
    """stats_cb may call produce(); the record is delivered."""
    produced: list[bool] = []

    def report(_text: str) -> None:
        if not produced:
            produced.append(True)
            producer.produce(topic, b"from stats_cb")

    producer = make({"stats_cb": report, "statistics.interval.ms": 50})
    poll_until(producer, lambda: produced)
    assert producer.flush(10) == 0
    assert cluster.values(topic) == [b"from stats_cb"]


def test_logger_gets_the_log_lines(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A logging.Logger given as logger= gets librdkafka's lines, from poll(), with Python's levels."""
    logger = logging.getLogger("contract.lines")
    producer = make({"bootstrap.servers": NOWHERE, "log_level": 6}, logger=logger)
    wait_until(lambda: len(producer) > 0)
    with caplog.at_level(logging.DEBUG, logger="contract.lines"):
        # Beside the library's own warnings of the same failure, which may come first.
        poll_until(producer, lambda: [record for record in caplog.records if record.name == "contract.lines"])
    [first, *_] = [record for record in caplog.records if record.name == "contract.lines"]
    assert first.levelname == "ERROR"
    assert "FAIL" in first.getMessage()
    assert first.thread == threading.get_ident()


def test_anything_with_a_log_method_is_a_logger(make: Any) -> None:
    """The logger's log(level, format, ...) is called; it need not be a logging.Logger."""
    lines: list[tuple[Any, ...]] = []

    class Lines:
        def log(self, *args: Any) -> None:
            lines.append(args)

    producer = make({"bootstrap.servers": NOWHERE, "log_level": 6, "logger": Lines()})
    poll_until(producer, lambda: lines)
    level, template, *values = lines[0]
    assert level == logging.ERROR
    assert template % tuple(values)


def test_oauth_cb_is_asked_at_construction(make: Any) -> None:
    """oauth_cb gets sasl.oauthbearer.config and its token is there before the constructor returns."""
    calls: list[tuple[Any, int]] = []

    def token(config: Any) -> tuple[str, float]:
        calls.append((config, threading.get_ident()))
        return "token", time.time() + 3600

    producer = make(
        {
            "bootstrap.servers": NOWHERE,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.config": "who=me",
            "oauth_cb": token,
        }
    )
    [(config, thread)] = calls
    assert config == "who=me"
    assert thread != threading.get_ident()
    producer.poll(0)
