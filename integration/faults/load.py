"""Sends the records of a load at a rate through produce() and poll(), and watches what that costs."""

import os
import threading
import time
from pathlib import Path
from typing import Any

from integration.faults.account import Account
from integration.faults.records import Records

TICK = 0.005
FULL_WAIT = 0.05
SAMPLE_EVERY = 0.05
SERVED_EVERY = 20
PAGE = os.sysconf("SC_PAGE_SIZE")


class Load:
    """Records on their way through one producer of any class.

    `run` belongs to one thread, which alone calls the producer; everything else may be read by any thread. The last
    tenth waits for `fault_over`, so that every load also shows that its producer came back. When a full buffer has
    held the load up, it catches up as fast as it can.
    """

    def __init__(self, producer: Any, topic: str, records: Records, rate: float) -> None:
        self.producer = producer
        self.account = Account(records)
        self.fault_over = threading.Event()
        self.buffer_full = 0
        """How often produce() raised BufferError."""
        self.fatal: str | None = None
        """What a fatal error said; the load ends at once."""
        self.peak_outstanding = 0
        self.peak_rss = 0
        self.first_rss = 0
        self.seconds = 0.0
        self._topic = topic
        self.rate = rate
        self._sampled_at = 0.0

    @property
    def rss_growth(self) -> int:
        """Bytes of resident memory gained since the start, at most."""
        return self.peak_rss - self.first_rss

    def run(self, patience: float) -> None:
        """Send all records and wait for their reports: at most `patience` seconds after the last was accepted.

        Raises TimeoutError when the buffer stays full, or the fault goes on, for longer than that.
        """
        begun = time.monotonic()
        self.first_rss = self.peak_rss = _resident()
        try:
            self._send_all(begun, patience)
            deadline = time.monotonic() + patience
            while self.account.outstanding and time.monotonic() < deadline and self.fatal is None:
                self.producer.flush(0.1)
                self._sample()
        finally:
            self.seconds = time.monotonic() - begun

    def _send_all(self, begun: float, patience: float) -> None:
        count = self.account.records.count
        before_tail = count - count // 10
        index, moved_at = 0, begun
        while index < count and self.fatal is None:
            now = time.monotonic()
            due = min(int((now - begun) * self.rate) + 1, count if self.fault_over.is_set() else before_tail)
            if index >= due:
                self.producer.poll(TICK)
            elif self._send(index):
                index, moved_at = index + 1, now
                if index % SERVED_EVERY == 0:
                    self.producer.poll(0)
            else:
                self.producer.poll(FULL_WAIT)
            if now - moved_at > patience:
                raise TimeoutError(f"record {index} of {count} could not be sent for {patience:g} s")
            self._sample()

    def _send(self, index: int) -> bool:
        """False when the record must be tried again."""
        records = self.account.records
        place = {"key": records.key(index)} if records.keyed else {"partition": records.stream(index)}
        self.account.accept(index)
        try:
            self.producer.produce(self._topic, records.value(index), on_delivery=self.account.report, **place)
        except BufferError:
            self.account.take_back(index)
            self.buffer_full += 1
            return False
        except Exception as error:
            self.account.take_back(index, error)
            if error.args and getattr(error.args[0], "fatal", bool)():
                self.fatal = str(error)
        return True

    def _sample(self) -> None:
        self.peak_outstanding = max(self.peak_outstanding, self.account.outstanding)
        now = time.monotonic()
        if now - self._sampled_at >= SAMPLE_EVERY:
            self._sampled_at = now
            self.peak_rss = max(self.peak_rss, _resident())


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
