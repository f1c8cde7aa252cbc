"""FakeCluster in a process of its own does, refuses, warns and fails as it does in the process of the test."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from safeproducer import SafeProducer
from safeproducer.testing import DEFAULT, FakeCluster, FakeClusterProcess, FakeClusterWarning
from safeproducer.testing.fake.handlers import SERVED
from tests.contract.support import wait_until
from tests.testing.raw import RawClient, hung_up


@pytest.fixture(scope="module")
def apart() -> Iterator[FakeCluster]:
    with FakeClusterProcess(brokers=3) as found:
        yield found


@pytest.fixture
def cluster(apart: FakeCluster) -> FakeCluster:
    apart.reset()
    return apart


def test_the_other_process_serves_and_tells_all(cluster: FakeCluster) -> None:
    """Methods, properties, DEFAULT, records, batches, producers, the journal and waiting."""
    cluster.create_topic("t", partitions=2, config={"min.insync.replicas": "2"})
    cluster.set_quota("producer_byte_rate", 1e9, user=DEFAULT)
    assert cluster.quotas() == {"default user": {"producer_byte_rate": 1e9}}
    cluster.lose_acks(1, topic="t", partition=1)
    assert (cluster.brokers, cluster.faults_left) == ((1, 2, 3), 1)
    with SafeProducer({"bootstrap.servers": cluster.bootstrap, "log_level": 0}) as producer:
        producer.produce("t", b"once", partition=1)
        cluster.wait(lambda cluster: len(cluster.log("t", 1)) == 1)
        assert producer.flush(20) == 0
    assert [record.value for record in cluster.log("t", 1)] == [b"once"]
    assert [batch.count for batch in cluster.batches("t", 1)] == [1]
    assert len(cluster.producer_state("t", 1)) == 1
    assert cluster.journal("Produce")[0].outcome == "lost"
    assert cluster.faults_left == 0
    listening = {one.laddr.port for one in psutil.Process().net_connections() if one.status == psutil.CONN_LISTEN}
    assert not listening & {int(address.rsplit(":")[-1]) for address in cluster.bootstrap.split(",")}


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda cluster: cluster.create_topic("a/b"), id="refused"),
        pytest.param(lambda cluster: cluster.leader("nowhere"), id="not there"),
        pytest.param(lambda cluster: cluster.set_quota("producer_ids_rate", 1, client_id="a"), id="quota"),
        pytest.param(lambda cluster: cluster.set_broker_config(1, "nonsense", "1"), id="config"),
        pytest.param(lambda cluster: cluster.no_such_method, id="no method"),
        pytest.param(lambda cluster: cluster.wait(lambda _: False, 0.01), id="time-out"),
    ],
)
def test_the_other_process_refuses_in_the_same_words(cluster: FakeCluster, ask: Any) -> None:
    """With exceptions of the same classes, and it goes on."""
    with FakeCluster() as here, pytest.raises((ValueError, AttributeError, TimeoutError)) as expected:
        ask(here)
    with pytest.raises(expected.type) as raised:
        ask(cluster)
    assert str(raised.value).replace("type object 'FakeCluster'", "'FakeCluster' object") == str(expected.value)
    assert cluster.brokers == (1, 2, 3)


def test_wrong_arguments_are_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match="brokers: 0 make no cluster"), FakeClusterProcess(brokers=0):
        pass


def test_a_warning_comes_from_the_next_call(cluster: FakeCluster) -> None:
    with RawClient(cluster.bootstrap) as client:
        client.ask("FindCoordinator", 4, key_type=2, coordinator_keys=["g"])
    with pytest.warns(FakeClusterWarning, match="share groups"):
        cluster.journal()


class Breaking(dict[str, str]):
    """No config at all in this process; where it arrives, Metadata requests fail."""

    def __reduce__(self) -> Any:
        return break_metadata, ()


def break_metadata() -> dict[str, str]:
    def broken(_: Any) -> Any:
        raise RuntimeError("planted")

    SERVED["Metadata"] = (0, 12, broken)
    return {}


def ask_metadata(cluster: FakeCluster) -> None:
    with RawClient(cluster.bootstrap) as client, hung_up():
        client.ask("Metadata", 12, topics=[])


def test_failures_inside_are_raised_at_reset_and_at_the_end() -> None:
    """At the end beside the error that the test has already."""
    with pytest.raises(ExceptionGroup) as at_the_end, FakeClusterProcess(1, broker_config=Breaking()) as cluster:  # noqa: PT012
        ask_metadata(cluster)
        with pytest.raises(ExceptionGroup) as at_reset:
            cluster.reset()
        ask_metadata(cluster)
    for raised in (at_reset, at_the_end):
        assert [str(error) for error in raised.value.exceptions] == ["planted"]
    with pytest.raises(KeyError) as failed, FakeClusterProcess(1, broker_config=Breaking()) as cluster:  # noqa: PT012
        ask_metadata(cluster)
        raise KeyError
    assert "planted" in failed.value.__notes__[0]


def test_a_lost_process_is_told() -> None:
    """By the call that meets it, and at the end again."""
    before = {*psutil.Process().children()}
    with pytest.raises(RuntimeError, match="has ended") as raised, FakeClusterProcess(1) as cluster:  # noqa: PT012
        (child,) = {*psutil.Process().children()} - before
        child.kill()
        child.wait(10)
        with pytest.raises(RuntimeError, match="the process of this FakeCluster has ended"):
            cluster.log("t")
        raise RuntimeError("this test has ended, too")
    assert "the process of this FakeCluster has ended" in raised.value.__notes__[0]
    with pytest.raises(RuntimeError, match="the process of this FakeCluster has ended"), FakeClusterProcess(1):  # noqa: PT012
        child = ({*psutil.Process().children()} - before).pop()
        child.kill()
        child.wait(10)


def test_a_cluster_ends_with_the_process_that_made_it() -> None:
    """However that ends; a script needs no guard against being imported again."""
    script = """if True:
        import os, psutil, signal
        from safeproducer.testing import FakeClusterProcess
        cluster = FakeClusterProcess(1)
        cluster.__enter__().create_topic("t")
        (child,) = psutil.Process().children()
        print(child.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    made = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    wait_until(lambda: not psutil.pid_exists(int(made.stdout)))
