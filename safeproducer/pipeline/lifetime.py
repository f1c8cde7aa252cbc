"""Producers that are alive: what happens to them at fork, at garbage collection and at interpreter exit."""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import warnings
import weakref
from typing import Any, Protocol

from safeproducer.hooks import Hooks, RecordsLost
from safeproducer.pipeline.ledger import Ledger
from safeproducer.pipeline.observed import ObservedSend
from safeproducer.records import ProducerInfo

logger = logging.getLogger("safeproducer")


class Survivor(Protocol):
    """What this module needs of a producer."""

    def _become_forked(self) -> None: ...
    def _report_loss(self, reason: str) -> None: ...


_alive: weakref.WeakSet[Any] = weakref.WeakSet()


def enrol(producer: Survivor) -> None:
    _alive.add(producer)


def make_immortal(native: object) -> None:
    """Never destroy `native` in this process.

    In a forked child librdkafka's threads do not exist, and its destructor would wait for them for ever.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(native))


def report_loss(
    reason: str, ledger: Ledger, info: ProducerInfo, hooks: Hooks, observed: ObservedSend | None, queued: int
) -> None:
    """Say that records without a report are gone, on every channel there is: warning, log and hook."""
    unresolved, _ = ledger.outstanding(queued)
    if unresolved <= 0:
        return
    text = (
        f"{unresolved} record(s) accepted by a SafeProducer made at {info.site} were lost at {reason}: they have no "
        f"delivery report and are of unknown outcome. Call flush() or close() before letting the producer go."
    )
    logger.error(text)
    hooks.call("records_lost", RecordsLost(info, reason, unresolved, tuple(observed.open) if observed else ()))
    warnings.warn(text, ResourceWarning, stacklevel=3)


def _after_fork_in_child() -> None:
    for producer in list(_alive):
        producer._become_forked()


def _at_exit() -> None:
    # Locks of threads that are gone must not block the exit, so nothing here waits.
    for producer in list(_alive):
        producer._report_loss("interpreter exit")


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
