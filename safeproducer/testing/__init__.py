"""Test tools: an in-process Kafka cluster for any test suite. Needs the extra ``safeproducer[testing]``."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safeproducer.testing.fake.cluster import DEFAULT, FakeCluster
    from safeproducer.testing.fake.process import FakeClusterProcess
    from safeproducer.testing.fake.state.cluster_state import FakeClusterWarning

__all__ = ["DEFAULT", "FakeCluster", "FakeClusterProcess", "FakeClusterWarning"]


def __getattr__(name: str) -> Any:
    # The wire format alone (used by a tap, say) should not cost the loading of a cluster.
    if name in ("FakeCluster", "FakeClusterProcess"):
        try:
            from safeproducer.testing.fake import process  # noqa: PLC0415
            from safeproducer.testing.wire import find_schemas  # noqa: PLC0415

            find_schemas()  # else each connection would fail
        except ModuleNotFoundError as error:
            needs = f"FakeCluster needs the package {error.name}: pip install 'safeproducer[testing]'"
            raise ModuleNotFoundError(needs, name=error.name) from None
        return getattr(process, name)
    if name == "DEFAULT":
        from safeproducer.testing.fake.cluster import DEFAULT  # noqa: PLC0415

        return DEFAULT
    if name == "FakeClusterWarning":
        from safeproducer.testing.fake.state.cluster_state import FakeClusterWarning  # noqa: PLC0415

        return FakeClusterWarning
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
