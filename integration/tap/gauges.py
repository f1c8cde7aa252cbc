"""Running numbers of the delivery counters: what is in flight, and how far a stream runs ahead."""

from dataclasses import dataclass, field

from integration.tap.seen import BatchSeen


class Gauge:
    """How many requests, batches and records are in flight, and the most there ever were."""

    def __init__(self) -> None:
        self.now = self.most = (0, 0, 0)

    def add(self, requests: int, batches: int, records: int) -> None:
        here = self.now[0] + requests, self.now[1] + batches, self.now[2] + records
        self.now, self.most = here, (max(here[0], self.most[0]), max(here[1], self.most[1]), max(here[2], self.most[2]))

    def values(self) -> tuple[int, int, int, int, int, int]:
        return (*self.now, *self.most)

    def restart(self) -> None:
        self.most = self.now


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
