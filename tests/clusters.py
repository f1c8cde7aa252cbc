"""FakeClusters with topics: one line where a test or a module needs one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from safeproducer.testing import FakeCluster


@contextmanager
def cluster_of(topics: Mapping[str, int], brokers: int = 1, **options: Any) -> Iterator[FakeCluster]:
    """A cluster with these topics: names, and numbers of partitions."""
    with FakeCluster(brokers, **options) as cluster:
        for topic, partitions in topics.items():
            cluster.create_topic(topic, partitions)
        yield cluster


def fake_cluster(topics: Mapping[str, int], *, brokers: int = 1, scope: str = "function", **options: Any) -> Any:
    """A fixture of the name that it is assigned to: a cluster as `cluster_of` makes it."""

    @pytest.fixture(scope=scope)  # type: ignore[call-overload, untyped-decorator, unused-ignore]
    def cluster() -> Iterator[FakeCluster]:
        with cluster_of(topics, brokers, **options) as made:
            yield made

    return cluster
