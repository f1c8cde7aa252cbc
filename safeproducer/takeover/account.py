"""The account of the records of a process under `safeproducer run`, told when the process ends.

Totals of producers that are gone are folded in. A forked child begins at zero. SIGKILL and os._exit() tell nothing.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any

from safeproducer.hooks import Hook, Throttled
from safeproducer.runtime import clock, forks, lifetime
from safeproducer.runtime.totals import Totals, added

MODE_VARIABLE, SUMMARY_VARIABLE = "SAFEPRODUCER_RUN_MODE", "SAFEPRODUCER_RUN_SUMMARY"
OBSERVE = "observe"
_COUNTS = ("accepted", "delivered", "unknown", "not_written", "producer_ids")
_LINE = (
    "safeproducer run: process {pid}, {mode}: {producers} producer(s), {accepted} accepted, {delivered} delivered, "
    "{unknown} unknown, {not_written} not written, {without_report} without a report; {producer_ids} producer ID(s); "
    "throttled for {throttled_seconds} s of {seconds} s"
)


class RunAccount(Hook):
    """Any thread. One for each process."""

    def __init__(self) -> None:
        self.renew()
        forks.in_child(self.renew)
        lifetime.at_end(self.tell)

    def renew(self) -> None:
        """In a child, which has made nothing yet."""
        self._began = clock.real()
        self._totals: Totals[str] = Totals(_counts)
        self._made, self._throttled, self._told = 0, 0.0, False

    def throttled(self, event: Throttled) -> None:
        self._throttled += event.seconds

    def _producer_began(self, engine: Any) -> None:
        self._made += 1
        self._totals.join(engine)

    def _producer_ended(self, engine: Any) -> None:
        self._totals.leave(engine)

    def totals(self) -> dict[str, Any]:
        found = added(dict.fromkeys(_COUNTS, 0), self._totals.now())
        without = found["accepted"] - found["delivered"] - found["unknown"] - found["not_written"]
        ids = found.pop("producer_ids")
        return {
            "pid": os.getpid(),
            "command": sys.orig_argv,
            "mode": os.environ.get(MODE_VARIABLE, OBSERVE),
            "producers": self._made,
            **found,
            "without_report": without,
            "producer_ids": ids,
            "throttled_seconds": round(self._throttled, 3),
            "seconds": round(clock.real() - self._began, 3),
        }

    def tell(self) -> None:
        """Write the summary: once, if there is something to tell."""
        if not self._made or self._told:
            return
        self._told = True
        found, path = self.totals(), os.environ.get(SUMMARY_VARIABLE)
        if path:
            try:
                with open(path, "ab", buffering=0) as file:  # one call: several processes append
                    file.write(json.dumps(found).encode() + b"\n")
                return
            except OSError as error:
                _say(f"safeproducer run: {path} cannot be written ({error.strerror}); so here:")
        _say(_LINE.format(**found))


def _counts(engine: Any) -> dict[str, int]:
    counters, failures = engine.counters, engine.failures
    accepted, delivered, _ = counters.totals()
    waiting = counters.written().total()  # and not polled
    counts = accepted, delivered + waiting, failures.unknown, failures.not_written, engine.gate.taken
    return dict(zip(_COUNTS, counts, strict=True))


def _say(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # it is closed, or there is none
        print(text, file=sys.__stderr__, flush=True)


account = RunAccount()
