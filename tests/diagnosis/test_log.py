"""A log handler or filter of the application that raises: no call fails of it, and what is to be told is told."""

import gc
import logging
from collections.abc import Iterator

import pytest

from safeproducer import SafeProducer
from safeproducer.runtime.log import logger
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.contract.support import noting

MODES = ["auto", "held", "passthrough"]


class BrokenFilter(logging.Filter):
    """logging.Handler shows what its emit() raises only where emit() asks for it, and never what a filter raises."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        self.seen.append(record.getMessage())
        raise AttributeError("a line without a request")


@pytest.fixture
def broken() -> Iterator[BrokenFilter]:
    found = BrokenFilter()
    log = logging.getLogger("safeproducer")
    log.addFilter(found)
    yield found
    log.removeFilter(found)


brokers = fake_cluster({"t": 1})


@pytest.mark.parametrize("mode", MODES)
def test_a_warning_costs_no_record(brokers: FakeCluster, broken: BrokenFilter, mode: str) -> None:
    """The record of which the churn was told was refused, with the filter's exception."""
    settings = {"bootstrap.servers": brokers.bootstrap, "safeproducer.mode": mode}
    for value in (b"first", b"second"):
        producer = SafeProducer(settings | {"safeproducer.producer.ids.per.hour": 1})
        producer.produce("t", value)
        assert producer.close(10)
    assert any("churn" in line for line in broken.seen)
    assert [record.value for record in brokers.log("t", 0)] == [b"first", b"second"]


def test_an_error_of_the_client_goes_to_no_poll(broken: BrokenFilter) -> None:
    """confluent_kafka's poll() raises nothing there: it tells error_cb, which the application has not set."""
    producer = SafeProducer({"bootstrap.servers": "127.0.0.1:2", "log_level": 0})
    for _ in range(100):
        producer.poll(0.1)
        if broken.seen:
            break
    assert any("cannot be reached" in line or "refuses" in line for line in broken.seen)
    producer.close(0)


def test_hooks_and_warnings_still_tell_of_lost_records(broken: BrokenFilter) -> None:
    """The log line comes first, and what it raised ended the account."""
    accountant = noting("records_lost")
    producer = SafeProducer({"bootstrap.servers": "127.0.0.1:2", "log_level": 0}, hooks=[accountant])
    producer.produce("t", b"v")
    with pytest.warns(ResourceWarning, match="1 record"):
        del producer
        gc.collect()
    assert [event.count for event in accountant.told] == [1]


def test_an_exception_is_printed_as_logging_prints_it(broken: BrokenFilter, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever wrote the filter is to find it."""
    logger.warning("hello %s", "there")
    printed = capsys.readouterr().err
    assert "hello there" in broken.seen  # producers of other tests may still tell of their brokers
    assert "AttributeError: a line without a request" in printed
    assert "hello %s" in printed


def test_a_line_names_the_code_that_wrote_it(caplog: pytest.LogCaptureFixture) -> None:
    logger.warning("hello")
    assert caplog.records[0].filename == "test_log.py"


def test_a_client_id_forges_no_line(brokers: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    """It may come from outside, as a tenant's name. Its control characters are escaped."""
    settings = {"bootstrap.servers": brokers.bootstrap, "client.id": "a\nERROR all is lost\x1b[2J\x85\u2028é"}
    for _ in range(2):
        with SafeProducer(settings | {"safeproducer.producer.ids.per.hour": 1}) as producer:
            producer.produce("t", b"v")
    lines = [record.getMessage() for record in caplog.records if "all is lost" in record.getMessage()]
    assert lines
    assert all(line.startswith(r"a\nERROR all is lost\x1b[2J\x85\u2028é: ") and line.isprintable() for line in lines)
