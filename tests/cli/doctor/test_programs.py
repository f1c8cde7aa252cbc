"""Twelve kinds of programs, by the ledgers that they leave: each is told by its name, and healthy ones are no finding.

The ends, processes and times are as real programs gave them: gunicorn, Celery, PySpark, pytest, multiprocessing, a
notebook's cell, and loops of a request, an error and a crash. Those of the last kind go on until the hour is used up.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from safeproducer import SafeProducer
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids import permit_record
from safeproducer.producer_ids.ledger_places import Place
from safeproducer.producer_ids.ledger_reader import read_ledgers
from safeproducer.producer_ids.permit_record import ProcessId
from safeproducer.testing import FakeCluster
from tests.cli.in_process import CommandHere
from tests.producer_ids.host import Host, first


class Took(NamedTuple):
    """A producer ID: when, in which process, and how its native producer ended."""

    at: float
    process: int
    ended: str
    kind: Kind = Kind.FIRST


LANES = [Took(0, 1, "exit")] + [Took(0.27 + number / 100, 1, "exit", Kind.FIXED_LANE) for number in range(20)]
SERVICE = [Took(86_400 * number, number, "exit") for number in range(4)]
SPARK_BATCH = [Took(0, 1, ""), Took(0.04, 2, ""), Took(1.21, 3, ""), Took(1.78, 4, "")]
SPARK_STREAM = [Took(30 * (number // 4) + number % 4, number, "") for number in range(12)]
GUNICORN = [Took(at, number, "exit") for number, at in enumerate((0, 0.17, 0.55, 0.84, 1.13, 1.49, 2.06, 2.49))]
CELERY = [Took(at, number, "closed") for number, at in enumerate((0, 0.03, 0.74, 0.74, 1.07, 1.18, 1.41, 1.46))]
PYTEST = [Took(0.06 * number, 1, "closed") for number in range(30)]
NOTEBOOK = [Took(20 * number, 1, "collected") for number in range(7)] + [Took(140, 1, "exit")]
POOL = [Took(0, 1, ""), Took(0.01, 2, "exit"), Took(0.02, 3, ""), Took(0.02, 4, "")]
CRASHES = [Took(5 * number, number, "crashed") for number in range(120)]
REQUESTS = [Took(0.06 * number, 1, "closed") for number in range(120)]
ERRORS = [Took(0.06 * number, 1, "error") for number in range(120)]
HEALTHY = {
    "lanes": (LANES, "lanes"),
    "a service that is started again each day": (SERVICE, None),
    "a batch of Spark": (SPARK_BATCH, "one-per-process"),
    "micro-batches of Spark, each in new workers": (SPARK_STREAM, "one-per-process"),
    "gunicorn": (GUNICORN, "one-per-process"),
    "Celery with recycling": (CELERY, "one-per-process"),
    "a run of pytest": (PYTEST, "one-per-request"),
    "a notebook's cell": (NOTEBOOK, "one-per-request"),
    "a pool of processes": (POOL, "one-per-process"),
}
SICK = {
    "a crash loop": (CRASHES, "crash-loop"),
    "one for each request": (REQUESTS, "one-per-request"),
    "one for each error": (ERRORS, "one-per-error"),
}


@pytest.mark.parametrize("program", [*HEALTHY, *SICK])
def test_each_program_is_told_by_its_pattern(
    program: str, here: CommandHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Warnings are for those that use up the hour, with the cure of their pattern."""
    took, pattern = {**HEALTHY, **SICK}[program]
    host = Host(tmp_path, monkeypatch)
    host.stop_clocks()
    write(host, took, monkeypatch)
    done = here.run("doctor", "--json")
    found = json.loads(done.stdout)
    (ledger,) = found["host"]["ledgers"]
    assert [one["code"] for one in ledger["patterns"]] == ([] if pattern is None else [pattern])
    expected = [("host-over-limit", "warning", ledger["patterns"][0]["cure"])] if program in SICK else []
    assert [(one["code"], one["severity"], one["cure"]) for one in found["findings"]] == expected
    assert done.returncode == len(expected)


def write(host: Host, took: Sequence[Took], monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger of a program, which each process opens for itself."""
    began = host.now
    for one in took:
        host.pass_time(began + one.at - host.now)
        process = ProcessId(1000 + one.process, 1, 1 + one.process)
        monkeypatch.setattr(permit_record, "this", lambda process=process: process)
        guard = host.start()
        permit = guard.ask(first(rate=100, enforce=False)._replace(kind=one.kind)).permit
        assert permit is not None
        guard.note(permit, ended=one.ended)


def left(config: dict[str, str]) -> None:
    """The `with` block ends by an exception."""
    with SafeProducer(config) as producer:
        deliver(producer)
        raise ValueError


def closed(config: dict[str, str]) -> None:
    """`finally` closes it."""
    producer = SafeProducer(config)
    try:
        deliver(producer)
        raise ValueError
    finally:
        producer.close()


def dropped(config: dict[str, str]) -> None:
    """A record failed, and the program lets go of it."""
    producer = SafeProducer(config)
    deliver(producer)
    producer.produce("small", bytes(10_000))
    producer.flush(20)


def deliver(producer: SafeProducer) -> None:
    """Only a producer that has written keeps its ID."""
    producer.produce("t", b"x")
    assert producer.flush(20) == 0


@pytest.mark.parametrize(("program", "ended"), [(left, "crashed"), (closed, "crashed"), (dropped, "error")])
def test_a_producer_that_is_given_up_after_an_error(
    program: Callable[[dict[str, str]], None], ended: str, tmp_path: Path
) -> None:
    """Each of the three was told as one for each request, and in processes of its own as no crash loop."""
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("t")
        cluster.create_topic("small")
        cluster.set_topic_config("small", "max.message.bytes", "5000")
        config = {"bootstrap.servers": cluster.bootstrap, "safeproducer.producer.ids.ledger": str(tmp_path / "ledger")}
        for _ in range(3):
            with suppress(ValueError):
                program(config)
            gc.collect()
    (found,) = read_ledgers(Place(str(tmp_path / "ledger")))
    assert [record.ended for record in found.records] == [ended] * 3
    assert [pattern.code for pattern in found.patterns()] == ["one-per-error"]
