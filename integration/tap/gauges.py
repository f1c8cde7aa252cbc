"""Running numbers of the delivery counters: what is in flight, and how far a stream runs ahead."""

from dataclasses import dataclass, field

from integration.tap.seen import BatchSeen


@dataclass(slots=True)
class Gauge:
    """How much is in flight, and the most there ever was."""

    requests: int = 0
    batches: int = 0
    records: int = 0
    max_requests: int = 0
    max_batches: int = 0
    max_records: int = 0

    def add(self, requests: int, batches: int, records: int) -> None:
        self.requests += requests
        self.batches += batches
        self.records += records
        self.max_requests = max(self.max_requests, self.requests)
        self.max_batches = max(self.max_batches, self.batches)
        self.max_records = max(self.max_records, self.records)

    def values(self) -> tuple[int, int, int, int, int, int]:
        return (self.requests, self.batches, self.records, self.max_requests, self.max_batches, self.max_records)

    def restart(self) -> None:
        self.max_requests, self.max_batches, self.max_records = self.requests, self.batches, self.records


@dataclass(slots=True)
class Window:
    """The order of a stream's batches within one epoch, and which of them have no final answer."""

    epoch: int = -1
    newest: int = 0
    max_span: int = 0
    unresolved: dict[int, int] = field(default_factory=dict)

    def sent(self, batch: BatchSeen) -> None:
        if batch.epoch > self.epoch:
            # A raised epoch starts again at sequence 0: what the old one left open can never be resolved.
            self.epoch, self.unresolved = batch.epoch, {}
        if batch.epoch == self.epoch and batch.attempt == 1:
            self.newest += 1
            self.unresolved[batch.base_sequence] = self.newest
            self.max_span = max(self.max_span, self.span)

    def resolved(self, batch: BatchSeen) -> None:
        if batch.epoch == self.epoch:
            self.unresolved.pop(batch.base_sequence, None)

    @property
    def span(self) -> int:
        return self.newest - min(self.unresolved.values()) + 1 if self.unresolved else 0
