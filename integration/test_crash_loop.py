"""A crash loop on real Kafka: how many producer IDs the leader remembers, counted by DescribeProducers."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from integration import crash_loop
from integration.conftest import TopicFactory
from integration.crash_loop import ROOT, Start, loop, one, start
from integration.kafka.cluster import KafkaCluster
from safeproducer import ProducerIdLimitError, SafeProducer
from safeproducer.producer_ids.ledger_places import AUTO_VARIABLE
from safeproducer.settings.id_settings import LEDGER_VARIABLE, POLICY_VARIABLE

RATE = 20
LEAST = 10
REFUSE = {"safeproducer.producer.ids.policy": "refuse", "safeproducer.producer.ids.per.hour": RATE}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A count of producer IDs for one test alone: the environment of its processes, and of this one."""
    monkeypatch.delenv(POLICY_VARIABLE, raising=False)
    two = os.pathsep.join(str(tmp_path / place) for place in ("memory", "disk"))
    variables = {LEDGER_VARIABLE: "auto", AUTO_VARIABLE: two}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


def copies(own: dict[str, str]) -> list[Path]:
    """The two files of this cluster's ledger."""
    found = [path for place in own[AUTO_VARIABLE].split(os.pathsep) for path in Path(place).iterdir()]
    assert len(found) == 2
    return found


def first_bytes_inverted(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(bytes(255 - byte for byte in data[:64]) + data[64:])


def most(seconds: float) -> int:
    """How many IDs may be granted within so many seconds."""
    return RATE + int(seconds / (3600 / RATE))


def ids(kafka: KafkaCluster, topic: str) -> int:
    """How many producer IDs the leader of the only partition remembers."""
    return len({state.producer_id for state in kafka.admin.describe_producers(topic, 0)})


def check_told(starts: list[Start]) -> None:
    """Who was refused knows where and for how long."""
    refused = [each.said for each in starts if each.refused]
    assert refused
    for said in refused:
        assert f"{ROOT / 'integration' / 'crash_loop.py'}:" in said
        assert "no producer ID is free for another" in said


@pytest.mark.timeout(180)
def test_a_crash_loop_leaves_few_ids(kafka: KafkaCluster, topic: TopicFactory, own: dict[str, str]) -> None:
    """60 processes, each fifth of which is killed at a random moment."""
    name = topic()
    starts, seconds = loop(kafka.bootstrap, name, REFUSE, 60, environment=own)
    assert seconds <= 90
    assert LEAST <= ids(kafka, name) <= most(seconds)
    check_told(list(starts))
    assert {each.said for each in starts if not (each.killed or each.refused)} == {"delivered"}
    kept, gone = copies(own)
    before = ids(kafka, name)
    for path in (gone, kept):  # the second time, what is left was made anew from the other one
        path.unlink()
        assert start(kafka.bootstrap, name, REFUSE, None, own).refused, "one of two copies is enough"
        assert [path.exists() for path in (kept, gone)] == [True, True]
    for path in copies(own):
        first_bytes_inverted(path)
    assert start(kafka.bootstrap, name, REFUSE, None, own).refused, "a damaged count is a full one"
    assert ids(kafka, name) == before


def test_stock_leaves_one_each(kafka: KafkaCluster, topic: TopicFactory) -> None:
    """The trap: nobody tells and nobody stops it."""
    name = topic()
    starts, _ = loop(kafka.bootstrap, name, "stock", 8)
    assert ids(kafka, name) >= sum(each.said == "delivered" for each in starts) >= 6


def test_a_hundred_producers_of_one_process(kafka: KafkaCluster, topic: TopicFactory, own: dict[str, str]) -> None:
    """Half of them are never closed."""
    name, began, refused = topic(), time.monotonic(), 0
    for number in range(100):
        producer = SafeProducer({**crash_loop.settings(kafka.bootstrap), **REFUSE})
        try:
            producer.produce(name, b"x")
        except ProducerIdLimitError:
            refused += 1
        assert producer.flush(20) == 0
        if number % 2:
            producer.close()
    assert LEAST <= ids(kafka, name) <= most(time.monotonic() - began)
    assert refused == 100 - ids(kafka, name)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_thirty_children_at_once(kafka: KafkaCluster, topic: TopicFactory, own: dict[str, str]) -> None:
    """Workers of a pre-fork server, each with a producer of its own."""
    name, began = topic(), time.monotonic()
    maker = json.dumps(REFUSE)
    children = []
    for _ in range(30):
        if not (child := os.fork()):
            code = 3
            try:
                code = {"delivered": 0}.get(one(kafka.bootstrap, name, maker), 1)
            finally:
                os._exit(code)
        children.append(child)
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    written = ids(kafka, name)
    assert LEAST <= written <= most(time.monotonic() - began)
    assert sorted(ends) == [0] * written + [1] * (30 - written)


def delivered_after(kafka: KafkaCluster, topic: str, rate: int, **config: Any) -> float:
    """Seconds from the start of a producer at this rate to its first acknowledgement, by the policy `delay`."""
    policy = {"safeproducer.producer.ids.policy": "delay", "safeproducer.producer.ids.per.hour": rate}
    began = time.monotonic()
    with SafeProducer({**crash_loop.settings(kafka.bootstrap), **policy, **config}) as producer:
        producer.produce(topic, b"x")
        assert producer.flush(60) == 0
        assert producer.snapshot().delivered == 1
    return time.monotonic() - began


def test_delay_delivers_when_an_id_is_free(kafka: KafkaCluster, topic: TopicFactory, own: dict[str, str]) -> None:
    """The hour was used up at 1 an hour: at 720 an hour one is free 5 s after that. One ID each."""
    name, began = topic(), time.monotonic()
    assert delivered_after(kafka, name, 1) < 4
    assert delivered_after(kafka, name, 720) < 9
    assert time.monotonic() - began >= 5
    assert ids(kafka, name) == 2


@pytest.mark.timeout(180)
def test_waiters_that_are_killed_delay_nobody(kafka: KafkaCluster, topic: TopicFactory, own: dict[str, str]) -> None:
    """Sixteen of them: the next ID is there 30 s after the last one was taken, for whoever asks then."""
    name = topic()
    assert delivered_after(kafka, name, 1) < 10
    began = time.monotonic()
    waits = {"safeproducer.producer.ids.policy": "delay", "safeproducer.producer.ids.per.hour": 120}
    with ThreadPoolExecutor(8) as pool:
        killed = list(pool.map(lambda _: start(kafka.bootstrap, name, waits, 2.0, own), range(16)))
    assert sum(each.killed for each in killed) >= 15
    assert delivered_after(kafka, name, 120, **{"message.timeout.ms": 60_000}) < 45
    assert ids(kafka, name) <= 2 + int((time.monotonic() - began) / 30)
