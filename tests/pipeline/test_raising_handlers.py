"""A signal handler that raises, at every place where one may come in what the application's thread runs."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest

from safeproducer import SafeProducer
from safeproducer.pipeline.buffer import Buffer
from safeproducer.pipeline.feed import Feed
from safeproducer.pipeline.lane import Lane
from safeproducer.pipeline.reports import Reports
from safeproducer.pipeline.sender import Bell, Sender
from safeproducer.testing import FakeCluster
from tests.inside import lane_of
from tests.pipeline.interleaving import between, codes_of

MODES: dict[str, dict[str, Any]] = {
    "auto": {},
    "held": {"safeproducer.mode": "held"},
    "key": {"safeproducer.mode": "held", "safeproducer.ordering": "key"},
}
FAMILY = [SafeProducer, Feed, Lane, Reports, Buffer, Bell, Sender]
OF_THE_SENDER = {"tend", "_turn", "pump", "sleep", "turn", "live", "end"}


_numbers = itertools.count()


class LimitError(Exception):
    """What a time limit by SIGALRM raises."""


def codes() -> set[Any]:
    """All that may run on the application's thread."""
    found: set[Any] = set()
    for owner in FAMILY:
        for name, member in vars(owner).items():
            function = member.fget if isinstance(member, property) else member
            if isinstance(function, FunctionType) and name not in OF_THE_SENDER and name != "__init__":
                found |= codes_of(function)
    return found


def interrupt() -> None:
    raise LimitError


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=1) as made:
        made.create_topic("t", 2)
        yield made


class Application:
    """Produces values of its own, and counts their reports."""

    def __init__(self, cluster: FakeCluster, mode: str) -> None:
        self.cluster = cluster
        self.told: Counter[bytes] = Counter()
        self.values: list[bytes] = []
        config = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 0, **MODES[mode]}
        self.producer = SafeProducer(config)
        self.produce()
        assert self.producer.flush(10) == 0

    def report(self, error: Any, message: Any) -> None:
        assert error is None
        self.told[message.value()] += 1

    def next(self) -> bytes:
        value = b"%d" % next(_numbers)
        self.values.append(value)
        return value

    def produce(self) -> None:
        self.producer.produce("t", self.next(), b"k", partition=0, on_delivery=self.report)

    def produce_batch(self) -> None:
        messages: list[dict[str, Any]] = [{"value": self.next()} for _ in range(2)]
        self.producer.produce_batch("t", messages, 0, on_delivery=self.report)

    def poll(self) -> None:
        self.produce()
        self.producer.poll(0)
        self.producer.poll(0.01)

    def flush(self) -> None:
        self.produce()
        self.producer.flush(10)

    def check(self) -> None:
        """Everything has ended, what comes later works, and each record is accounted for."""
        assert self.producer.flush(10) == 0
        self.produce()
        assert self.producer.flush(10) == 0
        assert self.told[self.values[-1]] == 1, "what comes later is delivered"
        account = self.producer.snapshot()
        assert account.unresolved == account.failed == 0
        assert account.accepted == account.delivered + account.interrupted

    def close(self) -> None:
        written = Counter(record.value for record in self.cluster.log("t", 0))
        assert all(written[value] <= 1 for value in self.values), "nothing is written twice"
        assert all(count == 1 for count in self.told.values()), "nothing is reported twice"
        assert all(written[value] == 1 for value in self.told)
        lane: Any = lane_of(self.producer)
        deadline = time.monotonic() + 5
        while lane.feed.numbers.reports and time.monotonic() < deadline:
            time.sleep(0.01)  # until the sender has taken note of the last batch
        assert not lane.feed.numbers.reports, "no callback is kept"
        assert not lane._serving
        assert self.producer.close(10)


@pytest.mark.filterwarnings("ignore:.*records were not reported.*:RuntimeWarning")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", ["produce", "produce_batch", "poll", "flush"])
def test_wherever_it_raises(cluster: FakeCluster, mode: str, call: str) -> None:
    application = Application(cluster, mode)
    run: Callable[[], None] = getattr(application, call)
    inside = codes()
    step = 0
    while True:
        try:
            with between(inside, step, interrupt, raises=True):
                run()
        except LimitError:
            step += 1
        else:
            break
        if step % 10 == 0:
            application.check()
    application.check()
    application.close()
    assert step > 3
