"""`python -m safeproducer.testing`: a cluster for programs in any language, which order its faults by lines."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from safeproducer import SafeProducer

COMMAND = [sys.executable, "-m", "safeproducer.testing"]
Start = Callable[..., "Served"]


class Served:
    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.addresses = self.read()

    def read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def say(self, line: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.read()

    def ask(self, method: str, **arguments: Any) -> Any:
        return self.say(json.dumps({"method": method, **arguments}))["result"]

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.communicate(timeout=20)
        return self.process.returncode


@pytest.fixture
def start() -> Iterator[Start]:
    made: list[Served] = []

    def started(*arguments: str) -> Served:
        made.append(Served(*arguments))
        return made[-1]

    yield started
    for one in made:
        with one.process:
            one.process.kill()


def test_faults_are_ordered_and_the_log_is_read_by_lines(start: Start) -> None:
    served = start('{"brokers": 1}')
    assert served.ask("create_topic", name="orders") is None
    served.ask("lose_acks", n=1)
    with SafeProducer({"bootstrap.servers": served.addresses["bootstrap"], "log_level": 0}) as producer:
        producer.produce("orders", "once", key=b"\xff", headers={"a": b"b"})
    (record,) = served.ask("log", topic="orders")
    assert (record["value"], record["key"], record["headers"]) == ("once", "\\xff", [["a", "b"]])
    assert served.ask("faults_left") == 0
    assert [entry["outcome"] for entry in served.ask("journal", api="Produce")] == ["lost", "answered"]
    assert served.ask("groups") == served.ask("transactions") == {}
    assert list(served.ask("producer_state", topic="orders")) == [str(record["producer_id"])]
    assert served.end() == 0


def test_a_wrong_line_is_told_and_the_next_one_counts(start: Start) -> None:
    served = start()
    for line, error in (
        ('{"method": "stop", "broker": 9}', "ValueError: "),
        ('{"method": "_call"}', "ValueError: method: FakeCluster has no '_call'"),
        ('{"method": "wait"}', "ValueError: method: FakeCluster has no 'wait'"),
        ('{"method": "nothing"}', "ValueError: method: FakeCluster has no 'nothing'"),
        ("{}", "KeyError: "),
        ("garbage", "JSONDecodeError: "),
    ):
        assert served.say(line)["error"].startswith(error)
    assert len(served.ask("brokers")) == 3


@pytest.mark.parametrize("options", ['{"brokers": 0}', '{"colour": 1}', "brokers=1"])
def test_wrong_options_are_refused(options: str) -> None:
    ended = subprocess.run([*COMMAND, options], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2
    assert "error: " in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_cluster_can_stay_until_a_signal(start: Start, number: signal.Signals) -> None:
    """Behind the end of its input; with TLS it says where the authority's certificate is."""
    served = start('{"brokers": 1, "tls": true}', "--stay")
    assert served.process.stdin is not None
    served.process.stdin.close()
    settings = {"security.protocol": "SSL", "ssl.ca.location": served.addresses["ca_file"], "log_level": 0}
    with SafeProducer({"bootstrap.servers": served.addresses["bootstrap"], **settings}) as producer:
        assert len(producer.list_topics(timeout=20).brokers) == 1
    served.process.send_signal(number)
    assert served.process.wait(20) == 0
