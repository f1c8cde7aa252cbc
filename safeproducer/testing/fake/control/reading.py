"""Reads the logs, the brokers' memory of producers, and the requests."""

import time
from collections.abc import Callable
from typing import Self

from safeproducer.testing.fake.control.runtime import Runtime
from safeproducer.testing.fake.rules.producer_state import ProducerEntry
from safeproducer.testing.fake.rules.records import StoredRecord, read_records
from safeproducer.testing.fake.state.journal import JournalEntry
from safeproducer.testing.produce import BatchHeader

__all__ = ["Reading"]


class Reading(Runtime):
    """Shows a test what the cluster holds."""

    def batches(self, topic: str, partition: int = 0) -> list[BatchHeader]:
        """The batches in the log, oldest first, by their headers."""
        return [header for header, _ in self._stored(topic, partition)]

    def log(self, topic: str, partition: int = 0) -> list[StoredRecord]:
        """All records in the log, unpacked. Raises WireError for a batch that holds none."""
        return [record for header, data in self._stored(topic, partition) for record in read_records(header, data)]

    def _stored(self, topic: str, partition: int) -> list[tuple[BatchHeader, bytes]]:
        def work() -> list[tuple[BatchHeader, bytes]]:
            return self._partition(topic, partition).log.batches()

        return self._call(work)

    def producer_state(self, topic: str, partition: int = 0, *, broker: int | None = None) -> dict[int, ProducerEntry]:
        """The producers that a replica (default: the leader) remembers, by producer ID, right now; copies."""

        def work() -> dict[int, ProducerEntry]:
            found = self._partition(topic, partition)
            replica = found.leader if broker is None else broker
            if replica not in found.states:
                raise ValueError(f"broker: {replica} has no replica of {topic}-{partition}, only {found.replicas} have")
            return self._state.producers(found, self._broker(replica)).entries()

        return self._call(work)

    def journal(self, api: str | None = None, *, broker: int | None = None) -> list[JournalEntry]:
        """The newest 200 000 requests, oldest first, all or those of one API or broker."""
        entries = self._call(lambda: list(self._state.journal))
        return [entry for entry in entries if api in (None, entry.api) and broker in (None, entry.broker)]

    def wait(self, happened: Callable[[Self], bool], timeout: float = 10) -> None:
        """Return when ``happened(cluster)`` is true. Raises TimeoutError after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while not happened(self):
            if time.monotonic() > deadline:
                raise TimeoutError(f"it did not happen within {timeout} s")
            time.sleep(0.002)
