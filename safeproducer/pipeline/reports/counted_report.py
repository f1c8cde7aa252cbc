"""The report of records whose application asks for errors alone: those that are delivered need only be counted.

So a batch lane keeps a number instead of their messages, and poll() counts them in one step.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol


class Delivered(Protocol):
    """Where they are counted."""

    delivered: int


class Account(Protocol):
    """Of a topic."""

    def placed(self, partition: int) -> Delivered:
        """Records of that partition for which the caller named none."""
        ...


class CountedReport(partial[Any]):
    """Called, it is the report of one record. `offset_proves` as in delivery_counters.Reporting."""

    account: Account
    offset_proves: bool
