"""A limit on producer IDs, against FakeCluster: how many IDs write, who waits, who is refused, and who is told."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.cimpl import KafkaException

from safeproducer import (
    Hook,
    ProducerChurn,
    ProducerIdLimited,
    ProducerIdLimitError,
    QueueFullError,
    SafeProducer,
)
from safeproducer.cli.doctor.census import Examined
from safeproducer.cli.doctor.checks import host_over_limit
from safeproducer.cli.doctor.host import read_host
from safeproducer.pipeline import closing
from safeproducer.pipeline.assembly import gate_of
from safeproducer.producer_ids import guard
from safeproducer.producer_ids.gate import Gate
from safeproducer.producer_ids.ledger_places import Place
from safeproducer.settings.config import parse
from safeproducer.settings.id_settings import LEDGER_VARIABLE, POLICY_VARIABLE
from safeproducer.testing import FakeCluster
from tests.clusters import cluster_of
from tests.contract.support import ran, send_one, switching, together
from tests.permit_count import permits_counted
from tests.producer_ids.test_gate import INFO, Told

RATE = "safeproducer.producer.ids.per.hour"
PORTS = count(1)
"""Nobody listens there; a list of brokers with another one is another cluster."""
POLICY = "safeproducer.producer.ids.policy"


class Heard(Hook):
    def __init__(self) -> None:
        self.churn: list[ProducerChurn] = []
        self.limited: list[ProducerIdLimited] = []

    def producer_churn(self, event: ProducerChurn) -> None:
        self.churn.append(event)

    def producer_id_limited(self, event: ProducerIdLimited) -> None:
        self.limited.append(event)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """One of its own for each test. No ID was counted for it: its port may be that of an earlier one."""
    monkeypatch.setattr(guard, "_guards", {})
    monkeypatch.delenv(POLICY_VARIABLE, raising=False)
    monkeypatch.setenv(LEDGER_VARIABLE, "off")
    with cluster_of({"t": 2}) as found:
        yield found


def started(cluster: FakeCluster, policy: str, rate: int, *hooks: Hook, **config: Any) -> SafeProducer:
    return SafeProducer(
        {"bootstrap.servers": cluster.bootstrap, "log_level": 0, POLICY: policy, RATE: rate, **config}, hooks=hooks
    )


def writers(cluster: FakeCluster) -> set[int]:
    return {batch.producer_id for entry in cluster.journal("Produce") for batch in entry.batches}


def refusal_of(producer: SafeProducer) -> ProducerIdLimitError | None:
    """What its first record is refused with; None when it is accepted."""
    try:
        producer.produce("t", b"x")
    except ProducerIdLimitError as refused:
        return refused
    return None


def test_a_loop_is_refused_beyond_the_rate(cluster: FakeCluster) -> None:
    """Each producer that was refused says with its file and line why, and accepted nothing.

    With a quota at the same rate the broker refuses no ID: the guard is a token stricter than its bucket (KIP-936).
    """
    began, rate, ids = time.monotonic(), 20, 0
    cluster.set_quota("producer_ids_rate", rate, user="ANONYMOUS")
    for _ in range(100):
        with started(cluster, "refuse", rate) as producer:
            refused = refusal_of(producer)
            if refused is not None:
                assert isinstance(refused, KafkaException)
                assert refused.site.filename == __file__
                assert __file__ in str(refused)
                assert 0 < refused.retry_after <= 3600 / rate
                assert producer.snapshot().accepted == 0
            assert producer.flush(10) == 0
            ids += producer.snapshot().producer_ids
    most = rate + int((time.monotonic() - began) / (3600 / rate))
    assert rate <= len(writers(cluster)) == ids <= most
    assert {batch.error_code for entry in cluster.journal("Produce") for batch in entry.batches} == {0}


def test_a_loop_is_told_by_default(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    """Once for its line, from the first one beyond the rate on; all of them write."""
    heard = Heard()
    for number in range(6):
        with started(cluster, "warn", 3, heard) as producer:
            send_one(producer, "t", b"x")
        assert len(heard.churn) == (number >= 3)
    assert len(writers(cluster)) == 6
    (event,) = heard.churn
    assert (event.made_in_all, event.limit_per_hour, event.site.function) == (4, 3, "started")
    assert heard.limited == []
    (line,) = [record.getMessage() for record in caplog.records if "churn" in record.getMessage()]
    assert str(event.site) in line
    assert event.advice in line


def test_log_hook_error_and_doctor_say_the_same(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Line, pattern with count and time, and cure."""
    monkeypatch.setenv(LEDGER_VARIABLE, str(tmp_path / "ledger"))
    heard = Heard()
    for _ in range(3):
        with started(cluster, "refuse", 3, heard) as producer:
            send_one(producer, "t", b"x")
    with started(cluster, "refuse", 3, heard) as last:
        refused = refusal_of(last)
    host = read_host(Place(str(tmp_path / "ledger")), {}, 3, paths=True)
    (finding,) = host_over_limit(Examined(3, host=host))
    (event,) = heard.churn
    (log,) = [record.getMessage() for record in caplog.records if "producer IDs were taken" in record.getMessage()]
    assert (event.pattern, host.ledgers[0].patterns[0].code) == ("one-per-request", "one-per-request")
    assert heard.limited[0].churn == event
    assert event.seen.startswith("3 in ")
    for text in (log, str(refused), f"{finding.message} {finding.cure}"):
        for part in (str(event.site), event.seen, event.advice):
            assert part in text


def test_an_hour_that_one_with_a_lower_limit_used_up(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One start at 1 an hour, one at 720: log, hook, error and doctor tell of one ID, and why it is enough."""
    monkeypatch.setenv(LEDGER_VARIABLE, str(tmp_path / "ledger"))
    heard = Heard()
    with started(cluster, "refuse", 1) as first:
        send_one(first, "t", b"x")
    with started(cluster, "refuse", 720, heard) as second:
        refused = refusal_of(second)
    (finding,) = host_over_limit(Examined(720, host=read_host(Place(str(tmp_path / "ledger")), {}, 720, paths=True)))
    (log,) = [record.getMessage() for record in caplog.records if "producer ID was taken" in record.getMessage()]
    assert (heard.churn[0].made_in_all, heard.churn[0].limit_per_hour) == (1, 720)
    assert heard.limited[0].churn == heard.churn[0]
    assert "because the hour is used up" in str(refused)
    for text in (log, str(refused), finding.message):
        assert "1 producer ID was taken" in text
        assert "producers with a lower limit took them" in text


def test_librdkafkas_mock_cluster_has_no_ledger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It ends with its producer: each is another one, and all have the same name."""
    monkeypatch.setattr(guard, "_guards", {})  # other tests of this process have used mock clusters, too
    monkeypatch.delenv(LEDGER_VARIABLE, raising=False)
    monkeypatch.delenv(POLICY_VARIABLE, raising=False)
    ledger = {"safeproducer.producer.ids.ledger": str(tmp_path / "ledger"), RATE: 1, POLICY: "refuse"}
    for servers in ({"test.mock.num.brokers": 1}, {"bootstrap.servers": "127.0.0.1:2"}):
        gate = gate_of(parse(({**servers, **ledger},), {}), INFO, Told())  # type: ignore[arg-type]
        gate.enter()
        assert gate.used == 1
        assert (tmp_path / "ledger").exists() == ("bootstrap.servers" in servers)


def test_delay_delivers_when_the_next_id_is_there(cluster: FakeCluster) -> None:
    """The hour was used up by a start at 1 an hour; at 720 an hour the next ID is there after 5 s. One ID each.

    Until then records take room in the buffer, as any held record does: beyond the limit it is full.
    """
    heard, reports = Heard(), list[Any]()
    with started(cluster, "delay", 1) as first:
        send_one(first, "t", b"x")
    began = time.monotonic()
    with started(cluster, "delay", 720, heard, **{"queue.buffering.max.messages": 100}) as second:
        for number in range(100):
            second.produce("t", b"%d" % number, on_delivery=lambda error, _: reports.append(error))
        assert "waits for a producer ID" in second.explain()
        for _ in range(2):
            with pytest.raises(QueueFullError):
                second.produce("t", b"more")
        assert len(second) == 100
        assert second.flush(20) == 0
        assert 4 <= time.monotonic() - began < 7.5  # the first one took a while
        assert (second.snapshot().delivered, second.snapshot().producer_ids) == (100, 1)
        send_one(second, "t", b"room again")
    assert reports == [None] * 100
    assert len(cluster.log("t", 0)) + len(cluster.log("t", 1)) == 102
    assert len(writers(cluster)) == 2
    (event,) = heard.limited
    assert (event.policy, event.churn.limit_per_hour) == ("delay", 720)
    assert event.retry_after == pytest.approx(5, abs=0.5)


def closes(producer: SafeProducer) -> None:
    assert producer.close(0.005).left == 1


def forgets(producer: SafeProducer) -> None:
    """The last reference is the caller's."""


@pytest.mark.filterwarnings("ignore:.*lost at garbage collection.*:ResourceWarning")
@pytest.mark.parametrize("end", [closes, forgets])
@pytest.mark.parametrize("mode", ["auto", "held", "passthrough"])
def test_a_producer_that_reached_no_broker_has_sent_nothing(
    monkeypatch: pytest.MonkeyPatch, mode: str, end: Callable[[SafeProducer], None]
) -> None:
    """Not a record with a partition either; close() waits for no statistics then."""
    monkeypatch.setenv(LEDGER_VARIABLE, "off")
    monkeypatch.setattr(Gate, "heard", lambda *_: None)
    monkeypatch.setattr(closing, "_STATISTICS_LATE", 60.0)
    config = {"bootstrap.servers": f"127.0.0.1:2,127.0.0.1:{next(PORTS)}", "log_level": 0, POLICY: "refuse", RATE: 1}
    with permits_counted() as permits:
        for _ in range(3):
            producer = SafeProducer({**config, "safeproducer.mode": mode})
            producer.produce("t", b"x", partition=0)
            assert permits.held.total() == 1
            began = time.monotonic()
            end(producer)
            assert time.monotonic() - began < 30
            del producer
            assert permits.held.total() == 0


ENDS_AT_EXIT = """
import sys
from safeproducer import SafeProducer
producer = SafeProducer({"bootstrap.servers": "127.0.0.1:2", "log_level": 0, "safeproducer.producer.ids.per.hour": 1,
                         "safeproducer.producer.ids.policy": "refuse"})
producer.produce("t", b"x", partition=0)
if len(sys.argv) > 1:
    raise ValueError
"""


@pytest.mark.parametrize("crashes", [False, True])
def test_a_process_that_ends_before_it_has_reached_a_broker_uses_nothing(tmp_path: Path, crashes: bool) -> None:
    for _ in range(2):
        done = ran(
            [sys.executable, "-c", ENDS_AT_EXIT, *(["crash"] if crashes else [])],
            env={**os.environ, LEDGER_VARIABLE: str(tmp_path)},
        )
        assert "ProducerIdLimitError" not in done.stderr
        assert ("ValueError" in done.stderr) is crashes
        assert "were lost at interpreter exit" in done.stderr


@pytest.mark.parametrize("mode", ["auto", "held"])
def test_a_record_with_a_partition_needs_statistics_once_a_broker_was_reached(cluster: FakeCluster, mode: str) -> None:
    """They come within half a second, and close() waits for them."""
    cluster.delay(60, api="InitProducerId")
    for _ in range(3):
        with started(cluster, "refuse", 1, **{"safeproducer.mode": mode}) as producer:
            producer.produce("t", b"x", partition=0)
            cluster_id = producer.cluster_id(10)
            assert cluster_id
            assert producer.close(0.005).left == 1


def test_a_permit_that_was_used_is_kept(cluster: FakeCluster) -> None:
    """Delivered, or of unknown outcome: another producer finds none."""
    cluster.lose_acks(1_000_000, topic="t")
    with started(cluster, "refuse", 1) as lost:
        lost.produce("t", b"x", partition=0)
        cluster.wait(lambda fake: bool(fake.log("t")))
        assert lost.close(0).left == 1
    with started(cluster, "refuse", 1) as second:
        assert refusal_of(second) is not None


def test_threads_that_begin_together_take_one(cluster: FakeCluster) -> None:
    """Eight of them produce the first record of one producer, which is the only one that may write."""
    with switching(1e-6), started(cluster, "refuse", 1) as producer:
        ready = threading.Barrier(8)

        def produce() -> None:
            ready.wait(10)
            for number in range(50):
                producer.produce("t", b"%d" % number)

        together(*(produce for _ in range(8)))
        assert producer.flush(20) == 0
        assert (producer.snapshot().delivered, producer.snapshot().producer_ids) == (400, 1)
    with started(cluster, "refuse", 1) as second:
        assert refusal_of(second) is not None


def test_passthrough_is_told_and_never_held(cluster: FakeCluster) -> None:
    heard = Heard()
    for policy in ("delay", "refuse"):
        for _ in range(2):
            with started(cluster, policy, 1, heard, **{"safeproducer.mode": "passthrough"}) as producer:
                send_one(producer, "t", b"x")
    assert (len(heard.churn), heard.limited) == (1, [])


def test_a_hook_that_wants_records_sees_the_refusal(cluster: FakeCluster) -> None:
    class Refusals(Hook):
        errors: list[BaseException] = []  # noqa: RUF012 - of this test alone

        def record_refused(self, record: Any, error: BaseException) -> None:
            self.errors.append(error)

    with started(cluster, "refuse", 1) as first:
        send_one(first, "t", b"x")
    with started(cluster, "refuse", 1, Refusals()) as second, pytest.raises(ProducerIdLimitError) as refused:
        second.produce("t", b"x")
    assert Refusals.errors == [refused.value]


@pytest.fixture
def transactional(mock_bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], SafeProducer]:
    """Makes transactional producers on librdkafka's mock cluster, at 1 an hour, counted for each test alone."""
    monkeypatch.setenv(LEDGER_VARIABLE, "off")
    bootstrap = f"{mock_bootstrap},127.0.0.1:{next(PORTS)}"

    def start(name: str, policy: str) -> SafeProducer:
        config = {"bootstrap.servers": bootstrap, "log_level": 0, "transactional.id": name, POLICY: policy, RATE: 1}
        return SafeProducer(config)

    return start


def committed(producer: SafeProducer) -> None:
    """A transaction of one record."""
    producer.begin_transaction()
    producer.produce("t", b"x")
    producer.commit_transaction(10)


def test_a_fixed_transactional_id_counts_once(transactional: Callable[[str, str], SafeProducer]) -> None:
    """A random one for each start is churn. It is decided in init_transactions()."""
    for _ in range(3):
        with transactional("fixed", "refuse") as producer:
            producer.init_transactions(10)
            committed(producer)
            committed(producer)
            assert producer.snapshot().producer_ids == 1
    with transactional("random-1", "refuse") as producer, pytest.raises(ProducerIdLimitError):
        producer.init_transactions(10)
    with transactional("random-2", "delay") as producer:
        began = time.monotonic()
        with pytest.raises(ProducerIdLimitError):
            producer.init_transactions(10)
        assert time.monotonic() - began < 1, "the next one is there in an hour"


def test_init_transactions_may_be_called_again(transactional: Callable[[str, str], SafeProducer]) -> None:
    """After a failure it is retriable, and takes nothing more."""
    with transactional("again", "refuse") as producer:
        with pytest.raises(KafkaException):
            producer.init_transactions(0.0)
        producer.init_transactions(10)
        committed(producer)
