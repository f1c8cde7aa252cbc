"""A running application: a process of its own with a topic, a journal of what it did, and an end that is judged."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from safeproducer.testing import FakeCluster

ROOT = Path(__file__).parents[2]
PATIENCE = 40.0
"""Seconds after which something that has not happened is taken for a hang; the machine may be busy."""
STOCK = "confluent_kafka:Producer"
SAFE = "safeproducer:SafeProducer"
DEFAULT_AND_HELD = pytest.mark.parametrize(
    ("classes", "settings"), [((STOCK, SAFE), {}), ((SAFE,), {"safeproducer.mode": "held"})], ids=["default", "held"]
)
"""Both classes with default settings, and SafeProducer with everything held back."""


@dataclass(frozen=True)
class Ended:
    """How a process ended: exit status (negative: the signal), seconds from being told to, what it printed."""

    status: int
    seconds: float
    output: str
    errors: str


class Application:
    """Started by construction, as `python -m command...`. The leader of its topic is that of no other application's."""

    def __init__(
        self,
        command: Sequence[str],
        producer: str,
        folder: Path,
        topic: str,
        settings: Mapping[str, Any],
        environment: Mapping[str, str],
        leader: int,
    ) -> None:
        folder.mkdir(parents=True)
        self.folder, self.topic, self.producer = folder, topic, producer
        self.leader = leader
        self._journal = folder / "journal"
        self._output, self._errors = folder / "output", folder / "errors"
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-m", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=ROOT,
                start_new_session=True,  # all of its processes can be ended with it
                env={
                    **os.environ,
                    "PYTHONFAULTHANDLER": "1",
                    "APPLICATION_FOLDER": str(folder),
                    "APPLICATION_PRODUCER": producer,
                    "APPLICATION_SETTINGS": json.dumps(settings),
                    "APPLICATION_TOPIC": topic,
                    **environment,
                },
            )

    # --- driving ---------------------------------------------------------------------------------------------------

    def wait(self, happened: Callable[[], Any], what: str, timeout: float = PATIENCE) -> Any:
        """The first true value of `happened()`; fails when there is none in time, or the process ended before."""
        deadline = time.monotonic() + timeout
        while True:
            ended = self.process.poll() is not None
            if found := happened():
                return found
            if ended or time.monotonic() > deadline:
                raise AssertionError(
                    f"{what}: {'the process ended' if ended else f'not in {timeout} s'}\n{self._told()}"
                )
            time.sleep(0.01)

    def has(self, did: str, times: int = 1) -> None:
        """Wait until the journal has so many lines of this kind."""
        self.wait(lambda: len(self.lines(did)) >= times, f"{times} x {did!r}")

    def step(self, name: str) -> None:
        """Let the program go on that waits for this."""
        (self.folder / name).touch()

    def address(self) -> str:
        """Where its server listens, as the server's log says."""
        found = self.wait(lambda: re.search(r"http://(127\.0\.0\.1:\d+)", self._text()), "an address in the log")
        return str(found[1])

    def post(self, path: str) -> tuple[int, str]:
        """(status, body) of a request to its server."""
        connection = http.client.HTTPConnection(self.address(), timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request("POST", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self, within: float = PATIENCE) -> Ended:
        """Wait for its end, which has to come in time. A process that hangs tells where."""
        began = time.monotonic()
        try:
            status = self.process.wait(within)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGABRT)
            self.process.wait()
            raise AssertionError(f"it has not ended within {within} s\n{self._told()}") from None
        return Ended(status, time.monotonic() - began, self._output.read_text(), self._errors.read_text())

    def stop(self, number: signal.Signals = signal.SIGTERM, within: float = PATIENCE) -> Ended:
        """Send a signal, and wait for the end."""
        self.send(number)
        return self.ends(within)

    def ends_well(self, by: signal.Signals | None = None, within: float = PATIENCE, *, silent: bool = False) -> None:
        """By itself or by a signal: with status 0 and no traceback, or without a word."""
        ended = self.ends(within) if by is None else self.stop(by, within)
        assert ended.status == 0, ended.errors
        assert "Traceback" not in ended.errors
        assert not (silent and ended.errors)

    def kill(self) -> None:
        """End what is left of it and its children, whatever state they are in."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    # --- what it did -----------------------------------------------------------------------------------------------

    def lines(self, did: str) -> list[dict[str, Any]]:
        """Lines of the journal of one kind, oldest first."""
        if not self._journal.exists():
            return []
        whole = self._journal.read_text().rpartition("\n")[0].splitlines()
        return [line for line in map(json.loads, whole) if line["did"] == did]

    def values(self, did: str) -> Counter[str]:
        return Counter(line["value"] for line in self.lines(did))

    def log(self, cluster: FakeCluster) -> Counter[str]:
        """How often each value is in the topic."""
        return Counter(record.value.decode() for record in cluster.log(self.topic) if record.value is not None)

    def _text(self) -> str:
        return self._output.read_text() + self._errors.read_text()

    def _told(self) -> str:
        return f"{self.producer}, {self.folder}\n{self._text()[-6000:]}"
