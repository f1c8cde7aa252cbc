"""Fixtures of the wire tap."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.kafka.cluster import KafkaCluster
from integration.tap.tap import Tap


@pytest.fixture
def tap(kafka_tapped: KafkaCluster) -> Iterator[Tap]:
    """A fresh tap before `kafka_tapped`; clients reach the cluster through `kafka_tapped.bootstrap`."""
    with Tap(kafka_tapped) as tap:
        yield tap
