"""An application's tests that stop the clocks of Python, as freezegun does: brokers and librdkafka go on."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from safeproducer import SafeProducer
from tests.clusters import cluster_of

MODES = {"auto": {}, "held": {"safeproducer.mode": "held"}}
HANGS = 20.0


@contextmanager
def stopped() -> Iterator[None]:
    """`time.monotonic()` and `time.time()` stand still, wherever a module refers to them."""
    then, now = time.monotonic(), time.time()
    functions: dict[Any, Callable[[], float]] = {time.monotonic: lambda: then, time.time: lambda: now}
    replaced = [
        (module, name, function)
        for module in (time, *(found for name, found in sys.modules.copy().items() if name.startswith("safeproducer")))
        for name, value in vars(module).copy().items()
        for function in functions
        if value is function
    ]
    for module, name, function in replaced:
        setattr(module, name, functions[function])
    try:
        yield
    finally:
        for module, name, function in replaced:
            setattr(module, name, function)


@pytest.mark.parametrize("mode", MODES)
def test_no_call_waits_for_ever_for_a_clock_that_was_stopped(mode: str) -> None:
    answers: list[Any] = []

    def work() -> None:
        producer = SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **MODES[mode]})
        for number in range(20):
            producer.produce("t", b"%d" % number)
        answers.append(producer.flush(10))
        answers.append(producer.poll(0.05))
        answers.append(bool(producer.close(10)))

    with cluster_of({"t": 1}) as cluster:
        thread = threading.Thread(target=work, daemon=True)
        with stopped():
            thread.start()
            thread.join(HANGS)
        assert answers == [0, 0, True]
        before = time.time()
        assert all(abs(record.timestamp / 1000 - before) < HANGS for record in cluster.log("t"))
