"""The messages that a test gets by Python's warnings, because its client cannot tell."""

__all__ = ["FakeClusterWarning"]


class FakeClusterWarning(UserWarning):
    """A client asks for what FakeCluster does not have, or the process has no room for its connection.

    Where warnings are errors it is raised with whatever else went wrong inside the cluster: at the end of the ``with``
    block, or by ``reset()``.
    """
