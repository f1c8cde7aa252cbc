"""Test tools: an in-process Kafka cluster for any test suite. Needs the extra ``safeproducer[testing]``."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safeproducer.testing.fake.cluster import DEFAULT, FakeCluster
    from safeproducer.testing.fake.process import FakeClusterProcess
    from safeproducer.testing.fake.rules.producer_id_quota import ProducerIdUsage
    from safeproducer.testing.fake.rules.producer_state import AppendedBatch, ProducerEntry
    from safeproducer.testing.fake.rules.quotas import QuotaUsage
    from safeproducer.testing.fake.state.cluster_state import FakeClusterWarning, JournalBatch, JournalEntry
    from safeproducer.testing.produce import BatchHeader, StoredRecord

_MODULES = {
    "fake.cluster": ("DEFAULT", "FakeCluster"),
    "fake.process": ("FakeClusterProcess",),
    "fake.rules.producer_id_quota": ("ProducerIdUsage",),
    "fake.rules.producer_state": ("AppendedBatch", "ProducerEntry"),
    "fake.rules.quotas": ("QuotaUsage",),
    "fake.state.cluster_state": ("FakeClusterWarning", "JournalBatch", "JournalEntry"),
    "produce": ("BatchHeader", "StoredRecord"),
}
__all__ = [
    "DEFAULT",
    "AppendedBatch",
    "BatchHeader",
    "FakeCluster",
    "FakeClusterProcess",
    "FakeClusterWarning",
    "JournalBatch",
    "JournalEntry",
    "ProducerEntry",
    "ProducerIdUsage",
    "QuotaUsage",
    "StoredRecord",
]


def __getattr__(name: str) -> Any:
    # The wire format alone (used by a tap, say) should not cost the loading of a cluster.
    for module, names in _MODULES.items():
        if name in names:
            try:
                found = import_module(f"{__name__}.{module}")
            except ModuleNotFoundError as error:
                needs = f"FakeCluster needs the package {error.name}: pip install 'safeproducer[testing]'"
                raise ModuleNotFoundError(needs, name=error.name) from None
            return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
