"""Producer-ID churn (KIP-936): the process counts its producers and tells the line of code that makes too many."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from safeproducer import Hook, ProducerChurn, SafeProducer, churn
from safeproducer.churn import ChurnRegistry
from safeproducer.records import CallSite

SETTING = "safeproducer.producer.ids.per.hour"


class Churns(Hook):
    def __init__(self) -> None:
        self.seen: list[ProducerChurn] = []

    def producer_churn(self, event: ProducerChurn) -> None:
        self.seen.append(event)


@pytest.fixture(autouse=True)
def fresh_count() -> Iterator[None]:
    """Each test counts from zero and leaves no count behind."""
    churn.registry.reset()
    yield
    churn.registry.reset()


def make(hook: Hook, limit: int, cluster: str = "127.0.0.1:1", **config: object) -> None:
    SafeProducer({"bootstrap.servers": cluster, "log_level": 0, SETTING: limit, **config}, hooks=[hook]).close(0)


def test_a_loop_that_makes_producers_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """The fourth producer of three allowed warns by log and hook, with the line and the cure; the fifth is quiet."""
    churns = Churns()
    for _ in range(5):
        make(churns, limit=3)
    assert len(churns.seen) == 1
    event = churns.seen[0]
    assert (event.made_in_all, event.made_by_site, event.limit_per_hour) == (4, 4, 3)
    assert event.site.filename == __file__
    assert event.site.function == "make"
    warnings = [record.getMessage() for record in caplog.records if "churn" in record.getMessage()]
    assert len(warnings) == 1
    assert str(event.site) in warnings[0]
    assert "keep it for the life of the process" in warnings[0]
    assert SETTING in warnings[0]


def test_a_hundred_an_hour_are_quiet_by_default() -> None:
    """The default limit is KIP-936's own example: 100 producer IDs an hour."""
    churns = Churns()
    config = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    for _ in range(100):
        SafeProducer(config, hooks=[churns]).close(0)
    assert churns.seen == []
    SafeProducer(config, hooks=[churns]).close(0)
    assert len(churns.seen) == 1


def test_another_principal_or_cluster_has_its_own_count() -> None:
    """One noisy user of one cluster does not make another one look noisy."""
    churns = Churns()
    sasl = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.password": "p"}
    make(churns, 1)
    make(churns, 1, cluster="127.0.0.1:2")
    make(churns, 1, **sasl, **{"sasl.username": "ann"})
    make(churns, 1, **sasl, **{"sasl.username": "bob"})
    assert churns.seen == []
    make(churns, 1, **sasl, **{"sasl.username": "bob"})
    assert [event.principal for event in churns.seen] == ["User:bob"]


def test_a_refused_configuration_takes_no_producer_id() -> None:
    """A constructor that raised made no producer."""
    for _ in range(3):
        with pytest.raises(Exception, match="no such setting"):
            SafeProducer({"bootstrap.servers": "127.0.0.1:1", "no.such": 1})
    assert churn.registry.made_last_hour(("127.0.0.1:1", "User:ANONYMOUS")) == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_a_forked_child_counts_its_own_producers() -> None:
    """A pre-fork server does not blame each worker for what the parent made."""
    identity = ("c", "User:u")
    churn.registry.record(identity, CallSite("app.py", 1, "f"), 100)
    child = os.fork()
    if child == 0:
        os._exit(churn.registry.made_last_hour(identity))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert churn.registry.made_last_hour(identity) == 1


def test_the_hour_is_measured_by_a_clock_that_is_given() -> None:
    """Producers of more than an hour ago are forgotten."""
    now = [0.0]
    registry = ChurnRegistry(clock=lambda: now[0])
    site = CallSite("app.py", 1, "f")
    assert registry.record(("c", "p"), site, 1) is None
    now[0] = 3600.0
    assert registry.record(("c", "p"), site, 1) is None
    assert registry.record(("c", "p"), site, 1) is not None
