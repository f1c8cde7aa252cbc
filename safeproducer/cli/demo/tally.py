"""Counts what became of each record."""

from collections.abc import Iterable
from dataclasses import dataclass

from safeproducer.kafka.advice import advice, is_permanent
from safeproducer.kafka.native import KafkaError

# After a deadline close() purges what is left. Such a record was given up by us, not refused by a broker.
_GIVEN_UP = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})


@dataclass(slots=True)
class ErrorCount:
    """One kind of failure and one sentence of advice."""

    code: str
    sentence: str
    count: int = 0


class Tally:
    """The account of one run, line by line, in memory bounded by the producer's own queue.

    sent = delivered + failed + left. Used by one thread: delivery reports arrive in its ``poll()``.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.delivered = 0
        self.failed = 0
        self.bytes_delivered = 0
        self.errors: dict[str, ErrorCount] = {}
        self.permanent: ErrorCount | None = None
        self._open: dict[int, int] = {}

    @property
    def left(self) -> int:
        """Records without a delivery report."""
        return len(self._open)

    @property
    def settled(self) -> int:
        """Records with a final result; grows as long as there is progress."""
        return self.delivered + self.failed

    def accept(self, line: int, size: int) -> None:
        """Count a record that is about to be handed to the producer."""
        self.sent += 1
        self._open[line] = size

    def withdraw(self, line: int) -> None:
        """Undo ``accept`` for a record that the producer had no room for."""
        self.sent -= 1
        del self._open[line]

    def refuse(self, line: int, code: str, sentence: str) -> None:
        """Count a record that was refused before it was sent."""
        self._open.pop(line, None)
        self._fail(code, sentence)

    def report(self, line: int, error: KafkaError | None) -> None:
        """Take the delivery report of a record."""
        if error is None:
            self.bytes_delivered += self._open.pop(line)
            self.delivered += 1
        elif error.name() not in _GIVEN_UP:
            del self._open[line]
            self._fail(error.name(), advice(error.name(), error.str()))

    def ranked_errors(self) -> Iterable[ErrorCount]:
        """Return the kinds of failure, the most frequent first."""
        return sorted(self.errors.values(), key=lambda error: -error.count)

    def _fail(self, code: str, sentence: str) -> None:
        self.failed += 1
        kind = self.errors.setdefault(code, ErrorCount(code, sentence))
        kind.count += 1
        if is_permanent(code):
            self.permanent = kind
