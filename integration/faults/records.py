"""The records of a load: each has a value of its own, from which it can be told again."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Records:
    """`count` records, dealt out in turn to `streams` streams; within a stream they are numbered from 0.

    A stream is what must keep its order: a partition, or a key when `keyed`. `producer` tells loads apart that write
    to the same topic. A value is `producer/stream/number` and padding up to `size` bytes.
    """

    count: int = 20_000
    streams: int = 6
    keyed: bool = False
    size: int = 100
    producer: str = "a"

    def stream(self, index: int) -> int:
        return index % self.streams

    def number(self, index: int) -> int:
        return index // self.streams

    def value(self, index: int) -> bytes:
        name = b"%s/%d/%d/" % (self.producer.encode(), self.stream(index), self.number(index))
        return name.ljust(self.size, b".")

    def key(self, index: int) -> bytes | None:
        """The key of a record, None unless the load is keyed."""
        return b"key-%d" % self.stream(index) if self.keyed else None

    def index(self, value: bytes | None) -> int | None:
        """The record that has this value; None for a value that is of no record of this load, or damaged."""
        try:
            _, stream, number, _ = (value or b"").split(b"/")
            found = int(number) * self.streams + int(stream)
        except ValueError:
            return None
        return found if 0 <= found < self.count and self.value(found) == value else None
