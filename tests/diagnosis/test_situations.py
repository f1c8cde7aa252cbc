"""explain(), snapshot(), health(), metrics, spans and the errors of records agree on the cause, and blame nothing that
is over."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from safeproducer import FatalError, ForkedProducerError, Health, ProducerClosedError, SafeProducer
from safeproducer.testing import FakeCluster
from tests.situations import CASES, Case, Scene, play

AT_ONCE = 8


def on_fake(case: Case, full: bool) -> None:
    if case.brokers is None:
        return play(case, Scene("127.0.0.1:1", full=full))
    with FakeCluster(case.brokers, **case.fake) as cluster:
        cluster.create_topic("t", 2, replication_factor=1)
        return play(case, Scene(cluster.bootstrap, cluster, full=full))


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest) -> Iterator[Mapping[str, Future[None]]]:
    """Those that are asked for, several at a time: most of them wait."""
    items = [item for item in request.session.items if item.fspath == request.fspath]
    wanted = [item.callspec.params["name"] for item in items if "name" in item.callspec.params]
    full = request.config.getoption("--full")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(on_fake, CASES[name], full) for name in wanted}


@pytest.mark.parametrize("name", CASES)
def test_the_true_cause_is_told(played: Mapping[str, Future[None]], name: str) -> None:
    """While it lasts (with --full for 10 s), by all that tell of it and the log, with its age; after its end not."""
    played[name].result()


ENDS = {
    "fatal": (
        FatalError,
        "It met a fatal error and takes no more records; close it and make a new one.",
        "Close it and make a new one.",
    ),
    "closed": (ProducerClosedError, "This producer is closed; make a new one to produce again.", None),
    "forked": (ForkedProducerError, "This producer was made before a fork and does not work in this process;", None),
}


def check_end(producer: SafeProducer, end: str) -> None:
    kind, sentence, cure = ENDS[end]
    with pytest.raises(kind):
        producer.produce("t", b"x")
    health = producer.health()
    assert (producer.snapshot().state, health.ok, health.ready) == (end, end == "closed", False)
    assert [reason.code for reason in health.reasons] == [end]
    assert health.reasons[0].cure
    assert cure in (None, health.reasons[0].cure)
    assert producer.explain().startswith(sentence)


@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_a_producer_is_told(plant_fatal: Callable[[SafeProducer], None], end: str) -> None:
    """By all, and by the error of produce()."""
    with FakeCluster(1) as cluster:
        cluster.create_topic("t")
        producer = SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        producer.produce("t", b"x")
        assert producer.flush(20) == 0
        if end == "fatal":
            plant_fatal(producer)
        elif end == "closed":
            producer.close()
        elif not (child := os.fork()):
            with contextlib.suppress(BaseException):
                check_end(producer, end)
                os._exit(0)
            os._exit(1)
        if end == "forked":
            assert os.waitpid(child, 0)[1] == 0
            assert producer.health() == Health(ok=True, ready=True)
        else:
            check_end(producer, end)
        with contextlib.suppress(FatalError):
            producer.close(0)
