"""The text that the demonstration sends, and the account of what comes of it."""

from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from confluent_kafka import KafkaError

from safeproducer.cli.common.connection import BrokerErrors
from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.stop import StopRequest
from safeproducer.cli.demo.experiment import Experiment, Line, read_lines


def test_values_are_unique(tmp_path: Path) -> None:
    """Equal lines differ by file and number; any bytes come back as they were; a limit stops the corpus."""
    path = tmp_path / "a\tb"
    path.write_bytes(b"same\nsame\n\xff\tx\r\n")
    name = str(path).replace("\t", " ").encode()
    records = read_lines([str(path)], None)
    assert [record.value for record in records] == [
        name + end for end in (b"\t1\tsame", b"\t2\tsame", b"\t3\t\xff\tx\r")
    ]
    assert [(record.number, record.key) for record in records] == [(0, name), (1, name), (2, name)]
    assert len(read_lines([str(path)], 2)) == 2


class Producer:
    """Takes records up to a number, and reports this error for each."""

    def __init__(self, room: int, error: int) -> None:
        self.room = room
        self.error = KafkaError(error)
        self.reports: list[Any] = []

    def produce(self, topic: str, value: bytes, key: bytes, partition: int, report: Any) -> None:
        del topic, value, key, partition
        if len(self.reports) == self.room:
            raise BufferError
        self.reports.append(report)

    def poll(self, timeout: float) -> int:
        del timeout
        for report in self.reports:
            report(self.error, self)
        return len(self.reports)

    def flush(self, timeout: float) -> int:
        sleep(timeout)
        return len(self.reports)

    def explain(self, topic: str) -> str:
        return f"{topic} rests"

    def partition(self) -> int:
        return 3


def experiment(room: int, error: int) -> Experiment:
    errors = BrokerErrors(Screen(json_output=True, quiet=True))
    producer: Any = Producer(room, error)
    return Experiment(producer, errors, StopRequest(), "t", timeout=1)


def test_an_error_that_all_records_share_ends_the_run() -> None:
    """Missing rights end a run, which leaves no trace of the record that found no room; a time-out of one does not."""
    denied = experiment(2, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert [denied.send(Line(number, b"k", b"%d" % number)) for number in range(3)] == [True, True, False]
    assert denied.ended
    assert (len(denied.records), denied.left, denied.failures) == (2, 0, {"TOPIC_AUTHORIZATION_FAILED": 2})
    assert denied.advised["TOPIC_AUTHORIZATION_FAILED"].startswith("This user may not write")
    assert denied.records[0].partition == 3
    late = experiment(1, KafkaError._MSG_TIMED_OUT)
    assert late.send(Line(0, b"k", b"0"))
    late.serve()
    assert not late.ended


def test_the_same_error_is_told_once_in_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    """A client connects again and again, and is refused each time."""
    errors = BrokerErrors(Screen(json_output=True, quiet=True))
    errors.talkative = True
    for code in (KafkaError._TRANSPORT, KafkaError._TRANSPORT, KafkaError._AUTHENTICATION):
        errors(KafkaError(code))
    assert capsys.readouterr().err.count("warning: ") == 2


def test_a_drain_without_progress_gives_up() -> None:
    """After the time-out, and it says what the records wait for."""
    silent = experiment(1, KafkaError._MSG_TIMED_OUT)
    assert silent.send(Line(0, b"k", b"0"))
    started = monotonic()
    silent.drain()
    assert 1 <= monotonic() - started < 3
    assert (silent.left, silent.why_left) == (1, "t rests")
