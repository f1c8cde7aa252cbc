"""An import says in one sentence with which clients and interpreters the package cannot work."""

import sys
from typing import Any

import confluent_kafka
import pytest

from safeproducer import SafeProducer
from safeproducer.kafka import lane_client
from safeproducer.pipeline import engine
from tests.clusters import cluster_of
from tests.contract.support import ran


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("import confluent_kafka\nconfluent_kafka.__version__ = '2.12.4'", ["2.13.2 or newer, and this is 2.12.4"]),
        ("import confluent_kafka\nconfluent_kafka.__version__ = '2.13.1'", ["2.13.2 or newer, and this is 2.13.1"]),
        ("import sys\nsys._is_gil_enabled = lambda: False", ["free-threaded", "PYTHON_GIL=1"]),
    ],
)
def test_import_refuses_with_one_sentence(before: str, said: list[str]) -> None:
    """Below confluent-kafka 2.13.2 it would crash or leak, and without the interpreter lock counts would be wrong."""
    done = ran([sys.executable, "-c", f"{before}\nimport safeproducer"])
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: safeproducer ")
    assert [text for text in said if text not in done.stderr] == []


def test_client_without_cluster_id_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first question goes on to metadata, and cluster_id() names the version that has it."""
    asked: list[str] = []

    class Old(lane_client.NativeProducer):
        def list_topics(self, *args: Any) -> Any:
            asked.append(args[0])
            return super().list_topics(*args)

        def cluster_id(self, *_: Any) -> Any:
            raise AssertionError("asked for what there is not")

    for module in (lane_client, engine, sys.modules[SafeProducer.__module__]):
        monkeypatch.setattr(module, "KNOWS_CLUSTER_ID", False)
    with cluster_of({"t": 1}, 3) as cluster:
        assert lane_client.is_asked(Old({"bootstrap.servers": cluster.bootstrap}), "t", 5.0)
        producer = SafeProducer({"bootstrap.servers": cluster.bootstrap})
        with pytest.raises(AttributeError, match=rf"2\.16 or newer, and this is {confluent_kafka.__version__}"):
            producer.cluster_id(1)
        producer.produce("t", b"x")
        assert producer.close(10)
    assert asked == ["t"]
