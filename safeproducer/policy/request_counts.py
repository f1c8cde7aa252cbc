"""Whether each batch of a lane became one request, from what librdkafka counts."""

from __future__ import annotations


class RequestCounts:
    """The sender's thread calls. `batches` that were handed over, and `splits`: how many requests more there were.

    `new`: librdkafka has counted nothing before; else its first counts are where this begins.
    """

    def __init__(self, new: bool = True) -> None:
        self.batches = self.splits = self._records = 0
        self._emptied_at = 0.0
        self._seen = (0, 0, 0, 0) if new else None

    def handed_over(self, records: int) -> None:
        """A batch of so many records."""
        self.batches += 1
        self._records += records

    def resolved(self, partitions: int, emptied_at: float | None) -> None:
        """A batch is; librdkafka made one for each of so many partitions of one that named none."""
        more = max(0, partitions - 1)
        self.batches += more
        self._emptied_at = emptied_at or self._emptied_at

    def observe(self, at: float, requests: int, sent: int) -> int:
        """The requests and records that were sent by then, while nothing is under way; how many splits that shows.

        Between two moments at which the lane was empty, each batch is one request; a retry sends its records again,
        which the count of sent records shows. Surplus requests with no record sent twice are therefore split batches.
        """
        if at <= self._emptied_at:  # may be of records, and not yet of their request
            return 0
        seen, self._seen = self._seen, (requests, sent, self.batches, self._records)
        if seen is None:
            return 0
        more_requests, more_sent, more_batches, more_records = (
            now - before for now, before in zip(self._seen, seen, strict=True)
        )
        if more_requests < 0 or more_sent != more_records:  # librdkafka forgot a broker's counts, or sent again
            return 0
        found = max(0, more_requests - more_batches)
        self.splits += found
        return found
