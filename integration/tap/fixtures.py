"""Fixtures of the wire tap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from integration.tap.tap import Tap

if TYPE_CHECKING:
    # This file is loaded for every test run, also for those that need no cluster.
    from integration.kafka.cluster import KafkaCluster


@pytest.fixture
def tap(kafka_tapped: KafkaCluster) -> Iterator[Tap]:
    """A fresh tap before `kafka_tapped`; clients reach the cluster through `kafka_tapped.bootstrap`."""
    with Tap(kafka_tapped) as tap:
        yield tap
