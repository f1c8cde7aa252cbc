"""Sends records at a steady rate, so that a person can watch what happens."""

import time
from collections.abc import Callable, Iterator

from safeproducer.cli.demo.corpus import Entry
from safeproducer.cli.demo.experiment import Experiment
from safeproducer.cli.demo.proof import Report

_SLICE = 0.02


class StepSender:
    """One step's share of an experiment: it begins with the next record that is sent. ``first`` is its number."""

    def __init__(self, entries: Iterator[Entry], experiment: Experiment, timeout: float) -> None:
        self._entries = entries
        self._experiment = experiment
        self._timeout = timeout
        self.first = len(experiment.values)

    @property
    def end(self) -> int:
        """The number of the next record."""
        return len(self._experiment.values)

    @property
    def ended(self) -> bool:
        """Whether the run has to end."""
        return self._experiment.ended

    def send(self, records: int, rate: float, partition_of: Callable[[int], int]) -> None:
        """Send so many, ``rate`` a second, the n-th (from 0) to its partition. Ends early if the run has to end."""
        experiment, started = self._experiment, time.monotonic()
        for number in range(records):
            while (early := started + number / rate - time.monotonic()) > 0:
                experiment.serve(min(early, _SLICE))
            entry = next(self._entries, None)
            if entry is None or not experiment.send(entry, partition_of(number)):
                return

    def drain(self) -> None:
        """Wait for all acknowledgements."""
        self._experiment.drain(self._timeout)

    def rest(self, until: float) -> None:
        """Send nothing until this time, in seconds since the Unix epoch."""
        while (left := until - time.time()) > 0 and not self._experiment.ended:
            self._experiment.serve(min(left, _SLICE))

    def reports(self) -> list[Report]:
        """The reports of its delivered records so far."""
        experiment, found = self._experiment, []
        for number in range(self.first, self.end):
            partition, reported = experiment.fate(number).partition, experiment.reported_at[number]
            if partition is not None:
                found.append(Report(partition, reported - experiment.accepted_at[number], reported))
        return found
