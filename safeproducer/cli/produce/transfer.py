"""Moves lines from a descriptor into a producer until one of them ends."""

from safeproducer.cli.common.feed import Feed
from safeproducer.cli.common.progress import Progress
from safeproducer.cli.common.tally import Tally
from safeproducer.cli.produce.lines import read_lines
from safeproducer.cli.produce.record_format import RecordFormat

TOO_LARGE = "MSG_SIZE_TOO_LARGE"


class Transfer:
    """One run of ``produce``: what was read so far, and why reading ended early, if it did.

    ``problem`` is None or a sentence about the input itself.
    """

    def __init__(self, feed: Feed, tally: Tally, form: RecordFormat, topic: str, limit: int) -> None:
        self._feed = feed
        self._tally = tally
        self._form = form
        self._topic = topic
        self._limit = limit
        self.bytes_read = 0
        self.problem: str | None = None

    def run(self, descriptor: int) -> None:
        """Read and send until the input ends, or sending has to end."""
        try:
            for line in read_lines(descriptor, limit=self._limit):
                if self._feed.ended():
                    return
                if line is None:
                    self._feed.serve()
                elif not self._send(line.number, line.data, line.size):
                    return
        except OSError as error:
            self.problem = (
                f"The input cannot be read any further ({error.strerror}), after line {self._tally.last_line}."
            )

    def show(self, progress: Progress, *, last: bool = False) -> None:
        """Draw how far the run is."""
        progress.update(self.bytes_read, self._tally.delivered, last=last)

    def _send(self, number: int, data: bytes | None, size: int) -> bool:
        """Send one line; False if it cannot be and the run is over."""
        if data is None:
            self._tally.accept(number, size)
            self._tally.refuse(
                number,
                TOO_LARGE,
                f"A line of {size:,} bytes is larger than message.max.bytes = {self._limit:,}: shorten it, or raise "
                "message.max.bytes with --config and max.message.bytes on the topic.",
            )
        else:
            record = self._form.split(data)
            if record is None:
                self.problem = (
                    f"Line {number} has no key separator, so the run ends before it: correct the line or "
                    "--key-separator."
                )
                return False
            key, value = record
            if not self._feed.send(number, self._topic, value, key, **self._form.options):
                return False
        self.bytes_read += size + 1
        return True
