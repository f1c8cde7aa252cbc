"""The brokers inside this process on which the demonstration runs when nobody names others."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from safeproducer.cli.common.connection import extra
from safeproducer.cli.demo.steps import BROKER_CONFIG

if TYPE_CHECKING:
    from safeproducer.testing import FakeCluster

BROKERS = 3


def embedded_cluster() -> "AbstractContextManager[FakeCluster]":
    """A FakeCluster, which starts when it is entered; Failure if what it needs is not installed."""
    with extra("the embedded brokers need", ", or name real brokers with --bootstrap-servers"):
        from safeproducer.testing import FakeCluster  # noqa: PLC0415 - kafka-python is an extra
    return FakeCluster(BROKERS, broker_config=BROKER_CONFIG)
