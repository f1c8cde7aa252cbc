"""Other systems than the one that runs the tests, as far as they can be imitated: macOS, Windows, and one without."""

import os
import sys
from pathlib import Path

import pytest

from safeproducer.producer_ids import ledger_places
from safeproducer.settings.id_settings import LEDGER_VARIABLE, POLICY_VARIABLE
from safeproducer.testing import FakeCluster
from tests.clusters import fake_cluster
from tests.contract.support import ran

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import ctypes, ctypes.util, mmap, multiprocessing, os, sys, time
import confluent_kafka, confluent_kafka.admin  # librdkafka is that of this system

system, place = sys.argv[1:3]
if system == "win32":
    from tests import other_system
sys.platform = system
vars(time).pop("CLOCK_BOOTTIME", None)

from safeproducer import ProducerIdLimitError, SafeProducer
from safeproducer.producer_ids import ledger_places, permit_record
from safeproducer.runtime import clock

assert clock._BOOT == getattr(time, "CLOCK_MONOTONIC", None)
ledger_places._MEMORY = place + "/memory"  # it is not there
permit_record._LINUX = place + "/missing"
config = {"bootstrap.servers": sys.argv[3], "log_level": 0, "safeproducer.producer.ids.per.hour": 1}
with SafeProducer({**config, "safeproducer.producer.ids.policy": "refuse"}) as producer:
    try:
        producer.produce("t", b"x")
    except ProducerIdLimitError:
        print("refused")
    else:
        assert producer.flush(30) == 0
        print("delivered")
"""


cluster = fake_cluster({"t": 1}, scope="module")


def run(system: str, place: Path, cluster: FakeCluster) -> str:
    """What becomes of the only record of a process on such a system, at one producer ID an hour."""
    taken_out = (LEDGER_VARIABLE, POLICY_VARIABLE, ledger_places.AUTO_VARIABLE)
    environment = {name: value for name, value in os.environ.items() if name not in taken_out}
    done = ran(
        [sys.executable, "-c", PROGRAM, system, str(place), cluster.bootstrap],
        env={**environment, "TMPDIR": str(place), "TEMP": str(place), "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert "counted by this process alone" not in done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_processes_share_a_ledger_in_the_temporary_directory(cluster: FakeCluster, tmp_path: Path, system: str) -> None:
    """There is no /dev/shm, as in most sandboxes for functions, no CLOCK_BOOTTIME and no boot ID of Linux.

    Windows has no users with numbers, either.
    """
    assert [run(system, tmp_path, cluster) for _ in range(2)] == ["delivered", "refused"]
    (directory,) = tmp_path.iterdir()
    assert directory.name == f"safeproducer-{os.geteuid() if system == 'darwin' else 0}"
    assert len(list(directory.iterdir())) == 1


def test_on_other_systems_each_process_counts_alone(cluster: FakeCluster, tmp_path: Path) -> None:
    """Nothing is written, and nothing is said."""
    assert [run("freebsd14", tmp_path, cluster) for _ in range(2)] == ["delivered", "delivered"]
    assert list(tmp_path.iterdir()) == []
